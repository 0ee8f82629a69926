"""The nearest plan that a target can say: exact against every such plan, and its loss stated."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.export.modules import units_of
from placewright.export.nearest import Rules, nearest
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Copy, Plan
from placewright.problem import Problem
from tests.export.rows import best_row, rows

ROW = Rules("it", "whole layers")
ANY = replace(ROW, ordered=False, tied_twice=False)


def short() -> Budget:
    return Budget(float("inf"), iterations=200)


def some_plan(problem: Problem) -> Plan | None:
    """The first placement that breaks no rule."""
    D = len(problem.cluster)
    found = (plan_for(problem, np.array(at)) for at in product(range(D), repeat=len(problem.graph)))
    return next((plan for plan in found if plan is not None), None)


@settings(max_examples=40)
@given(st.booleans().flatmap(lambda chain: rows(chain, most_layers=2)), st.booleans())
def test_no_row_of_whole_modules_is_better(problem: Problem, ends: bool) -> None:
    """What is found is a row of whole modules that fits; it is the best of all where that is said, and never better."""
    plan = some_plan(problem)
    if plan is None:
        return
    rules = replace(ROW, ends=ends)
    try:
        found = nearest(problem, plan, rules, budget=short())
    except InvalidInput:
        found = None
    units = units_of(problem.graph)
    groups = [list(unit.operators) for unit in units]
    if not ends:
        groups = [[*groups[0], *groups[1]], *groups[2:]]
        groups = [*groups[:-2], [*groups[-2], *groups[-1]]]
    if found is None:
        return
    best = best_row(found.problem, groups)
    assert found.plan.value_s >= best * (1 - 1e-9)
    if found.exact and found.changed:
        assert found.plan.value_s == pytest.approx(best)
    assert all(len(set(found.plan.device_of[row].tolist())) == 1 for row in groups)
    assert len({stage.device for stage in found.stages}) == len(found.stages)
    assert [v for stage in found.stages for u in stage.units for v in u.operators] == list(range(len(problem.graph)))


@settings(max_examples=12)
@given(rows(True, objective="makespan", most_layers=2))
def test_modules_anywhere_are_as_good_as_every_placement_of_them(problem: Problem) -> None:
    """Without an order, the result is at most the best of all placements of whole modules where that is said."""
    plan = some_plan(problem)
    if plan is None:
        return
    groups = [list(unit.operators) for unit in units_of(problem.graph)]
    best = float("inf")
    for at in product(range(len(problem.cluster)), repeat=len(groups)):
        device = np.zeros(len(problem.graph), dtype=np.int32)
        for row, i in zip(groups, at, strict=True):
            device[row] = i
        made = plan_for(problem, device)
        best = min(best, float("inf") if made is None else made.value_s)
    try:
        found = nearest(problem, plan, ANY, budget=short())
    except InvalidInput:
        assert best == float("inf")
        return
    if found.changed:
        assert found.plan.value_s >= best * (1 - 1e-9)
        if found.exact:
            assert found.plan.value_s == pytest.approx(best)


def chain(names: list[str], devices: list[Device], links: list[Link] | None = None, **options: object) -> Problem:
    graph = OperatorGraph(
        [Operator(name, weight_bytes=1000) for name in names],
        [Tensor(f"t{k}", k, (k + 1,), 1) for k in range(len(names) - 1)],
        options.pop("tied", ()),  # type: ignore[arg-type]
    )
    links = links or [Link(0.5, 1e9, link_class="same-host"), Link(2.0, 1e9, link_class="between-hosts")]
    times = options.pop("times", np.ones((len(names), len(devices))))
    return Problem(graph, Cluster(devices, links), times, **options)  # type: ignore[arg-type]


GPUS = [Device("a", memory_bytes=5500), Device("b", memory_bytes=5500)]
NAMES = ["embed", "h.0.a", "h.0.b", "h.1.a", "h.1.b", "head"]


def placed(problem: Problem, at: list[int]) -> Plan:
    plan = plan_for(problem, np.array(at))
    assert plan is not None
    return plan


def test_a_plan_that_can_be_said_is_kept() -> None:
    """Whole layers in a row are what the target says already: the same plan, nothing lost."""
    problem = chain(NAMES, GPUS)
    plan = placed(problem, [0, 0, 0, 1, 1, 1])
    found = nearest(problem, plan, ROW)
    assert not found.changed
    assert found.loss == ""
    assert found.plan.device_of.tolist() == plan.device_of.tolist()
    assert found.layers == (1, 1)


def test_the_loss_is_stated_with_both_times() -> None:
    """A layer that was parted is whole again: 3 s with its second half elsewhere become 10.5 s."""
    times = np.array([[0.5, 9.0], [0.5, 9.0], [9.0, 0.5], [0.0, 9.0], [0.0, 9.0], [0.5, 9.0]])
    problem = chain(NAMES, [Device("a"), Device("b")], times=times)
    plan = placed(problem, [0, 0, 1, 0, 0, 0])  # 4 x 0.5 s of computing, 2 transfers of 0.5 s
    found = nearest(problem, plan, ROW)
    assert plan.value_s == pytest.approx(3.0)
    assert found.changed
    assert found.loss == (
        "it can say this plan only by whole layers: 10.5 s instead of 3 s (+250.0%), the best that it can say"
    )  # on a alone: 0.5 + 0.5 + 9 + 0.5


def test_tied_weights_are_held_at_both_ends() -> None:
    """The head shares the embedding's weights: in a row each end holds them, so the last device has 1000 bytes more."""
    problem = chain(NAMES, GPUS, tied=[[0, 5]])
    plan = placed(problem, [0, 0, 0, 1, 1, 0])
    found = nearest(problem, plan, ROW)
    assert found.problem.graph.colocation == ()
    assert found.stages[0].device != found.stages[-1].device or len(found.stages) == 1
    light = OperatorGraph(
        [replace(v, weight_bytes=0) if v.name == "head" else v for v in problem.graph.operators],
        problem.graph.tensors,
        [[0, 5]],
    )
    again = Problem(light, problem.cluster, problem.times)
    twice = nearest(again, placed(again, [0, 0, 0, 1, 1, 0]), ROW)
    assert [v.weight_bytes for v in twice.problem.graph.operators] == [1000] * 6
    assert twice.held_twice_bytes == 1000


