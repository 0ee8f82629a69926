"""The roofline model against arithmetic done by hand, an operator at a time."""

import numpy as np
import pytest

from placewright import catalogue
from placewright.cluster import Cluster, Device
from placewright.costs import roofline as costed
from placewright.costs.roofline import COMPUTE_EFFICIENCY, MEMORY_EFFICIENCY, OTHER_KINDS, effective_peak
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph


def one(operator: Operator, device: Device) -> float:
    return float(costed(OperatorGraph([operator]), Cluster([device])).processing_s[0, 0])


def device(**fields: object) -> Device:
    given = {"kind": "gpu", "flops_per_s": {"fp32": 1e12}, "memory_bandwidth_bytes_per_s": 1e11}
    return Device("d", **{**given, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["gpu", "cpu", "fpga"])
def test_compute_bound_and_memory_bound_sides(kind: str) -> None:
    """1e9 FLOP at 1e12 FLOP/s take 1 ms, 1e8 B at 1e11 B/s take 1 ms, each over its efficiency; the larger counts."""
    e, m = COMPUTE_EFFICIENCY.get(kind, OTHER_KINDS), MEMORY_EFFICIENCY.get(kind, OTHER_KINDS)
    assert one(Operator("a", flops=10**9), device(kind=kind)) == pytest.approx(1e-3 / e)
    assert one(Operator("a", traffic_bytes=10**8), device(kind=kind)) == pytest.approx(1e-3 / m)
    both = Operator("a", flops=10**9, traffic_bytes=3 * 10**8)
    assert one(both, device(kind=kind)) == pytest.approx(max(1e-3 / e, 3e-3 / m))


def test_overhead_is_added_and_a_cpu_share_divides_all() -> None:
    """An operator without work costs its launch overhead, and half a core takes twice as long."""
    assert one(Operator("a"), device(launch_overhead_s=7e-6)) == pytest.approx(7e-6)
    assert one(Operator("a"), device(launch_overhead_s=7e-6, cpu_share=0.5)) == pytest.approx(14e-6)


@pytest.mark.parametrize(
    ("dtype", "stated", "used"),
    [
        ("bf16", {"fp32": 1.0, "fp16": 2.0, "bf16": 3.0}, 3.0),
        ("bf16", {"fp32": 1.0, "fp16": 2.0}, 2.0),
        ("fp16", {"fp32": 1.0, "bf16": 3.0}, 1.0),
        ("fp8", {"fp32": 1.0, "bf16": 3.0}, 3.0),
        ("int8", {"fp32": 1.0, "fp16": 2.0}, 1.0),
        ("int64", {"fp32": 1.0, "fp16": 2.0}, 1.0),
        ("fp32", {"fp32": 1.0, "tf32": 9.0}, 1.0),
        ("fp32", {"int8": 5.0, "fp16": 2.0}, 2.0),
        ("fp32", {"fp32": 0.0}, 0.0),
    ],
)
def test_the_peak_falls_back_along_the_documented_chain(dtype: str, stated: dict[str, float], used: float) -> None:
    """A dtype without a peak of its own uses the next wider one, and as a last resort the lowest that is stated."""
    assert effective_peak(device(flops_per_s=stated), dtype) == used


def test_devices_without_figures_are_all_named_with_the_remedy() -> None:
    """Both a missing peak and a missing bandwidth are reported, for each device, in one line."""
    cluster = Cluster([Device("bare"), device(), Device("deaf", flops_per_s={"fp32": 1.0})])
    with pytest.raises(InvalidInput) as caught:
        costed(OperatorGraph([Operator("a")]), cluster)
    assert len(caught.value.violations) == 3
    assert all(word in str(caught.value) for word in ("'bare'", "'deaf'", "model:", "flops:", "memory_bandwidth:"))


def test_many_operators_and_devices_equal_a_plain_loop() -> None:
    """The vectorised table equals the formula evaluated cell by cell, over mixed dtypes and catalogue devices."""
    rng = np.random.default_rng(1)
    dtypes = ["fp32", "bf16", "int8", "int64"]
    operators = [
        Operator(f"v{k}", flops=int(f), traffic_bytes=int(b), dtype=dtypes[k % 4])
        for k, (f, b) in enumerate(10 ** rng.uniform(3, 11, (60, 2)))
    ]
    devices = [catalogue.lookup(m).device(m) for m in ("rtx-3090", "t4", "epyc-7763")]
    devices.append(catalogue.lookup("rtx-3090").device("again"))
    times = costed(OperatorGraph(operators), Cluster(devices))
    assert times.source == "roofline" and times.processing_s.shape == (60, 4)
    for v, operator in enumerate(operators):
        for i, d in enumerate(devices):
            arithmetic = operator.flops / (COMPUTE_EFFICIENCY[d.kind] * effective_peak(d, operator.dtype))
            traffic = operator.traffic_bytes / (MEMORY_EFFICIENCY[d.kind] * d.memory_bandwidth_bytes_per_s)
            assert times.processing_s[v, i] == pytest.approx(d.launch_overhead_s + max(arithmetic, traffic))
