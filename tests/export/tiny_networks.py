"""Networks of transformers and diffusers that are as small as they can be, to be captured and loaded."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

Example = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def llama_config(layers: int = 4) -> LlamaConfig:
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=32,
        use_cache=False,
    )
    config._attn_implementation = "sdpa"
    return config


def llama() -> Example:
    """Four layers, the head with weights of its own."""
    torch.manual_seed(0)
    return LlamaForCausalLM(llama_config()).eval(), {"input_ids": torch.arange(8).reshape(1, 8)}


def gpt2() -> Example:
    """Three layers, the head tied to the embedding."""
    torch.manual_seed(0)
    config = GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=64, n_positions=32, use_cache=False)
    config._attn_implementation = "sdpa"
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.arange(8).reshape(1, 8)}


def unet() -> Example:
    """Two blocks down and up, with attention in one of each."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    made = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(4, 8),
        layers_per_block=1,
        norm_num_groups=2,
        attention_head_dim=2,
        cross_attention_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    return made.eval(), {
        "sample": torch.ones(1, 4, 8, 8),
        "timestep": torch.ones(1, dtype=torch.int64),
        "encoder_hidden_states": torch.ones(1, 4, 8),
    }
