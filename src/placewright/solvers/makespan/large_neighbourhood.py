"""Large-neighbourhood search: annealing with moves timed where they reach, and windows solved by CP-SAT."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from placewright._kernel.anneal import Limits
from placewright._kernel.makespan_search import KINDS, Search, kept_cost, search_schedules, search_state
from placewright._kernel.path import tails
from placewright._kernel.schedule import Network
from placewright._kernel.standing import Standing, standing
from placewright._kernel.standing_kept import rebuild
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import Arrays, arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.start import limits_of, starting_placement
from placewright.solvers.makespan.windows import Windows

__all__ = ["LargeNeighbourhood"]

MOST_MOVES = 2_000_000
"""Moves of a search that has no limit of its own."""

WEIGHTS = (0.25, 0.2, 0.15, 0.2, 0.08, 0.05, 0.05, 0.02)
"""How often each of ``KINDS`` is tried while they gain alike; runs cost more time than units."""

HOTTEST = 5.0
"""Highest temperature, relative to the mean time of an operator: beyond, a large network's placement becomes random."""

ENOUGH_MOVES = 20
"""Moves an operator for which that temperature is right; with fewer there is no time to cool down again."""

LARGE = 5_000
"""Operators from which on only better schedules are taken, in two cycles: what is as good costs as much to make."""

HUGE = 20_000
"""Operators from which on windows are too small a part."""

MANY_PATHS = 10**8
"""Reads times pairs of devices beyond which tails that hold for all placements are not computed."""

SLICE_S = 0.05
"""Seconds of search between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class LargeNeighbourhood:
    """Alternate between annealing of placement and order, and windows of the schedule that CP-SAT solves again.

    The annealing (``_kernel.makespan_search``) takes units, connected blocks and runs of the order to other devices,
    exchanges them under full memory, shifts operators in the order, and prefers operators on a critical way; kinds of
    moves that gain are taken more often. The temperature falls from ``hot`` to ``cold`` times the starting value, from
    less where an operator takes less on average or few moves can be made, in ``cycles`` cycles, each from the best
    schedule so far. After each cycle windows of time, of two devices, and of connected operators are freed
    (:mod:`placewright.solvers.makespan.window_model`); a kind that improves is chosen more often, and windows get the
    more time the more they gain. A window's solution stands where it is no worse.

    Any-time. The budget's ``iterations`` counts moves, with two windows a cycle.

    Guarantee: never worse than its incumbent; no bound.
    Complexity: of a move, the operators between the first and the last that it touches, and where it is accepted those
    whose times change.
    Source: ours; large neighbourhoods are Shaw's (1998).
    When to use: the search of ``auto`` for the makespan; alone where a proof is not wanted.

    Attributes
    ----------
    hot, cold : float
        Temperatures relative to the starting value.
    cycles : int
    windows : bool
        Whether CP-SAT has its turns.
    target_s : callable
        Gives the value at which to stop: a proven lower bound.
    """

    hot: float = 0.01
    cold: float = 1e-5
    cycles: int = 6
    windows: bool = True
    target_s: Callable[[], float] = float

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on the incumbent until the budget is spent or the value reaches ``target_s``."""
        begun = budget.elapsed_s
        run = _Run(self, problem, budget, rng, incumbent, on_progress)
        if np.isfinite(run.s.value[0]):
            run.run()
        found = run.plan()
        best = incumbent
        if found is not None and (best is None or found.value_s < best.value_s):
            best = found
        return Result(best, solver="large-neighbourhood", runtime_s=budget.elapsed_s - begun)


