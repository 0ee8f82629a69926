"""Constraint programming with optional intervals on OR-Tools' CP-SAT: exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.cp_sat_run import run_cp_sat
from placewright.solvers.makespan.cp_sat_model import build, decisions
from placewright.solvers.makespan.start import starting_placement

__all__ = ["CpSat"]

STRATEGIES = ("no_lp", "fixed", "quick_restart_no_lp")
"""CP-SAT's names of what its workers do, the first ones first. A second, different strategy is worth its core: alone,
``no_lp`` raised its bound by a quantum at a time on some problems of five operators, and never ended."""


@dataclass(frozen=True, slots=True)
class CpSat:
    """Exact makespan by CP-SAT; see :mod:`placewright.solvers.makespan.cp_sat_model` for the model.

    Guarantee: the lower bound holds for the unrounded problem, since every duration is rounded down to whole quanta
    (an integer schedule in the same order is then never longer than the real one); every plan is retimed with the
    unrounded durations. Peak activations are not in the model: it relaxes memory to weights and KV cache, so the
    bound holds, and plans that exceed the memory are dropped. Devices that can be swapped, whose links are alike in
    both directions, are tried in one numbering alone: a plan is none the worse in it. Any-time. The budget's
    ``iterations`` counts CP-SAT's deterministic time units (about seconds) on one worker, which makes the result depend
    on the seed alone.

    Complexity: exponential at worst; up to 100,000 tensors times pairs of devices the model is built.
    Source: ours: optional intervals on CP-SAT.
    When to use: to prove plans of up to some hundred operators, and modules of large ones.

    Attributes
    ----------
    workers : int
        Threads; 1 when the budget counts iterations.
    """

    workers: int = 2

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Search for a better plan than the incumbent, and for a bound, until the budget is spent."""
        begun = budget.elapsed_s
        a = arrays_of(problem)
        if not a.allowed.any(axis=1).all():
            return Result(incumbent, solver="makespan-cp-sat")
        if incumbent is None:
            # Without a horizon that a plan sets, propagation can creep on for ever in steps of one quantum.
            incumbent = plan_for(problem, starting_placement(problem), provenance=Provenance("makespan-cp-sat"))
        if incumbent is not None and incumbent.value_s <= 0.0:
            return Result(incumbent, solver="makespan-cp-sat")
        model = build(problem, incumbent, budget)
        seed = int(rng.integers(2**31 - 1))
        best: list[Plan | None] = [incumbent]
        provenance = Provenance("makespan-cp-sat", None, "", {"workers": self.workers, "cp_sat_seed": seed})

        def improve(value_of: Callable[[Any], int]) -> None:
            device, schedule = decisions(model, value_of)
            found = plan_for(problem, device, schedule=schedule, provenance=provenance)
            if found is not None and (best[0] is None or found.value_s < best[0].value_s):
                best[0] = found

        def report(bound: float) -> None:
            value = float("inf") if best[0] is None else best[0].value_s
            on_progress(Progress("makespan-cp-sat", value, max(0.0, bound) * model.quantum_s, budget.elapsed_s))

        parameters: dict[str, int] = {
            "linearization_level": 0,  # see the model's docstring
            "presolve_inclusion_work_limit": 0,  # it spoilt optima of other models in release 9.15
        }
        if len(problem.graph) > 300:
            # On large models presolve's probing and symmetry search would eat the budget.
            parameters |= {"cp_model_probing_level": 0, "symmetry_level": 0}
        run = run_cp_sat(
            model.proto,
            budget=budget,
            workers=self.workers,
            seed=seed,
            on_solution=improve,
            on_bound=report,
            parameters=parameters,
            strategies=STRATEGIES,
        )
        runtime = budget.elapsed_s - begun
        if run.infeasible:
            # No placement obeys devices, colocation, links and memory. The incumbent cut is never below the incumbent.
            reason = "no placement respects the allowed devices, links and memory limits (proved by CP-SAT)"
            if incumbent is not None:
                reason = ""
            return Result(incumbent, infeasible=reason, runtime_s=runtime, solver="makespan-cp-sat")
        known = bool(np.isfinite(run.bound))
        bound = rounded_down(max(0.0, float(np.floor(run.bound))) * model.quantum_s) if known else 0.0
        if incumbent is None and best[0] is not None and not budget.spent:
            # Without a horizon the quanta were coarse: prove the plan in fine ones.
            fine = self(problem, budget=budget, rng=rng, incumbent=best[0], on_progress=on_progress)
            return replace(fine, lower_bound_s=max(bound, fine.lower_bound_s), runtime_s=runtime + fine.runtime_s)
        name = "makespan-cp-sat" if best[0] is not incumbent or incumbent is None else incumbent.provenance.solver
        return Result(best[0], bound, "", runtime, name, {"makespan-cp-sat": bound})
