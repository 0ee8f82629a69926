"""Parts of pipelines, compared with the modules that diffusers and transformers build: weights and FLOPs."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("diffusers")

from placewright.diffusion import PictureAsked, phases_of, read_pipeline  # noqa: E402
from placewright.language import Formats, step_graph  # noqa: E402
from tests.diffusion.small_pipelines import PIPELINES, written  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def built(kind, given):
    """A component's module on meta."""
    import diffusers
    import transformers

    with torch.device("meta"):
        if "model_type" in given:
            return getattr(transformers, kind)(transformers.AutoConfig.for_model(**given))
        return getattr(diffusers, kind).from_config({"_class_name": kind, **given})


@pytest.mark.parametrize("name", PIPELINES)
def test_parameters_are_those_of_the_modules_one_by_one(name, tmp_path):
    """Each part has as many weights as the module of its name; each component as many as the whole of it."""
    pipeline = read_pipeline(f"hf:{written(tmp_path / 'p', name)}")
    model = pipeline.model(*pipeline.usual_size(), "bf16").model
    own = {p.name: p.parameters for p in model.parts}
    assert len(own) == len(model.parts)
    for component, (kind, given) in PIPELINES[name][1].items():
        module, held = built(kind, given), {}
        for path, parameter in module.named_parameters():
            at = f"{component}.{path}"
            while at and at not in own:
                at = at.rpartition(".")[0]
            held[at] = held.get(at, 0) + parameter.numel()
        assert {at: own[at] for at in held if at} == {at: n for at, n in held.items() if at}
        mine = sum(n for at, n in own.items() if at.startswith(f"{component}."))
        assert mine == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("stable-diffusion-1.5", {"text_encoder": 123_060_480, "unet": 859_520_964, "vae": 83_653_863}),
        ("stable-diffusion-xl", {"text_encoder_2": 694_659_840, "unet": 2_567_463_684}),
        ("stable-diffusion-3-medium", {"text_encoder_3": 4_762_310_656, "transformer": 2_028_328_000}),
        ("flux-1-dev", {"transformer": 11_901_408_320, "vae": 83_819_683}),
        ("pixart-sigma", {"transformer": 610_856_096}),
    ],
)
def test_the_examples_have_the_published_sizes(name, published):
    """Parameters as the checkpoints of these models have them."""
    pipeline = read_pipeline(f"hf:{EXAMPLES / name}")
    model = pipeline.model(*pipeline.usual_size(), "bf16").model
    for component, count in published.items():
        assert sum(p.parameters for p in model.parts if p.name.startswith(f"{component}.")) == count


def inputs(kind, given, samples, text, latent, tokens):
    """What a component takes of a prompt of so many tokens, for latents of this size."""

    def zeros(*shape):
        return torch.zeros(*shape, dtype=torch.bfloat16)

    time = torch.zeros(samples, dtype=torch.int64)
    pictures = zeros(samples, given.get("in_channels", 4), *latent)
    if kind.startswith(("CLIP", "T5")):
        return (torch.zeros(samples, text, dtype=torch.int64),), {}
    if kind == "UNet2DConditionModel":
        sized = {"text_embeds": zeros(samples, 24), "time_ids": zeros(samples, 6)}
        states = zeros(samples, text, given["cross_attention_dim"])
        return (pictures, time, states), {"added_cond_kwargs": sized}
    if kind == "SD3Transformer2DModel":
        return (pictures, zeros(samples, text, 48), zeros(samples, 48), time), {}
    if kind == "FluxTransformer2DModel":
        places = (torch.zeros(tokens, 3), torch.zeros(text, 3))
        states = (zeros(samples, tokens, 16), zeros(samples, text, 48), zeros(samples, 16))
        return (*states, time, *places, zeros(samples)), {}
    sized = {"resolution": zeros(samples, 2), "aspect_ratio": zeros(samples, 1)}
    return (pictures, zeros(samples, text, 48), time, sized), {}


@pytest.mark.parametrize("name", ["stable diffusion", "sdxl", "sd3.5", "flux", "pixart"])
def test_flops_are_those_that_torch_counts(name, tmp_path):
    """Two pictures of 48 x 64 pixels, guided but for Flux: products, convolutions and attention of each component.

    Latents are 16 x 12, and 12 x 8 tokens for transformers; text has 77 tokens of CLIP and T5's of the pipeline.
    """
    from torch.utils.flop_counter import FlopCounterMode

    pipeline = read_pipeline(f"hf:{written(tmp_path / 'p', name)}")
    made = pipeline.model(64, 48, "bf16")
    guided = name != "flux"
    asked = PictureAsked(64, 48, 3, batch=2, guided=guided)
    samples, latent = 4 if guided else 2, (16, 12)
    ours: dict[str, int] = {}
    for phase in phases_of(made, asked)[1]:
        for v in step_graph(made.model, phase.step, Formats()).operators:
            if v.kind in ("linear", "conv", "attention"):
                component = v.name.partition(".")[0]
                ours[component] = ours.get(component, 0) + v.flops
    long = pipeline.denoiser.tokens
    text = {"stable diffusion": 77, "sdxl": 77, "flux": long, "pixart": long}.get(name, 77 + long)
    for component, (kind, given) in PIPELINES[name][1].items():
        module = built(kind, given).to(torch.bfloat16)
        with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
            if component == "vae":
                module.decode(torch.zeros(2, 4, *latent, dtype=torch.bfloat16))
            else:
                tokens = text if component in ("unet", "transformer") else long if kind.startswith("T5") else 77
                args, named = inputs(kind, given, samples, tokens, latent, 8 * 6)
                module(*args, **named)
        assert ours[component] == counter.get_total_flops(), component
