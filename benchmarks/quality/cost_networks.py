"""Small networks that costs are checked with: functions for ``py:``, on the meta device."""

from __future__ import annotations

from typing import Any

import torch
import transformers

Example = tuple[torch.nn.Module, Any]


def _tokens(length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.zeros(1, length, dtype=torch.int64, device="meta")}


def _on_meta(cls: Any, config: Any) -> torch.nn.Module:
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        module: torch.nn.Module = cls(config).eval()
    return module


def bert_4() -> Example:
    """BERT of 4 layers of width 512 on 128 tokens."""
    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048, vocab_size=30522
    )
    return _on_meta(transformers.BertModel, config), _tokens(128)


def gpt2_small() -> Example:
    """GPT-2 of 12 layers on a prompt of 128 tokens."""
    return _on_meta(transformers.GPT2Model, transformers.GPT2Config(use_cache=False)), _tokens(128)


def vit_base() -> Example:
    """ViT-B/16 on one picture."""
    return _on_meta(transformers.ViTModel, transformers.ViTConfig()), {
        "pixel_values": torch.zeros(1, 3, 224, 224, device="meta")
    }


def t5_small() -> Example:
    """T5-small, encoder and decoder, on 128 tokens each."""
    tokens = torch.zeros(1, 128, dtype=torch.int64, device="meta")
    config = transformers.T5Config(use_cache=False)
    return _on_meta(transformers.T5Model, config), {"input_ids": tokens, "decoder_input_ids": tokens}


def _convolutional(name: str) -> Example:
    from importlib import import_module

    module, _, function = name.partition(":")
    with torch.device("meta"):
        network = getattr(import_module(f"pytorchcv.models.{module}"), function)(pretrained=False).eval()
    return network, (torch.zeros(1, 3, 224, 224, device="meta"),)


def resnet_50() -> Example:
    """ResNet-50 on one picture."""
    return _convolutional("resnet:resnet50")


def mobilenet_v2() -> Example:
    """MobileNet v2: mostly depthwise and 1 x 1 convolutions."""
    return _convolutional("mobilenetv2:mobilenetv2_w1")


def densenet_121() -> Example:
    """DenseNet-121: many concatenations."""
    return _convolutional("densenet:densenet121")
