"""Duplication: cheap operators that everyone reads are computed wherever they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright.cluster import Cluster, Device, Link
from placewright.coarsen import duplicate, duplicated_parts
from placewright.coarsen.duplicates import duplicable
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import problem_from_json, problem_to_json, read_plan, write_plan
from placewright.problem import Problem, Times, Wish
from placewright.result import Result
from placewright.solvers.makespan.modules import cut_operators
from tests.brute_force import optimum
from tests.random_problems import problems

SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)

PAIR = Cluster([Device("gpu"), Device("cpu")], [Link(1.0, 8.0, link_class="same-host")])


def layers(
    count: int, mask_s: float = 1.0, layer_s: float = 100.0, mask: Operator | None = None, **given: object
) -> Problem:
    """ids -> mask, which each of a chain of layers reads: 64 bytes of mask, 8 of each other tensor."""
    operators = [Operator("ids", signature="i"), mask or Operator("mask", flops=7, signature="m", traffic_bytes=9)]
    operators += [Operator(f"layer{k}", flops=100, weight_bytes=1000, signature="l") for k in range(count)]
    tensors = [Tensor("i", 0, (1,), 8), Tensor("m", 1, tuple(range(2, 2 + count)), 64)]
    tensors += [
        Tensor(f"x{k}", 2 + k, (3 + k,) if k < count - 1 else (), 8, output=k == count - 1) for k in range(count)
    ]
    times = [[mask_s / 2] * 2, [mask_s] * 2, *([layer_s, 2 * layer_s] for _ in range(count))]
    return Problem(OperatorGraph(operators, tensors), PAIR, times, **given)  # type: ignore[arg-type]


def test_layers_take_in_the_mask_and_what_it_is_made_of() -> None:
    """Both operators become parts of every layer, in topological order, and the layers are all that is left."""
    made = duplicate(layers(3), 1.5)
    assert [(v.name, v.parts) for v in made.graph.operators] == [
        (f"layer{k}", ("ids", "mask", f"layer{k}")) for k in range(3)
    ]
    assert [t.name for t in made.graph.tensors] == ["x0", "x1", "x2"]
    assert duplicated_parts(made.graph) == ("ids", "mask")
    assert len({v.signature for v in made.graph.operators}) == 1 and made.graph.operators[0].signature != "l"


def test_readers_share_time_work_and_bytes() -> None:
    """Time: 0.5 + 1 s by 3 layers. 7 FLOPs are 3 + 2 + 2. Bytes that last: 8 of the ids, 64 of the mask."""
    made = duplicate(layers(3), 1.5)
    assert made.times.processing_s.tolist() == [[100.5, 200.5]] * 3
    assert [v.flops for v in made.graph.operators] == [103, 102, 102]
    assert [v.traffic_bytes for v in made.graph.operators] == [3, 3, 3]
    assert sum(v.weight_bytes for v in made.graph.operators) == 3 * 1000 + 8 + 64


def test_on_one_device_nothing_changes() -> None:
    """All on one device take as long as before: there the mask is computed once in both."""
    before = layers(4)
    after = duplicate(before, 1.5)
    for i in range(2):
        assert evaluate(after, [i] * 4).value_s == pytest.approx(evaluate(before, [i] * 6).value_s, rel=1e-12)


def test_no_device_waits_for_the_mask() -> None:
    """Layers on GPU and CPU: 100 + 8/8 + 1 + 200, and shares of 1.5 s. Before, the mask was on its way for 9 s more."""
    before = layers(2)
    assert evaluate(before, [0, 0, 0, 1]).value_s == 1.5 + 100 + 2 + 200
    assert evaluate(duplicate(before, 1.5), [0, 1]).value_s == 0.75 + 100 + 2 + 200.75
    # from the CPU's side: the mask is made on the GPU in 1.5 s and arrives 9 s later
    assert evaluate(before, [0, 0, 1, 0]).value_s == 1.5 + 9 + 200 + 2 + 100
    assert evaluate(duplicate(before, 1.5), [1, 0]).value_s == 0.75 + 200 + 2 + 100.75


def test_the_graph_gets_its_cut_points_back() -> None:
    """An edge from the mask leaps over every layer but the last; without it, each layer lies on every path."""
    before = layers(5)
    assert cut_operators(before.graph) == [0, 1, 6]
    assert cut_operators(duplicate(before).graph) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("mask", "given", "why"),
    [
        (Operator("mask", "aten.rand_like.default"), {}, "it draws random numbers, which copies would draw anew"),
        (Operator("mask", "RandomNormal"), {}, "so does this"),
        (Operator("mask", kv_cache_bytes=1), {}, "its cache lives on one device"),
        (Operator("mask", weight_bytes=1000), {}, "a fourth of all weights is not cheap"),
        (Operator("mask", backward=True), {}, "it is of the backward pass"),
        (Operator("mask"), {"wishes": [Wish("mask", "gpu")]}, "it may not run where its readers may"),
        (Operator("mask"), {"wishes": [Wish("mask", "cpu", forbid=True)]}, "so is this"),
    ],
)
def test_what_is_not_duplicated(mask: Operator, given: dict[str, object], why: str) -> None:
    """Whatever the limit, these stay single, and so does what only they read."""
    problem = layers(3, mask=mask, **given)
    assert duplicate(problem, 10.0) is problem, why


def test_kinds_that_only_look_random_are_duplicated() -> None:
    """A layer normalisation, an expansion and a dropout draw no numbers."""
    for kind in ("LayerNormalization", "aten.expand.default", "aten.dropout.default+aten.add.Tensor", "Range"):
        assert len(duplicate(layers(3, mask=Operator("mask", kind)), 10.0).graph) == 3


def test_outputs_classes_and_single_readers_stay() -> None:
    """An output of the network is made once, a class shares its device, and one reader needs no copy."""
    base = layers(3)
    tensors = list(base.graph.tensors)
    for changed in (
        OperatorGraph(base.graph.operators, [Tensor("m", 1, (2, 3, 4), 64, output=True), tensors[0], *tensors[2:]]),
        OperatorGraph(base.graph.operators, tensors, [(1, 4)]),
        OperatorGraph(base.graph.operators, [Tensor("m", 1, (4,), 64), tensors[0], *tensors[2:]]),
    ):
        problem = Problem(changed, PAIR, base.times)
        assert duplicate(problem, 10.0) is problem


def test_a_pin_of_all_readers_does_not_stand_in_the_way() -> None:
    """Where the mask may run on every device that its readers may use, the wish holds for them as before."""
    problem = layers(3, wishes=[Wish("*", "gpu")])
    made = duplicate(problem, 1.5)
    assert len(made.graph) == 3 and made.allowed.tolist() == [[True, False]] * 3


def test_a_limit_is_kept_on_every_device() -> None:
    """Ids and mask: 1.5 s on the GPU and 1.6 s on the CPU are above a limit of 1.5 s; one of 0 duplicates nothing."""
    problem = layers(3)
    times = problem.times.processing_s.copy()
    times[1, 1] = 1.1
    slower = Problem(problem.graph, PAIR, times)
    assert duplicate(slower, 1.5) is slower and len(duplicate(slower, 1.6).graph) == 3
    assert duplicate(problem, 0.0) is problem
    with pytest.raises(InvalidInput, match="at least 0 s"):
        duplicate(problem, -1.0)


def test_by_default_the_trivial_is_duplicated() -> None:
    """Longest path on the GPU: 1.5 m + 300 s, of which 0.5 % is room for 1.5 m: m = 1 fits and m = 1.01 doesn't."""
    assert len(duplicate(layers(3, mask_s=1.0)).graph) == 3
    heavier = layers(3, mask_s=1.01)
    assert duplicate(heavier) is heavier


