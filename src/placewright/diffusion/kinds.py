"""Denoisers that are known: what builds them, what their pipelines do by default, and how they are told the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from placewright.diffusion.blocks import Made, Text
from placewright.diffusion.joint import add_flux, add_stable_diffusion_3
from placewright.diffusion.pixart import add_pixart
from placewright.diffusion.text import Encoded
from placewright.diffusion.unet import add_unet
from placewright.language.configuration import Configuration
from placewright.language.part import Parts

__all__ = ["DENOISERS", "PROMPT", "Denoiser", "told"]

PROMPT = "prompt"
"""Stream of the states of all encoders together."""

Telling: TypeAlias = Literal["states", "clip and t5", "t5, pooled clip"]
"""How text reaches a denoiser: the states of its encoders side by side; those of CLIP and then T5's as more tokens;
T5's alone, CLIP giving one row for the whole prompt."""

USUAL_TOKENS = 77
"""That CLIP's text encoders make."""


@dataclass(frozen=True, slots=True)
class Denoiser:
    """A class of denoisers of diffusers.

    Attributes
    ----------
    add : callable
        Adds its parts.
    telling : {"states", "clip and t5", "t5, pooled clip"}
    tokens : int
        That its pipeline gives T5.
    steps : int
        That its pipeline takes where it is not told.
    guided : bool
        Whether its pipeline denoises each picture twice in a step, with the text and without.
    dtype : str
        That it is published in.
    multiple : int
        Latents on a side come in multiples of it.
    latents : int
        On a side where the configuration does not say.
    """

    add: Callable[[Parts, str, Configuration, Text, tuple[int, int]], Made]
    telling: Telling
    tokens: int = USUAL_TOKENS
    steps: int = 50
    guided: bool = True
    dtype: str = "fp16"
    multiple: int = 1
    latents: int = 64


DENOISERS: Mapping[str, Denoiser] = MappingProxyType(
    {
        "UNet2DConditionModel": Denoiser(add_unet, "states"),
        "SD3Transformer2DModel": Denoiser(add_stable_diffusion_3, "clip and t5", 256, 28, multiple=2, latents=128),
        "FluxTransformer2DModel": Denoiser(
            add_flux, "t5, pooled clip", 512, 28, guided=False, dtype="bf16", multiple=2, latents=128
        ),
        "PixArtTransformer2DModel": Denoiser(add_pixart, "states", 300, 20, multiple=2, latents=128),
    }
)
"""By class; steps, guidance and tokens are the defaults of the pipelines' ``__call__`` in diffusers 0.42."""


def told(parts: Parts, root: str, denoiser: Denoiser, encoders: Mapping[str, Encoded]) -> Text:
    """Add what puts the results of text encoders together, and name what the denoiser reads.

    Parameters
    ----------
    parts : Parts
    root : str
        Of the denoiser.
    denoiser : Denoiser
    encoders : mapping of str to Encoded
        By component, in the order of the pipeline.
    """
    every = list(encoders.values())
    if not every:
        return Text(rows=denoiser.tokens)
    clips, last = [e for e in every if e.rows], every[-1]
    parts.stream = PROMPT
    parts.within(f"{root}.cat")

    def joined(name: str, reads: tuple[str, ...], width: int) -> tuple[str, ...]:
        return reads if len(reads) < 2 else (parts.elementwise(f"{root}.{name}", "cat", reads, width),)

    if denoiser.telling == "states":
        if len(every) == 1 and "text_encoder_2" not in encoders:
            return Text((last.last,), rows=last.rows or denoiser.tokens)
        states = joined("cat", tuple(e.before for e in every), sum(e.width for e in every))
        return Text(states, (last.pooled,), last.rows)
    if denoiser.telling == "t5, pooled clip":
        t5 = [e for e in every if not e.rows]
        rows = denoiser.tokens if t5 else clips[-1].rows
        return Text(tuple(e.last for e in t5), tuple(e.pooled for e in clips), rows)
    t5 = [e for e in every if not e.rows]
    width = max(e.width for e in every) if t5 else sum(e.width for e in clips)
    states = joined("cat", (*(e.before for e in clips), *(e.last for e in t5)), width)
    clip_rows = max((e.rows for e in clips), default=USUAL_TOKENS)
    return Text(states, tuple(e.pooled for e in clips), clip_rows + (denoiser.tokens if t5 else clip_rows))
