"""A search of the makespan and what proves it, at the same time, in rounds after which each has the other's best."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from placewright.algorithm import Algorithm, Budget, OnProgress, Progress, ignore
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.solvers.makespan.large_neighbourhood import LargeNeighbourhood

__all__ = ["SearchAndProof"]

POLL_S = 0.02
"""How often the two are looked at."""

CLOSE = 0.9 * OPTIMALITY_TOLERANCE
"""Relative gap at which both end."""


class _Known:
    """Value and bound that all threads know; a number is replaced as one, so that no lock is needed."""

    def __init__(self, value_s: float, bound_s: float) -> None:
        self.value_s, self.bound_s, self.searched_s = value_s, bound_s, value_s

    def target_s(self) -> float:
        """Value that is as good as proved optimal."""
        return self.bound_s * (1.0 + CLOSE)

    def saw_search(self, progress: Progress) -> None:
        """Take note of what the search has found."""
        self.searched_s = min(self.searched_s, progress.value_s)
        self.saw(progress)

    def saw(self, progress: Progress) -> None:
        """Take note of a value or a bound."""
        self.value_s = min(self.value_s, progress.value_s)
        self.bound_s = max(self.bound_s, progress.lower_bound_s)


@dataclass(frozen=True, slots=True)
class SearchAndProof:
    """``large-neighbourhood`` in one thread, algorithms that prove or solve exactly in another, one after the other.

    The kernels, HiGHS and CP-SAT let both cores work. Each algorithm of the second thread gets its share of what is
    left and the best plan so far; when all are through, a second search from another seed and at lower temperatures
    takes their place. When one of the second thread ends with a better plan than the first thread's, the search starts
    again from it. With a budget of iterations one comes after the other, so that the result depends on the seed alone.

    Attributes
    ----------
    proofs : tuple of (name, algorithm, share)
        For the second thread, in turn.
    lower_s : float
        A bound that is known already.
    """

    proofs: tuple[tuple[str, Algorithm, float], ...] = ()
    lower_s: float = 0.0

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
        if budget.iterations is None:
            return self._side_by_side(problem, budget, rng, incumbent, known, on_progress)
        search = LargeNeighbourhood(target_s=known.target_s)
        found = search(problem, budget=budget, rng=rng.spawn(1)[0], incumbent=incumbent, on_progress=on_progress)
        for name, algorithm, _ in self.proofs:
            if found.value_s > found.lower_bound_s * (1.0 + CLOSE):
                proved = algorithm(problem, budget=budget, rng=rng.spawn(1)[0], incumbent=found.plan)
                found = found.merge(_named(proved, name, found.plan))
                known.bound_s = max(known.bound_s, found.lower_bound_s)
        return found

    def _side_by_side(
        self,
        problem: Problem,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None,
        known: _Known,
        on_progress: OnProgress,
    ) -> Result:
        ours = Budget(budget.left_s)
        best = Result(incumbent, lower_bound_s=self.lower_s)
        reported = (known.value_s, known.bound_s)
        searching = ours
        waiting = list(self.proofs)
        cycles = 0

        def search(part: Budget, seed: np.random.Generator, hot: float) -> Result:
            algorithm = LargeNeighbourhood(hot=hot, target_s=known.target_s)
            known.searched_s = min(known.searched_s, best.value_s)
            return algorithm(problem, budget=part, rng=seed, incumbent=best.plan, on_progress=known.saw_search)

        def prove(name: str, algorithm: Algorithm, part: Budget, seed: np.random.Generator) -> Result:
            start = best.plan
            found = algorithm(problem, budget=part, rng=seed, incumbent=start, on_progress=known.saw)
            return _named(found, name, start)

        with ThreadPoolExecutor(2, "placewright") as threads:
            first: Future[Result] | None = None
            second: Future[Result] | None = None
            try:
                while not ours.spent:
                    if first is None:
                        searching = Budget(ours.left_s)
                        first = threads.submit(search, searching, rng.spawn(1)[0], (0.01, 0.003)[cycles % 2])
                        cycles += 1
                    if second is None and waiting:
                        name, algorithm, share = waiting.pop(0)
                        part = Budget(ours.left_s * share, cancelled=ours.cancelled)
                        second = threads.submit(prove, name, algorithm, part, rng.spawn(1)[0])
                    elif second is None:
                        part = Budget(ours.left_s * (1.0 if cycles > 1 else 0.5), cancelled=ours.cancelled)
                        second = threads.submit(search, part, rng.spawn(1)[0], 0.003)
                    began = time.monotonic()
                    running = [future for future in (first, second) if future is not None]
                    done, _ = wait(running, POLL_S, FIRST_COMPLETED)
                    for future in done:
                        best = best.merge(future.result())
                        known.bound_s = max(known.bound_s, best.lower_bound_s)
                        known.value_s = min(known.value_s, best.value_s)
                    if second in done and first not in done and best.value_s < known.searched_s * (1.0 - 1e-9):
                        searching.cancelled.set()  # it goes on from the better plan
                    first = None if first in done else first
                    second = None if second in done else second
                    if done and time.monotonic() - began < POLL_S / 2:
                        time.sleep(POLL_S / 2)  # what ends at once is not asked again and again
                    if budget.spent or known.value_s <= known.target_s():
                        break
                    if (known.value_s, known.bound_s) != reported:
                        reported = known.value_s, known.bound_s
                        on_progress(Progress("large-neighbourhood", *reported, budget.elapsed_s))
            finally:
                ours.cancelled.set()
                searching.cancelled.set()
            for last in (first, second):
                if last is not None:
                    best = best.merge(last.result())
        return best


def _named(result: Result, name: str, start: Plan | None) -> Result:
    """List a plan of its own among the alternatives."""
    if result.plan is None or result.plan is start:
        return result
    return replace(result, alternatives={**result.alternatives, name: result.value_s})
