"""A search and a proof at the same time: each tells the other what it has."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import inf

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.bounds.max_load.configuration import Configuration
from placewright.clock import now_s
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.solvers.max_load.annealing import LoadAnnealing
from placewright.solvers.max_load.pair_search import PairSearch

__all__ = ["SideBySide"]

POLL_S = 0.02
"""How often the two are looked at."""

CLOSE = 0.9 * OPTIMALITY_TOLERANCE
"""Relative gap at which both end."""


class _Known:
    """Value and bound that both threads know; a number is replaced as one, so that no lock is needed."""

    def __init__(self, value_s: float, bound_s: float) -> None:
        self.value_s, self.bound_s, self.improved = value_s, bound_s, now_s()
        self.begun = self.searched = False

    @property
    def target_s(self) -> float:
        """Value that is as good as proved optimal."""
        return self.bound_s * (1.0 + CLOSE)

    def saw(self, progress: Progress) -> None:
        """Take note of a value or a bound."""
        self.begun = True
        if progress.value_s < self.value_s:
            self.value_s, self.improved = progress.value_s, now_s()
        self.bound_s = max(self.bound_s, progress.lower_bound_s)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """``pair-search`` and ``configuration`` in a thread each; the kernels and HiGHS let both cores work.

    The proof begins when the search has found nothing better for a moment, and aims at its value, which may fall
    meanwhile; the search ends when it has met the bound. When the proof can do no more a second search, from another
    seed, takes its place; annealing where no bound was proved, since graphs too wide for one are so for the other.
    With a budget of iterations one comes after the other, so that the result depends on the seed alone.

    Attributes
    ----------
    lower_s : float
        A bound that is known already.
    patience_s : float
        Ends when the proof can do no more and the search found nothing better for so long.
    """

    lower_s: float = 0.0
    patience_s: float = inf

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Improve on ``incumbent`` and on the bound."""
        known = _Known(inf if incumbent is None else incumbent.value_s, self.lower_s)
        seeds = rng.spawn(3)
        if budget.iterations is not None:
            found = PairSearch()(problem, budget=budget, rng=seeds[0], incumbent=incumbent, on_progress=on_progress)
            proof = Configuration(lower_s=self.lower_s)
            return found.merge(proof(problem, budget=budget, rng=seeds[1], incumbent=found.plan))
        return self._run(problem, budget, seeds, incumbent, known, on_progress)

    def _run(
        self,
        problem: Problem,
        budget: Budget,
        seeds: list[np.random.Generator],
        incumbent: Plan | None,
        known: _Known,
        on_progress: OnProgress,
    ) -> Result:
        quiet_s = min(1.0, 0.002 * len(problem.graph))
        ours = Budget(budget.left_s)
        begin_by = now_s() + 0.1 * budget.left_s

        def settle() -> None:
            while not (ours.spent or known.searched or now_s() > begin_by):
                if known.begun and now_s() - known.improved > quiet_s:
                    return
                time.sleep(POLL_S / 4)

        def search(seed: np.random.Generator) -> Result:
            algorithm = PairSearch(target_s=lambda: known.target_s)
            try:
                return algorithm(problem, budget=ours, rng=seed, incumbent=incumbent, on_progress=known.saw)
            finally:
                known.searched = True

        def anneal(seed: np.random.Generator) -> Result:
            return LoadAnnealing()(problem, budget=ours, rng=seed, incumbent=incumbent, on_progress=known.saw)

        def prove(seed: np.random.Generator) -> Result:
            algorithm = Configuration(lambda: known.value_s, known.bound_s, settle)
            return algorithm(problem, budget=ours, rng=seed, incumbent=incumbent, on_progress=known.saw)

        reported, result = (known.value_s, known.bound_s), Result()
        with ThreadPoolExecutor(2, "placewright") as threads:
            proof = threads.submit(prove, seeds[1])
            left: set[Future[Result]] = {threads.submit(search, seeds[0]), proof}
            try:
                while left:
                    done, left = wait(left, POLL_S, FIRST_COMPLETED)
                    for future in done:
                        result = result.merge(future.result())
                    if proof in done and left and not ours.spent and known.value_s > known.target_s:
                        wide = proof.result().lower_bound_s <= 0.0
                        left.add(threads.submit(anneal if wide else search, seeds[2]))
                    idle = proof not in left and now_s() - known.improved > self.patience_s
                    if budget.spent or idle or known.value_s <= known.target_s:
                        ours.cancelled.set()
                    if (known.value_s, known.bound_s) != reported:
                        reported = known.value_s, known.bound_s
                        on_progress(Progress("pair-search", *reported, budget.elapsed_s))
            finally:
                ours.cancelled.set()
        return result
