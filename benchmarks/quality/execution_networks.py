"""Networks of reduced size that the execution benchmark runs: functions for ``py:``, with weights drawn from a seed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import transformers

from placewright.networks import randomly_wired

Example = tuple[torch.nn.Module, Any]

NETWORKS = (
    "inception",
    "densenet",
    "randomly_wired_ws",
    "unet",
    "bert",
    "gpt2",
    "t5",
    "whisper",
)
"""Wide ones first."""


def _transformer(cls: Any, config: Any, **inputs: torch.Tensor) -> Example:
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    return cls(config).eval(), inputs


def _tokens(length: int, vocabulary: int = 2000) -> torch.Tensor:
    return torch.arange(length).reshape(1, length) * 7 % vocabulary


def _convolutional(module: str, function: str, pixels: int) -> Example:
    torch.manual_seed(0)
    network = getattr(import_module(f"pytorchcv.models.{module}"), function)(pretrained=False).eval()
    return network, (torch.randn(1, 3, pixels, pixels),)


def inception() -> Example:
    """Inception v3 on a picture of 299 pixels a side: modules of four branches."""
    return _convolutional("inceptionv3", "inceptionv3", 299)


def densenet() -> Example:
    """DenseNet-121 on a picture of 224 pixels a side: every layer of a block reads all before it."""
    return _convolutional("densenet", "densenet121", 224)


def randomly_wired_ws() -> Example:
    """Watts-Strogatz stages (arXiv 1904.01569) of 32 nodes and 128 channels on a picture of 224 pixels a side."""
    module, inputs = randomly_wired("ws", nodes=32, channels=128, pixels=224)
    return module.eval(), inputs


def unet() -> Example:
    """Conditional U-Net of diffusers: down and up with skips, attention to 16 tokens in between."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    network = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(64, 128, 128),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=128,
        attention_head_dim=8,
        norm_num_groups=16,
    ).eval()
    return network, (torch.randn(1, 4, 32, 32), torch.tensor([10]), torch.randn(1, 16, 128))


def bert() -> Example:
    """BERT of 6 layers of width 512 on 128 tokens."""
    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, vocab_size=2000
    )
    return _transformer(transformers.BertModel, config, input_ids=_tokens(128))


def gpt2() -> Example:
    """GPT-2 of 6 layers of width 512 with its head, on a prompt of 128 tokens."""
    config = transformers.GPT2Config(
        n_embd=512, n_layer=6, n_head=8, vocab_size=2000, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return _transformer(transformers.GPT2LMHeadModel, config, input_ids=_tokens(128))


def t5() -> Example:
    """T5 of 4 + 4 layers of width 512: the decoder on 64 tokens reads the encoder's 128 in every layer."""
    config = transformers.T5Config(
        d_model=512,
        d_kv=64,
        d_ff=2048,
        num_layers=4,
        num_decoder_layers=4,
        num_heads=8,
        vocab_size=2000,
        use_cache=False,
    )
    return _transformer(transformers.T5Model, config, input_ids=_tokens(128), decoder_input_ids=_tokens(64))


def whisper() -> Example:
    """Whisper of 4 + 4 layers of width 384 on 8 s of sound: two convolutions, an encoder, a decoder of 32 tokens."""
    config = transformers.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        vocab_size=2000,
        max_source_positions=400,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    return _transformer(
        transformers.WhisperModel,
        config,
        input_features=torch.randn(1, 80, 800, generator=torch.Generator().manual_seed(0)),
        decoder_input_ids=_tokens(32),
    )
