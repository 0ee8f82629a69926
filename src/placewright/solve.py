"""Solve a problem: bounds, heuristics, search and proof, merged into one verified result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from types import FrameType, MappingProxyType

import numpy as np

from placewright.ahead import compiling_ahead
from placewright.algorithm import Algorithm, Budget, OnProgress, Progress, ignore
from placewright.bounds import BOUNDS
from placewright.bounds.feasibility import why_infeasible
from placewright.coarsen import block_groups, chains, contract
from placewright.errors import InvalidInput, PlacewrightError
from placewright.evaluate import plan_for
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.solvers import SOLVERS
from placewright.solvers.entry import Entry
from placewright.strategy import STRATEGIES
from placewright.verify import verify

__all__ = ["COARSENINGS", "COMPILER_CALLBACK", "UnsoundPlan", "heard_while_compiling", "solve"]

CONSTRUCTING = 0.1
"""Share of the budget after which no further constructive heuristic is begun, when there is a plan."""

COARSENINGS: Mapping[str, Callable[[Problem], Sequence[Sequence[int]]]] = MappingProxyType(
    {"none": lambda problem: (), "chains": chains, "blocks": lambda problem: block_groups(problem.graph)}
)
"""Ways to coarsen a problem, each with the groups that it makes."""

COMPILER = "_compile_for_args"
"""What numba is in while it compiles what Python has called."""

COMPILER_CALLBACK = "_raw_object_cache_notify"
"""Where llvmlite is called back by LLVM."""

COARSE_SHARE = 0.5
"""Of the budget: for the coarse problem; the rest is for improving on its plan operator by operator."""


class UnsoundPlan(PlacewrightError):
    """A solver's plan failed the independent check: a defect of placewright, not of the input."""

    exit_code = 1


def solve(
    problem: Problem,
    *,
    solver: str = "auto",
    budget: float | Budget = 60.0,
    seed: int = 0,
    on_progress: OnProgress = ignore,
    given: Mapping[str, Entry] = MappingProxyType({}),
    coarsen: str = "none",
    start: Plan | None = None,
) -> Result:
    """Find a plan and prove how far from the best it can be.

    Parameters
    ----------
    problem : Problem
    solver : str
        ``auto``, or a name in ``placewright solvers``. A single one runs beside the bounds; those that improve on a
        plan start from the best constructive one.
    budget : float or Budget
        Seconds of wall clock, less those in which kernels are compiled (each once per installation, when it is first
        needed; other processes compile ahead meanwhile). Ctrl-C ends the search early and returns the best plan so
        far; while kernels of the first plan are compiled it is a ``KeyboardInterrupt``.
    seed : int
        Recorded in the plan.
    on_progress : callable
        Called with a :class:`placewright.Progress` whenever value or bound moves.
    given : mapping of str to Entry
        Solvers besides those of ``placewright solvers``, or in place of theirs: ``expert`` with its placement.
    coarsen : {"none", "chains", "blocks"}
        What is placed as one at first, for half of the budget; then the plan is improved operator by operator. Under
        the makespan only. Bounds are always those of the problem itself.
    start : Plan, optional
        A plan to improve on, as the alternative ``given``; one that breaks a rule of the problem is passed over.

    Returns
    -------
    Result
        ``require_plan()`` gives the plan; infeasible and out-of-budget are statuses.

    Raises
    ------
    InvalidInput
        If the solver or the coarsening is unknown, or can't take this problem.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (2,), 8)])
    >>> pair = Cluster([Device("gpu"), Device("cpu")], [Link(1e-3, 1e9, link_class="same-host")])
    >>> result = solve(Problem(graph, pair, [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]), budget=5)
    >>> result.value_s, result.status.value  # a and c on the GPU while b runs on the CPU
    (2.0, 'optimal')
    """
    clock = budget if isinstance(budget, Budget) else Budget(float(budget))
    solvers = {**SOLVERS[problem.objective.name], **given}
    if solver != "auto" and solver not in solvers:
        raise InvalidInput(
            f"solver {solver!r} is unknown for the objective {problem.objective.name}; "
            f"use auto or one of {', '.join(solvers)}"
        )
    if coarsen not in COARSENINGS:
        raise InvalidInput(f"coarsening {coarsen!r} is unknown; use one of {', '.join(COARSENINGS)}")
    entry = None if solver == "auto" else solvers[solver]
    shown: list[Progress] = []

    def showing(progress: Progress) -> None:
        shown.append(progress)
        on_progress(progress)

    with heard_while_compiling(), compiling_ahead(problem.objective.name), _interruptible(clock, shown):
        best = _bounded(problem, clock, seed)
        if best.infeasible:
            return replace(best, runtime_s=clock.elapsed_s)
        if start is not None:
            best = best.merge(_given(problem, start))
        if coarsen != "none":
            best = best.merge(_coarsely(problem, coarsen, entry, best, clock, seed, showing))
        best = _fine(problem, best, entry, solver, clock, seed, showing)
    best = replace(best, runtime_s=clock.elapsed_s, interrupted=clock.cancelled.is_set())
    return _checked(problem, best, seed)


