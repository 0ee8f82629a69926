"""From the head of a GGUF file to a configuration of transformers, and from its tensors' names to those of modules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from placewright.errors import InvalidInput
from placewright.language.families import FAMILIES, Family
from placewright.language.gguf_file import GgufHead

__all__ = ["configuration_of", "module_names"]

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "llama": "llama",
        "mistral3": "mistral",
        "qwen2": "qwen2",
        "qwen3": "qwen3",
        "qwen2moe": "qwen2_moe",
        "qwen3moe": "qwen3_moe",
        "gemma": "gemma",
        "gemma2": "gemma2",
        "gemma3": "gemma3_text",
        "phi2": "phi",
        "phi3": "phi3",
        "starcoder2": "starcoder2",
        "stablelm": "stablelm",
        "command-r": "cohere",
        "olmo2": "olmo2",
        "olmoe": "olmoe",
        "granite": "granite",
        "smollm3": "smollm3",
        "gptneox": "gpt_neox",
        "gpt2": "gpt2",
        "gpt-oss": "gpt_oss",
        "glm4moe": "glm4_moe",
        "deepseek2": "deepseek_v3",
    }
)
"""``model_type`` of each ``general.architecture``; a ``llama`` with experts is Mixtral."""

_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "hidden_size": "embedding_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "sliding_window": "attention.sliding_window",
        "intermediate_size": "feed_forward_length",
        "moe_intermediate_size": "expert_feed_forward_length",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
        "num_experts_per_tok": "expert_used_count",
        "n_shared_experts": "expert_shared_count",
        "first_k_dense_replace": "leading_dense_block_count",
        "max_position_embeddings": "context_length",
        "vocab_size": "vocab_size",
        "q_lora_rank": "attention.q_lora_rank",
        "kv_lora_rank": "attention.kv_lora_rank",
        "v_head_dim": "attention.value_length_mla",
        "qk_rope_head_dim": "rope.dimension_count",
    }
)


def configuration_of(head: GgufHead, what: str = "GGUF") -> dict[str, Any]:
    """Say in the words of a ``config.json`` what a head says of its model.

    Raises
    ------
    InvalidInput
        If its architecture is not known.
    """
    arch = str(head.values.get("general.architecture", ""))
    kind = KINDS.get(arch)
    if kind is None:
        raise InvalidInput(
            f"general.architecture {arch!r} is not known; these are: {', '.join(sorted(KINDS))}", what=what
        )
    found = {
        name: value if not isinstance(value, list) else max(value, default=None)
        for name, key in _NUMBERS.items()
        if (value := head.values.get(f"{arch}.{key}")) is not None
    }
    experts = head.values.get(f"{arch}.expert_count")
    if experts:
        kind = "mixtral" if arch == "llama" else kind
        family = FAMILIES[kind]
        if family.experts is not None:
            found[family.experts.count] = experts
            if family.experts.width == "intermediate_size" and "moe_intermediate_size" in found:
                found["intermediate_size"] = found["moe_intermediate_size"]
    if kind == "deepseek_v3":
        length = head.values.get(f"{arch}.attention.key_length_mla") or head.values.get(f"{arch}.attention.key_length")
        values = head.values.get(f"{arch}.attention.value_length")
        found["v_head_dim"] = found.get("v_head_dim", values)
        if isinstance(length, int):
            found["qk_nope_head_dim"] = length - (found.get("qk_rope_head_dim") or 0)
    if kind == "glm4_moe":
        found["use_qk_norm"] = any(name.endswith("attn_q_norm.weight") for name in head.tensors)
    if "vocab_size" not in found and "token_embd.weight" in head.shapes:
        found["vocab_size"] = head.shapes["token_embd.weight"][-1]
    return {"model_type": kind, "tie_word_embeddings": "output.weight" not in head.tensors, **found}


def module_names(family: Family) -> Mapping[str, str]:
    """Return the module of each tensor of a layer, and of those beside the layers, by its name without its number.

    Examples
    --------
    >>> module_names(FAMILIES["llama"])["attn_q"], module_names(FAMILIES["llama"])["token_embd"]
    ('self_attn.q_proj', 'embed_tokens')
    """
    attention, more = family.attention, family.feed_forward
    before, after, before_more, after_more = family.norms
    names = {
        "token_embd": family.embed,
        "position_embd": family.positions,
        "output_norm": family.final_norm,
        "attn_norm": before,
        "attn_norm_2": before_more,
        "post_attention_norm": after or before_more,
        "ffn_norm": before_more,
        "post_ffw_norm": after_more,
        "attn_output": f"{attention}.{family.output}",
        "attn_q_norm": f"{attention}.q_norm",
        "attn_k_norm": f"{attention}.k_norm",
        "attn_sinks": f"{attention}.scaled_dot_product_attention",
        "attn_q_a": f"{attention}.q_a_proj",
        "attn_q_a_norm": f"{attention}.q_a_layernorm",
        "attn_q_b": f"{attention}.q_b_proj",
        "attn_kv_a_mqa": f"{attention}.kv_a_proj_with_mqa",
        "attn_kv_a_norm": f"{attention}.kv_a_layernorm",
        **dict.fromkeys(("attn_kv_b", "attn_k_b", "attn_v_b"), f"{attention}.kv_b_proj"),
    }
    if len(family.queries) == 3:
        names |= {f"attn_{k}": f"{attention}.{name}" for k, name in zip("qkv", family.queries, strict=True)}
    else:
        names["attn_qkv"] = f"{attention}.{family.queries[0]}"
    *ups, down = family.products
    names |= {"ffn_down": f"{more}.{down}", "ffn_up": f"{more}.{ups[-1]}", "ffn_gate": f"{more}.{ups[0]}"}
    if family.experts is not None:
        e = family.experts
        names |= dict.fromkeys(("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps"), f"{more}.experts")
        names |= {"ffn_gate_inp": f"{more}.{e.router}", "exp_probs_b": f"{more}.{e.router}"}
        names |= {f"ffn_{k}_shexp": f"{more}.{e.shared}.{k}_proj" for k in ("gate", "up", "down")}
        names["ffn_gate_inp_shexp"] = f"{more}.{e.shared_gate}"
    return MappingProxyType({k: name for k, name in names.items() if name})
