"""Moirai's mixed-integer program by HiGHS' branch and cut: exact up to tolerances, which the bound allows for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.arrays import arrays_of
from placewright.evaluate import plan_for
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.rounding import rounded_down
from placewright.solvers.makespan.moirai_model import build, rows_of
from placewright.solvers.makespan.moirai_program import MoiraiProgram
from placewright.solvers.makespan.start import starting_placement
from placewright.solvers.mip_run import LEAST_MARGIN, TOLERANCE, UNITS, run_mip

__all__ = ["MoiraiMilp"]

NAME = "moirai-milp"
MOST_ROWS = 500_000
"""Rows that keep tasks apart beyond which the program is not built."""


@dataclass(frozen=True, slots=True)
class MoiraiMilp:
    """Exact makespan by the integer program of Moirai (arXiv 2312.04025) on HiGHS, published for Gurobi.

    The program, and what differs from the published one: :mod:`placewright.solvers.makespan.moirai_model`.

    Guarantee: every plan is evaluated by the judge, in the order of the solution. The bound is HiGHS' own less a margin
    for its tolerances: a reduced cost of the wrong sign, by up to ``TOLERANCE``, makes the value of a node too high by
    that much times the range of its column, 1 for choices and the incumbent's value for times; rows and whole numbers
    broken by their tolerance make it too low. It rests on floating-point arithmetic inside the solver. Peak activations
    are not in the program, which relaxes memory to weights and KV cache: the bound holds, and plans that exceed the
    memory are dropped. So are those that exceed it by less than a ten-millionth of a device's, which HiGHS can't tell.
    Any-time. ``iterations`` of the budget count nodes of the search tree, on one thread.

    Complexity: exponential at worst: a binary variable an operator and device, an operator pair and device, a tensor
    and pair of devices.
    Source: Moirai (Zhang et al. 2023, arXiv 2312.04025), published for Gurobi.
    When to use: to reproduce Moirai's tables; up to some tens of operators.

    Attributes
    ----------
    threads : int
        1 when the budget counts iterations.

    Examples
    --------
    Two operators of 1 s each that one device runs one after the other; a transfer would take 5 s:

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Tensor
    >>> graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,))])
    >>> pair = Cluster([Device("d0"), Device("d1")], [Link(5.0, 1.0, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 2.0], [1.0, 0.5]])
    >>> result = MoiraiMilp()(problem, budget=Budget(10), rng=np.random.default_rng(0))
    >>> result.value_s, result.status.value
    (2.0, 'optimal')
    """

    threads: int = 2

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach; ``None`` when it isn't."""
        rows = rows_of(problem)
        if rows <= MOST_ROWS:
            return None
        return f"its program could have {rows:,} rows, more than {MOST_ROWS:,}; use makespan-cp-sat or annealing"

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
        if self.supports(problem) is not None or not arrays_of(problem).allowed.any(axis=1).all():
            return Result(incumbent, solver=NAME)
        if incumbent is None:
            incumbent = plan_for(problem, starting_placement(problem), provenance=Provenance(NAME))
        if incumbent is not None and incumbent.value_s <= 0.0:
            return Result(incumbent, solver=NAME)
        seed = int(rng.integers(2**31 - 1))
        found = self._solve(problem, budget, seed, incumbent, on_progress)
        if incumbent is None and found.plan is not None and not budget.spent:
            # Without a plan the horizon, and so the unit of time, was coarse: prove the plan in a fine one.
            found = found.merge(self._solve(problem, budget, seed, found.plan, on_progress))
        better = found.plan is not incumbent or incumbent is None
        name = NAME if better or incumbent is None else incumbent.provenance.solver
        bound = found.lower_bound_s
        return Result(found.plan, bound, found.infeasible, budget.elapsed_s - begun, name, {NAME: bound})

    def _solve(
        self, problem: Problem, budget: Budget, seed: int, incumbent: Plan | None, on_progress: OnProgress
    ) -> Result:
        threads = self.threads if budget.iterations is None else 1
        provenance = Provenance(NAME, None, "", {"threads": threads, "highs_seed": seed})
        horizon_s = _longest(problem) if incumbent is None else incumbent.value_s
        program = build(problem, horizon_s, UNITS)
        if budget.spent:
            return Result(incumbent, solver=NAME)
        times = sum(program.is_time)
        less = LEAST_MARGIN + ((len(program.is_time) - times) / UNITS + times) * TOLERANCE
        kept: list[Plan | None] = [incumbent]

        def claimed(units: float) -> float:
            bound = rounded_down(max(0.0, units * (1.0 - less)) * program.scale_s) if np.isfinite(units) else 0.0
            return bound if kept[0] is None else min(bound, rounded_down(kept[0].value_s))

        def improve(values: object) -> None:
            solution = np.asarray(values, dtype=np.float64)
            device = program.placement(solution)
            found = plan_for(problem, device, schedule=program.schedule(solution, device), provenance=provenance)
            if found is not None and (kept[0] is None or found.value_s < kept[0].value_s):
                kept[0] = found

        def report(units: float) -> None:
            value = float("inf") if kept[0] is None else kept[0].value_s
            on_progress(Progress(NAME, value, claimed(units), budget.elapsed_s))

        run = run_mip(
            _model(program),
            budget=budget,
            threads=threads,
            seed=seed,
            start=None if incumbent is None else program.values_of(incumbent),
            on_solution=improve,
            on_bound=report,
            mip_feasibility_tolerance=TOLERANCE,
        )
        if run.infeasible and kept[0] is None:
            reason = "no placement respects the allowed devices, links and memory limits (proved by HiGHS)"
            return Result(infeasible=reason, solver=NAME)
        return Result(kept[0], claimed(run.bound), solver=NAME)


def _longest(problem: Problem) -> float:
    """Everything one after the other where it takes longest, every tensor sent to every device: never too short."""
    g = arrays_of(problem).network
    processing = np.where(np.isfinite(g.processing), g.processing, 0.0).max(axis=1) + 2.0 * g.cut.max(axis=1)
    pairs = range(len(problem.cluster))
    sent = [[problem.transfer_s(u, i, j) for i in pairs for j in pairs] for u in range(len(problem.graph.tensors))]
    moved = sum(max((s for s in row if np.isfinite(s)), default=0.0) for row in sent)
    return float(processing.sum()) + moved * len(problem.cluster) or 1.0


def _model(program: MoiraiProgram) -> Any:
    import highspy

    merged: list[dict[int, float]] = []
    for terms, _, _ in program.rows:
        sums: dict[int, float] = {}
        for k, c in terms:
            sums[k] = sums.get(k, 0.0) + c
        merged.append(sums)
    cost = np.zeros(len(program.low))
    cost[program.peak] = 1.0
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.low), len(program.rows)
    lp.col_cost_ = cost
    lp.col_lower_, lp.col_upper_ = np.array(program.low), np.array(program.high)
    lp.row_lower_ = np.array([low for _, low, _ in program.rows])
    lp.row_upper_ = np.array([high for _, _, high in program.rows])
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in program.whole]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(sums) for sums in merged])]).astype(np.int32)
    lp.a_matrix_.index_ = np.array([k for sums in merged for k in sums], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([c for sums in merged for c in sums.values()])
    return lp
