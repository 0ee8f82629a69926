"""Micro-batches in flight, as counted before a plan is known, against the orders that are run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device
from placewright.execute.schedule_orders import Step, most_in_flight, order_of, own_actions
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput
from placewright.posing_memory import in_flight


def cluster(devices: int, cpus: int = 0) -> Cluster:
    return Cluster([Device(f"d{i}", kind="cpu" if i < cpus else "gpu") for i in range(devices)])


@given(st.data(), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_no_stage_keeps_more_than_was_counted(data: st.DataObject, devices: int, micro_batches: int) -> None:
    """Under either schedule, along a chain of stages with skips, whatever the stages take."""
    seconds = st.sampled_from([0.5, 1.0, 3.0])
    steps = [
        Step(i, data.draw(seconds), {i - 1: 0.0} | dict.fromkeys(data.draw(st.sets(st.integers(0, i - 1))), 0.0))
        if i
        else Step(0, data.draw(seconds))
        for i in range(devices)
    ]
    dealt = [0] * micro_batches
    for schedule in ("1f1b", "gpipe"):
        order = order_of([steps], dealt, schedule=schedule, in_flight=devices)
        kept = [most_in_flight(own_actions([steps], dealt, order, i)) for i in range(devices)]
        counted = in_flight(MaxLoad(), cluster(devices), micro_batches, schedule)
        assert max(kept) <= counted
        if schedule == "gpipe":
            assert kept[0] == counted


@pytest.mark.parametrize(
    ("objective", "cpus", "counted"),
    [
        (MaxLoad(), 0, 3),
        (MaxLoad(contiguous_cpus=False), 0, 3),
        (MaxLoad(contiguous_cpus=False), 1, 8),  # a CPU may take work from anywhere
        (MaxLoad("any"), 0, 8),
        (Throughput(), 0, 8),  # several copies may share a device
        (Makespan(), 0, 1),
        (Offload(), 0, 1),
    ],
)
def test_what_an_objective_leaves_in_flight(objective: Objective, cpus: int, counted: int) -> None:
    """Of 8 micro-batches under 1F1B on 3 devices."""
    assert in_flight(objective, cluster(3, cpus), 8, "1f1b") == counted
