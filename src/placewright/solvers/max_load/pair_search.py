"""Search that shares out the units of two devices anew, in the best way, again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.max_load.hypergraph import hypergraph_of, incidence, reduced
from placewright.bounds.max_load.pricing import best_order
from placewright.evaluate import plan_for
from placewright.loads import loads_of, objective_of
from placewright.objective import busy_share_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.pair_moves import PairMoves

__all__ = ["PairSearch"]

Ints = npt.NDArray[np.int32]

ROUNDS = 200
"""Rounds when the budget limits neither seconds nor iterations."""

BETTER = 1e-9
"""What a value must be better by, relatively, to count."""

FLAT = 30.0
"""Exponent that makes a sum of powers of loads nearly their largest."""


@dataclass(frozen=True, slots=True)
class PairSearch:
    """Share out the vertices of two devices anew in the best way, the other devices being as they are. Ours.

    For a pair of devices a dynamic program over a vertex order lists what loads (L_i, L_j) can be made of their units;
    tensors whose other ends lie elsewhere, or that both devices share, are paid as they fall. A round is one of

    - a descent: pairs with the fullest device first, the least of L_i^30 + L_j^30;
    - before it, from the best placements so far, a move away: any of the ways to share out one to three pairs within 1
      to 10 % more than the best value; or each pair in turn shared out for the least sum of loads within 0 to 8 % more,
      which makes room; or now and then a start afresh from another order, cut into runs.

    Units that belong together in some optimal placement without memory limits are merged first. Memory is checked: ways
    that need too much are passed over. Any-time. The budget's ``iterations`` counts rounds (default: 200, or the
    seconds); with these alone the result depends on the seed alone.

    Guarantee: never worse than its incumbent; no bound.
    Complexity: states of a vertex order times ``fineness``, a pair of devices.
    Source: ours.
    When to use: for plans that need not be contiguous.

    Attributes
    ----------
    fineness : int
        Buckets of load in the dynamic program.
    target_s : callable or float
        Ends when a placement is as good as this: a bound, or what gives it while something else raises it.
    patience_s : float
        Ends when nothing better was found for so long.

    Examples
    --------
    Two chains of 2 + 2 s on two devices, transfers of 1 s.

    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator(v) for v in "abcd"], [Tensor("x", 0, (2,), 1), Tensor("y", 1, (3,), 1)])
    >>> two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, two, [[2.0, 2.0]] * 4, MaxLoad("any"))
    >>> PairSearch()(problem, budget=Budget(iterations=3), rng=np.random.default_rng(0)).value_s
    4.0
    """

    fineness: int = 512
    target_s: Callable[[], float] | float = 0.0
    patience_s: float = inf

    def supports(self, problem: Problem) -> str | None:
        """Return why a problem is out of reach, or ``None``."""
        objective, a = objective_of(problem), loads_of(problem)
        if objective.contiguity != "any":
            return "its moves know no order of devices; use order-search, or allow plans that are not contiguous"
        if objective.replicate:
            return "it places no replicas"
        if len(a.compute_s) > 1:
            return "it adds both passes, which are to count apart"
        if busy_share_of(objective) < 1.0:
            return "it adds computing and transfers, which are to overlap"
        if not a.separable or (a.send_s != a.receive_s).any():
            return "transfer times depend on the other device, or on the direction"
        if a.n_channels:
            return "links share channels"
        return None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on ``incumbent``, or on the best of some orders cut into runs."""
        begun, a = budget.elapsed_s, loads_of(problem)
        if not a.allowed.any(axis=1).all():
            return Result(solver="pair-search")
        search = _Search(problem, self, budget, rng, incumbent, on_progress)
        search.run()
        best = incumbent
        if search.value < (inf if incumbent is None else incumbent.value_s):
            made = Provenance("pair-search", None, "", {"rounds": search.rounds, "pairs": search.pairs_tried})
            found = plan_for(problem, a.devices_of(search.best[search.vertex_of]), provenance=made)
            if found is not None and (best is None or found.value_s < best.value_s):
                best = found
        return Result(best, solver="pair-search", runtime_s=budget.elapsed_s - begun)


