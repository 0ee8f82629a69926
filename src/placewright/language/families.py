"""Families of decoders as transformers builds them: names of modules, and what configurations leave unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["FAMILIES", "Experts", "Family"]


def _frozen(**values: Any) -> Mapping[str, Any]:
    return MappingProxyType(values)


@dataclass(frozen=True, slots=True)
class Experts:
    """How a family names and counts its experts; names of numbers are those of its configuration.

    Attributes
    ----------
    count, width : str
        How many there are, and how wide each one is.
    router : str
    shared : str
        The expert that every token takes; empty where there is none.
    shared_width : str
        Its width; where empty, ``width`` times ``n_shared_experts``.
    shared_gate : str
    biases : bool
        Of router and experts.
    """

    count: str
    width: str = "moe_intermediate_size"
    router: str = "gate"
    shared: str = ""
    shared_width: str = ""
    shared_gate: str = ""
    biases: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Decoders that differ in numbers alone.

    Attributes
    ----------
    root, embed, positions, layers, final_norm : str
        Modules; ``positions`` where positions are learnt.
    attention, feed_forward : str
        Modules of a layer.
    norms : tuple of str
        Before and after the attention, before and after the feed-forward part; empty where there is none.
    queries, output, products : tuple of str, str, tuple of str
        Queries, keys and values apart or as one; what the attention ends with; the feed-forward products, the last one
        down.
    gated : bool
        Whether the feed-forward part multiplies two products, which may be one matrix.
    layer_norm : bool
        Whether norms have biases.
    query_bias, output_bias, product_bias, head_bias : bool or str
        Whether they have biases, or the configuration's name of that.
    query_norm : {"", "head", "row"}
        Norms of queries and keys: none, of each head, of all heads as one row.
    query_norm_if : str
        The configuration's name of whether it has them; empty: it always does.
    parallel : bool or str
        Whether attention and feed-forward part read the same input and are added up together.
    sinks : bool
        Whether every head has a weight of its own in the attention.
    tied : bool
        Whether embedding and head share weights where the configuration doesn't say.
    full_every : int
        Every so manieth layer sees all tokens and the others a window; 0: all as the configuration says.
    experts : Experts or None
    aliases, defaults : mapping
        Other names of numbers; numbers that its configurations may leave out.
    only : mapping
        Options that are read with one value alone.
    """

    root: str = "model"
    embed: str = "embed_tokens"
    positions: str = ""
    layers: str = "layers"
    final_norm: str = "norm"
    attention: str = "self_attn"
    feed_forward: str = "mlp"
    norms: tuple[str, str, str, str] = ("input_layernorm", "", "post_attention_layernorm", "")
    queries: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    output: str = "o_proj"
    products: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    gated: bool = True
    layer_norm: bool = False
    query_bias: bool | str = False
    output_bias: bool | str = False
    product_bias: bool | str = False
    head_bias: bool = False
    query_norm: Literal["", "head", "row"] = ""
    query_norm_if: str = ""
    parallel: bool | str = False
    sinks: bool = False
    tied: bool = False
    full_every: int = 0
    experts: Experts | None = None
    aliases: Mapping[str, str] = field(default_factory=_frozen)
    defaults: Mapping[str, Any] = field(default_factory=_frozen)
    only: Mapping[str, Any] = field(default_factory=_frozen)


