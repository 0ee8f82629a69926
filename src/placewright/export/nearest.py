"""The plan nearest to a plan among those that a target has words for: whole modules, in rows, on known devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.export.apart import apart_of, less_apart, some_apart
from placewright.export.modules import Unit, main_stack, unit_of_operators, units_of
from placewright.export.row_search import best_row
from placewright.graph import OperatorGraph
from placewright.objective import MaxLoad, Throughput
from placewright.one_copy import one_copy
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Status
from placewright.solve import solve
from placewright.solvers.chain_split import placed
from placewright.units import format_seconds

__all__ = ["Nearest", "Rules", "Stage", "as_it_is", "nearest"]

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a target can say of a placement.

    Attributes
    ----------
    target : str
        Its name.
    words : str
        How it says a placement: completes "... can say this plan only by".
    ordered : bool
        Whether each device takes modules that follow each other, once; else any modules.
    ends : bool
        Whether modules before the first layer and after the last may be elsewhere than those two.
    cpus : {"anywhere", "home", "nowhere"}
        Where devices of kind ``cpu`` may stand in the row. ``home``: that of the machine on which the program runs
        stands first, those of other hosts anywhere, and others of its host nowhere.
    unit : {"module", "operator"}
        What is placed.
    one_host : bool
        Whether all devices are of one host.
    one_accelerator : bool
        Whether one device at most is of another kind than ``cpu``, and one CPU.
    embedding_on_cpu : bool
        Whether what stands before the first layer is on the CPU of the machine on which the program runs.
    pipelined : bool
        Whether devices work on several samples at once, so that a time per sample in steady state is reached.
    tied_twice : bool
        Whether the first and the last device each hold weights that the two share.
    apart : regular expression or None
        Of operators that may be on that CPU wherever their module is, all of a module's together.
    together : tuple of regular expressions
        Modules whose paths one of them matches, with the same groups, share a device.
    """

    target: str
    words: str
    ordered: bool = True
    ends: bool = True
    cpus: Literal["anywhere", "home", "nowhere"] = "anywhere"
    unit: Literal["module", "operator"] = "module"
    one_host: bool = False
    one_accelerator: bool = False
    embedding_on_cpu: bool = False
    pipelined: bool = True
    tied_twice: bool = True
    apart: re.Pattern[str] | None = None
    together: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Devices that a plan may use; of them the CPU of the machine on which the program runs, or -1."""

    devices: tuple[int, ...]
    home: int = -1

    @property
    def first_only(self) -> tuple[int, ...]:
        return (self.home,) if self.home >= 0 else ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A device and the modules that it has, in their order."""

    device: int
    units: tuple[Unit, ...]


