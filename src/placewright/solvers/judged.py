"""What an algorithm that may end with a placement that breaks a rule returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from placewright.evaluate import evaluate
from placewright.evaluate.offload import fewest_calls
from placewright.objective import Offload
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["judged", "settled"]


def judged(
    problem: Problem,
    device_of: npt.ArrayLike,
    provenance: Provenance,
    *,
    replicas: Sequence[Sequence[int]] = (),
) -> Result:
    """Make a placement the plan of a result, or where it breaks a rule what was rejected, with the first such rule.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph
    >>> graph = OperatorGraph([Operator("a", weight_bytes=9)])
    >>> small = Problem(graph, Cluster([Device("gpu", memory_bytes=8)]), [[2.0]], "max-load")
    >>> result = judged(small, [0], Provenance("scotch"))
    >>> result.plan, result.rejected_s, result.rejected.split(" (")[0]
    (None, 2.0, "device 'gpu' needs 9 B")
    """
    found = evaluate(problem, device_of, replicas=replicas)
    if not found.feasible:
        return Result(solver=provenance.solver, rejected_s=found.value_s, rejected=found.violations[0])
    stages = tuple(tuple(int(i) for i in stage) for stage in replicas)
    calls = fewest_calls(problem, device_of) if isinstance(problem.objective, Offload) else None
    plan = Plan(np.asarray(device_of, dtype=np.int32), found.schedule, found.value_s, provenance, stages, calls)
    return Result(plan, solver=provenance.solver)


def settled(result: Result) -> Result:
    """Forget what was rejected where the plan is no worse."""
    if result.plan is None or result.rejected_s < result.value_s:
        return result
    return replace(result, rejected_s=float("inf"), rejected="")
