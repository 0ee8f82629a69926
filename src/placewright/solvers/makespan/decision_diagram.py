"""Decision diagrams over the ideals of a narrow network: plans by a beam, bounds by merged states, from both ends."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from placewright._kernel.diagram import Diagram, Room, backward, forward
from placewright._kernel.diagram_merge import merge
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.rounding import rounded_down
from placewright.solvers.makespan.diagram_layers import MOST_IDEALS, diagram_of, ideals_of
from placewright.solvers.makespan.start import starting_placement

__all__ = ["DecisionDiagram", "why_wide"]

Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
_Rows = TypeVar("_Rows", bound=npt.NDArray[Any])

QUANTA = 1 << 27
"""Quanta that the incumbent's makespan is divided into; rounding costs some 1e-8 of it an operator on a path."""

MOST_WIDE = 20_000
"""States an ideal beyond which the width does not grow."""

ROUNDS = 3
"""Rounds without a limit of their own."""


def why_wide(problem: Problem) -> str | None:
    """Say why a network is too wide for decision diagrams, or ``None``."""
    ideals = ideals_of(problem.graph)
    if ideals is None:
        return f"the network has more than {MOST_IDEALS:,} ideals; use annealing or makespan-cp-sat"
    return None


@dataclass(frozen=True, slots=True)
class DecisionDiagram:
    """Makespan of narrow networks: a dynamic program over ideals whose states are merged, or dropped, when too many.

    Operators are taken in the order of their starts; what has started is an ideal. A state at an ideal says how soon
    the rest could go on: its first start, when each device is free, when each tensor that is still read (*live*) can
    be read on each device. A *backward* state says the same of the rest seen from the end: how long before the end each
    device is needed, and each live tensor must be made. A forward and a backward state at one ideal bound every
    schedule through both, which is how each direction prunes the other. :mod:`placewright._kernel.diagram` has the
    recurrences.

    *Dominance*: a state whose numbers are all at most another's, and whose own end is not above the other's bound, can
    be completed at least as well. Numbers are first raised to what holds anyway: a tensor isn't read before all that
    its readers need is there; a device without a chance to end in time is as good as one that is never free.

    *Relaxation*: beyond ``width`` states an ideal, two are merged into one that has the least of both in each number.
    Every schedule that beats the incumbent then still passes states that are nowhere above its own; so the least bound
    at the last ideal holds, and when no state is left, the incumbent is optimal. A merged state is nobody's schedule,
    and what it dominates is merged with it, since floors that hold for schedules need not hold for it.
    *Restriction*: with states dropped instead, those that are left are schedules; under contention states then also
    say when each resource is free, so that transfers wait for it as the judge lets them.

    Relaxed and restricted decision diagrams are those of Bergman, Cire, van Hoeve and Hooker (Decision Diagrams for
    Optimization, Springer 2016); the states, their floors, and the joining of two directions are ours.

    Guarantee: the lower bound holds under every contention, overhead of cuts, memory limit and colocation class, since
    it knows none of them: each can only delay, or forbid. So the method is exact, given time, without them, and
    otherwise bounds. The judge schedules every plan with them. Durations are rounded down to whole quanta, in which
    schedules of the same order end no later.

    Rounds of backward relaxation, forward relaxation and forward restriction go on with up to ``growth`` times the
    width, until bound and value meet, or the budget is spent. The budget's ``iterations`` counts rounds. A round takes
    O(A D K (K + B) S) for A pairs of an ideal and an operator that may follow, D devices, widths K and B of the two
    directions, and S = 1 + D + 2 L D numbers of a state with L live tensors. Networks of about a thousand ideals are
    comfortable, whatever their number of operators.

    Complexity: O(A D K (K + B) S) a round.
    Source: ours, from relaxed and restricted decision diagrams (Bergman, Cire, van Hoeve, Hooker 2016).
    When to use: for narrow networks, where few ideals make the search complete.

    Attributes
    ----------
    width : int
        States an ideal in the first round.
    growth : int

    Examples
    --------
    Two branches of 2 s between a and d; a transfer takes 3 s, so both stay where a is: 1 + 2 + 2 + 1.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
    >>> graph = OperatorGraph(
    ...     [Operator(v) for v in "abcd"],
    ...     [Tensor("x", 0, (1, 2), 30), Tensor("y", 1, (3,), 30), Tensor("z", 2, (3,), 30)],
    ... )
    >>> pair = Cluster([Device("one"), Device("two")], [Link(0.0, 10.0, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]])
    >>> found = DecisionDiagram()(problem, budget=Budget(iterations=1), rng=np.random.default_rng(0))
    >>> found.value_s, round(found.lower_bound_s, 6)
    (6.0, 6.0)
    """

    width: int = 16
    growth: int = 3

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Raise the bound and lower the value until they meet or the budget is spent."""
        begun, name = budget.elapsed_s, "decision-diagram"
        a = arrays_of(problem)
        ideals = ideals_of(problem.graph)
        if ideals is None or not a.allowed.any(axis=1).all():
            return Result(incumbent, solver=name)
        best = incumbent
        if best is None:
            best = plan_for(problem, starting_placement(problem), provenance=Provenance(name))
        horizon_s = best.value_s if best is not None else _all_in_turn(problem)
        if not 0.0 < horizon_s < inf:
            return Result(best, solver=name)
        quantum = horizon_s / QUANTA
        search = _Search(diagram_of(problem, ideals, quantum, 2 * QUANTA))
        bound, width, done = 0.0, self.width, 0
        rounds = budget.iterations if budget.iterations is not None else (ROUNDS if budget.seconds == inf else None)
        while not budget.spent and (rounds is None or done < rounds):
            value = best.value_s if best is not None else inf
            limit = min(QUANTA, int(value / quantum)) if best is not None else QUANTA
            opened, over = budget.elapsed_s, search.exact
            for relaxed in () if over else (search.up, search.down):
                proved = relaxed(min(limit, search.own), width, budget)
                if proved is None:
                    break
                bound = max(bound, rounded_down(proved * quantum))
                on_progress(Progress(name, value, min(bound, value), budget.elapsed_s))
                if proved >= min(limit, search.own):
                    search.exact = True
                    break
            if budget.spent or bound >= value * (1.0 - OPTIMALITY_TOLERANCE):
                break
            for queued in (False, True)[int(over) : 1 + search.contended]:
                for device, order in search.restricted(limit, width, queued, budget):
                    found = _plan(problem, device, order, Provenance(name, None, "", {"width": width}))
                    if found is not None and (best is None or found.value_s < best.value_s):
                        best = found
            if (search.exact and not search.contended) or width >= MOST_WIDE:
                break  # nothing was merged: what is left of the gap is outside the model
            done += 1
            spent = budget.elapsed_s - opened
            # The next round takes at most a little more than what is left.
            room = min(float(self.growth), max(1.0, (budget.left_s / max(spent, 1e-3)) ** 0.7))
            width = min(MOST_WIDE, max(width + 1, int(width * (room if rounds is None else self.growth))))
        if not np.isfinite(bound):
            bound = 0.0
        same = best is incumbent and incumbent is not None
        solver = incumbent.provenance.solver if same and incumbent is not None else name
        return Result(best, bound, "", budget.elapsed_s - begun, solver, {name: bound})


class _Search:
    """The states of both directions: those of one prune the other."""

    def __init__(self, g: Diagram) -> None:
        self.plain, self.g, self.contended = g._replace(queues=0), g, g.queues > 0
        self.apart = int(np.median(g.transfer[g.transfer > 0])) // 4 if (g.transfer > 0).any() else 0
        self.ideals = len(g.live_ptr) - 1
        self.D = g.processing.shape[1]
        self.numbers = 1 + self.D + (2 + self.contended) * self.D * int(np.diff(g.live_ptr).max(initial=0)) + g.queues
        self.room = self._room(4096)
        self.before, self.after = self._nothing(), self._nothing()
        self.exact = False
        self.own = 2 * QUANTA  # end of the best schedule in the model, which knows no contention

    def up(self, limit: int, width: int, budget: Budget) -> int | None:
        """Relax from the end; return a bound, or ``None`` when the budget was spent before there was one."""
        layers = _Layers(self, range(self.ideals - 1, -1, -1), limit, width, budget, g=self.plain)
        if not layers.complete:
            return None
        self.after = layers.ptr, layers.states
        return layers.least

    def down(self, limit: int, width: int, budget: Budget) -> int | None:
        """Relax from the start."""
        layers = _Layers(self, range(self.ideals), limit, width, budget, g=self.plain)
        if not layers.complete:
            return None
        self.before, self.exact = (layers.ptr, layers.states), layers.exact
        return layers.least

    def restricted(self, limit: int, width: int, queued: bool, budget: Budget) -> list[tuple[Ints, Ints]]:
        """Placements and orders of the schedules that are left when states are dropped, the best one first.

        ``queued``: the states know when resources are free. What is pruned by then has to hold up to ``limit``, which
        what bounds were pruned by, the end of the best schedule without contention, does not.
        """
        kept = self.before, self.after
        if queued:
            self.before = self._nothing()
            self.up(limit, width, budget)
        g = self.g if queued else self.plain
        layers = _Layers(self, range(self.ideals), limit, width, budget, drop=True, g=g)
        self.before, self.after = kept
        if layers.complete and not queued:
            self.own = min(self.own, layers.least)
        return layers.decisions() if layers.complete else []

    def grow(self) -> None:
        """Make room for twice as many candidates."""
        self.room = self._room(2 * len(self.room.bound))

    def _room(self, count: int) -> Room:
        g, n = self.g, self.g.processing.shape[0]
        rows = [np.zeros((count, self.numbers), dtype=np.int32) for _ in range(2)]
        bound, op, device = (np.zeros(count, dtype=np.int32) for _ in range(3))
        start, finish, end = (np.zeros((n, self.D), dtype=np.int32) for _ in range(3))
        slot = np.full(len(g.producer), -1, dtype=np.int32)
        return Room(rows[0], rows[1], bound, np.zeros(count, dtype=np.int64), op, device, start, finish, end, slot)

    def _nothing(self) -> tuple[Longs, Ints]:
        return np.zeros((self.ideals, 2), dtype=np.int64), np.zeros((0, self.numbers), dtype=np.int32)


class _Layers:
    """One pass over the ideals in a direction."""

    def __init__(
        self, search: _Search, way: range, limit: int, width: int, budget: Budget, *, drop: bool = False, g: Diagram
    ) -> None:
        D = search.D
        forwards = way.step > 0
        self.complete, self.exact, self.least, self.search = False, False, limit, search
        self.ptr = np.zeros((search.ideals, 2), dtype=np.int64)
        self.states = np.zeros((1024, search.numbers), dtype=np.int32)
        self.origin = np.zeros((1024, 3), dtype=np.int64)
        self.bounds = np.zeros(1024, dtype=np.int32)
        self.real = np.ones(1024, dtype=np.bool_)
        self.last = way[-1]
        kept, bound = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int32)
        pure = np.zeros(width, dtype=np.bool_)
        row, floor = (np.zeros((width, search.numbers), dtype=np.int32) for _ in range(2))
        self.origin[0], self.ptr[way[0]] = -1, (0, 1)
        used = 1
        step, (others, other) = (forward, search.after) if forwards else (backward, search.before)
        for k in way[1:]:
            if budget.spent:
                return
            count = -1
            while count < 0:
                count = step(g, k, self.ptr, self.states, self.bounds, others, other, limit, search.room)
                if count < 0:
                    search.grow()
            room, L = search.room, int(g.live_ptr[k + 1] - g.live_ptr[k])
            tied = g.queues, search.apart, width, drop
            states = merge(room, count, D, L, *tied, self.real, kept, row, floor, bound, pure)
            while used + states > len(self.bounds):
                self.states, self.origin = _twice(self.states), _twice(self.origin)
                self.bounds, self.real = _twice(self.bounds), _twice(self.real)
            self.ptr[k] = used, used + states
            self.states[used : used + states] = row[:states]
            self.bounds[used : used + states] = bound[:states]
            self.real[used : used + states] = pure[:states]
            chosen = kept[:states]
            self.origin[used : used + states, 0] = room.origin[chosen]
            self.origin[used : used + states, 1] = room.op[chosen]
            self.origin[used : used + states, 2] = room.device[chosen]
            used += states
        first, last = self.ptr[self.last]
        self.exact = bool(self.real[:used].all())
        self.least = min(limit, int(self.bounds[first:last].min(initial=limit)))
        self.complete = True

    def decisions(self) -> list[tuple[Ints, Ints]]:
        """Placement and order of each state at the end, by its bound."""
        first, last = self.ptr[self.last]
        found = []
        for s in (first + np.argsort(self.bounds[first:last], kind="stable")).tolist():
            device = np.zeros(self.search.g.processing.shape[0], dtype=np.int32)
            order = []
            while self.origin[s, 0] >= 0:
                s, v, i = self.origin[s].tolist()
                device[v] = i
                order.append(v)
            found.append((device, np.array(order[::-1], dtype=np.int32)))
        return found


def _twice(array: _Rows) -> _Rows:
    return np.concatenate([array, np.zeros_like(array)])  # type: ignore[return-value]


def _all_in_turn(problem: Problem) -> float:
    """Everything one after the other on its fastest device: a span to measure by, no bound."""
    return float(np.where(problem.allowed, problem.times.processing_s, np.inf).min(axis=1).sum())


def _plan(problem: Problem, device: Ints, order: Ints, provenance: Provenance) -> Plan | None:
    """Make a plan of a placement that knows no classes: members follow their first."""
    whole = device.copy()
    for members in problem.graph.colocation:
        whole[list(members)] = device[members[0]]
    return plan_for(problem, whole, order=order, provenance=provenance)
