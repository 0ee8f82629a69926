"""Memory that is added to a captured graph: formats of weights, KV caches, training, workspace."""

from __future__ import annotations

import pytest

from placewright.cluster import Cluster, Device
from placewright.costs.kv_cache import LayerCache
from placewright.costs.memory_parts import with_kv_caches, with_training, with_weight_format, with_workspace
from placewright.costs.optimizers import OPTIMIZERS, optimizer_named
from placewright.costs.weight_formats import WEIGHT_FORMATS, weight_format
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.verify import verify

GRAPH = OperatorGraph(
    [
        Operator("embed", "aten.embedding", weight_bytes=4096, traffic_bytes=100),
        Operator("norm", "aten.layer_norm", weight_bytes=64, traffic_bytes=200),
        Operator("fc", "aten.linear", weight_bytes=4096, traffic_bytes=5000),
        Operator("attend", "aten.scaled_dot_product_attention"),
        Operator("lm_head", "aten.linear", weight_bytes=4096, traffic_bytes=5000),
    ]
)


def test_bits_of_blocks_are_those_of_the_gguf_package() -> None:
    """Each format that is one type of ggml has as many bits per weight as its blocks."""
    gguf = pytest.importorskip("gguf")
    bits = {t.name.lower(): 8 * size / block for t, (block, size) in gguf.GGML_QUANT_SIZES.items()}
    own = {name: f.bits for name, f in WEIGHT_FORMATS.items() if name in bits}
    assert len(own) >= 12 and own == {name: bits[name] for name in own}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("bf16", [2048, 32, 2048, 0, 2048]),
        ("q4_0", [576, 64, 576, 0, 576]),  # 1,024 numbers of 4.5 bits
        ("nf4", [4096, 64, 576, 0, 4096]),  # neither a table nor the head
        ("8", [1024, 64, 1024, 0, 1024]),
    ],
)
def test_weights_in_another_format(name: str, weights: list[int]) -> None:
    """Weights that a format covers take its bits, and as many bytes less are read of those that are read whole."""
    made = with_weight_format(GRAPH, weight_format(name))
    assert [v.weight_bytes for v in made.operators] == weights
    assert made.operators[2].traffic_bytes == 5000 - (4096 - weights[2])
    assert made.operators[0].traffic_bytes == 100


def test_caches_go_to_the_attention_operators_in_order() -> None:
    """A layer with a window keeps the window's tokens; where attention is no operator, each softmax stands for it."""
    softmax = OperatorGraph([Operator(f"s{k}", kind) for k, kind in enumerate(("Softmax", "Add", "Softmax"))])
    caches = (LayerCache(8), LayerCache(8, window=10))
    made = with_kv_caches(softmax, caches, batch=2, context=100, bits=16)
    assert [v.kv_cache_bytes for v in made.operators] == [8 * 2 * 100 * 2, 0, 8 * 2 * 10 * 2]
    with pytest.raises(InvalidInput, match="1 attention operators, the first 'attend', and the configuration 2 layers"):
        with_kv_caches(GRAPH, caches, batch=1, context=1, bits=16)


@pytest.mark.parametrize(
    ("optimizer", "gradients", "state"),
    [("sgd", 200, 0), ("momentum", 200, 200), ("adamw", 200, 400), ("adamw-mixed-fp32-gradients", 400, 1200)],
)
def test_what_training_holds(optimizer: str, gradients: int, state: int) -> None:
    """Of 100 parameters of 2 bytes: a gradient each, the optimiser's state, and 8 saved bytes of 3 micro-batches."""
    made = with_training(GRAPH, {"fc": (100, 200)}, {"norm": 8}, optimizer_named(optimizer), in_flight=3)
    fc, norm = made.operators[2], made.operators[1]
    assert (fc.gradient_bytes, fc.optimizer_bytes, fc.saved_bytes) == (gradients, state, 0)
    assert (norm.gradient_bytes, norm.optimizer_bytes, norm.saved_bytes) == (0, 0, 24)
    assert fc.resident_bytes == 4096 + gradients + state


def test_mixed_precision_takes_sixteen_bytes_a_parameter() -> None:
    """The total of Rajbhandari et al.: 2 of the parameter, 2 of its gradient and 12 of state."""
    state = OPTIMIZERS["adamw-mixed"]
    assert state.gradient_bytes is None and 2 + 2 + 2 * state.copies + state.more_bytes == 16


def test_a_workspace_counts_while_its_operator_runs() -> None:
    """Of a chain a -> b the peak is at b: its input of 10 B, its result of 4 B, and the larger workspace of 7 B.

    At a: 10 B and 3 B of workspace. With weights of 5 B b needs 26 B, which the judge and the checker agree on.
    """
    chain = OperatorGraph(
        [Operator("a"), Operator("b", weight_bytes=5)], [Tensor("x", 0, (1,), 10), Tensor("y", 1, (), 4, output=True)]
    )
    worked = with_workspace(chain, {"a": 3, "b": 7})
    for memory, fits in ((26, True), (25, False)):
        problem = Problem(worked, Cluster([Device("gpu", memory_bytes=memory)]), [[1.0], [1.0]])
        judged = evaluate(problem, [0, 0])
        use = judged.devices[0]
        assert (use.activation_bytes, use.workspace_bytes, use.memory_bytes) == (14, 7, 26)
        assert judged.feasible is fits
        assert bool(verify(problem, Plan([0, 0], judged.schedule, judged.value_s))) is not fits
    assert "26 B (weights 5 B, activations 14 B, workspace 7 B) and has 25 B" in judged.violations[0]


def test_names_that_are_unknown() -> None:
    """Each message lists what there is."""
    with pytest.raises(InvalidInput, match="weight format 'q9' is unknown; use bits per weight from 1 to 64, or one"):
        weight_format("q9")
    with pytest.raises(InvalidInput, match="optimizer 'sofa' is unknown; use one of sgd, momentum"):
        optimizer_named("sofa")
