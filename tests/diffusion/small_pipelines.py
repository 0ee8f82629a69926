"""Pipelines of every kind that is known, as small as they can be: class and configuration of each component."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Components = dict[str, tuple[str, dict[str, Any]]]

CLIP = {
    "model_type": "clip_text_model",
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "projection_dim": 24,
    "vocab_size": 100,
    "max_position_embeddings": 77,
    "eos_token_id": 99,
}
WIDE_CLIP = {**CLIP, "hidden_size": 24}
T5 = {
    "model_type": "t5",
    "d_model": 48,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 3,
    "num_heads": 4,
    "vocab_size": 100,
    "feed_forward_proj": "gated-gelu",
}
VAE = {
    "block_out_channels": [8, 16, 16],
    "down_block_types": ["DownEncoderBlock2D"] * 3,
    "up_block_types": ["UpDecoderBlock2D"] * 3,
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "latent_channels": 4,
}
PLAIN_VAE = {**VAE, "use_quant_conv": False, "use_post_quant_conv": False}
UNET = {
    "sample_size": 8,
    "block_out_channels": [8, 16],
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "attention_head_dim": 2,
    "cross_attention_dim": 16,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}
SIZED_UNET = {
    **UNET,
    "sample_size": [8, 12],
    "block_out_channels": [8, 16, 24],
    "attention_head_dim": [2, 4, 4],
    "transformer_layers_per_block": [1, 2, 3],
    "cross_attention_dim": 40,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 4,
    "projection_class_embeddings_input_dim": 24 + 6 * 4,
}
SD3 = {
    "sample_size": 16,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 3,
    "attention_head_dim": 8,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 48,
    "pos_embed_max_size": 16,
}
FLUX = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 8,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "pooled_projection_dim": 16,
    "guidance_embeds": True,
    "axes_dims_rope": [2, 2, 4],
}
PIXART = {
    "sample_size": 16,
    "num_layers": 2,
    "attention_head_dim": 8,
    "num_attention_heads": 6,
    "caption_channels": 48,
    "cross_attention_dim": 48,
    "use_additional_conditions": True,
}

ENCODERS: Components = {
    "text_encoder": ("CLIPTextModelWithProjection", CLIP),
    "text_encoder_2": ("CLIPTextModelWithProjection", WIDE_CLIP),
    "text_encoder_3": ("T5EncoderModel", T5),
}

PIPELINES: dict[str, tuple[str, Components]] = {
    "stable diffusion": (
        "StableDiffusionPipeline",
        {
            "text_encoder": ("CLIPTextModel", CLIP),
            "unet": ("UNet2DConditionModel", UNET),
            "vae": ("AutoencoderKL", VAE),
        },
    ),
    "sdxl": (
        "StableDiffusionXLPipeline",
        {
            "text_encoder": ("CLIPTextModel", CLIP),
            "text_encoder_2": ("CLIPTextModelWithProjection", WIDE_CLIP),
            "unet": ("UNet2DConditionModel", SIZED_UNET),
            "vae": ("AutoencoderKL", {**VAE, "force_upcast": True}),
        },
    ),
    "sd3": (
        "StableDiffusion3Pipeline",
        {**ENCODERS, "transformer": ("SD3Transformer2DModel", SD3), "vae": ("AutoencoderKL", PLAIN_VAE)},
    ),
    "sd3.5": (
        "StableDiffusion3Pipeline",
        {
            **ENCODERS,
            "transformer": ("SD3Transformer2DModel", {**SD3, "qk_norm": "rms_norm", "dual_attention_layers": [0, 1]}),
            "vae": ("AutoencoderKL", PLAIN_VAE),
        },
    ),
    "flux": (
        "FluxPipeline",
        {
            "text_encoder": ("CLIPTextModel", CLIP),
            "text_encoder_2": ("T5EncoderModel", {**T5, "feed_forward_proj": "relu"}),
            "transformer": ("FluxTransformer2DModel", FLUX),
            "vae": ("AutoencoderKL", {**PLAIN_VAE, "mid_block_add_attention": False}),
        },
    ),
    "pixart": (
        "PixArtSigmaPipeline",
        {
            "text_encoder": ("T5EncoderModel", T5),
            "transformer": ("PixArtTransformer2DModel", PIXART),
            "vae": ("AutoencoderKL", VAE),
        },
    ),
}
"""Class of the pipeline, and its components. The autoencoders have 4 pixels on a side of a latent."""


def written(folder: Path, name: str) -> Path:
    """A pipeline's folder with configurations alone, as diffusers and transformers lay it out."""
    kind, components = PIPELINES[name]
    index: dict[str, Any] = {"_class_name": kind, "scheduler": ["diffusers", "DDIMScheduler"]}
    for component, (cls, given) in components.items():
        ours = "model_type" in given
        index[component] = ["transformers" if ours else "diffusers", cls]
        (folder / component).mkdir(parents=True)
        said = {**given, "architectures": [cls]} if ours else {**given, "_class_name": cls}
        (folder / component / "config.json").write_text(json.dumps(said))
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder
