"""Placeto: a graph network that learns to place by policy gradient."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import workspace
from placewright._kernel.simulate import simulate
from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.left_running import leave
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.makespan.placeto_groups import Groups, groups_of
from placewright.solvers.makespan.start import limits_of, starting_placement

if TYPE_CHECKING:
    from placewright.solvers.makespan.placeto_policy import Policy

__all__ = ["Placeto"]

UPDATES = 200
"""Updates of a search that has no limit of its own."""

WORST = 10.0
"""Costs are cut off at so many times that of the start, also those that are infinite."""


@dataclass(frozen=True, slots=True)
class Placeto:
    """Learn a policy that improves a placement step by step (Addanki et al. 2019, arXiv 1906.08879).

    Minimises the makespan. An episode begins with the start's placement and visits every group of operators once, in
    topological order; the policy draws a device for the current group, and the reward is by how much the simulated
    makespan falls. A state is the placement of all groups; the features of a group are its run times, the bytes that it
    sends, its device (one-hot), and whether it is the current one and has been visited. The network is
    :class:`placewright.solvers.makespan.placeto_policy.Policy`: messages along and against the edges, pooling over
    what is before, behind and beside the current group. It is trained by REINFORCE: the rewards still to come in the
    episode less their mean at this step over the last ``memory`` updates, times the gradient of the logarithm of the
    chance; an entropy term that fades out linearly keeps it exploring. The best placement met on the way is returned,
    judged.

    What the paper leaves open, or where this differs:

    - It is trained on this problem alone, within the budget; the paper also transfers policies between networks.
    - Operators are merged with the neighbours they exchange most bytes with, the shortest first, until ``groups`` are
      left (:func:`placewright.solvers.makespan.placeto_groups.groups_of`); the paper groups them too. ``groups`` is
      small, as an episode takes so many evaluations of the network.
    - Devices are unlike: a group has a run time for each, and draws only from those it is allowed.
    - Messages go a fixed number of ``rounds`` along the edges, as the authors' program may, not through all levels of
      the graph; means are taken where it has sums unless told otherwise.
    - Makespans are those of list scheduling with the longest remaining path first, relative to that of the start, at
      most 10; placements beyond the memory pay for it, and are never returned.
    - ``workers`` episodes make one update, in one thread; all begin with the incumbent, or with a placement that fills
      the fastest devices. Rates of learning are higher than published, for budgets of seconds.

    Any-time. The budget's ``iterations`` counts updates (default: 200, or the seconds). Loading torch counts, too.

    Guarantee: never worse than its incumbent; no bound.
    Complexity: ``workers * groups`` simulations of O(E + n log n) an update, and as many evaluations of the network,
    O(groups^2) each.
    Source: Addanki et al. 2019 (arXiv 1906.08879); a baseline of Moirai.
    When to use: to compare with learnt placement; needs torch.

    Attributes
    ----------
    groups, rounds, workers, memory : int
    rate, last_rate : float
        Of learning, at the start and at the end of the budget.
    entropy : float
        Weight of the entropy at the start; 0 at the end.
    """

    groups: int = 32
    rounds: int = 8
    workers: int = 4
    memory: int = 10
    rate: float = 1e-2
    last_rate: float = 1e-3
    entropy: float = 0.02

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach: torch is missing."""
        if find_spec("torch") is None:
            return 'it needs torch; install it with pip install "placewright[torch]"'
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
        """Train until the budget is spent."""
        begun = budget.elapsed_s
        if not arrays_of(problem).allowed.any(axis=1).all() or budget.spent:
            return Result(incumbent, solver="placeto", runtime_s=budget.elapsed_s - begun)
        if not _loaded(budget):
            return Result(incumbent, solver="placeto", runtime_s=budget.elapsed_s - begun)
        from placewright.solvers.makespan.placeto_policy import Policy

        training = Training(problem, incumbent, self.groups, on_progress)
        total = budget.iterations
        if total is None and not np.isfinite(budget.seconds):
            total = UPDATES
        opened, span = budget.elapsed_s, max(1e-9, budget.left_s)
        done = 0
        with _one_thread():
            policy = Policy(training.groups, training.features, self.rounds, rng)
            while done != total and not budget.spent:
                fading = 1.0 - (done / total if total else min(1.0, (budget.elapsed_s - opened) / span))
                rate = self.last_rate + fading * (self.rate - self.last_rate)
                if not training.update(policy, budget, rng, self.workers, self.memory, fading * self.entropy, rate):
                    break
                done += 1
        return Result(training.best, solver="placeto", runtime_s=budget.elapsed_s - begun)


class Training:
    """Episodes on one problem: the best plan met, and the mean value at the end of the episodes of each update."""

    def __init__(self, problem: Problem, incumbent: Plan | None, groups: int, on_progress: OnProgress = ignore) -> None:
        a = arrays_of(problem)
        device = starting_placement(problem) if incumbent is None else incumbent.device_of
        self.groups = groups_of(problem, groups, device)
        self.problem, self.best, self.on_progress = problem, incumbent, on_progress
        self.ends: list[float] = []
        self._network, self._limits, self._work = a.network, limits_of(a), workspace(a.network)
        self._start = _placed(self.groups, device)
        self._before: list[npt.NDArray[np.float64]] = []
        seconds, sent = self.groups.seconds, self.groups.sent_bytes
        G, D = seconds.shape
        self.features = 2 * D + 3
        self._fixed = np.zeros((G, self.features), dtype=np.float32)
        self._fixed[:, :D] = seconds / max(seconds.max(), 1e-300)
        self._fixed[:, D] = sent / max(1.0, sent.max())
        self._scale = 1.0
        cost = float(self.judged(self._start[None], Budget())[0])
        self._scale = cost if 0.0 < cost < np.inf else float(seconds.max(axis=1).sum()) or 1.0

    def update(
        self,
        policy: Policy,
        budget: Budget,
        rng: np.random.Generator,
        workers: int,
        memory: int,
        entropy: float,
        rate: float,
    ) -> bool:
        """Play an episode with each worker and improve the policy; False when the budget was spent on the way."""
        G, D = self.groups.allowed.shape
        placed = np.repeat(self._start[None], workers, axis=0)
        states = np.zeros((G, workers, G, self.features), dtype=np.float32)
        chosen = np.zeros((G, workers), dtype=np.int64)
        costs = np.zeros((G + 1, workers))
        costs[0] = self._capped(self.judged(placed, budget))
        for x in range(G):
            if budget.spent:
                return False
            states[x] = self._fixed
            np.put_along_axis(states[x, :, :, D + 1 : 2 * D + 1], placed[:, :, None], 1.0, axis=2)
            states[x, :, x, 2 * D + 1] = 1.0
            states[x, :, :x, 2 * D + 2] = 1.0
            chances = policy.chances(states[x], np.full(workers, x)).cumsum(axis=1)
            draws = rng.random((workers, 1)) * chances[:, -1:]
            chosen[x] = (draws >= chances).sum(axis=1)
            placed[:, x] = chosen[x]
            costs[x + 1] = self._capped(self.judged(placed, budget))
        self.ends.append(float(costs[-1].mean()) * self._scale)
        to_come = costs[:-1] - costs[-1]
        self._before = [*self._before[1 - memory :], to_come.mean(axis=1)]
        advantage = to_come - np.mean(self._before, axis=0)[:, None]
        current = np.repeat(np.arange(G), workers)
        states = states.reshape(G * workers, G, self.features)
        gains = advantage.astype(np.float32).ravel()
        return policy.improve(states, current, chosen.ravel(), gains, entropy, rate, lambda: budget.spent)

    def _capped(self, costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.minimum(costs / self._scale, WORST)

    def judged(self, placed: npt.NDArray[np.int64], budget: Budget) -> npt.NDArray[np.float64]:
        """Seconds of placements of the groups; the best that fits so far becomes the plan."""
        devices = placed.astype(np.int32)[:, self.groups.of]
        costs, fits = np.zeros(len(devices)), np.zeros(len(devices), dtype=np.bool_)
        simulate(self._network, self._limits, devices, self._work, costs, fits)
        leader = int(np.argmin(np.where(fits, costs, np.inf)))
        if fits[leader] and costs[leader] < (np.inf if self.best is None else self.best.value_s):
            provenance = Provenance("placeto", None, "", {"updates": len(self.ends)})
            found = plan_for(self.problem, devices[leader], provenance=provenance)
            if found is not None and (self.best is None or found.value_s < self.best.value_s):
                self.best = found
                self.on_progress(Progress("placeto", found.value_s, 0.0, budget.elapsed_s))
        return costs


def _loaded(budget: Budget) -> bool:
    """Load torch in a thread of its own, so that Ctrl-C is heard meanwhile; False when the budget was spent first."""

    def load() -> None:
        with suppress(ImportError):  # which the caller meets again
            import_module("placewright.solvers.makespan.placeto_policy")

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        if budget.spent and thread.is_alive():
            leave(thread)
            return False
    return True


def _placed(groups: Groups, device_of: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """(G,) of each group the allowed device that most of its members are on."""
    count = np.zeros(groups.allowed.shape)
    np.add.at(count, (groups.of, device_of), 1.0)
    return np.asarray(np.argmax(np.where(groups.allowed, count, -1.0), axis=1), dtype=np.int64)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in one thread: results may depend on their number, and small matrices gain nothing by more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