def test_devices_that_a_target_does_not_know_are_left_out() -> None:
    """A CPU is not used where there may be none, and stands first where it may only be there."""
    devices = [Device("ram", kind="cpu"), Device("a", memory_bytes=4500), Device("b", memory_bytes=4500)]
    problem = chain(NAMES, devices)
    plan = placed(problem, [1, 1, 1, 0, 0, 0])
    without = nearest(problem, plan, replace(ROW, cpus="nowhere"))
    assert {stage.device for stage in without.stages} == {1, 2}
    first = nearest(problem, plan, replace(ROW, cpus="home"))
    assert 0 not in [stage.device for stage in first.stages[1:]]


def test_one_host_holds_all_of_it() -> None:
    """Of two hosts the one that is faster is taken."""
    devices = [Device("a", host="x"), Device("b", host="y")]
    problem = chain(NAMES, devices, times=np.tile([2.0, 1.0], (6, 1)))
    plan = placed(problem, [0, 0, 0, 1, 1, 1])
    found = nearest(problem, plan, replace(ANY, one_host=True), budget=short())
    assert set(found.plan.device_of.tolist()) == {1}


def test_experts_may_stay_on_the_cpu() -> None:
    """Experts that the plan has on the CPU are no part of the layer that a row moves as a whole."""
    names = ["h.0.attn", "h.0.mlp.experts.0", "h.1.attn", "h.1.mlp.experts.0"]
    problem = chain(names, [Device("ram", kind="cpu"), Device("gpu")])
    rules = replace(ROW, cpus="home", apart=re.compile(r"\bexperts\b"))
    plan = placed(problem, [1, 0, 1, 1])
    assert not nearest(problem, plan, rules).changed
    assert nearest(problem, plan, replace(rules, apart=None)).changed


