"""Windows of a schedule: chosen, solved by CP-SAT, and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright._kernel.anneal import Limits
from placewright._kernel.changes import begin, put_unit, reorder
from placewright._kernel.makespan_search import Search, kept_cost
from placewright._kernel.schedule import Network
from placewright._kernel.standing import Standing, retime, revert
from placewright._kernel.standing_kept import commit
from placewright.algorithm import Budget
from placewright.solvers.cp_sat_run import run_cp_sat
from placewright.solvers.makespan.window_model import Window, WindowModel, build_window, proposal

__all__ = ["Windows"]

WIDTHS = (16, 30, 50)
"""Operators of a window."""

MOST_FIXED = 60
"""Operators in a window beside those that may change device."""

MOST_DEVICES = 4
"""Devices that a window's units may choose from."""


EFFORT = 0.25
"""Deterministic time units of CP-SAT, about seconds, for a window."""


class Windows:
    """Adaptive choice among windows of time, of two devices, and of connected operators, each in several widths."""

    def __init__(self, g: Network, limits: Limits, rng: np.random.Generator) -> None:
        self.g, self.limits, self.rng = g, limits, rng
        self.kinds: tuple[tuple[Callable[[Standing, int], Window | None], int], ...] = tuple(
            (kind, width) for kind in (self._time, self._devices, self._connected) for width in WIDTHS
        )
        self.weights = np.ones(len(self.kinds))
        self.solved = self.improved = 0

    @property
    def share(self) -> float:
        """Part of a cycle that windows get: much while they gain, little when they don't."""
        return 0.3 if self.solved < 8 else min(0.6, 0.05 + 2.0 * self.improved / self.solved)

    def solve(self, c: Standing, s: Search, budget: Budget, low_tail: npt.NDArray[np.float64]) -> bool:
        """Solve one window again; returns whether the schedule became better. It never becomes worse."""
        kind = int(self.rng.choice(len(self.kinds), p=self.weights / self.weights.sum()))
        choose, width = self.kinds[kind]
        window = choose(c, width)
        self.solved += 1
        if window is None or not window.units:
            self.weights[kind] = 0.95 * self.weights[kind] + 0.05 * 0.2
            return False
        before = float(s.value[0])
        model = build_window(self.g, self.limits, c, window, float(c.ended.max()))
        found: list[tuple[npt.NDArray[np.int32], dict[int, int]]] = []

        def improve(value_of: Callable[[Any], int]) -> None:
            found.append(proposal(model, value_of, c.position))

        run_cp_sat(
            model.proto,
            budget=budget,
            workers=1,
            seed=int(self.rng.integers(2**31 - 1)),
            on_solution=improve,
            on_bound=lambda bound: None,
            parameters={
                "linearization_level": 0,
                "cp_model_presolve": False,  # it takes longer than the search
                "max_deterministic_time": EFFORT,
            },
        )
        if found:
            self._put_back(model, c, s, window, *found[-1], low_tail)
        better = float(s.value[0]) < before * (1.0 - 1e-12)
        self.improved += better
        self.weights[kind] = 0.85 * self.weights[kind] + 0.15 * (3.0 if better else 0.2)
        return better

    def _put_back(
        self,
        model: WindowModel,
        c: Standing,
        s: Search,
        window: Window,
        order: npt.NDArray[np.int32],
        devices: dict[int, int],
        low_tail: npt.NDArray[np.float64],
    ) -> None:
        g, limits = self.g, self.limits
        old = c.order[window.first : window.last + 1].copy()
        came_from = {k: int(c.device[limits.member[limits.member_ptr[k]]]) for k in devices}
        units = limits.member_ptr, limits.member, limits.resident
        begin(c)
        for k, j in devices.items():
            put_unit(g, c, *units, k, j)
        reorder(c, window.first, order)
        makespan = retime(g, c, float(s.value[0]), low_tail)
        kept = (c.device.copy(), c.order.copy(), s.value.copy()) if np.isfinite(makespan) else None
        if kept is not None:
            commit(g, c)
            kept_cost(g, limits, c, s)
            if s.value[2] <= kept[2][2]:
                return
            # Live tensors no longer fit: back to what stood.
            begin(c)
        else:
            revert(c)
        reorder(c, window.first, old)
        for k, j in reversed(came_from.items()):
            put_unit(g, c, *units, k, j)
        if kept is not None:
            retime(g, c, np.inf, low_tail)
            commit(g, c)
            kept_cost(g, limits, c, s)

    def _critical(self, c: Standing) -> int:
        """Pick an operator on a critical way."""
        slack = c.ended.max() - (c.finish + c.tail)
        return int(self.rng.choice(np.flatnonzero(slack <= 1e-9 * c.ended.max() + slack.min())))

    def _within(self, c: Standing, first: int, last: int, wanted: Callable[[int], bool]) -> frozenset[int]:
        """Units with all operators between two positions that are wanted and have a choice."""
        limits = self.limits
        units = set()
        for v in c.order[first : last + 1].tolist():
            k = int(limits.unit_of[v])
            if not wanted(v) or limits.choice_ptr[k + 1] - limits.choice_ptr[k] < 2:
                continue
            at = c.position[limits.member[limits.member_ptr[k] : limits.member_ptr[k + 1]]]
            if at.min() >= first and at.max() <= last:
                units.add(k)
        return frozenset(units)

    def _some_devices(self, c: Standing, first: int, last: int) -> tuple[int, ...]:
        """Devices at work in the window, and others at random, a few."""
        D = self.g.processing.shape[1]
        used, counts = np.unique(c.device[c.order[first : last + 1]], return_counts=True)
        chosen = used[np.argsort(-counts, kind="stable")][:MOST_DEVICES].tolist()
        others = self.rng.permutation([i for i in range(D) if i not in chosen]).tolist()
        return tuple(int(i) for i in (chosen + others)[:MOST_DEVICES])

    def _time(self, c: Standing, width: int) -> Window | None:
        """All operators at some successive positions."""
        n = len(c.order)
        first = int(max(0, min(c.position[self._critical(c)] - self.rng.integers(width), n - width)))
        last = min(n - 1, first + width - 1)
        return Window(first, last, self._within(c, first, last, lambda v: True), self._some_devices(c, first, last))

    def _devices(self, c: Standing, width: int) -> Window | None:
        """Operators of two devices at successive positions, the others' only in time."""
        D = self.g.processing.shape[1]
        v = self._critical(c)
        i = int(c.device[v])
        if D < 3:
            return self._time(c, 2 * width)
        j = int(self.rng.choice([k for k in range(D) if k != i]))
        first = int(max(0, c.position[v] - self.rng.integers(width)))
        last, count = first, 0
        while last + 1 < len(c.order) and count < width and last - first < width + MOST_FIXED:
            last += 1
            count += c.device[c.order[last]] in (i, j)
        return Window(first, last, self._within(c, first, last, lambda v: c.device[v] in (i, j)), (i, j))

    def _connected(self, c: Standing, width: int) -> Window | None:
        """Operators near one of a critical way, in the graph; what lies between them moves only in time."""
        g = self.g
        v = self._critical(c)
        first = last = int(c.position[v])
        chosen, waiting = {v}, [v]
        while waiting and len(chosen) < width:
            v = waiting.pop(int(self.rng.integers(len(waiting))))
            made = g.reader[g.reader_ptr[g.made_ptr[v]] : g.reader_ptr[g.made_ptr[v + 1]]].tolist()
            for x in [*g.producer[g.read[g.read_ptr[v] : g.read_ptr[v + 1]]].tolist(), *made]:
                low, high = min(first, int(c.position[x])), max(last, int(c.position[x]))
                if x not in chosen and high - low < width + MOST_FIXED and len(chosen) < width:
                    first, last = low, high
                    chosen.add(x)
                    waiting.append(x)
        units = self._within(c, first, last, lambda v: v in chosen)
        return Window(first, last, units, self._some_devices(c, first, last))
