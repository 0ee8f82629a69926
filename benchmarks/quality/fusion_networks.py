"""Small transformers networks with random weights, whose fusions are looked at: two layers say what forty do.

All sizes of a network are different, so that no dimension is mistaken for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

__all__ = ["LATER", "NETWORKS", "build"]

Example = tuple[torch.nn.Module, dict[str, torch.Tensor]]

VOCABULARY, LENGTH = 97, 24
TEXT: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IMAGE: Mapping[str, Any] = {"num_labels": 10}


def _made(name: str, inputs: dict[str, torch.Tensor], config: str = "", **sizes: Any) -> Example:
    cls = getattr(transformers, name)
    prefix = config or name.partition("For")[0].removesuffix("LMHeadModel").removesuffix("Model")
    settings = getattr(transformers, f"{prefix}Config")(**sizes)
    if cls._supports_sdpa:
        settings._attn_implementation = "sdpa"
    torch.manual_seed(0)
    return cls(settings).eval(), inputs


def _tokens(**more: str) -> dict[str, torch.Tensor]:
    names = ("input_ids", *more.values())
    return {name: torch.arange(3, 3 + LENGTH).reshape(1, LENGTH) for name in names}


def _pixels(size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size)}


_DECODER = {**TEXT, "use_cache": False, "max_position_embeddings": 48}
_VISION = {**{k: v for k, v in TEXT.items() if k != "vocab_size" and "token" not in k}, **IMAGE}

NETWORKS: Mapping[str, Callable[[], Example]] = {
    "BERT": lambda: _made("BertModel", _tokens(), **TEXT),
    "GPT-2": lambda: _made(
        "GPT2LMHeadModel",
        _tokens(),
        vocab_size=VOCABULARY,
        n_embd=64,
        n_layer=2,
        n_head=4,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "Llama": lambda: _made("LlamaForCausalLM", _tokens(), **_DECODER),
    "T5": lambda: _made(
        "T5ForConditionalGeneration",
        _tokens(more="decoder_input_ids"),
        vocab_size=VOCABULARY,
        d_model=64,
        d_kv=16,
        d_ff=160,
        num_layers=2,
        num_heads=4,
        use_cache=False,
    ),
    "ViT": lambda: _made("ViTForImageClassification", _pixels(80), image_size=80, **_VISION),
    "ResNet": lambda: _made(
        "ResNetForImageClassification",
        _pixels(96),
        embedding_size=16,
        hidden_sizes=[32, 64, 128, 256],
        depths=[1, 2, 2, 1],
        **IMAGE,
    ),
    "Swin-v2": lambda: _made(
        "Swinv2ForImageClassification",
        _pixels(96),
        image_size=96,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=6,
        **IMAGE,
    ),
    "Whisper": lambda: _made(
        "WhisperForConditionalGeneration",
        {"input_features": torch.zeros(1, 80, 100), "decoder_input_ids": _tokens()["input_ids"]},
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=160,
        decoder_ffn_dim=160,
        vocab_size=VOCABULARY,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        max_source_positions=50,
        max_target_positions=48,
    ),
    "DistilBERT": lambda: _made(
        "DistilBertModel", _tokens(), vocab_size=VOCABULARY, dim=64, n_layers=2, n_heads=4, hidden_dim=160
    ),
    "Qwen2": lambda: _made("Qwen2ForCausalLM", _tokens(), **_DECODER, num_key_value_heads=2),
    "OPT": lambda: _made(
        "OPTForCausalLM",
        _tokens(),
        **{k: v for k, v in _DECODER.items() if k != "intermediate_size"},
        ffn_dim=160,
        word_embed_proj_dim=64,
    ),
    "ConvNeXt": lambda: _made(
        "ConvNextForImageClassification", _pixels(96), hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 2, 1], **IMAGE
    ),
    "MobileNet-v2": lambda: _made("MobileNetV2ForImageClassification", _pixels(96), image_size=96, **IMAGE),
    "SegFormer": lambda: _made(
        "SegformerForImageClassification",
        _pixels(96),
        hidden_sizes=[16, 32, 64, 128],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=64,
        **IMAGE,
    ),
}
"""Whose fusions were looked at when the rules were written."""

LATER: Mapping[str, Callable[[], Example]] = {
    "ALBERT": lambda: _made("AlbertModel", _tokens(), **TEXT, embedding_size=32),
    "RegNet": lambda: _made(
        "RegNetForImageClassification",
        _pixels(96),
        embedding_size=16,
        hidden_sizes=[32, 64, 96, 128],
        depths=[1, 1, 2, 1],
        groups_width=16,
        **IMAGE,
    ),
    "DINOv2": lambda: _made(
        "Dinov2ForImageClassification",
        _pixels(84),
        image_size=84,
        patch_size=14,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        **IMAGE,
    ),
    "Gemma": lambda: _made("GemmaForCausalLM", _tokens(), **_DECODER, num_key_value_heads=2, head_dim=16),
}
"""Whose fusions were first looked at when the rules were done."""


def build(name: str) -> Example:
    """Build a network and its inputs."""
    return {**NETWORKS, **LATER}[name]()
