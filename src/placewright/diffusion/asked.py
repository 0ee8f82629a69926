"""What is asked of a diffusion pipeline: how many pictures of which size in how many steps, and what that runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from placewright.diffusion.pipeline import PipelineModel
from placewright.errors import InvalidInput
from placewright.language import Formats, Phase, Step
from placewright.language.asked import Grain
from placewright.language.part import Stream

__all__ = ["PictureAsked", "phases_of"]

MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class PictureAsked:
    """What a pipeline is to do.

    Attributes
    ----------
    height, width : int
        Pixels.
    steps : int
        Of the denoiser.
    batch : int
        Pictures at a time.
    guided : bool
        Whether each is denoised with the text and without, as a batch of two.
    formats : Formats
    grain : {"layer", "module", "operator"}
        What is placed as one.
    """

    height: int
    width: int
    steps: int
    batch: int = 1
    guided: bool = True
    formats: Formats = field(default_factory=Formats)
    grain: Grain = "module"

    def __post_init__(self) -> None:
        violations = [
            f"{name} {value} is not from 1 to {MOST_STEPS}; correct it"
            for name in ("steps", "batch")
            if not 1 <= (value := getattr(self, name)) <= MOST_STEPS
        ]
        if self.grain not in get_args(Grain):
            violations.append(f"grain {self.grain!r} is unknown; use one of {', '.join(get_args(Grain))}")
        if violations:
            raise InvalidInput(violations)


def phases_of(made: PipelineModel, asked: PictureAsked) -> tuple[tuple[Phase, ...], tuple[Phase, ...]]:
    """Return what a pipeline does, and the same for people.

    The first are what is weighed: everything once, and the other steps of the denoiser; so what encoders hand over
    travels once, and latents to the decoder do. The second are its three sections, each as often as it runs.
    """
    rows = made.rows
    samples: dict[Stream, int] = {}
    if asked.guided:
        samples = {s: 2 for part in ("encode", "step") for s in rows[part] if s not in made.latents}

    def phase(name: str, sections: tuple[str, ...], times: int = 1) -> Phase:
        new = {stream: n for section in sections for stream, n in rows[section].items()}
        standing = {stream: n for made in rows.values() for stream, n in made.items() if stream not in new}
        return Phase(name, Step(asked.batch, new, 0, samples=samples, standing=standing), times)

    every = [phase("picture", ("encode", "step", "decode"))]
    if asked.steps > 1:
        every.append(phase("step", ("step",), asked.steps - 1))
    told = [phase(name, (name,), asked.steps if name == "step" else 1) for name in ("encode", "step", "decode")]
    runs = {p.stream for p in made.model.parts}
    return tuple(every), tuple(p for p in told if runs & set(p.step.new))