def _given(problem: Problem, start: Plan) -> Result:
    """Judge a plan that the user has."""
    kept = plan_for(
        problem,
        start.device_of,
        schedule=start.schedule,
        replicas=start.replicas,
        call_of=start.call_of,
        copies=start.copies,
    )
    return Result(kept, solver="given", alternatives={"given": inf if kept is None else kept.value_s})


def _fine(
    problem: Problem,
    best: Result,
    entry: Entry | None,
    solver: str,
    clock: Budget,
    seed: int,
    on_progress: OnProgress,
) -> Result:
    """Run one solver, or the strategy's, from the best plan there is."""
    if entry is None:
        return _auto(problem, best, clock, seed, on_progress)
    why_not = entry.supports(problem)
    if why_not is not None:
        raise InvalidInput(f"solver {solver!r} can't take this problem: {why_not}")
    start = None if entry.starts_afresh else best.merge(_constructed(problem, clock, seed)).plan
    return best.merge(_run(entry.algorithm, problem, start, clock, seed, _beside(best, on_progress)))


def _beside(best: Result, on_progress: OnProgress) -> OnProgress:
    """Report a solver's progress together with what is known already, also from its own earlier reports."""
    known = [best.value_s, best.lower_bound_s]

    def report(progress: Progress) -> None:
        known[:] = min(progress.value_s, known[0]), max(progress.lower_bound_s, known[1])
        on_progress(replace(progress, value_s=known[0], lower_bound_s=known[1]))

    return report


def _coarsely(
    problem: Problem,
    way: str,
    entry: Entry | None,
    bounds: Result,
    clock: Budget,
    seed: int,
    on_progress: OnProgress,
) -> Result:
    """Solve the coarse problem and expand its plan. Nothing that is proved of it holds for the problem itself."""
    coarse = contract(problem, COARSENINGS[way](problem))
    small = coarse.problem
    part = clock.share(COARSE_SHARE)
    if len(small.graph) == len(problem.graph) or (entry is not None and entry.supports(small) is not None):
        return Result()

    def merging(progress: Progress) -> None:
        elapsed_s, bound = clock.elapsed_s, min(bounds.lower_bound_s, progress.value_s)
        on_progress(Progress(f"{way}: {progress.solver}", progress.value_s, bound, elapsed_s))

    found = _bounded(small, part, seed)
    if not found.infeasible:
        found = _fine(small, found, entry, "", part, seed, merging)
    plan = None if found.plan is None else coarse.expand(found.plan)
    if plan is None:
        return Result()
    return Result(plan, solver=found.solver, alternatives={f"{way} as one": plan.value_s})


def _bounded(problem: Problem, clock: Budget, seed: int) -> Result:
    """Reasons of infeasibility and the quick lower bounds."""
    best = Result(infeasible=why_infeasible(problem))
    for bound in BOUNDS[problem.objective.name].values():
        if not best.infeasible:
            best = best.merge(_run(bound, problem, None, clock, seed, ignore))
    return best