@dataclass(frozen=True, eq=False)
class Nearest:
    """A plan that a target can say.

    Attributes
    ----------
    problem : Problem
        That it was judged on: the given one, less what the target knows nothing of.
    plan : Plan
    stages : tuple of Stage
        Runs of modules on one device, in the order of the network.
    changed : bool
        Whether it is another plan than the given one.
    exact : bool
        Whether no other plan that the target can say is better.
    loss : str
        What saying it so costs, in a sentence; empty when nothing was changed.
    held_twice_bytes : int
        Of weights that the target holds once more than the network has them.
    home : int
        The CPU of the machine on which the program runs, where the target has one such; else -1.
    """

    problem: Problem
    plan: Plan
    stages: tuple[Stage, ...]
    changed: bool
    exact: bool
    loss: str
    held_twice_bytes: int = 0
    home: int = -1

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of the main stack in each stage."""
        stack = main_stack([unit for stage in self.stages for unit in stage.units])
        return tuple(sum(unit.stack == stack for unit in stage.units) for stage in self.stages)


def nearest(problem: Problem, plan: Plan, rules: Rules, *, budget: float | Budget = 10.0, seed: int = 0) -> Nearest:
    """Find the best plan that a target can say; the given one when it can say that.

    In rows it is what :func:`placewright.export.row_search.best_row` finds. Else modules become colocation classes, and
    :func:`placewright.solve.solve` is asked; the given plan with each module where most of its time is spent, and the
    best row, are kept when nothing better is found.

    Raises
    ------
    InvalidInput
        If the target can say no plan that fits.
    """
    clock = budget if isinstance(budget, Budget) else Budget(float(budget))
    posed = _single(problem)
    units = units_of(posed.graph)
    if rules.ordered:
        units = _in_a_row(posed.graph, units)
    groups = _groups(posed.graph, units, rules)
    if rules.tied_twice:
        posed = _untied(posed, groups)
    twice = int(posed.resident_bytes.sum() - problem.resident_bytes.sum())
    in_ram = rules.embedding_on_cpu and len(groups) > sum(bool(unit.stack == main_stack(units)) for unit in units)
    if in_ram:
        posed = _on(posed, groups[0], [i for i, d in enumerate(posed.cluster.devices) if d.kind == "cpu"])
    alone = len(plan.copies) <= 1 and not plan.replicas
    home = _home(posed, plan, groups, rules, in_ram)
    if alone and home is not None and (kept := plan_for(posed, plan.device_of, schedule=plan.schedule)):
        return Nearest(posed, kept, _stages(units, kept.device_of), False, True, "", twice, home)
    found: list[tuple[Plan, int]] = []
    most = _where_most_is(posed, plan, groups)
    if most is not None and (home := _home(posed, most, groups, rules, in_ram)) is not None:
        found.append((most, home))
    sure = rules.apart is None or not apart_of(posed, range(len(posed.graph)), rules.apart)
    choices = list(_choices(posed, rules))
    for k, choice in enumerate(choices):
        part = clock.share((1.0 if rules.ordered else 0.25) / (len(choices) - k))
        asked = _on(posed, groups[0], choice.first_only) if in_ram else posed
        row: Plan | None = None
        if rules.unit == "module":
            row, proved = best_row(asked, groups, choice.devices, choice.first_only, part, np.random.default_rng(seed))
            found += [(row, choice.home)] if row is not None else []
            sure &= proved or not rules.ordered
        if rules.apart is not None and rules.ordered and choice.home >= 0 and not sure:
            parted = some_apart(asked, plan, row, groups, choice.devices, choice.home, rules.apart, clock)
            found += [(made, choice.home) for made in parted]
        if not rules.ordered:
            other = _anywhere(posed, groups, choice.devices, clock, seed)
            found += [(other[0], choice.home)] if other is not None else []
            sure &= other is None or other[1]
    if not found:
        raise InvalidInput(
            f"{rules.target} can say a plan only by {rules.words}, and none such fits this cluster; allow "
            "more memory or devices, or use another --format"
        )
    best, home = min(found, key=lambda q: q[0].value_s)
    best = replace(best, provenance=Provenance("nearest", seed, plan.provenance.version, {"target": rules.target}))
    loss = _loss(rules, plan.value_s, best.value_s, sure)
    return Nearest(posed, best, _stages(units, best.device_of), True, sure, loss, twice, home)


def _loss(rules: Rules, before_s: float, after_s: float, sure: bool) -> str:
    change = round(after_s / before_s - 1.0, 3) + 0.0 if before_s > 0 else 0.0  # no -0.0 %
    return (
        f"{rules.target} can say this plan only by {rules.words}: {format_seconds(after_s)} instead of "
        f"{format_seconds(before_s)} ({change:+.1%}), the best {'that it can say' if sure else 'found'}"
    )


def _single(problem: Problem) -> Problem:
    """Return the problem without what no target knows: copies of the network, replicated stages."""
    if isinstance(problem.objective, Throughput):
        return one_copy(problem)
    if isinstance(problem.objective, MaxLoad) and problem.objective.replicate:
        return _with(problem, problem.graph, objective=replace(problem.objective, replicate=False))
    return problem


def _with(problem: Problem, graph: OperatorGraph, *, objective: MaxLoad | None = None) -> Problem:
    return Problem(graph, problem.cluster, problem.times, objective or problem.objective, problem.wishes, problem.name)


def _in_a_row(graph: OperatorGraph, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Order units so that no edge between forward operators goes back, those of the graph first."""
    of = unit_of_operators(units, len(graph))
    reads: list[set[int]] = [set() for _ in units]
    for v, row in enumerate(graph.predecessors):
        if not graph.operators[v].backward:
            reads[of[v]] |= {int(of[p]) for p in row if not graph.operators[p].backward} - {int(of[v])}
    order: list[int] = []
    while len(order) < len(units):
        done = set(order)
        free = next((k for k in range(len(units)) if k not in done and reads[k] <= done), None)
        if free is None:
            names = ", ".join(units[k].path for k in range(len(units)) if k not in done)[:200]
            raise InvalidInput(
                f"modules read from each other in a circle ({names}), so they form no row of stages; use a format that "
                "places modules anywhere, as accelerate does"
            )
        order.append(free)
    return tuple(units[k] for k in order)


