"""Language models whose device maps are compared, by their public sizes: configurations of transformers, no weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import transformers as t

__all__ = ["MODELS"]


def _llama_8b() -> Any:
    return t.LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=131072,
        architectures=["LlamaForCausalLM"],
    )


def _llama_70b() -> Any:
    return t.LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=131072,
        architectures=["LlamaForCausalLM"],
    )


def _mixtral_8x7b() -> Any:
    return t.MixtralConfig(architectures=["MixtralForCausalLM"])  # the defaults are its sizes


def _qwen3_30b_a3b() -> Any:
    return t.Qwen3MoeConfig(
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_hidden_layers=48,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        vocab_size=151936,
        max_position_embeddings=40960,
        architectures=["Qwen3MoeForCausalLM"],
    )


def _deepseek_v2_lite() -> Any:
    return t.DeepseekV2Config(
        hidden_size=2048,
        intermediate_size=10944,
        moe_intermediate_size=1408,
        num_hidden_layers=27,
        num_attention_heads=16,
        num_key_value_heads=16,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        first_k_dense_replace=1,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        vocab_size=102400,
        max_position_embeddings=163840,
        architectures=["DeepseekV2ForCausalLM"],
    )


def _gemma2_27b() -> Any:
    return t.Gemma2Config(
        hidden_size=4608,
        intermediate_size=36864,
        num_hidden_layers=46,
        num_attention_heads=32,
        num_key_value_heads=16,
        head_dim=128,
        vocab_size=256000,
        architectures=["Gemma2ForCausalLM"],
    )


def _whisper_large() -> Any:
    return t.WhisperConfig(
        d_model=1280,
        encoder_layers=32,
        decoder_layers=32,
        encoder_attention_heads=20,
        decoder_attention_heads=20,
        encoder_ffn_dim=5120,
        decoder_ffn_dim=5120,
        vocab_size=51866,
        num_mel_bins=128,
        architectures=["WhisperForConditionalGeneration"],
    )


MODELS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "Llama 3 8B": _llama_8b,
        "Llama 3 70B": _llama_70b,
        "Mixtral 8x7B": _mixtral_8x7b,
        "Qwen3 30B-A3B": _qwen3_30b_a3b,
        "DeepSeek-V2-Lite": _deepseek_v2_lite,
        "Gemma 2 27B": _gemma2_27b,
        "Whisper large v3": _whisper_large,
    }
)
"""Configurations by name."""
