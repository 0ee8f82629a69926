"""A split made for a pipeline, taken for one sample."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.algorithm import Algorithm, Budget, OnProgress, ignore
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.as_max_load import as_max_load
from placewright.solvers.copies import with_copies
from placewright.solvers.judged import judged, settled

__all__ = ["MaxLoadSplit"]


@dataclass(frozen=True, slots=True)
class MaxLoadSplit:
    """Take the contiguous split of the least max-load, a baseline of arXiv 2006.16423 for the latency.

    Each accelerator makes one call, since the split is contiguous. Even loads are what a pipeline wants, not one
    sample: there is no guarantee. Of splits of equal max-load, which are many, the heuristic's is taken where it is
    better for one sample. The inner searches share the budget; what the first finds is where the second starts.

    Guarantee: none: even loads are what a pipeline wants, not one sample.
    Complexity: that of the inner searches.
    Source: a baseline of arXiv 2006.16423 for the latency.
    When to use: to compare with the paper.

    Attributes
    ----------
    quick, inner : Algorithm
        For the max-load: a heuristic, and what improves on its plan.
    cores : int
        CPUs that the pipeline has in place of the pool, where the cluster has it as one device: 8, as in the published
        files.
    """

    quick: Algorithm
    inner: Algorithm
    cores: int = 8

    def pipeline(self, problem: Problem) -> Problem:
        """Return the max-load problem that is split."""
        cpus = [i for i, d in enumerate(problem.cluster.devices) if d.kind == "cpu"]
        pipeline = as_max_load(problem)
        return with_copies(pipeline, cpus[0], self.cores - 1) if len(cpus) == 1 else pipeline

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Split for the pipeline, then judge for one sample."""
        begun, pipeline = budget.elapsed_s, self.pipeline(problem)
        first = self.quick(pipeline, budget=budget.share(0.2), rng=rng)
        second = self.inner(pipeline, budget=budget, rng=rng, incumbent=first.plan)
        cpu = next((i for i, d in enumerate(problem.cluster.devices) if d.kind == "cpu"), 0)
        least = min(first.value_s, second.value_s)
        found = Result(solver="max-load-split")
        for split in (second.plan, first.plan):
            if split is not None and split.value_s <= least * (1.0 + 1e-9):
                device = np.where(split.device_of < len(problem.cluster), split.device_of, cpu)
                found = found.merge(judged(problem, device, Provenance("max-load-split")))
        return replace(settled(found), solver="max-load-split", runtime_s=budget.elapsed_s - begun)