class _Run:
    """One run of the search."""

    def __init__(
        self,
        parameters: LargeNeighbourhood,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None,
        on_progress: OnProgress,
    ) -> None:
        self.p, self.problem, self.budget, self.rng, self.on_progress = parameters, problem, budget, rng, on_progress
        self.a: Arrays = arrays_of(problem)
        self.g: Network = self.a.network
        self.limits: Limits = limits_of(self.a)
        began = time.perf_counter()
        n, D = self.g.processing.shape
        self.low_tail = tails(self.g)[1].min(axis=1) if len(self.g.read) * D * D <= MANY_PATHS else np.zeros(n)
        self.low_tail[~np.isfinite(self.low_tail)] = 0.0
        self.c: Standing = _start(problem, self.a, incumbent)
        self.s: Search = search_state(self.g, self.c, len(self.a.resident))
        kept_cost(self.g, self.limits, self.c, self.s)
        self.hot_s = min(parameters.hot * float(self.s.value[0]), HOTTEST * float(self.c.span.mean()))
        self.weights = np.array(WEIGHTS)
        self.rate, self.moves, self.reported = min(2e4, 2e7 / n), 0, np.inf
        self.cycles = parameters.cycles if n <= LARGE else min(2, parameters.cycles)
        if n > LARGE:
            self.hot_s = 0.0
        self.windows = Windows(self.g, self.limits, rng.spawn(1)[0]) if parameters.windows and n <= HUGE else None
        # The last schedule is timed and judged in about the time that the first one took.
        self.last_s = min(time.perf_counter() - began, 0.2 * budget.left_s)

    def run(self) -> None:
        """Cycles of annealing, with windows behind each, until the budget is spent."""
        total = self.budget.iterations
        if total is None and not np.isfinite(self.budget.seconds):
            total = MOST_MOVES
        began = self.budget.elapsed_s
        span = max(1e-9, self.budget.left_s - self.last_s)
        if total is None:
            self.step(0.0, max(1, int(self.rate * SLICE_S)))  # how fast is it?
        expected = float(total) if total is not None else self.rate * span
        self.hot_s *= min(1.0, expected / self.cycles / (ENOUGH_MOVES * len(self.problem.graph)))
        for cycle in range(self.cycles):
            if cycle:
                self.back_to_best()
            if total is not None:
                end = total * (cycle + 1) // self.cycles
                self.anneal(lambda end=end, low=self.moves: (self.moves - low) / max(1, end - low), end - self.moves)  # type: ignore[misc]
                if self.windows is not None and not self.done:
                    self.solve_windows(2, np.inf)
            else:
                since = self.budget.elapsed_s
                until = began + span * (cycle + 1) / self.cycles
                share = self.windows.share if self.windows is not None else 0.0
                turn = max(1e-9, (until - since) * (1.0 - share))
                self.anneal(lambda since=since, turn=turn: (self.budget.elapsed_s - since) / turn, None)  # type: ignore[misc]
                if self.windows is not None and not self.done:
                    self.solve_windows(None, until)
            if self.done:
                break

    @property
    def done(self) -> bool:
        """Whether to stop."""
        return self.budget.left_s <= self.last_s or self.s.value[1] <= self.p.target_s()

    def back_to_best(self) -> None:
        """Let the best feasible schedule so far stand again."""
        if np.isfinite(self.s.value[1]):
            self.c.device[:], self.c.order[:], self.c.eager[:] = (
                self.s.best_device,
                self.s.best_order,
                self.s.best_eager,
            )
            rebuild(self.g, self.c, self.a.unit_of, self.a.resident)
            kept_cost(self.g, self.limits, self.c, self.s)

    def anneal(self, progress: Callable[[], float], moves: int | None) -> None:
        """One cycle from hot to cold."""
        p, tried = self.p, np.zeros(len(KINDS))
        gained = tried.copy()
        done = 0
        while True:
            here = progress()
            if here >= 1.0 or self.done:
                return
            count = max(16, int(self.rate * SLICE_S))
            if moves is not None:
                count = min(2048, max(1, moves - done))
                step = count / max(1, moves)
            else:
                step = SLICE_S / max(SLICE_S, self.budget.left_s)
            ratio = p.cold / p.hot
            self.step(self.hot_s * ratio**here, count, self.hot_s * ratio ** min(1.0, here + step))
            done += count
            success = (self.s.gained - gained + 0.1) / (self.s.tried - tried + 1.0)
            gains = 0.5 + np.minimum(1.5, success / success.mean())
            self.weights = 0.9 * self.weights + 0.1 * np.array(WEIGHTS) * gains
            self.report()

    def step(self, hot: float, count: int, cold: float = 0.0) -> None:
        """So many moves."""
        c, clock = self.c, time.perf_counter()
        critical = np.flatnonzero(c.finish + c.tail >= c.ended.max() * (1.0 - 1e-9)).astype(np.int32)
        arguments = critical, self.low_tail, max(0.0, self.p.target_s()), hot, cold, count, self.rng
        search_schedules(self.g, self.limits, c, self.s, self.weights, *arguments)
        self.rate = 0.5 * self.rate + 0.5 * count / max(1e-6, time.perf_counter() - clock)
        self.moves += count

    def solve_windows(self, count: int | None, until_s: float) -> None:
        """Solve windows of the best schedule, so many or until some time."""
        if self.windows is None:
            return
        self.back_to_best()
        solved = 0
        while not self.done and (solved < count if count is not None else self.budget.elapsed_s < until_s):
            left = min(self.budget.left_s, until_s - self.budget.elapsed_s)
            if count is None and left < 0.05:
                return
            part = Budget(left if count is None else np.inf, cancelled=self.budget.cancelled)
            self.windows.solve(self.c, self.s, part, self.low_tail)
            solved += 1
            self.report()

    def report(self) -> None:
        """Tell of a better value."""
        if self.s.value[1] < self.reported:
            self.reported = float(self.s.value[1])
            self.on_progress(Progress("large-neighbourhood", self.reported, 0.0, self.budget.elapsed_s))

    def plan(self) -> Plan | None:
        """Best schedule, judged."""
        if not np.isfinite(self.s.value[1]):
            return None
        self.back_to_best()
        c, g = self.c, self.g
        transfers = tuple(
            Transfer(int(u), int(c.device[g.producer[u]]), int(j), float(c.sent[u, j]), float(c.arrival[u, j]))
            for u, j in np.argwhere(c.readers_on > 0)
            if c.device[g.producer[u]] != j
        )
        parameters = {"moves": self.moves, "windows": 0 if self.windows is None else self.windows.solved}
        provenance = Provenance("large-neighbourhood", None, "", parameters)
        return plan_for(self.problem, c.device, schedule=Schedule(c.start, c.finish, transfers), provenance=provenance)


def _start(problem: Problem, a: Arrays, incumbent: Plan | None) -> Standing:
    """Take the incumbent's placement and order, transfers sent when made or when asked for, whichever is better."""
    n = len(problem.graph)
    if incumbent is not None:
        device = incumbent.device_of
        order = np.lexsort((np.arange(n), incumbent.schedule.finish_s, incumbent.schedule.start_s)).astype(np.int32)
    else:
        device, order = starting_placement(problem), np.arange(n, dtype=np.int32)
    best, least = None, np.inf
    for eager in (False, True):
        c = standing(a.network, device, order, np.full(len(a.network.producer), eager))
        value = rebuild(a.network, c, a.unit_of, a.resident)
        if best is None or value < least:
            best, least = c, value
    assert best is not None
    return best