def test_by_default_readers_lie_apart() -> None:
    """Two readers side by side at the start of a long chain are no reason to compute anything twice."""
    chain = [Tensor(f"x{k}", 2 + k, (3 + k,)) for k in range(6)]
    graph = OperatorGraph(
        [Operator("s"), *(Operator(f"v{k}") for k in range(8))],
        [Tensor("m", 0, (1, 2), 64), Tensor("y", 1, (3,)), *chain],
    )
    problem = Problem(graph, PAIR, [[0.1, 0.1], *([100.0, 100.0] for _ in range(8))])
    assert duplicable(problem) == () and duplicable(problem, 1.0) == (0,)


def test_one_device_has_nothing_to_duplicate() -> None:
    """No tensor travels on a cluster of one device."""
    problem = Problem(layers(3).graph, Cluster([Device("gpu")]), [[1.0]] * 5)
    assert duplicate(problem, 10.0) is problem


def test_tables_of_times_go_along() -> None:
    """Transfer and cut times of what is left are those that it had."""
    base = layers(2)
    T, n = len(base.graph.tensors), len(base.graph)
    transfer = np.arange(T * 4, dtype=float).reshape(T, 2, 2)
    cut = np.arange(n * 2, dtype=float).reshape(n, 2)
    made = duplicate(Problem(base.graph, PAIR, Times(base.times.processing_s, transfer, "given", cut)), 1.5)
    assert made.times.transfer_s is not None and made.times.transfer_s.tolist() == transfer[2:].tolist()
    assert made.cut_s.tolist() == cut[2:].tolist()


def test_files_hold_duplicated_problems(tmp_path: Path) -> None:
    """Problem and plan files come back as they were, and the placement names both devices of the mask."""
    problem = duplicate(layers(3), 1.5)
    plan = plan_for(problem, [0, 1, 1])
    write_plan(tmp_path / "plan.json", problem, Result(plan, solver="test"), None)
    file = read_plan(tmp_path / "plan.json")
    assert file.document.placement is not None
    assert file.document.placement["mask"] == ["gpu", "cpu"] and file.document.placement["layer0"] == "gpu"
    assert [v.parts for v in problem_from_json(problem_to_json(problem)).graph.operators] == [
        v.parts for v in problem.graph.operators
    ]


@settings(SETTINGS, max_examples=150)
@given(problems(most_operators=6, memory=False))
def test_the_optimum_rises_by_what_is_duplicated_at_most(problem: Problem) -> None:
    """Each reader of an optimal schedule is longer by its share; all shares together are the operators' times."""
    chosen = duplicable(problem, 100.0)
    made = duplicate(problem, 100.0)
    assert len(made.graph) == len(problem.graph) - len(chosen)
    if not chosen:
        return
    slowest = np.where(np.isfinite(problem.times.processing_s), problem.times.processing_s, 0).max(axis=1)
    assert optimum(made) <= optimum(problem) + slowest[list(chosen)].sum() + 1e-9
