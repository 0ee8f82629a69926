"""Solving with coarsening: no worse than without at the start, and what is proved is proved of the problem itself."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright.algorithm import Budget, Progress
from placewright.errors import InvalidInput
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems


def layers(count: int = 6) -> pw.Problem:
    """Two operators a layer, the first quicker on the GPU and the second on the CPU; transfers take 0.01 s."""
    n = 2 * count
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{k}", f"kind{k % 2}") for k in range(n)],
        [pw.Tensor(f"t{k}", k, (k + 1,), 50) for k in range(n - 1)],
    )
    pair = pw.Cluster([pw.Device("gpu"), pw.Device("cpu")], [pw.Link(0.01, 1e9, link_class="same-host")])
    return pw.Problem(graph, pair, [[1.0, 3.0], [2.0, 1.5]] * count)


@pytest.mark.parametrize(("way", "coarse_s"), [("chains", 18.0), ("blocks", 17.51)])
def test_the_coarse_plan_is_named_and_then_improved(way: str, coarse_s: float) -> None:
    """As one chain 6 x 3 s on the GPU. The last layer, which nothing reads, is no block: 5 x 3 + 1 + 0.01 + 1.5 s.

    Operator by operator it is 6 x 2.5 s + 11 x 0.01 s.
    """
    result = pw.solve(layers(), solver="annealing", budget=Budget(iterations=2000), coarsen=way)
    assert result.alternatives[f"{way} as one"] == pytest.approx(coarse_s, abs=1e-6)
    assert result.value_s == pytest.approx(15.11, abs=1e-6)


def test_bounds_are_of_the_problem_itself() -> None:
    """The coarse optimum of 9 s is no bound: none that is reported, also on the way, is above the value of 7.55 s."""
    seen: list[Progress] = []
    result = pw.solve(layers(3), budget=20, coarsen="chains", on_progress=seen.append)
    assert result.status is pw.Status.OPTIMAL and result.value_s == pytest.approx(7.55, abs=1e-6)
    assert any(p.solver.startswith("chains: ") for p in seen)
    assert all(p.lower_bound_s <= result.value_s * (1 + 1e-9) for p in seen)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(problems(most_operators=6), st.sampled_from(["chains", "blocks"]))
def test_results_are_legal_and_their_bounds_hold(problem: pw.Problem, way: str) -> None:
    """Whatever is coarsened, the plan passes the independent check, and no bound is above the optimum."""
    result = pw.solve(problem, solver="annealing", budget=Budget(iterations=200), coarsen=way)
    best = optimum(problem)
    assert result.lower_bound_s <= best
    if result.plan is not None:
        assert verify(problem, result.plan) == () and result.value_s >= best - 1e-9


def test_what_can_not_be_coarsened() -> None:
    """An unknown way is named with the known ones, and other objectives are refused."""
    problem = layers()
    with pytest.raises(InvalidInput, match="'layers' is unknown; use one of none, chains, blocks"):
        pw.solve(problem, coarsen="layers")
    pipeline = pw.Problem(problem.graph, problem.cluster, problem.times, "max-load")
    with pytest.raises(InvalidInput, match="not under max-load"):
        pw.solve(pipeline, coarsen="chains")
