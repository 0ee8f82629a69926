"""What the flags about memory ask for; micro-batches in flight as counted, against the orders that are run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device
from placewright.errors import InvalidInput
from placewright.execute.pipeline.orders import Step, most_in_flight, order_of, own_actions
from placewright.graph import Operator, OperatorGraph
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput
from placewright.posing.memory import in_flight, set_aside, with_memory
from placewright.posing.memory_flags import MemoryFlags


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


def test_an_onnx_network_has_no_backward_pass_to_follow() -> None:
    """What needs torch says so before anything is read."""
    graph = OperatorGraph([Operator("a", "Gemm", weight_bytes=8)])
    for flags in (MemoryFlags(optimizer="sgd"), MemoryFlags(workspace=True)):
        with pytest.raises(
            InvalidInput, match=r"--(optimizer|workspace) is for networks of torch .*'net.onnx' is ONNX"
        ):
            with_memory(flags, "net.onnx", graph, cluster(1), MaxLoad(), lambda line: None)


def test_the_part_about_text_says_what_is_kept(tmp_path: Path) -> None:
    """Of a configuration with several parts; an ONNX network takes caches like any other."""
    (tmp_path / "config.json").write_text(
        '{"text_config": {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}, "vision_config": {}}'
    )
    graph = OperatorGraph([Operator("attend", "GroupQueryAttention")])
    told: list[str] = []
    flags = MemoryFlags(context="16", config=tmp_path)
    made, same = with_memory(flags, "net.onnx", graph, cluster(1), MaxLoad(), told.append)
    assert made.operators[0].kv_cache_bytes == 16 * 2 * 8 * 2 and same == cluster(1)
    assert told == ["KV cache of 1 x 16 tokens: 512 B"]


def test_no_more_is_set_aside_than_there_is() -> None:
    """A device that is smaller than what comes and goes has no room left, and one without a limit none to set aside."""
    devices = Cluster(
        [Device("small", memory_bytes=8), Device("large", memory_bytes=100, reserve_bytes=10), Device("any")]
    )
    made = set_aside(devices, 20, "a sample", lambda line: None)
    assert [d.reserve_bytes for d in made.devices] == [8, 30, 0]