def test_experts_of_the_first_layers_go_to_the_cpu_where_memory_asks_for_it() -> None:
    """A GPU holds both attentions and one of two experts: the first layer's goes to the CPU.

    1 + 0.5 + 4 + 0.5 + 1 + 1 = 8 s; with its whole layer on the CPU 10 + 4 + 0.5 + 1 + 1 = 16.5 s. The plan that is
    given parts the second layer instead: its attention is on the CPU.
    """
    names = ["h.0.attn", "h.0.mlp.experts.0", "h.1.attn", "h.1.mlp.experts.0"]
    times = np.array([[10.0, 1.0], [4.0, 1.0], [10.0, 1.0], [4.0, 1.0]])
    problem = chain(names, [Device("ram", kind="cpu"), Device("gpu", memory_bytes=3500)], times=times)
    rules = replace(ROW, cpus="home", apart=re.compile(r"\bexperts\b"))
    found = nearest(problem, placed(problem, [1, 1, 0, 1]), rules)
    assert found.plan.device_of.tolist() == [1, 0, 1, 1]
    assert found.plan.value_s == pytest.approx(8.0)


def test_an_embedding_in_ram_leaves_the_layers_where_they_are() -> None:
    """A target that has embeddings in RAM moves the embedding alone: 5 + 0.5 + 5 x 1 s in place of 6 x 1 s."""
    devices = [Device("ram", kind="cpu"), Device("gpu")]
    problem = chain(NAMES, devices, times=np.tile([5.0, 1.0], (6, 1)))
    rules = replace(ROW, ends=False, cpus="home", embedding_on_cpu=True)
    found = nearest(problem, placed(problem, [1] * 6), rules)
    assert found.plan.device_of.tolist() == [0, 1, 1, 1, 1, 1]
    assert found.plan.value_s == pytest.approx(10.5)
    assert found.layers == (0, 2)
    alone = chain(NAMES, [Device("gpu")])
    assert not nearest(alone, placed(alone, [0] * 6), rules).changed  # there is no CPU to have it


def test_live_tensors_take_from_a_split_no_more_than_they_need() -> None:
    """A device of 4,500 bytes has room for four layers' weights, and with two live tensors for two of them.

    A layer and a tensor have 1,000 bytes each. All four need 6,000, three 5,000; each pass leaves what was too much to
    live tensors, until two and two fit.
    """
    names = [f"h.{k}.a" for k in range(4)]
    graph = OperatorGraph(
        [Operator(name, weight_bytes=1000) for name in names], [Tensor(f"t{k}", k, (k + 1,), 1000) for k in range(3)]
    )
    cluster = Cluster(
        [Device("a", memory_bytes=4500), Device("b", memory_bytes=4500)], [Link(0.5, 1e9, link_class="same-host")]
    )
    problem = Problem(graph, cluster, np.ones((4, 2)))
    plan = placed(problem, [0, 1, 0, 1])
    found = nearest(problem, plan, ROW)
    assert [len(stage.units) for stage in found.stages] == [2, 2]


def test_copies_and_replicas_become_one() -> None:
    """A target that runs one copy gets the best row of one; it is compared with all copies together."""
    problem = chain(NAMES, [Device("a"), Device("b")], objective=Throughput())
    half = [Copy(np.zeros(6), 0.5), Copy(np.ones(6), 0.5)]
    plan = plan_for(problem, np.zeros(6), copies=half)
    assert plan is not None
    found = nearest(problem, plan, ROW)
    assert isinstance(found.problem.objective, MaxLoad)
    assert found.changed
    assert "instead of 3 s" in found.loss  # two copies of 6 s


def test_what_fits_nowhere_is_an_error_with_a_remedy() -> None:
    """No row of whole layers fits: the target, its rules and what to do are said."""
    problem = chain(NAMES, [Device("a", memory_bytes=2500), Device("b", memory_bytes=2500), Device("c", kind="cpu")])
    plan = placed(problem, [0, 0, 1, 1, 2, 2])
    with pytest.raises(InvalidInput, match="only by whole layers, and none such fits this cluster; allow more memory"):
        nearest(problem, plan, replace(ROW, cpus="nowhere", ends=False))


def test_a_network_without_layers_is_refused_where_layers_are_split() -> None:
    """Names without a numbered module leave nothing to split at."""
    problem = chain(["a", "b"], GPUS)
    with pytest.raises(InvalidInput, match="no operator of this network is named for a numbered one"):
        nearest(problem, placed(problem, [0, 1]), replace(ROW, ends=False))
