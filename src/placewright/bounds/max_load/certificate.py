"""Certificates of the configuration bound: how they are checked, and how they are found."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.bounds.max_load.hypergraph import Hypergraph
from placewright.bounds.max_load.master import Master, divided
from placewright.bounds.max_load.pricing import Pricing, Spent
from placewright.rounding import rounded_down

__all__ = ["GOAL", "Outcome", "Proof"]

Floats = npt.NDArray[np.float64]

GOAL = 5e-7
"""How far below the value of a plan, relative to it, a proof aims: within the tolerance of optimality."""

SLACK = 1e-9
"""Relative slack of limits and of profits in certificates: covers the rounding errors of their sums."""

RESOLUTION = 1e-5
"""Relative distance of bounds that are not told apart, other than from the goal."""

COARSE, FINE, FINEST = 512, 2048, 16384
"""Buckets of load: for columns, for proofs, for proofs that only just failed."""


MOST_FINER = 16
"""How often these are multiplied where columns say that a proof is near, and bounds do not yet."""


class Outcome(Enum):
    """Of an attempt to prove one limit."""

    PROVED = "proved"
    REACHABLE = "the linear program has a solution within the limit: no prices prove it"
    STUCK = "no new columns, and yet no proof"
    STOPPED = "out of time, or a better plan was found"


class Proof:
    """Attempts to prove limits, and the bound that they lead to.

    Attributes
    ----------
    lower_s : float
        Largest limit proved.
    reachable_s : float
        Least limit that no prices prove.
    """

    def __init__(
        self,
        h: Hypergraph,
        pricing: Pricing,
        free_pricing: Pricing | None,
        upper: Callable[[], float],
        lower_s: float,
        budget: Budget,
        on_better: Callable[[float], None],
    ) -> None:
        self.free_pricing, self.whole = free_pricing, False
        self.h, self.pricing, self.upper, self.budget, self.on_better = h, pricing, upper, budget, on_better
        self.paying, self.free = np.flatnonzero(h.pays), np.flatnonzero(~h.pays)
        self.count = np.array([len(h.kinds[c]) for c in self.paying], dtype=np.float64)
        self.total = float(self.count.sum())
        self.lower_s, self.own_s, self.reachable_s = lower_s, 0.0, np.inf
        self.iterations, self.finer = 0, 1
        least = h.time[self.paying].min(axis=0)
        self.work = np.where(np.isfinite(least), least, 0.0)
        self._pool: list[tuple[int, float, npt.NDArray[np.int8]]] = []
        self._seen: set[tuple[int, bytes]] = set()

    @property
    def lower_bound_s(self) -> float:
        """What has been proved here, with a slack for rounding errors; 0 if nothing."""
        return rounded_down(self.own_s)

    @property
    def spent(self) -> bool:
        """Whether to stop."""
        most = self.budget.iterations
        return self.budget.spent or (most is not None and self.iterations >= most)

    def proves(self, prices: Floats, share: Floats, limit: float, fineness: int, budget: Budget) -> bool:
        """Whether prices prove that no placement has loads of at most ``limit``.

        ``share`` is the part of the profit to allow one device of each kind: a guess that decides what is computed, not
        what is proved.

        Raises
        ------
        Spent
        """
        within = limit * (1.0 + SLACK)
        worth = self._worth(prices, within)
        if self.whole:
            worth = float(prices.sum()) - sum(self._taken(prices, within, fineness, budget))
        if worth <= 1e-6 * float(np.abs(prices).sum()):
            return False
        needed = 0.0
        for k, n in enumerate(self.count.tolist()):
            floor = max(0.0, worth * float(share[k]) * (1.0 - 2.0 * SLACK))
            needed += n * self.pricing.upper(k, prices, within, floor, fineness, budget)
            if needed >= worth * (1.0 - SLACK):
                return False
        return True

    def _worth(self, prices: Floats, within: float) -> float:
        """Profit that the devices that pay must take: all but what the others can."""
        h = self.h
        taken = sum(divided(prices, h.time[c], within, len(h.kinds[c]) * within) for c in self.free)
        return float(prices.sum() - taken)

    def _taken(self, prices: Floats, within: float, fineness: int, budget: Budget) -> list[float]:
        """Bound the profit that the devices of each kind that doesn't pay can take: of divided units, or of sets."""
        h, bounds = self.h, []
        for k, c in enumerate(self.free):
            n = len(h.kinds[c])
            parts = divided(prices, h.time[c], within, n * within)
            real, _ = self.real_free(k, prices, within, budget)
            assert self.free_pricing is not None
            whole = self.free_pricing.upper(k, prices, within, real, fineness, budget)
            bounds.append(min(parts, n * whole * (1.0 + SLACK)))
        return bounds

    def real_free(
        self, k: int, prices: Floats, within: float, budget: Budget
    ) -> tuple[float, list[npt.NDArray[np.int8]]]:
        """Most profit of a set that was found for the k-th kind that doesn't pay, and some sets."""
        assert self.free_pricing is not None
        floor = 0.9 * divided(prices, self.h.time[self.free[k]], within, within)
        real, found = self.free_pricing.sets(k, prices, within, floor, COARSE, budget)
        if not found and floor > 0.0:
            real, found = self.free_pricing.sets(k, prices, within, 0.0, COARSE, budget)
        return real, found

    def run(self) -> None:
        """Raise the bound until it meets the upper bound, prices can do no more, or the budget is spent."""
        self._raise(self._start())
        centre, share, halve = None, np.full(len(self.count), 1.0 / self.total), self.lower_s >= 0.98 * self.upper()
        upper, undecided = self.upper(), np.inf
        while not self.spent:
            if self.upper() < upper:  # what was tried aimed at something else
                upper, undecided, halve = self.upper(), np.inf, self.lower_s >= 0.98 * upper
            goal = upper * (1.0 - GOAL)
            closed = min(self.reachable_s, undecided)
            if self.lower_s >= goal:
                return
            if closed - self.lower_s < RESOLUTION * upper:
                if undecided > self.reachable_s or self.finer >= MOST_FINER:
                    return
                self.finer, undecided = 4 * self.finer, np.inf
                continue
            limit = min(goal, closed)
            if closed <= goal or (halve and limit - self.lower_s > 0.001 * upper):
                limit = self.lower_s + 0.5 * (limit - self.lower_s)
            reach, part = (0.05, 0.75) if self.lower_s >= 0.98 * upper else (0.5, 0.6)
            outcome, prices, parts = self._attempt(limit, centre, share, reach, self.budget.share(part))
            if outcome is Outcome.PROVED:
                self._raise(limit)
                centre, share, halve = prices, parts, True
            elif outcome is Outcome.REACHABLE and len(self.free) and not self.whole:
                self.whole = True  # parts of units on devices that don't pay may be what reaches it
            elif outcome is Outcome.REACHABLE:
                self.reachable_s = limit
            elif limit <= self.upper():
                centre, share, undecided = prices, parts, limit
                self._bisect(prices, parts, limit, FINEST * self.finer, self.budget.share(0.5, at_most_s=12.0))
                if outcome is Outcome.STUCK and self.finer < MOST_FINER:
                    self.finer, undecided = 4 * self.finer, np.inf

    def _raise(self, limit: float) -> None:
        self.own_s = max(self.own_s, limit)
        if limit > self.lower_s:
            self.lower_s = limit
            self.on_better(self.lower_bound_s)

    def _start(self) -> float:
        """Limit that the work of the units proves: no set of load at most T has more of it."""
        low, high = 0.0, float(self.upper())
        for _ in range(50):
            middle = 0.5 * (low + high)
            within = middle * (1.0 + SLACK)
            if self._worth(self.work, within) * (1.0 - SLACK) > self.total * within:
                low = middle
            else:
                high = middle
        return low

    def _bisect(self, prices: Floats, share: Floats, high: float, fineness: int, budget: Budget) -> None:
        """Raise the bound to what these prices prove."""
        low = self.lower_s
        try:
            while high - low > RESOLUTION * high:
                middle = 0.5 * (low + high)
                if self.proves(prices, share, middle, fineness, budget):
                    low = middle
                    self._raise(low)
                else:
                    high = middle
        except Spent:
            pass

    def _attempt(
        self, limit: float, centre: Floats | None, share: Floats, reach: float, budget: Budget
    ) -> tuple[Outcome, Floats, Floats]:
        """Column generation with smoothed prices, until a proof, or until the linear program has a solution."""
        h = self.h
        centre = self.work / limit if centre is None else centre
        tied = np.zeros(len(h))
        for e, row in enumerate(h.ends):
            tied[list(row)] += h.weight[self.paying, e].max()
        master = Master(h, limit, centre, reach * (np.minimum(tied, limit) + self.work) / limit + 1e-4, self.whole)
        for kind, load, chosen in self._pool:
            if load <= limit and (kind >= 0 or self.whole):
                master.add(kind, chosen)
        search = _Search(self, master, limit, budget, centre, share)
        try:
            return search.run(), search.best, search.best_share
        except Spent:
            return Outcome.STOPPED, search.best, search.best_share

    def keep(self, kind: int, chosen: npt.NDArray[np.int8]) -> None:
        """Remember a set for other limits."""
        key = kind, chosen.tobytes()
        if key not in self._seen:
            self._seen.add(key)
            pricing, row = (self.pricing, kind) if kind >= 0 else (self.free_pricing, -1 - kind)
            assert pricing is not None
            self._pool.append((kind, pricing.load(row, chosen), chosen))


