"""Folders of pipelines: what is one, what is left out, and what is refused."""

from __future__ import annotations

import json

import pytest

from placewright.diffusion import is_pipeline, read_pipeline
from placewright.errors import InvalidInput
from placewright.language import is_language_model
from tests.diffusion.small_pipelines import FLUX, written


def test_a_pipeline_is_told_by_its_index_or_its_denoiser(tmp_path):
    """A folder with an index, one without, the index itself, and a denoiser that is not captured; no language model."""
    folder = written(tmp_path / "p", "flux")
    assert is_pipeline(f"hf:{folder}") and is_pipeline(f"hf:{folder / 'model_index.json'}")
    assert is_pipeline(f"hf:{folder / 'transformer'}") and not is_pipeline(str(folder))
    assert not is_pipeline(f"hf:{folder / 'text_encoder'}") and is_language_model(f"hf:{folder / 'text_encoder'}")
    named = read_pipeline(f"hf:{folder}")
    (folder / "model_index.json").unlink()
    bare = read_pipeline(f"hf:{folder}")
    assert is_pipeline(f"hf:{folder}") and bare.components == named.components
    unet = written(tmp_path / "u", "sdxl") / "unet"
    assert not is_pipeline(f"hf:{unet}")  # captured


def test_a_denoiser_alone_has_its_own_parts(tmp_path):
    """The same parts as in its pipeline; text has the tokens that the pipeline gives, a latent 8 pixels, here 4."""
    folder = written(tmp_path / "p", "flux")
    whole = read_pipeline(f"hf:{folder}").model(64, 64, "bf16")
    alone = read_pipeline(f"hf:{folder / 'transformer'}").model(128, 128, "bf16")
    own = [p.name for p in whole.model.parts if p.name.startswith("transformer.")]
    assert [p.name for p in alone.model.parts] == own
    assert alone.rows["step"] == whole.rows["step"] and not alone.rows["decode"]


def test_sizes_steps_and_formats_are_the_pipelines_own(tmp_path):
    """Pixels of a latent by the autoencoder's blocks, the quantised formats of configurations, SDXL's two sides."""
    folder = written(tmp_path / "p", "sdxl")
    file = folder / "text_encoder" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": {"load_in_4bit": True}}))
    pipeline = read_pipeline(f"hf:{folder}")
    assert pipeline.scale == 4 and pipeline.usual_size() == (4 * 8, 4 * 12)
    assert pipeline.formats == {"text_encoder": "nf4"} and pipeline.upcast and pipeline.denoiser.steps == 50
    with pytest.raises(InvalidInput, match="pictures of 30x32 pixels don't fit 'p'; give multiples of 4"):
        pipeline.model(32, 30, "fp16")


def test_components_that_are_not_there_or_not_known_are_named(tmp_path):
    """A missing file, an encoder or a denoiser of another class, none; what is left out is noted."""
    folder = written(tmp_path / "p", "sd3")
    index = json.loads((folder / "model_index.json").read_text())

    def read(**changes):
        (folder / "model_index.json").write_text(json.dumps({**index, **changes}))
        return read_pipeline(f"hf:{folder}")

    (folder / "safety_checker").mkdir()
    (folder / "safety_checker" / "config.json").write_text("{}")
    (note,) = read(safety_checker=["stable_diffusion", "StableDiffusionSafetyChecker"]).notes
    assert note.endswith(": safety_checker")
    short = read(text_encoder_3=[None, None])  # SD3 without T5: as many zeros as CLIP has tokens
    assert "text_encoder_3" not in short.components
    assert short.model(64, 64, "fp16").rows["step"]["transformer.text"] == 2 * 77
    with pytest.raises(InvalidInput, match="text_encoder_2 is of class 'UMT5EncoderModel', which is not known"):
        read(text_encoder_2=["transformers", "UMT5EncoderModel"])
    with pytest.raises(InvalidInput, match="'Lumina2Transformer2DModel' is not known; these are: UNet2D"):
        read(transformer=["diffusers", "Lumina2Transformer2DModel"])
    with pytest.raises(InvalidInput, match="has 0 denoisers"):
        read(transformer=[None, None])
    (folder / "text_encoder_3" / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"text_encoder_3/config\.json"):
        read()


@pytest.mark.parametrize(
    ("component", "change", "said"),
    [
        ("unet", {"down_block_types": ["AttnDownBlock2D"] * 3}, "down_block_types .* is not known"),
        ("unet", {"class_embed_type": "timestep"}, "class_embed_type 'timestep' is not known"),
        ("unet", {"block_out_channels": [8, "16", 24]}, "block_out_channels is .*; give whole numbers"),
        ("unet", {"mid_block_type": "UNetMidBlock2D"}, "mid_block_type 'UNetMidBlock2D' is not known"),
        ("vae", {"up_block_types": ["AttnUpDecoderBlock2D"] * 3}, "up_block_types .* is not known"),
    ],
)
def test_options_that_are_not_known_are_refused(component, change, said, tmp_path):
    """Rather than read as something else."""
    folder = written(tmp_path / "p", "sdxl")
    file = folder / component / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InvalidInput, match=said):
        read_pipeline(f"hf:{folder}").model(64, 64, "fp16")


def test_a_pipeline_without_an_index_and_classes_is_refused(tmp_path):
    """A denoiser's configuration says its class, or the index does."""
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(FLUX))
    with pytest.raises(InvalidInput, match="_class_name '' is not known"):
        read_pipeline(f"hf:{tmp_path}")
