"""The makespan as a constraint program over whole quanta of time.

Per unit k and device i a literal x[k, i], exactly one per unit. Per operator v a start and an end, equal to those of
its optional interval on the device where it runs; intervals of a device don't overlap. A tensor that crosses has,
under contention, a start and an end of its transfer, equal to those of an optional interval per pair of devices;
intervals that share a link, port or channel don't overlap. Redundant rows carry the bound: device-aware heads and
tails, lengthened by what lies in between (:mod:`.cp_sat_windows`); the load of each device between the earliest head
and the shortest tail; and, up to 100 operators, at no instant do more of them run than there are devices. Of devices
that can be swapped, units use the first one first: :mod:`.cp_sat_symmetry`, and the hint is renumbered so too.

Every optional interval has variables of its own. With several optional intervals over one pair of variables, CP-SAT
9.12 and 9.15 proved wrong optima while it used linear relaxations (9.15 on one of 600 random problems): hence
the separate variables here and ``linearization_level = 0`` in the solver. It is also faster.

That rounding is safe: let a real schedule have ends e and durations d, and set end' = floor(e / q) and start' = end' -
floor(d / q). As floor(a + b) >= floor(a) + floor(b), precedence, exclusion, counts, heads, tails and loads all still
hold, and the makespan becomes floor(M / q). So the optimum of this program times q is never above the optimum of the
problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.arrays import Arrays, arrays_of
from placewright.plan import Plan, Schedule, Transfer
from placewright.problem import Problem
from placewright.rounding import RELATIVE_SLACK, quantise_down
from placewright.solvers.makespan.cp_sat_symmetry import classes_of, number_by_first_use, renumbered
from placewright.solvers.makespan.cp_sat_windows import windows_of

__all__ = ["Model", "build", "decisions"]

Quanta: TypeAlias = npt.NDArray[np.int64]

QUANTA = 2**30
"""Quanta that the horizon is divided into; rounding then costs some 1e-9 of it an operator on the critical path."""

COARSE_QUANTA = 2**20
"""The same while no plan bounds the horizon."""

MOST_COUNTED = 100
"""Operators up to which those that run at an instant are counted: with 300 the rows cost more time than they save."""


@dataclass(eq=False)
class Model:
    """The program and its variables."""

    proto: Any
    quantum_s: float
    problem: Problem
    x: list[dict[int, Any]]
    start: list[Any]
    end: list[Any]
    makespan: Any
    sent: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)
    """(tensor, target) -> start and end of its transfer, under contention."""


def build(problem: Problem, incumbent: Plan | None, budget: Budget) -> Model:
    """Make the program, bounded by the incumbent and hinted at it, its devices renumbered as the program asks."""
    from ortools.sat.python import cp_model

    a = arrays_of(problem)
    g = a.network
    proto = cp_model.CpModel()
    horizon_s = incumbent.value_s if incumbent is not None else _trivial_horizon(a)
    quantum = max(horizon_s, 1e-300) / (QUANTA if incumbent is not None else COARSE_QUANTA)
    horizon = int(np.ceil(horizon_s / quantum)) + 1
    most = 2.0 * horizon_s  # what takes longer can't be part of a schedule within the horizon
    p = quantise_down(np.minimum(np.where(np.isfinite(g.processing), g.processing, 0.0), most), quantum)
    ready, done, after = windows_of(problem, budget)
    head, low, tail = (
        quantise_down(np.minimum(np.where(np.isfinite(s), s, 0.0), most) * (1 - RELATIVE_SLACK), quantum)
        for s in (ready, done, after)
    )

    x: list[dict[int, Any]] = []
    for k in range(len(a.resident)):
        choices = np.flatnonzero(a.allowed[k]).tolist()
        x.append({i: proto.new_bool_var(f"x{k}_{i}") for i in choices})
        proto.add_exactly_one(x[k].values())
    classes = classes_of(problem)
    number_by_first_use(proto, a, classes, x)
    for i in np.flatnonzero(np.isfinite(a.capacity)).tolist():
        terms = [int(a.resident[k]) * x[k][i] for k in range(len(x)) if i in x[k] and a.resident[k] > 0]
        if terms and sum(a.resident) > a.capacity[i]:
            proto.add(sum(terms) <= int(a.capacity[i]))

    makespan = proto.new_int_var(0, horizon, "makespan")
    n = len(problem.graph)
    start = [proto.new_int_var(0, horizon, f"s{v}") for v in range(n)]
    end = [proto.new_int_var(0, horizon, f"e{v}") for v in range(n)]
    model = Model(proto, quantum, problem, x, start, end, makespan)
    cuts = _cuts(model, a) if g.cut.any() else None
    cut = quantise_down(np.minimum(g.cut, most), quantum)
    for i in range(g.cut.shape[1]):
        intervals = []
        for v in range(n):
            here = x[a.unit_of[v]]
            if i not in here:
                continue
            size = int(p[v, i]) if cuts is None or cut[v, i] == 0 else int(p[v, i]) + int(cut[v, i]) * cuts[v]
            begun = proto.new_int_var(0, horizon, f"s{v}_{i}")
            over = proto.new_int_var(0, horizon, f"e{v}_{i}")
            proto.add(start[v] == begun).only_enforce_if(here[i])
            proto.add(end[v] == over).only_enforce_if(here[i])
            intervals.append(proto.new_optional_interval_var(begun, size, over, here[i], f"r{v}_{i}"))
            proto.add(end[v] >= int(low[v, i])).only_enforce_if(here[i])
            proto.add(makespan >= end[v] + int(tail[v, i])).only_enforce_if(here[i])
        proto.add_no_overlap(intervals)
        _load_row(model, a, p, head, tail, i)
    running = []
    for v in range(n):
        choices = list(x[a.unit_of[v]])
        shortest, longest = int(p[v, choices].min()), int((p[v, choices] + 2 * cut[v, choices]).max())
        size = shortest if shortest == longest else proto.new_int_var(shortest, longest, f"d{v}")
        running.append(proto.new_interval_var(start[v], size, end[v], f"r{v}"))
        proto.add(makespan >= end[v] + int(tail[v, choices].min()))
        proto.add(end[v] >= start[v] + shortest)
        proto.add(start[v] >= int(head[v, choices].min()))
    if g.cut.shape[1] < n <= MOST_COUNTED:
        proto.add_cumulative(running, [1] * n, g.cut.shape[1])
    _tensors(model, a, horizon)
    proto.minimize(makespan)
    if incumbent is not None:
        _hint(model, a, incumbent, renumbered(a, classes, incumbent.device_of))
    return model


def decisions(model: Model, value_of: Callable[[Any], int]) -> tuple[npt.NDArray[np.int32], Schedule]:
    """Placement and schedule of a solution; to be retimed with the unrounded durations."""
    problem = model.problem
    q = model.quantum_s
    unit_of = problem.graph.unit_of
    chosen = [next(i for i, literal in row.items() if value_of(literal)) for row in model.x]
    device = np.array([chosen[k] for k in unit_of], dtype=np.int32)
    transfers = []
    for u, tensor in enumerate(problem.graph.tensors):
        home = int(device[tensor.producer])
        for j in sorted({int(device[v]) for v in tensor.readers} - {home}):
            if (u, j) in model.sent:
                first, last = (q * value_of(z) for z in model.sent[u, j])
            else:
                first = last = q * value_of(model.end[tensor.producer])
            transfers.append(Transfer(u, home, j, first, last))
    return device, Schedule(
        np.array([q * value_of(z) for z in model.start]),
        np.array([q * value_of(z) for z in model.end]),
        tuple(transfers),
    )


def _trivial_horizon(a: Arrays) -> float:
    """Everything one after the other on its slowest device, every tensor sent to every device: never too short."""
    g = a.network
    D = g.cut.shape[1]
    total = float(np.where(np.isfinite(g.processing), g.processing, 0.0).max(axis=1).sum())
    total += 2.0 * float(g.cut.max(axis=1).sum())
    if g.transfer.shape[0]:
        total += float(np.where(np.isfinite(g.transfer), g.transfer, 0.0).max(axis=(1, 2)).sum()) * D
    else:
        worst = float(g.latency[np.isfinite(g.latency)].max(initial=0.0))
        total += D * float((worst + g.size * g.per_byte.max(initial=0.0)).sum())
    return float(total)


def _pairs(model: Model) -> Iterator[tuple[int, int, int]]:
    """(tensor, producer, reader) of every read."""
    for u, tensor in enumerate(model.problem.graph.tensors):
        for v in tensor.readers:
            yield u, tensor.producer, v


def _cuts(model: Model, a: Arrays) -> list[Any]:
    """Per operator the number of cuts beside it: one when it reads from elsewhere, one when it is read elsewhere."""
    proto = model.proto
    crossing: dict[tuple[int, int], Any] = {}
    before: dict[int, set[tuple[int, int]]] = {}
    behind: dict[int, set[tuple[int, int]]] = {}
    for _, maker, reader in _pairs(model):
        k, m = sorted((int(a.unit_of[maker]), int(a.unit_of[reader])))
        if k == m:
            continue
        if (k, m) not in crossing:
            crossing[k, m] = literal = proto.new_bool_var(f"cross{k}_{m}")
            for i, here in model.x[k].items():
                if i in model.x[m]:
                    proto.add_bool_or(here.negated(), model.x[m][i], literal)
                    proto.add_bool_or(here, model.x[m][i].negated(), literal)
                    proto.add_bool_or(here.negated(), model.x[m][i].negated(), literal.negated())
                else:
                    proto.add_implication(here, literal)
        before.setdefault(reader, set()).add((k, m))
        behind.setdefault(maker, set()).add((k, m))

    def any_of(pairs: set[tuple[int, int]], name: str) -> Any:
        if len(pairs) == 1:
            return crossing[next(iter(pairs))]
        literal = proto.new_bool_var(name)
        for pair in sorted(pairs):
            proto.add_implication(crossing[pair], literal)
        return literal

    counts: list[Any] = []
    for v in range(len(model.start)):
        sides = [any_of(s[v], f"{what}{v}") for what, s in (("in", before), ("out", behind)) if v in s]
        if len(sides) == 2:
            both = proto.new_int_var(0, 2, f"cuts{v}")
            proto.add(both == sides[0] + sides[1])
            counts.append(both)
        else:
            counts.append(sides[0] if sides else 0)
    return counts


def _load_row(model: Model, a: Arrays, p: Quanta, ready: Quanta, tail: Quanta, i: int) -> None:
    """Put the processing on device i between the earliest start and the latest finish of what may run there.

    Both are taken over every device that an operator may use, so that the row also holds when i is left empty.
    """
    here = [v for v in range(len(model.start)) if i in model.x[a.unit_of[v]]]
    if not here:
        return
    load = np.zeros(len(model.x), dtype=np.int64)
    np.add.at(load, a.unit_of[here], p[here, i])
    first = min(int(ready[v, list(model.x[a.unit_of[v]])].min()) for v in here)
    last = min(int(tail[v, list(model.x[a.unit_of[v]])].min()) for v in here)
    row = [int(load[k]) * model.x[k][i] for k in range(len(load)) if load[k] and i in model.x[k]]
    model.proto.add(sum(row) + first + last <= model.makespan)


def _tensors(model: Model, a: Arrays, horizon: int) -> None:
    """Precedence along every tensor, and transfers that exclude each other."""
    proto, problem, g = model.proto, model.problem, a.network
    D = g.cut.shape[1]
    exclusive: dict[int, list[Any]] = {}
    for u, tensor in enumerate(problem.graph.tensors):
        maker = tensor.producer
        home = model.x[a.unit_of[maker]]
        for v in tensor.readers:
            proto.add(model.start[v] >= model.end[maker])
        readers = [v for v in tensor.readers if a.unit_of[v] != a.unit_of[maker]]
        for j in range(D):
            at_j = [v for v in readers if j in model.x[a.unit_of[v]]]
            sources = [i for i in home if i != j]
            if not at_j or not sources:
                continue
            seconds = {i: problem.transfer_s(u, i, j) for i in sources}
            for i in [i for i in sources if not np.isfinite(seconds[i])]:
                for v in at_j:
                    proto.add_bool_or(home[i].negated(), model.x[a.unit_of[v]][j].negated())
                del seconds[i]
            if not seconds:
                continue
            need = _any_reader(model, a, u, j, at_j)
            sent = proto.new_int_var(0, horizon, f"t{u}_{j}")
            there = proto.new_int_var(0, 2 * horizon, f"a{u}_{j}")
            model.sent[u, j] = sent, there
            for i, c in seconds.items():
                size = int(quantise_down(min(c, 2.0 * horizon * model.quantum_s), model.quantum_s))
                crosses = proto.new_bool_var(f"z{u}_{i}_{j}")
                proto.add_bool_or(home[i].negated(), need.negated(), crosses)
                proto.add_implication(crosses, home[i])
                proto.add_implication(crosses, need)
                used = sorted({int(r) for r in g.resources[i, j] if r >= 0}) if c > 0 else []
                proto.add(sent >= model.end[maker]).only_enforce_if(crosses)
                if used:
                    begun = proto.new_int_var(0, horizon, f"b{u}_{i}_{j}")
                    interval = proto.new_optional_fixed_size_interval_var(begun, size, crosses, f"y{u}_{i}_{j}")
                    proto.add(sent == begun).only_enforce_if(crosses)
                    proto.add(there == begun + size).only_enforce_if(crosses)
                    for r in used:
                        exclusive.setdefault(r, []).append(interval)
                else:
                    proto.add(there == sent + size).only_enforce_if(crosses)
                for v in at_j:
                    proto.add(model.start[v] >= there).only_enforce_if(crosses, model.x[a.unit_of[v]][j])
                    proto.add(model.start[v] >= model.end[maker] + size).only_enforce_if(
                        home[i], model.x[a.unit_of[v]][j]
                    )
    for intervals in exclusive.values():
        if len(intervals) > 1:
            proto.add_no_overlap(intervals)


def _any_reader(model: Model, a: Arrays, u: int, j: int, readers: list[int]) -> Any:
    literals = list({int(a.unit_of[v]): model.x[a.unit_of[v]][j] for v in readers}.values())
    if len(literals) == 1:
        return literals[0]
    need = model.proto.new_bool_var(f"n{u}_{j}")
    for literal in literals:
        model.proto.add_implication(literal, need)
    model.proto.add_bool_or(*literals, need.negated())
    return need


def _hint(model: Model, a: Arrays, plan: Plan, new: npt.NDArray[np.int64]) -> None:
    """Hint at a plan whose devices are renumbered."""
    for k, row in enumerate(model.x):
        for i, literal in row.items():
            model.proto.add_hint(literal, int(new[plan.device_of[a.member[a.member_ptr[k]]]]) == i)
    for v in range(len(model.start)):
        model.proto.add_hint(model.start[v], int(plan.schedule.start_s[v] / model.quantum_s))
        model.proto.add_hint(model.end[v], int(plan.schedule.finish_s[v] / model.quantum_s))
    for t in plan.schedule.transfers:
        if (t.tensor, int(new[t.target])) in model.sent:
            first, last = model.sent[t.tensor, int(new[t.target])]
            model.proto.add_hint(first, int(t.start_s / model.quantum_s))
            model.proto.add_hint(last, int(t.finish_s / model.quantum_s))