class _Search:
    """One attempt: prices that are better and better, between the best so far and the linear program's."""

    def __init__(
        self, proof: Proof, master: Master, limit: float, budget: Budget, centre: Floats, share: Floats
    ) -> None:
        self.proof, self.master, self.limit, self.budget = proof, master, limit, budget
        self.best, self.best_share = centre, share
        self.ratio, self.fineness, self.tried = -np.inf, COARSE, 0

    def run(self) -> Outcome:
        p = self.proof
        first = True
        while True:
            if p.spent or self.budget.spent or p.upper() < self.limit:
                return Outcome.STOPPED
            p.iterations += 1
            solved = self.master.solve(self.budget.left_s)
            if solved is None:
                return Outcome.STOPPED
            value, prices, kinds = solved
            if value <= p.total * (1.0 + 1e-7):
                if self.master.widen():
                    continue
                return Outcome.REACHABLE
            found = 0
            for smooth in (1.0, 0.5, 0.0) if first else (0.5, 0.0):
                new, violated, outcome = self._price(smooth, prices, kinds)
                found += new
                if outcome is not None:
                    return outcome
                if violated:
                    break
            first = False
            if found == 0 and not self.master.widen():
                if self.fineness >= 8192:
                    return Outcome.STUCK
                self.fineness *= 4

    def _price(self, smooth: float, prices: Floats, kinds: Floats) -> tuple[int, bool, Outcome | None]:
        """Add columns for prices between the best and the master's: how many; whether it feels them; the end."""
        p = self.proof
        q = smooth * self.best + (1.0 - smooth) * prices
        share = smooth * self.best_share + (1.0 - smooth) * kinds / p.total
        worth, new = p._worth(q, self.limit), 0
        if p.whole:
            taken = 0.0
            for k, c in enumerate(p.free):
                real, sets = p.real_free(k, q, self.limit, self.budget)
                new += self._add([(-1 - k, chosen) for chosen in sets])
                taken += real * len(p.h.kinds[c])
            worth = max(worth, float(q.sum()) - taken)
        if worth <= 0.0:
            return new, False, None
        floors = worth * share
        tops, columns = self._columns(q, floors)
        needed = float((p.count * np.maximum(tops, 0.0)).sum())
        if (tops <= floors).all():
            if self._proved(q, share):
                self.best, self.best_share = q, share
                return 0, False, Outcome.PROVED
            if self.tried >= 10:
                self.best, self.best_share = q, share
                return 0, False, Outcome.STUCK
            # Nearly: go on from here, finer, and with columns from below the floor.
            self.ratio = max(self.ratio, 1.0)
            self.best, self.best_share = q * (p.total / needed), share
            self.fineness = min(2 * self.fineness, 8192)
            columns = self._columns(q, 0.98 * floors)[1] + self._columns(prices, kinds)[1]
            return new + self._add(columns), True, None
        if worth / needed > self.ratio:
            self.ratio, self.best, self.best_share = worth / needed, q, share
        violated = any(float(prices[chosen != 0].sum()) > kinds[k] + 1e-7 for k, chosen in columns)
        return new + self._add(columns), violated, None

    def _columns(self, q: Floats, floors: Floats) -> tuple[Floats, list[tuple[int, npt.NDArray[np.int8]]]]:
        pricing, tops, columns = self.proof.pricing, floors.copy(), []
        for k in range(len(floors)):
            floor = max(0.0, float(floors[k]))
            tops[k], found = pricing.sets(k, q, self.limit, floor, self.fineness, self.budget)
            columns += [(k, chosen) for chosen in found]
        return tops, columns

    def _add(self, columns: list[tuple[int, npt.NDArray[np.int8]]]) -> int:
        new = 0
        for kind, chosen in columns:
            new += self.master.add(kind, chosen)
            self.proof.keep(kind, chosen)
        return new

    def _proved(self, q: Floats, share: Floats) -> bool:
        self.tried += 1
        for fineness in (FINE, FINEST) if self.tried in (3, 6, 10) else (FINE,):
            if self.proof.proves(q, share, self.limit, fineness * self.proof.finer, self.budget):
                return True
        return False
