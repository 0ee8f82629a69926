"""What a command line says of a diffusion pipeline, and what is asked of it then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from placewright.errors import InvalidInput
from placewright.objective import Makespan, Objective
from placewright.posing.language_flags import LanguageFlags
from placewright.posing.memory_flags import MemoryFlags

if TYPE_CHECKING:
    from placewright.costs.weight_formats import WeightFormat
    from placewright.diffusion import PictureAsked, Pipeline
    from placewright.language.asked import Grain

__all__ = ["DiffusionFlags", "parse_size"]

_OF_PIPELINES = ("--weight-format", "--batch", "--dtype", "--grain")
"""Flags of memory and of language models that are about pipelines too."""


@dataclass(frozen=True, slots=True)
class DiffusionFlags:
    """Flags of the command line that are about diffusion pipelines; ``None`` where one was not given.

    Attributes
    ----------
    steps : int or None
        Of the denoiser.
    size : str or None
        Such as ``1024x768``, width first, or ``1024``.
    guidance : bool or None
        Whether each picture is denoised with the text and without.
    """

    steps: int | None = None
    size: str | None = None
    guidance: bool | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """Flags that were given, as they are spelt."""
        guidance = {None: None, True: "--guidance", False: "--no-guidance"}[self.guidance]
        named = ((self.steps, "--steps"), (self.size, "--size"), (self.guidance, guidance))
        return tuple(str(name) for value, name in named if value is not None)

    def asked(
        self, pipeline: Pipeline, memory: MemoryFlags, language: LanguageFlags, objective: Objective
    ) -> PictureAsked:
        """Return what is asked of a pipeline.

        Parameters
        ----------
        pipeline : Pipeline
            Its steps, size, guidance and dtype are used where none is given.
        memory, language : MemoryFlags, LanguageFlags
            Batch, formats, dtype and grain; what else they have is refused.
        objective : Objective

        Raises
        ------
        InvalidInput
            If a value is out of range or unknown, or is for other networks.
        """
        # Loaded here: with it come the kernels, which a command line without a pipeline does without.
        from placewright.diffusion import PictureAsked
        from placewright.language.step import BITS, Formats

        if misfits := [flag for flag in (*memory.given, *language.given) if flag not in _OF_PIPELINES]:
            verb, them = ("is", "it") if len(misfits) == 1 else ("are", "them")
            raise InvalidInput(
                f"{' and '.join(misfits)} {verb} for other networks, and {pipeline.name!r} is a diffusion pipeline; "
                f"leave {them} out"
            )
        if isinstance(objective, Makespan) and objective.per == "token":
            raise InvalidInput(
                f"--objective token-latency is for language models, and {pipeline.name!r} is a diffusion pipeline; "
                "leave it out for the time of a picture"
            )
        if language.dtype is not None and language.dtype not in BITS:
            raise InvalidInput(f"--dtype {language.dtype!r} is unknown; use one of {', '.join(BITS)}")
        height, width = pipeline.usual_size() if self.size is None else parse_size(self.size)
        every, each = _formats(pipeline, memory.weight_format)
        denoiser = pipeline.denoiser
        return PictureAsked(
            height,
            width,
            self.steps or denoiser.steps,
            memory.batch or 1,
            denoiser.guided if self.guidance is None else self.guidance,
            Formats(language.dtype or denoiser.dtype, every, components=each),
            cast("Grain", language.grain or "module"),
        )


def parse_size(text: str) -> tuple[int, int]:
    """Height and width of ``WIDTHxHEIGHT``, or of one number for both.

    Raises
    ------
    InvalidInput
        If it is something else.

    Examples
    --------
    >>> parse_size("1024x768"), parse_size("512")
    ((768, 1024), (512, 512))
    """
    found = re.fullmatch(r"(\d{1,9})(?:[xX](\d{1,9}))?", text.strip())
    if found is None:
        raise InvalidInput(f"--size {text!r} is not WIDTHxHEIGHT in pixels; write for example '1024x768'")
    return int(found[2] or found[1]), int(found[1])


def _formats(pipeline: Pipeline, text: str | None) -> tuple[WeightFormat | None, dict[str, WeightFormat]]:
    """Format of all components, and of some: those that their configurations say, and those that are named."""
    from placewright.costs.weight_formats import weight_format

    if text is None or "=" not in text:
        said = {} if text is not None else {name: weight_format(f) for name, f in pipeline.formats.items()}
        return None if text is None else weight_format(text), said
    each = {name: weight_format(f) for name, f in pipeline.formats.items()}
    for item in text.split(","):
        name, equals, format = item.strip().partition("=")
        if not equals or name not in pipeline.components:
            raise InvalidInput(
                f"--weight-format {item.strip()!r} is not COMPONENT=FORMAT of {pipeline.name!r}, whose components are "
                f"{', '.join(pipeline.components)}; correct it, or give one format for all"
            )
        each[name] = weight_format(format)
    return None, each
