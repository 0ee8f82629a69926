"""Several solvers side by side on one problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from placewright.algorithm import OnProgress, Progress, ignore
from placewright.bounds import BOUNDS, PROOFS
from placewright.errors import InvalidInput
from placewright.problem import Problem
from placewright.result import Result
from placewright.solve import solve
from placewright.solvers import SOLVERS
from placewright.solvers.entry import Entry
from placewright.units import format_seconds

__all__ = ["best_of", "catalogue_of_solvers", "check_expert", "compare", "known_solvers", "left_out", "without_plan"]


def compare(
    problem: Problem,
    solvers: Sequence[str] | None = None,
    *,
    budget_s: float = 10.0,
    seed: int = 0,
    on_progress: OnProgress = ignore,
    given: Mapping[str, Entry] = MappingProxyType({}),
    coarsen: str = "none",
) -> list[tuple[str, Result]]:
    """Run each solver with the same budget and seed; every result then carries the best bound that any of them proved.

    Parameters
    ----------
    solvers : sequence of str, optional
        By default every one that supports the problem, and ``auto``.
    given : mapping of str to Entry
        Solvers besides the registered ones, or in place of theirs; see :func:`placewright.solve`.
    coarsen : str
        What each places as one at first; see :func:`placewright.solve`.

    Interrupted, the rows so far are returned, with that of the solver that was running.

    Raises
    ------
    InvalidInput
        If a solver is unknown, or can't take the problem and was asked for by name.
    """
    if solvers is None:
        here = {**SOLVERS[problem.objective.name], **given}
        solvers = [n for n, s in here.items() if s.supports(problem) is None] + ["auto"]
    solvers = known_solvers(solvers)
    rows: list[tuple[str, Result]] = []
    for name in solvers:
        on_progress(Progress(name, float("inf"), _bound(rows), 0.0))
        try:
            found = solve(
                problem,
                solver=name,
                budget=budget_s,
                seed=seed,
                on_progress=on_progress,
                given=given,
                coarsen=coarsen,
            )
        except KeyboardInterrupt:
            if not rows:
                raise
            found = Result(interrupted=True)  # between two searches: what the others found is kept
        rows.append((name, found))
        if found.interrupted:
            break
    return [(name, replace(r, lower_bound_s=_bound(rows))) for name, r in rows]


def _bound(rows: Sequence[tuple[str, Result]]) -> float:
    return max((r.lower_bound_s for _, r in rows), default=0.0)


def left_out(
    problem: Problem, rows: Sequence[tuple[str, Result]], given: Mapping[str, Entry] = MappingProxyType({})
) -> dict[str, str]:
    """Return of each solver that :func:`compare` leaves out by itself the reason, by name.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> cpu = Problem(OperatorGraph([Operator("a")]), Cluster([Device("c", "cpu")]), [[1.0]], "max-load")
    >>> left_out(cpu, compare(cpu, ["ideal-dp"]))["scotch"]
    'it splits among accelerators, and there are none'
    """
    here = {**SOLVERS[problem.objective.name], **given}
    run = {name for name, _ in rows}
    reasons = {name: entry.supports(problem) for name, entry in here.items() if name not in run}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def known_solvers(names: Sequence[str]) -> list[str]:
    """Strip names of solvers and drop repeated ones.

    Raises
    ------
    InvalidInput
        With every name that is neither ``auto`` nor in ``placewright solvers``.

    Examples
    --------
    >>> known_solvers(["heft", " etf", "heft"])
    ['heft', 'etf']
    """
    stripped = list(dict.fromkeys(name.strip() for name in names))
    known = dict.fromkeys(name for solvers in SOLVERS.values() for name in solvers)
    unknown = [repr(name) for name in stripped if name != "auto" and name not in known]
    if unknown:
        what = f"solver {unknown[0]} is" if len(unknown) == 1 else f"solvers {', '.join(unknown)} are"
        raise InvalidInput(f"{what} unknown; use auto or some of {', '.join(known)}")
    return stripped


def check_expert(solver: str, expert: object) -> None:
    """Refuse a file for ``expert`` where another solver is asked for, which would not look at it, and the reverse.

    Raises
    ------
    InvalidInput
        That says what to add.
    """
    if expert is not None and solver != "expert":
        raise InvalidInput("--expert is the placement that --solver expert judges; add that, or use 'compare'")
    if expert is None and solver == "expert":
        raise InvalidInput("--solver expert judges a placement that is given; add --expert SPLIT.json")


def best_of(rows: Sequence[tuple[str, Result]]) -> Result:
    """Return the result with the best plan; without any plan, one that says why there can be none if one does."""
    results = [r for _, r in rows]
    return min(results, key=lambda r: (r.value_s, not r.infeasible))


def without_plan(result: Result, budget: str) -> str:
    """Say why a result has no plan, and what to do; ``budget`` as the user gave it."""
    if result.infeasible:
        return result.infeasible
    if result.rejected:
        worth = f" ({format_seconds(result.rejected_s)})" if result.rejected_s < float("inf") else ""
        return f"what the solver ended with{worth} is no plan: {result.rejected}"
    if result.interrupted:
        return "interrupted before a plan was found; let it run longer"
    return f"no plan was found within --budget {budget}; give more time, allow more devices or raise their memory"


def catalogue_of_solvers() -> list[tuple[str, str, str]]:
    """Name, kind and summary of every solver and bound, the objectives first that it is for."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for objective, solvers in SOLVERS.items():
        for name, s in solvers.items():
            rows.setdefault((name, "exact" if s.exact else "heuristic", s.summary), []).append(objective)
    for objective in BOUNDS:
        for name, bound in {**BOUNDS[objective], **PROOFS[objective]}.items():
            summary = (bound.__doc__ or "").strip().splitlines()[0].rstrip(".")
            rows.setdefault((name, "bound", summary), []).append(objective)
    return [(name, kind, f"{', '.join(objectives)}: {summary}") for (name, kind, summary), objectives in rows.items()]