_LLAMA = Family(query_bias="attention_bias", output_bias="attention_bias", product_bias="mlp_bias")
_QWEN3 = replace(_LLAMA, query_norm="head", product_bias=False, defaults=_frozen(use_sliding_window=False))
_QWEN2 = Family(query_bias=True, defaults=_frozen(use_sliding_window=False))
_AROUND = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_GEMMA = Family(query_bias="attention_bias", output_bias="attention_bias", tied=True, defaults=_frozen(head_dim=256))
_GEMMA3 = replace(
    _GEMMA,
    norms=_AROUND,
    query_norm="head",
    full_every=6,
    aliases=_frozen(full_every="sliding_window_pattern"),
    defaults=_frozen(
        head_dim=256, num_attention_heads=8, num_key_value_heads=4, vocab_size=262_208, sliding_window=4096
    ),
)
_OLMO2 = replace(
    _LLAMA,
    product_bias=False,
    norms=("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
    query_norm="row",
)
_DEEPSEEK = Family(output_bias="attention_bias", experts=Experts("n_routed_experts", shared="shared_experts"))
_TWO = ("fc1", "fc2")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": _LLAMA,
        "mistral": Family(),
        "ministral": Family(),
        "granite": _LLAMA,
        "smollm3": replace(_LLAMA, tied=True, defaults=_frozen(use_sliding_window=False)),
        "qwen2": _QWEN2,
        "qwen3": _QWEN3,
        "gemma": _GEMMA,
        "gemma2": replace(_GEMMA, norms=_AROUND, full_every=2, defaults=_frozen(head_dim=256, sliding_window=4096)),
        "gemma3_text": _GEMMA3,
        "olmo2": _OLMO2,
        "cohere": Family(
            query_bias="attention_bias",
            output_bias="attention_bias",
            norms=("input_layernorm", "", "", ""),
            parallel=True,
            tied=True,
            only=_frozen(use_qk_norm=False),
        ),
        "phi": Family(
            final_norm="final_layernorm",
            norms=("input_layernorm", "", "", ""),
            output="dense",
            products=_TWO,
            gated=False,
            layer_norm=True,
            query_bias=True,
            output_bias=True,
            product_bias=True,
            head_bias=True,
            parallel=True,
            only=_frozen(qk_layernorm=False),
        ),
        "phi3": Family(queries=("qkv_proj",), products=("gate_up_proj", "down_proj")),
        "starcoder2": Family(
            products=("c_fc", "c_proj"),
            gated=False,
            layer_norm=True,
            query_bias="use_bias",
            output_bias="use_bias",
            product_bias="use_bias",
            tied=True,
            defaults=_frozen(use_bias=True),
        ),
        "stablelm": Family(
            layer_norm=True,
            query_bias="use_qkv_bias",
            only=_frozen(qk_layernorm=False, use_parallel_residual=False),
        ),
        "gpt_neox": Family(
            root="gpt_neox",
            embed="embed_in",
            final_norm="final_layer_norm",
            attention="attention",
            queries=("query_key_value",),
            output="dense",
            products=("dense_h_to_4h", "dense_4h_to_h"),
            gated=False,
            layer_norm=True,
            query_bias="attention_bias",
            output_bias="attention_bias",
            product_bias=True,
            parallel="use_parallel_residual",
            defaults=_frozen(attention_bias=True, use_parallel_residual=True),
        ),
        "gpt2": Family(
            root="transformer",
            embed="wte",
            positions="wpe",
            layers="h",
            final_norm="ln_f",
            attention="attn",
            norms=("ln_1", "", "ln_2", ""),
            queries=("c_attn",),
            output="c_proj",
            products=("c_fc", "c_proj"),
            gated=False,
            layer_norm=True,
            query_bias=True,
            output_bias=True,
            product_bias=True,
            tied=True,
            aliases=_frozen(
                hidden_size="n_embd",
                num_hidden_layers="n_layer",
                num_attention_heads="n_head",
                intermediate_size="n_inner",
                max_position_embeddings="n_positions",
            ),
        ),
        "mixtral": replace(
            _LLAMA,
            experts=Experts("num_local_experts", "intermediate_size"),
            query_bias=False,
            output_bias=False,
            product_bias=False,
        ),
        "olmoe": replace(
            _LLAMA, product_bias=False, query_norm="row", experts=Experts("num_experts", "intermediate_size")
        ),
        "qwen2_moe": replace(
            _QWEN2,
            query_bias="qkv_bias",
            experts=Experts(
                "num_experts",
                shared="shared_expert",
                shared_width="shared_expert_intermediate_size",
                shared_gate="shared_expert_gate",
            ),
            defaults=_frozen(use_sliding_window=False, qkv_bias=True),
        ),
        "qwen3_moe": replace(_QWEN3, experts=Experts("num_experts"), aliases=_frozen(num_experts="num_local_experts")),
        "gpt_oss": Family(
            query_bias=True,
            output_bias=True,
            sinks=True,
            experts=Experts("num_local_experts", "intermediate_size", router="router", biases=True),
        ),
        "glm4_moe": Family(
            query_bias="attention_bias",
            query_norm="head",
            query_norm_if="use_qk_norm",
            experts=Experts("n_routed_experts", shared="shared_experts"),
            defaults=_frozen(n_shared_experts=1),
        ),
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
    }
)
"""By the ``model_type`` of a configuration. The parameters of each are compared with those of transformers' module."""
