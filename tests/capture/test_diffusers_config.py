"""Denoisers from their configurations: weights, and what is refused."""

from __future__ import annotations

import json

import pytest

from placewright.capture import capture
from placewright.capture.diffusers_config import denoiser_file
from placewright.errors import InvalidInput
from placewright.language import is_language_model

SMALL = {
    "_class_name": "UNet2DConditionModel",
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "attention_head_dim": [2, 4],
    "block_out_channels": [32, 64],
    "cross_attention_dim": 16,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "layers_per_block": 1,
    "projection_class_embeddings_input_dim": 80,
    "sample_size": 16,
    "use_linear_projection": True,
}


def test_a_denoiser_is_captured_with_all_its_weights(tmp_path):
    """A U-Net's folder, an SDXL in small: bytes of its parameters; operators by the paths of its modules."""
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(json.dumps(SMALL))
    graph = capture(f"hf:{tmp_path / 'unet'}", fold=False)
    with torch.device("meta"):
        module = diffusers.UNet2DConditionModel.from_config(SMALL)
    # Two bytes each, and the frequencies of two embeddings of time in fp32: 32 / 2 and 8 / 2 of them.
    assert sum(v.weight_bytes for v in graph.operators) == 2 * sum(p.numel() for p in module.parameters()) + 4 * 20
    assert any(v.name.startswith("down_blocks.1.attentions.0.transformer_blocks.0.attn2") for v in graph.operators)
    assert graph.name == "unet" and graph.source is not None and graph.source.format == "hf"


def test_a_denoiser_is_told_from_a_language_model(tmp_path):
    """By the class that its configuration names; one of another class is refused."""
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama"}')
    assert denoiser_file(f"hf:{tmp_path}") is None and is_language_model(f"hf:{tmp_path}")
    file.write_text('{"_class_name": "FluxTransformer2DModel"}')
    assert denoiser_file(f"hf:{file}") == file and not is_language_model(f"hf:{file}")
    with pytest.raises(InvalidInput, match="_class_name 'FluxTransformer2DModel' is not known"):
        capture(f"hf:{file}")
