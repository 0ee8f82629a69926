"""Small configurations of every family that is known, as keyword arguments of transformers' configuration classes."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {**TEXT, "moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    **TEXT,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 48,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{
        name.lower(): (f"{name}Config", f"{name}ForCausalLM", TEXT)
        for name in (
            *("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi", "Phi3", "Starcoder2", "Olmo2", "Granite"),
            *("Cohere", "StableLm", "SmolLM3"),
        )
    },
    "llama with biases, tied": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {**TEXT, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**TEXT, "num_hidden_layers": 7}),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {k: v for k, v in TEXT.items() if k != "num_key_value_heads"},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "vocab_size": 128,
            "n_positions": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**TEXT, "num_local_experts": 4}),
    "olmoe": ("OlmoeConfig", "OlmoeForCausalLM", {**TEXT, "num_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {**EXPERTS, "shared_expert_intermediate_size": 80, "mlp_only_layers": [1], "decoder_sparse_step": 2},
    ),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", EXPERTS),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM", {**TEXT, "num_local_experts": 4, "head_dim": 16}),
    "glm4_moe": (
        "Glm4MoeConfig",
        "Glm4MoeForCausalLM",
        {**EXPERTS, "n_routed_experts": 4, "first_k_dense_replace": 1, "use_qk_norm": True},
    ),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", {**LATENT, "q_lora_rank": 24}),
    "deepseek_v2": ("DeepseekV2Config", "DeepseekV2ForCausalLM", {**LATENT, "q_lora_rank": None}),
}
"""Configuration class, model class, arguments."""

_BART = {
    **{f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))},
    **{"d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80},
}
_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 128}

ENCODER_DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
    "t5 gated": (
        "T5Config",
        "T5ForConditionalGeneration",
        {**_T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 3},
    ),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", {**_BART, "vocab_size": 51865}),
    "bart": ("BartConfig", "BartForConditionalGeneration", {**_BART, "vocab_size": 128}),
}

SEEING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llava": (
        "LlavaConfig",
        "LlavaForConditionalGeneration",
        {
            "vision_config": {**VISION, "model_type": "clip_vision_model"},
            "text_config": {**TEXT, "model_type": "llama"},
            "image_token_index": 5,
        },
    ),
    "gemma3 with images": (
        "Gemma3Config",
        "Gemma3ForConditionalGeneration",
        {
            "vision_config": {**VISION, "model_type": "siglip_vision_model"},
            "text_config": {**TEXT, "model_type": "gemma3_text"},
            "mm_tokens_per_image": 4,
        },
    ),
    "paligemma": (
        "PaliGemmaConfig",
        "PaliGemmaForConditionalGeneration",
        {
            "vision_config": {**VISION, "model_type": "siglip_vision_model"},
            "text_config": {**TEXT, "model_type": "gemma"},
            "projection_dim": 64,
        },
    ),
    "qwen2_vl": (
        "Qwen2VLConfig",
        "Qwen2VLForConditionalGeneration",
        {
            "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 4},
            "text_config": TEXT,
        },
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLConfig",
        "Qwen2_5_VLForConditionalGeneration",
        {
            "vision_config": {
                **{"depth": 2, "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64, "num_heads": 2},
            },
            "text_config": TEXT,
        },
    ),
}

ALL = {**DECODERS, **ENCODER_DECODERS, **SEEING}
