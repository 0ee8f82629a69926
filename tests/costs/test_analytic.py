"""Analytic times: classes, depths and pieces of captured operators, and the curve of a device."""

from pathlib import Path

import numpy as np
import pytest

from placewright import catalogue
from placewright.cluster import Cluster, Device
from placewright.costs import analytic, roofline
from placewright.costs.analytic import class_of, classes_of, device_curves, work_of
from placewright.costs.curve import curves_of
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor


def product(m: int, n: int, k: int, dtype: str = "bf16") -> OperatorGraph:
    size = {"bf16": 2, "fp32": 4}[dtype]
    operator = Operator("p", "aten.mm", flops=2 * m * n * k, traffic_bytes=size * (m * k + k * n + m * n), dtype=dtype)
    return OperatorGraph([operator], [Tensor("y", 0, (), size * m * n, (m, n), dtype, output=True)])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("aten.linear", "product"),
        ("aten.conv2d+aten.relu", "convolution"),
        ("Conv", "convolution"),
        ("com.microsoft.MatMulNBits", "product"),
        ("aten.add+aten.layer_norm+aten.mul+...", "other"),
        ("aten.scaled_dot_product_attention", "attention"),
        ("com.microsoft.GroupQueryAttention", "attention"),
        ("", "other"),
    ],
)
def test_kinds_have_a_class(kind: str, name: str) -> None:
    """Products, convolutions and attention are told from the rest, fused or not, in torch's words and in ONNX's."""
    assert class_of(kind) == name


def test_the_depth_of_a_product_is_its_inner_size() -> None:
    """2 m n k FLOP for m n results are k multiply-adds each, whether the shape is known or only the bytes."""
    graph = product(3, 5, 7)
    assert work_of(graph).depth.tolist() == [7]
    shapeless = OperatorGraph(graph.operators, [Tensor("y", 0, (), 2 * 15, (), "bf16")])
    assert work_of(shapeless).depth.tolist() == [7]


def test_attention_of_one_token_is_decoding() -> None:
    """(batch 2, heads 4, tokens, width 8): one token is a decode of 2 * 4 pieces, 300 a prefill of 3 blocks each."""
    for tokens, name, pieces in ((1, "decode", 8), (300, "prefill", 24)):
        keys = 50
        flops = 4 * 2 * 4 * tokens * keys * 8
        operator = Operator("a", "aten.scaled_dot_product_attention", flops=flops, dtype="bf16")
        graph = OperatorGraph([operator], [Tensor("y", 0, (), 2 * 64 * tokens, (2, 4, tokens, 8), "bf16")])
        work = work_of(graph)
        assert (classes_of(graph), work.pieces.tolist(), work.depth.tolist()) == ([name], [pieces], [keys])


def test_attention_fused_with_what_reorders_its_result_is_known_by_its_queries() -> None:
    """(2, 300, 4 * 8) is made of queries (2, 4, 300, 8): 2 * 4 * 3 pieces; keys of 50 tokens have another size."""
    flops = 4 * 2 * 4 * 300 * 50 * 8
    operators = [
        Operator("q", "aten.linear"),
        Operator("k", "aten.linear"),
        Operator("a", "aten.scaled_dot_product_attention+aten.transpose", flops=flops),
    ]
    tensors = [
        Tensor("tk", 1, (2,), 4 * 2 * 4 * 50 * 8, (2, 4, 50, 8), "fp32"),
        Tensor("tq", 0, (2,), 4 * 2 * 4 * 300 * 8, (2, 4, 300, 8), "fp32"),
        Tensor("y", 2, (), 4 * 2 * 300 * 32, (2, 300, 32), "fp32", output=True),
    ]
    graph = OperatorGraph(operators, tensors)
    work = work_of(graph)
    assert (classes_of(graph)[2], work.pieces.tolist(), work.depth[2]) == ("prefill", [0, 0, 24], 50)


def test_large_products_reach_the_fitted_share_and_small_ones_less() -> None:
    """A product of 1 ms runs near 0.82 of the peak; one of 2 us at less than half of it."""
    card = catalogue.lookup("a100-sxm-80gb").device("d")
    for side, low, high in ((8192, 0.75, 0.83), (512, 0.03, 0.2)):
        graph = product(side, side, side)
        seconds = analytic(graph, Cluster([card])).processing_s[0, 0]
        assert low < graph.operators[0].flops / 312e12 / seconds < high


def test_vector_work_runs_at_the_fp32_peak() -> None:
    """An element-wise operator in fp16 doesn't run on the matrix units: 1e9 FLOP at 1e12, not at 1e13 FLOP/s."""
    device = Device("d", kind="x", flops_per_s={"fp32": 1e12, "fp16": 1e13}, memory_bandwidth_bytes_per_s=1e12)
    graph = OperatorGraph([Operator("a", "aten.gelu", flops=10**9, dtype="fp16")])
    half = curves_of("x")["other"].arithmetic
    assert analytic(graph, Cluster([device])).processing_s[0, 0] == pytest.approx(1e-3 / half)


def test_devices_that_nobody_fitted_keep_the_roofline() -> None:
    """For CPUs and unknown kinds the shipped curve is the roofline itself."""
    rng = np.random.default_rng(2)
    operators = [
        Operator(f"v{k}", "aten.mm", flops=int(f), traffic_bytes=int(b))
        for k, (f, b) in enumerate(10 ** rng.uniform(3, 11, (40, 2)))
    ]
    devices = [
        Device(kind, kind=kind, flops_per_s={"fp32": 1e12}, memory_bandwidth_bytes_per_s=1e11, launch_overhead_s=2e-6)
        for kind in ("cpu", "fpga")
    ]
    graph, cluster = (
        OperatorGraph(operators),
        Cluster(
            [
                *devices,
                Device(
                    "again",
                    kind="cpu",
                    flops_per_s={"fp32": 1e12},
                    memory_bandwidth_bytes_per_s=1e11,
                    launch_overhead_s=2e-6,
                ),
            ]
        ),
    )
    times = analytic(graph, cluster)
    np.testing.assert_allclose(times.processing_s, roofline(graph, cluster).processing_s, rtol=1e-12)
    assert times.source == "analytic"


def test_a_calibrated_model_is_costed_with_what_was_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's catalogue corrects the arithmetic of products alone; half the efficiency doubles a product's time."""
    text = (
        "devices: {mine: {vendor: me, kind: cpu, flops: {fp32: 1 TFLOP/s}, memory_bandwidth: 1 TB/s,"
        " launch_overhead: 0, source: s, date: '', efficiency: {product: {arithmetic: 0.4}}}}"
    )
    path = tmp_path / "own.yaml"
    path.write_text(text)
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(path))
    device = catalogue.lookup("mine").device("d")
    assert device_curves(device)["other"] == curves_of("cpu")["other"]
    graph = OperatorGraph([Operator(k, k, flops=4 * 10**8) for k in ("aten.mm", "aten.relu")])
    assert analytic(graph, Cluster([device])).processing_s[:, 0].tolist() == pytest.approx([1e-3, 0.5e-3])


def test_a_device_without_figures_is_named() -> None:
    """As for the roofline, the remedy is said."""
    with pytest.raises(InvalidInput, match="'bare' states no peak"):
        analytic(product(1, 1, 1), Cluster([Device("bare")]))