class _Search:
    def __init__(
        self,
        problem: Problem,
        options: PairSearch,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None,
        on_progress: OnProgress,
    ) -> None:
        self.options, self.budget, self.rng, self.on_progress = options, budget, rng, on_progress
        a = loads_of(problem)
        whole = hypergraph_of(problem)
        far = 4.0 * float(np.where(np.isfinite(whole.time), whole.time, 0.0).max(axis=0).sum())
        far += 4.0 * float(np.where(np.isfinite(whole.weight), whole.weight, 0.0).max(axis=0, initial=0.0).sum()) or 1.0
        h = reduced(whole, far, budget)
        groups = h.groups
        held = np.array([a.resident[list(g)].sum() for g in groups])
        if (held.max(initial=0.0) > a.capacity).any() or not (h.time < far).any(axis=0).all():
            h = whole  # merged, something may fit nowhere
            groups, held = h.groups, np.array([a.resident[list(g)].sum() for g in h.groups])
        # The times of merged vertices on devices that don't pay are relaxed; these are not.
        time = np.array([[whole.time[c, list(g)].sum() for g in groups] for c in range(len(h.kinds))])
        h = replace(h, time=time)
        self.vertex_of = np.zeros(a.n_units, dtype=np.int32)
        for v, group in enumerate(groups):
            self.vertex_of[list(group)] = v
        graph = incidence(len(h), h.ends)
        orders = [best_order(graph, 200 if k == 0 else 10, rng, budget, 0.3) for k in range(8 if len(h) > 8 else 2)]
        self.moves = PairMoves(h, graph, orders, held, a.capacity, far, options.fineness)
        D = len(a.pays)
        self.pairs = [(i, j) for i in range(D) for j in range(i + 1, D)]
        self.value, self.best = inf, np.zeros(len(h), dtype=np.int32)
        self.base_value, self.base = inf, self.best
        self.rounds, self.pairs_tried, self.improved_at = 0, 0, budget.elapsed_s
        if incumbent is not None:
            self._start(incumbent.device_of[a.member[a.member_ptr[:-1]]], incumbent.value_s)

    def _start(self, unit_device: Ints, value: float) -> None:
        """Begin where merged vertices lie together in a placement, or where most of one does."""
        self.value = value
        device = np.zeros(len(self.best), dtype=np.int32)
        device[self.vertex_of] = unit_device
        self.best = device
        if not self._legal(device) or self.moves.loads(device).max() > value * (1 + BETTER):
            self.base_value = inf
        else:
            self.base, self.base_value = device, value

    def _legal(self, device: Ints) -> bool:
        here = self.moves.time[device, np.arange(len(device))] < self.moves.far
        return bool(here.all()) and self.moves.fits(device)

    @property
    def over(self) -> bool:
        """Whether to stop."""
        target, patience = self.options.target_s, self.options.patience_s
        goal = target if isinstance(target, float | int) else target()
        waited = self.budget.elapsed_s - self.improved_at
        return self.budget.spent or self.value <= goal * (1 + BETTER) or waited > patience

    def run(self) -> None:
        """Run rounds until the budget is spent or the target reached."""
        most = self.budget.iterations
        if most is None and self.budget.seconds == inf and self.options.patience_s == inf:
            most = ROUNDS
        starts = self._starts()
        if self.base_value == inf:
            self.base_value, self.base = starts[0] if starts else (inf, self.base)
        device = self.base
        if self.base_value == inf:
            return
        while not self.over and (most is None or self.rounds < most):
            device, value = self._descend(device)
            self.rounds += 1
            self._keep(device, value)
            if self.rounds == 1:
                self.on_progress(Progress("pair-search", self.value, 0.0, self.budget.elapsed_s))
            if len(self.pairs) == 0:
                return
            # Accept as base: what is hardly worse.
            if value <= self.base_value * (1.0 + float(self.rng.choice([0.0, 0.0, 5e-4, 2e-3]))):
                self.base, self.base_value = device, value
            elif self.rng.random() < 0.1 and self._legal(self.best):
                self.base, self.base_value = self.best, self.value
            chance = self.rng.random()
            if chance < 0.1 and starts:
                device = starts[int(self.rng.integers(len(starts)))][1]
            elif chance < 0.45:
                device = self._kicked(self.base)
            else:
                device = self._lightened(self.base)

    def _starts(self) -> list[tuple[float, Ints]]:
        """Orders cut into runs, best first; or vertices one by one where no order can be."""
        made = [self.moves.chain(k, self.rng) for k in range(len(self.moves.orders)) if not self.budget.spent]
        made = [device for device in made if device is not None]
        if not made:
            made = [self.moves.alone(self.rng)]
        found = [(float(self.moves.loads(device).max()), device) for device in made if device is not None]
        found = [(value, device) for value, device in found if self._legal(device)]
        return sorted(found, key=lambda row: row[0])

    def _keep(self, device: Ints, value: float) -> None:
        if value < self.value * (1.0 - BETTER) and self._legal(device):
            self.value, self.best, self.improved_at = value, device, self.budget.elapsed_s
            self.on_progress(Progress("pair-search", value, 0.0, self.budget.elapsed_s))

    def _order(self) -> int:
        return int(self.rng.integers(len(self.moves.orders)))

    def _descend(self, device: Ints) -> tuple[Ints, float]:
        """Share out pairs, the fullest device's first, while that makes the larger load of the pair less."""
        failed: set[tuple[int, int]] = set()
        loads = self.moves.loads(device)
        while not self.over:
            top = float(loads.max())
            fullest = int(loads.argmax())
            left = [p for p in self.pairs if p not in failed]
            if not left or top <= 0.0:
                break
            first = [p for p in left if fullest in p] or left
            i, j = first[int(self.rng.integers(len(first)))]
            choice = self.moves.choice(device, (i, j), top, self._order())
            self.pairs_tried += 1
            new = None
            if len(choice):
                power = ((choice.loads / top) ** FLAT).sum(axis=1)
                k = int(power.argmin())
                if power[k] < ((loads[[i, j]] / top) ** FLAT).sum() * (1.0 - 1e-6):
                    new = choice.placement(k)
            if new is None:
                failed.add((i, j))
                continue
            device, loads = new, self.moves.loads(new)
            failed = {p for p in failed if i not in p and j not in p}
        return device, float(loads.max())

    def _kicked(self, device: Ints) -> Ints:
        """Share out one to three random pairs in any way."""
        for _ in range(int(self.rng.choice([1, 1, 2, 3]))):
            limit = self.value * (1.0 + float(self.rng.choice([0.01, 0.03, 0.06, 0.1])))
            device = self._any(device, self.pairs[int(self.rng.integers(len(self.pairs)))], limit)
        return device

    def _any(self, device: Ints, pair: tuple[int, int], limit: float) -> Ints:
        choice = self.moves.choice(device, pair, limit, self._order())
        self.pairs_tried += 1
        new = choice.placement(int(self.rng.integers(len(choice)))) if len(choice) else None
        return device if new is None else new

    def _lightened(self, device: Ints) -> Ints:
        """Share out each pair for the least sum of loads, those of devices that don't pay hardly counted."""
        limit = self.value * (1.0 + float(self.rng.choice([0.0, 0.002, 0.005, 0.01, 0.03, 0.08])))
        anyhow = float(self.rng.choice([0.0, 0.0, 0.1, 0.3]))
        worth = np.where(self.moves.pays, 1.0, 1e-3)
        for k in self.rng.permutation(len(self.pairs)).tolist():
            if self.over:
                break
            pair = self.pairs[k]
            if self.rng.random() < anyhow:
                device = self._any(device, pair, limit)
                continue
            choice = self.moves.choice(device, pair, limit, self._order())
            self.pairs_tried += 1
            if not len(choice):
                continue
            total = choice.loads @ worth[list(pair)]
            loose = float(self.rng.choice([0.0, 0.0, 5e-4, 2e-3])) * limit
            near = np.flatnonzero(total <= total.min() * (1.0 + BETTER) + loose)
            new = choice.placement(int(self.rng.choice(near)))
            device = device if new is None else new
        return device