def _auto(problem: Problem, best: Result, clock: Budget, seed: int, on_progress: OnProgress) -> Result:
    """Run the constructive heuristics, then the strategy's stages until the gap is closed."""

    def report(result: Result, name: str) -> None:
        on_progress(Progress(name, result.value_s, result.lower_bound_s, clock.elapsed_s))

    reported = [float("inf"), -1.0]

    def merging(progress: Progress) -> None:
        value = min(progress.value_s, best.value_s, reported[0])
        bound = max(progress.lower_bound_s, best.lower_bound_s, reported[1])
        if value < reported[0] or bound > reported[1]:
            reported[:] = value, bound
            on_progress(replace(progress, value_s=value, lower_bound_s=bound, elapsed_s=clock.elapsed_s))

    best = best.merge(_constructed(problem, clock, seed))
    report(best, best.solver)
    for stage in STRATEGIES[problem.objective.name].stages(problem, best):
        if best.gap <= OPTIMALITY_TOLERANCE or clock.spent:
            break
        part = clock.share(stage.share, at_most_s=stage.at_most_s)
        found = _run(stage.algorithm, problem, best.plan, part, seed, merging)
        if stage.named:
            found = replace(found, alternatives={**found.alternatives, stage.named: found.value_s})
        best = best.merge(found)
        report(best, best.solver)
    return best


def _constructed(problem: Problem, clock: Budget, seed: int) -> Result:
    """Return the best of the quick heuristics, the others among its alternatives.

    On large problems the first of them are enough: the search has a use for the time.
    """
    best, begun = Result(), clock.elapsed_s
    for name in STRATEGIES[problem.objective.name].constructive:
        late = clock.elapsed_s - begun > CONSTRUCTING * clock.seconds
        if best.plan is not None and (late or clock.cancelled.is_set()):
            break
        found = _run(SOLVERS[problem.objective.name][name].algorithm, problem, None, clock, seed, ignore)
        named = {} if name == "single-device" else {name: found.value_s}
        best = best.merge(replace(found, alternatives={**found.alternatives, **named}))
    return replace(best, rejected_s=inf, rejected="")  # a baseline's, not the search's


def _run(
    algorithm: Algorithm,
    problem: Problem,
    incumbent: Plan | None,
    clock: Budget,
    seed: int,
    on_progress: OnProgress,
) -> Result:
    rng = np.random.default_rng(seed)
    return algorithm(problem, budget=clock, rng=rng, incumbent=incumbent, on_progress=on_progress)


def _checked(problem: Problem, result: Result, seed: int) -> Result:
    """Record seed and version; let the independent checker have its say."""
    if result.plan is None:
        return result
    from placewright import __version__

    provenance = replace(result.plan.provenance, seed=seed, version=__version__)
    result = replace(result, plan=replace(result.plan, provenance=provenance))
    broken = verify(problem, result.require_plan())
    if broken:
        raise UnsoundPlan(f"the plan of solver {result.solver!r} failed the independent check: {'; '.join(broken[:3])}")
    return result


@contextmanager
def _interruptible(budget: Budget, shown: Sequence[Progress]) -> Iterator[None]:
    """Make the first Ctrl-C cancel the budget; a second one interrupts as usual.

    While nothing was shown and kernels are compiled the first one interrupts, too: there is no plan to wait for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        if not shown and _within(frame, COMPILER):
            _interrupt(frame)
        else:
            budget.cancelled.set()

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def heard_while_compiling() -> Iterator[None]:
    """Make Ctrl-C a ``KeyboardInterrupt`` also where the compiler calls back.

    An exception that is raised there is printed and dropped, and what it broke is reported in its place. So it is
    raised a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: _interrupt(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(frame: FrameType | None) -> None:
    if not _within(frame, COMPILER_CALLBACK):
        raise KeyboardInterrupt
    threading.Timer(0.02, signal.raise_signal, (signal.SIGINT,)).start()


def _within(frame: FrameType | None, function: str) -> bool:
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None