def _groups(graph: OperatorGraph, units: Sequence[Unit], rules: Rules) -> list[list[int]]:
    """Operators that the target keeps together, in a row."""
    stack = main_stack(units)
    if rules.unit == "operator":
        return [[v] for v in range(len(graph))]
    if rules.ends:
        return _merged(units, rules)
    layers = [k for k, unit in enumerate(units) if unit.stack == stack]
    if not stack:
        raise InvalidInput(
            f"{rules.target} splits a model at its layers, and no operator of this network is named for a numbered one "
            "(as model.layers.3.mlp is); use another --format"
        )
    rows = []
    first = 0
    if rules.embedding_on_cpu and layers[0]:
        rows.append([v for unit in units[: layers[0]] for v in unit.operators])
        first = layers[0]
    for k, at in enumerate(layers):
        low = first if k == 0 else at
        high = layers[k + 1] if k + 1 < len(layers) else len(units)
        rows.append([v for unit in units[low:high] for v in unit.operators])
    return rows


def _merged(units: Sequence[Unit], rules: Rules) -> list[list[int]]:
    """Operators of each module, those of modules that share a device as one row."""
    rows: dict[object, list[int]] = {}
    for k, unit in enumerate(units):
        matches = ((n, m) for n, pattern in enumerate(rules.together) if (m := pattern.match(unit.path)) is not None)
        found = next(matches, None)
        key: object = k if found is None else (found[0], found[1].groups())
        rows.setdefault(key, []).extend(unit.operators)
    return list(rows.values())


def _untied(problem: Problem, groups: Sequence[Sequence[int]]) -> Problem:
    """Return the problem with weights that groups share held by each of them, in place of one device for all."""
    graph = problem.graph
    of = {v: k for k, row in enumerate(groups) for v in row}
    classes, operators = [], list(graph.operators)
    for members in graph.colocation:
        rows = [list(row) for _, row in groupby(sorted(members, key=lambda v: of[v]), key=lambda v: of[v])]
        classes += [row for row in rows if len(row) > 1]
        heavy = operators[max(members, key=lambda v: operators[v].weight_bytes)]
        held = {part: getattr(heavy, part) for part in ("weight_bytes", "gradient_bytes", "optimizer_bytes")}
        for row in rows if len(rows) > 1 else ():
            if max(operators[v].weight_bytes for v in row) < heavy.weight_bytes:
                operators[row[0]] = replace(operators[row[0]], **held)
    if operators == list(graph.operators) and len(classes) == len(graph.colocation):
        return problem
    return _with(problem, OperatorGraph(operators, graph.tensors, classes, graph.name, graph.source))


def _on(problem: Problem, row: Sequence[int], devices: Sequence[int]) -> Problem:
    """Return the problem with operators on these devices alone; as it is where there are none."""
    if not devices:
        return problem
    away = np.ones(len(problem.cluster), dtype=bool)
    away[list(devices)] = False
    times = problem.times.processing_s.copy()
    times[np.array(row)[:, None], away] = np.inf
    among = replace(problem.times, processing_s=times)
    return Problem(problem.graph, problem.cluster, among, problem.objective, problem.wishes, problem.name)


