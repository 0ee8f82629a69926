"""Memory that a captured graph does not have yet: weights in another format, KV caches, and what training keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from placewright.costs.kv_cache import LayerCache
from placewright.costs.optimizers import Optimizer
from placewright.costs.weight_formats import WeightFormat, is_head
from placewright.errors import InvalidInput
from placewright.graph import GrowingCache, Operator, OperatorGraph, Tensor
from placewright.units import format_bytes

__all__ = ["attention_operators", "with_kv_caches", "with_training", "with_weight_format", "with_workspace"]

BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "uint8": 8}

_PRODUCTS = "linear addmm mm matmul bmm baddbmm einsum MatMul Gemm FusedMatMul FusedGemm MatMulInteger"
_TABLES = "embedding Gather EmbedLayerNormalization"
_ATTENTION = (
    "scaled_dot_product_attention flex_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention_for_cpu "
    "Attention MultiHeadAttention GroupQueryAttention DecoderMaskedMultiHeadAttention PackedMultiHeadAttention"
)
PRODUCTS, TABLES, ATTENTION = (frozenset(names.split()) for names in (_PRODUCTS, _TABLES, _ATTENTION))
"""Kinds of operators, of torch and of ONNX: matrix products, look-ups in a table, attention as one operator."""

SOFTMAX = frozenset(("softmax", "_softmax", "Softmax"))
"""Of a graph that has its attention as products and softmax."""


def with_weight_format(graph: OperatorGraph, format: WeightFormat) -> OperatorGraph:
    """Hold the weights that a format covers in its bits; as many bytes less are read.

    An operator's weights count as numbers of its dtype, a bias with its matrix. Times that are measured are not those
    of the format.
    """
    return _each(graph, lambda v: _reformatted(v, format))


def _reformatted(v: Operator, format: WeightFormat) -> Operator:
    kinds = _kinds(v)
    covered = (
        format.covers == "all"
        or (not kinds.isdisjoint(PRODUCTS) and not (format.covers == "products" and is_head(v.name)))
        or (format.covers == "matrices" and not kinds.isdisjoint(TABLES))
    )
    bits = BITS.get(v.dtype)
    if not covered or bits is None:
        return v
    held = ceil(v.weight_bytes * format.bits / bits)
    read = v.traffic_bytes - (v.weight_bytes - held) if v.traffic_bytes >= v.weight_bytes else v.traffic_bytes
    return replace(v, weight_bytes=held, traffic_bytes=read)


def with_kv_caches(
    graph: OperatorGraph, caches: Sequence[LayerCache], *, batch: int, context: int, bits: float
) -> OperatorGraph:
    """Give each attention operator the cache of its layer, for so many sequences of so many tokens.

    Raises
    ------
    InvalidInput
        If the graph has not one attention operator for each layer.
    """
    found = attention_operators(graph)
    if len(found) != len(caches):
        named = f", the first {graph.operators[found[0]].name!r}" if found else ""
        raise InvalidInput(
            f"the network has {len(found)} attention operators{named}, and the configuration {len(caches)} layers; "
            "give the configuration that the network was made from"
        )
    operators = list(graph.operators)
    for v, cache in zip(found, caches, strict=True):
        held = operators[v].kv_cache_bytes + cache.size_bytes(batch, context, bits)
        grows = GrowingCache(cache.numbers * batch * bits, context, cache.window or 0)
        operators[v] = replace(operators[v], kv_cache_bytes=held, caches=(grows,))
    return replace(graph, operators=tuple(operators))


def attention_operators(graph: OperatorGraph) -> list[int]:
    """List the operators that read the caches: attention as one operator, or else every softmax.

    Examples
    --------
    >>> attention_operators(OperatorGraph([Operator("q", "aten.linear"), Operator("s", "aten.softmax")]))
    [1]
    """
    for kinds in (ATTENTION, SOFTMAX):
        if found := [k for k, v in enumerate(graph.operators) if not _kinds(v).isdisjoint(kinds)]:
            return found
    return []


def with_training(
    graph: OperatorGraph,
    parameters: Mapping[str, tuple[int, int]],
    saved: Mapping[str, int],
    optimizer: Optimizer,
    *,
    in_flight: int,
) -> OperatorGraph:
    """Add gradients, optimiser state, and what is saved for the backward pass of so many micro-batches.

    Parameters
    ----------
    graph : OperatorGraph
    parameters : mapping
        Of an operator by name the numbers and the bytes of the parameters that it accounts for.
    saved : mapping
        Of an operator by name the bytes that the forward pass of one micro-batch keeps.
    optimizer : Optimizer
    in_flight : int
        Micro-batches whose forward pass has begun and whose backward pass has not ended.
    """

    def trained(v: Operator) -> Operator:
        numbers, size = parameters.get(v.name, (0, 0))
        return replace(
            v,
            gradient_bytes=size if optimizer.gradient_bytes is None else ceil(numbers * optimizer.gradient_bytes),
            optimizer_bytes=ceil(size * optimizer.copies + numbers * optimizer.more_bytes),
            saved_bytes=saved.get(v.name, 0) * in_flight,
        )

    return _each(graph, trained)


def with_workspace(graph: OperatorGraph, workspace: Mapping[str, int]) -> OperatorGraph:
    """Add a tensor that nobody reads for each workspace: it lives as long as its operator runs.

    Raises
    ------
    InvalidInput
        If a tensor has its name.
    """
    taken = {t.name for t in graph.tensors}
    made = [
        Tensor(f"{v.name} (workspace)", k, (), workspace[v.name])
        for k, v in enumerate(graph.operators)
        if workspace.get(v.name)
    ]
    if clash := next((t for t in made if t.name in taken), None):
        raise InvalidInput(
            f"a tensor is called {clash.name!r}, as its workspace of {format_bytes(clash.size_bytes)} is"
        )
    return replace(graph, tensors=(*graph.tensors, *made))


def _kinds(v: Operator) -> frozenset[str]:
    return frozenset(kind.removeprefix("aten.").split(".")[0] for kind in v.kind.split("+"))


def _each(graph: OperatorGraph, change: Callable[[Operator], Operator]) -> OperatorGraph:
    return replace(graph, operators=tuple(map(change, graph.operators)))
