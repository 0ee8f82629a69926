"""What is asked of a language model: how much it reads and writes, in which formats, and how finely it is placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from placewright.errors import InvalidInput
from placewright.language.model import LanguageModel
from placewright.language.part import Stream
from placewright.language.step import BITS, Formats, Step

__all__ = ["Asked", "Grain", "Phase", "Tied", "phases_of"]

Grain: TypeAlias = Literal["layer", "module", "operator"]
Tied: TypeAlias = Literal["together", "apart"]

USUAL_CONTEXT = 4096
"""Tokens, where nothing says how many and the model reaches so far."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model is to do.

    Attributes
    ----------
    batch : int
        Sequences that are generated together.
    context : int or None
        Tokens of a sequence that the cache has room for; ``None``: prompt and answer, or 4,096 without a prompt.
    prompt, generate : int or None
        Tokens read at once, and generated one by one after them. Neither: one decode step with a full context.
    in_flight : int
        Batches in a pipeline at a time, each with its cache.
    formats : Formats
    grain : {"layer", "module", "operator"}
        What is placed as one.
    tied : {"together", "apart"}
        Whether embedding and head that share weights share a device, or hold a copy each.
    """

    batch: int = 1
    context: int | None = None
    prompt: int | None = None
    generate: int | None = None
    in_flight: int = 1
    formats: Formats = field(default_factory=Formats)
    grain: Grain = "module"
    tied: Tied = "together"

    def __post_init__(self) -> None:
        violations = [
            f"{name} {value} is below 1; give at least 1"
            for name in ("batch", "context", "prompt", "generate", "in_flight")
            if (value := getattr(self, name)) is not None and value < 1
        ]
        if self.grain not in get_args(Grain):
            violations.append(f"grain {self.grain!r} is unknown; use one of {', '.join(get_args(Grain))}")
        if self.tied not in get_args(Tied):
            violations.append(f"tied {self.tied!r} is unknown; use one of {', '.join(get_args(Tied))}")
        if self.formats.dtype not in BITS:
            violations.append(f"dtype {self.formats.dtype!r} is unknown; use one of {', '.join(BITS)}")
        if self.generate is not None and self.prompt is None:
            violations.append(
                f"generate {self.generate} has no prompt that it follows; give both, or neither for one decode step"
            )
        wanted = (self.prompt or 0) + (self.generate or 0)
        if self.context is not None and wanted > self.context:
            violations.append(
                f"a prompt of {self.prompt} tokens and {self.generate or 0} generated ones don't fit the context of "
                f"{self.context}; raise the context or leave it out"
            )
        if violations:
            raise InvalidInput(violations)

    def room(self, model: LanguageModel) -> int:
        """Tokens of a sequence that the cache has room for."""
        if self.context is not None:
            return self.context
        if self.prompt is not None:
            return (1 if model.encodes_prompt else self.prompt) + (self.generate or 0)
        return min(USUAL_CONTEXT, model.longest or USUAL_CONTEXT)

    def source(self, model: LanguageModel) -> int:
        """Rows of a sequence that an encoder makes and the cache has room for; as many as the context by default."""
        if model.encodes_prompt:
            return self.prompt or self.room(model)
        return model.tokens.get("source", 0)


@dataclass(frozen=True, slots=True)
class Phase:
    """A step, and how often it is done.

    Attributes
    ----------
    name : str
        ``prefill`` or ``decode``; other networks name theirs.
    step : Step
    times : int
    """

    name: str
    step: Step
    times: int = 1


def phases_of(model: LanguageModel, asked: Asked) -> tuple[Phase, ...]:
    """Return what a model does: prefill, decode steps, or both.

    The decode steps after a prompt of P tokens that generate G more are G equal ones, each with P + G / 2 tokens in the
    cache, which is the mean: their work grows by the same amount from one to the next, up to a full window.
    """
    if asked.prompt is None:
        return (Phase("decode", Step(asked.batch, _ONE, asked.room(model), asked.source(model))),)
    text = 1 if model.encodes_prompt else asked.prompt
    new: dict[Stream, int] = {"source": asked.source(model), **model.tokens, "text": text, "last": 1}
    prefill = Phase("prefill", Step(asked.batch, new, text, asked.source(model)))
    if asked.generate is None:
        return (prefill,)
    mean = text + (asked.generate + 1) // 2
    return prefill, Phase("decode", replace(prefill.step, new=_ONE, context=mean), asked.generate)


_ONE: Mapping[Stream, int] = {"text": 1, "last": 1}