def _choices(problem: Problem, rules: Rules) -> Iterator[_Choice]:
    """Yield the sets of devices that a plan may use."""
    devices = problem.cluster.devices
    known = [i for i, d in enumerate(devices) if rules.cpus != "nowhere" or d.kind != "cpu"]
    rows = [known]
    if rules.one_host:
        rows = [[i for i in known if devices[i].host == host] for host in dict.fromkeys(devices[i].host for i in known)]
    for row in rows:
        cpus = [i for i in row if devices[i].kind == "cpu"]
        others = [i for i in row if devices[i].kind != "cpu"]
        if rules.one_accelerator and len(cpus) <= 1 < len(others):
            yield from (_Choice((*cpus, i)) for i in others)
        elif rules.one_accelerator and (len(cpus) > 1 or len(others) > 1):
            yield from (_Choice((c, i)) for c in cpus for i in others or cpus if i != c)
        elif rules.cpus == "home" and cpus:
            for c in cpus:
                away = [i for i in cpus if devices[i].host != devices[c].host]
                yield _Choice(tuple(i for i in row if i == c or i in others or i in away), c)
        else:
            yield _Choice(tuple(row))


def _home(problem: Problem, plan: Plan, groups: Sequence[Sequence[int]], rules: Rules, in_ram: bool) -> int | None:
    """Return where the program runs when the target has words for a plan as it is; ``None``: it has none.

    With ``in_ram`` the first group must be there.
    """
    used = set(plan.device_of.tolist())
    for choice in _choices(problem, rules):
        at = [set(plan.device_of[row].tolist()) for row in less_apart(plan, groups, rules.apart, choice.home, problem)]
        if any(len(devices) > 1 for devices in at) or not used <= set(choice.devices):
            continue
        row = [i for i, _ in groupby(devices.pop() for devices in at)]
        begins = not in_ram or choice.home in (-1, row[0])
        if not rules.ordered or (len(set(row)) == len(row) and choice.home not in row[1:] and begins):
            return choice.home
    return None


def _where_most_is(problem: Problem, plan: Plan, groups: Sequence[Sequence[int]]) -> Plan | None:
    """Put each group where most of its time is spent, of the devices that may run all of it."""
    p = np.where(np.isfinite(problem.times.processing_s), problem.times.processing_s, 0.0)
    at = []
    for row in map(list, groups):
        spent = np.bincount(plan.device_of[row], weights=p[row, plan.device_of[row]], minlength=len(problem.cluster))
        at.append(int(np.where(problem.allowed[row].all(axis=0), spent, -1.0).argmax()))
    return plan_for(problem, placed(problem, groups, at))


def _anywhere(
    problem: Problem, groups: Sequence[Sequence[int]], devices: Sequence[int], clock: Budget, seed: int
) -> tuple[Plan, bool] | None:
    """Solve with groups as colocation classes."""
    graph = problem.graph
    tied = OperatorGraph(
        graph.operators,
        graph.tensors,
        [*graph.colocation, *(row for row in groups if len(row) > 1)],
        graph.name,
        graph.source,
    )
    times = np.full_like(problem.times.processing_s, np.inf)
    times[:, list(devices)] = problem.times.processing_s[:, list(devices)]
    among = replace(problem.times, processing_s=times)
    whole = Problem(tied, problem.cluster, among, problem.objective, problem.wishes, problem.name)
    result = solve(whole, budget=clock, seed=seed)
    if result.plan is None:
        return None
    judged = plan_for(problem, result.plan.device_of, schedule=result.plan.schedule, call_of=result.plan.call_of)
    return None if judged is None else (judged, result.status is Status.OPTIMAL)


def as_it_is(problem: Problem, plan: Plan) -> Nearest:
    """Take a plan for a target that can say any."""
    return Nearest(problem, plan, (), False, True, "")


def _stages(units: Sequence[Unit], device_of: Ints) -> tuple[Stage, ...]:
    runs = groupby(units, key=lambda unit: int(device_of[unit.operators[0]]))
    return tuple(Stage(device, tuple(row)) for device, row in runs)
