"""Stages, their order, and what they are called."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from placewright.cluster import Device
from placewright.evaluate import evaluate
from placewright.objective import MaxLoad
from placewright.report.loads import bottlenecks, peaks_s, pipeline_order, stages_of

from .pipelines import chain, gpus, planned, training


def test_stages_stand_in_the_order_of_their_operators():
    """The chain enters at gpu2, whatever the numbers of the devices."""
    given_, result, judged = planned(chain(), [2, 2, 0, 1])
    stages = stages_of(given_, judged, result.plan)
    assert [(s.name, s.first, s.last, s.operators) for s in stages] == [
        ("gpu2", "a", "b", 2),
        ("gpu0", "c", "c", 1),
        ("gpu1", "d", "d", 1),
    ]


def test_backward_operators_do_not_bind_the_order_and_are_counted_apart():
    """The gradients flow back from gpu0 to gpu1, which is no cycle of stages."""
    given_, result, judged = planned(training(MaxLoad()), [1, 1, 0, 0, 1, 1])
    stages = stages_of(given_, judged, result.plan)
    assert [(s.name, s.forward, s.backward, s.last) for s in stages] == [("gpu1", 2, 2, "b"), ("gpu0", 1, 1, "c")]


def test_a_placement_that_goes_back_has_no_order():
    """a on gpu0, b on gpu1, c on gpu0 again; then stages stand in the cluster's order."""
    given_, result, judged = planned(chain(MaxLoad(contiguity="any")), [1, 0, 1, 1])
    assert pipeline_order(given_, result.plan.device_of) == []
    assert [s.name for s in stages_of(given_, judged, result.plan)] == ["gpu0", "gpu1"]


def test_a_cpu_that_contiguity_leaves_free_stands_at_the_end():
    """a and c on the cpu, b and d on one gpu: with the cpu bound no order exists; free, the gpu comes first.

    b and d on one gpu with c elsewhere between them is a cycle: only with d on a second gpu there is an order.
    """
    devices = [Device("cpu", kind="cpu"), *gpus(2)]
    free = MaxLoad(contiguous_cpus=False)
    placement = [0, 2, 0, 1]
    bound = evaluate(chain(MaxLoad(), devices), placement)
    assert "not contiguous" in bound.violations[0]
    given_, result, judged = planned(chain(free, devices), placement)
    assert [s.name for s in stages_of(given_, judged, result.plan)] == ["gpu1", "gpu0", "cpu"]


def test_a_channel_can_be_the_bottleneck():
    """At 0.1 GB/s x, y, z take 5, 10 and 5 ms: 20 on the channel, 2 + 15 on gpu1 and 3 + 15 on gpu2."""
    from placewright.cluster import Cluster, Link
    from placewright.problem import Problem

    fast = chain(devices=gpus(4))
    slow = Cluster(gpus(4), [Link(0.0, 1e8, link_class="same-host", channel="pcie")])
    given_ = Problem(fast.graph, slow, fast.times, fast.objective)
    _, result, judged = planned(given_, [0, 1, 2, 3])
    assert list(bottlenecks(stages_of(given_, judged, result.plan), judged, 0)) == ["pcie@local"]


@settings(phases=[Phase.explicit, Phase.generate], derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), st.sampled_from(["sum", "separate"]))
def test_an_order_exists_exactly_where_the_judge_finds_the_plan_contiguous(placement, mode):
    """And the largest loads add up to the judge's value."""
    given_ = chain(MaxLoad(training=mode))
    judged = evaluate(given_, placement)
    import numpy as np

    order = pipeline_order(given_, np.array(placement, dtype=np.int32))
    assert bool(order) == judged.feasible
    assert sum(peaks_s(judged)) == pytest.approx(judged.value_s, rel=1e-12)
    assert not order or [placement.index(i) for i in order] == sorted(placement.index(i) for i in order)
