"""One copy of the network, parted among the devices: the pipeline of the least max-load."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.algorithm import Algorithm, Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.one_copy import one_copy
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["ModelParallel"]


@dataclass(frozen=True, slots=True)
class ModelParallel:
    """Take the best pipeline: a plan with one copy is one of the max-load, and its value the same.

    Each algorithm starts from the plan of the one before.

    Guarantee: the best plan with one copy where the last algorithm proves it; no bound, since several copies may be
    better.
    Complexity: that of its algorithms.
    Source: ours, from algorithms of the max-load.
    When to use: to know what one pipeline alone brings.

    Attributes
    ----------
    quick : tuple of Algorithm
        For the max-load, in turn, each with a tenth of what is left.
    contiguous, free : tuple of Algorithm
        What follows where copies are contiguous, and where they aren't, with equal parts of what is left.
    """

    quick: tuple[Algorithm, ...]
    contiguous: tuple[Algorithm, ...]
    free: tuple[Algorithm, ...]

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Search the best pipeline."""
        begun, pipeline = budget.elapsed_s, one_copy(problem)
        best = Result(solver="model-parallel")

        def report(progress: Progress) -> None:
            on_progress(Progress("model-parallel", progress.value_s, 0.0, budget.elapsed_s))

        contiguity = pipeline.objective.contiguity  # type: ignore[union-attr]
        last = self.contiguous if contiguity == "contiguous" else self.free
        for k, algorithm in enumerate((*self.quick, *last)):
            supports = getattr(algorithm, "supports", None)
            if budget.spent or (supports is not None and supports(pipeline) is not None):
                continue
            left = len(last) - (k - len(self.quick))
            part = budget.share(0.1 if k < len(self.quick) else 1.0 / left)
            found = algorithm(pipeline, budget=part, rng=rng.spawn(1)[0], incumbent=best.plan, on_progress=report)
            best = best.merge(replace(found, lower_bound_s=0.0, bounds={}, alternatives={}))
        split = best.plan
        if split is None:
            return Result(solver="model-parallel", runtime_s=budget.elapsed_s - begun)
        plan = plan_for(problem, split.device_of, provenance=Provenance("model-parallel"))
        return Result(plan, solver="model-parallel", runtime_s=budget.elapsed_s - begun)
