"""What a command line says of a language model, and what is asked of it then."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, cast

from placewright.errors import InvalidInput
from placewright.objective import Makespan, Objective
from placewright.posing.memory_flags import MemoryFlags
from placewright.units import parse_tokens

if TYPE_CHECKING:
    from placewright.language import Asked, LanguageModel
    from placewright.language.asked import Grain, Tied

__all__ = ["LanguageFlags"]

_OF_MODELS = ("--weight-format", "--context", "--batch", "--cache-dtype")
"""Flags of memory that are about language models too."""


@dataclass(frozen=True, slots=True)
class LanguageFlags:
    """Flags of the command line that are about language models; ``None`` where one was not given.

    Attributes
    ----------
    prompt, generate : str or None
        Tokens, such as ``2k``.
    dtype : str or None
        ``bf16``, ``fp16``, ``fp32``, ``fp8`` or ``int8``.
    grain, tied : str or None
    in_flight : int or None

    Examples
    --------
    >>> from placewright.language import LanguageModel
    >>> LanguageFlags(prompt="2k").asked(LanguageModel("tiny", ()), MemoryFlags(batch=4), 2, Makespan()).prompt
    2048
    """

    prompt: str | None = None
    generate: str | None = None
    dtype: str | None = None
    grain: str | None = None
    in_flight: int | None = None
    tied: str | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """Flags that were given, as they are spelt."""
        return tuple(f"--{f.name.replace('_', '-')}" for f in fields(self) if getattr(self, f.name) is not None)

    def asked(self, model: LanguageModel, memory: MemoryFlags, devices: int, objective: Objective) -> Asked:
        """Return what is asked of a model.

        Parameters
        ----------
        model : LanguageModel
            Its dtype and its format of weights are used where none is given.
        memory : MemoryFlags
            Context, batch, and the formats of weights and caches.
        devices : int
            Of the cluster: under max-load and throughput so many batches are in flight where nothing else is said, as
            no pipeline keeps more stages busy; and tied weights are apart, as the first stage is not the last one.
        objective : Objective

        Raises
        ------
        InvalidInput
            If a value is out of range or unknown.
        """
        # Loaded here: with it come the kernels, which a command line without a language model does without.
        from placewright.costs.weight_formats import weight_format
        from placewright.language.asked import Asked
        from placewright.language.step import BITS, Formats

        steady = not isinstance(objective, Makespan)
        if isinstance(objective, Makespan) and objective.per == "token" and self.prompt and not self.generate:
            raise InvalidInput(
                f"--objective token-latency is about decoding, and --prompt {self.prompt} alone is only read; add "
                "--generate, or leave --prompt out for one decode step"
            )
        if self.dtype is not None and self.dtype not in BITS:
            raise InvalidInput(f"--dtype {self.dtype!r} is unknown; use one of {', '.join(BITS)}")
        if misfits := [flag for flag in memory.given if flag not in _OF_MODELS]:
            verb, them = ("is", "it") if len(misfits) == 1 else ("are", "them")
            raise InvalidInput(
                f"{' and '.join(misfits)} {verb} for networks that are captured (.onnx, .pt2, py:module:function), and "
                f"{model.name!r} is made from its configuration; leave {them} out"
            )
        return Asked(
            memory.batch or 1,
            _tokens(memory.context, "--context"),
            _tokens(self.prompt, "--prompt"),
            _tokens(self.generate, "--generate"),
            self.in_flight or (devices if steady else 1),
            Formats(
                self.dtype or model.dtype or "bf16",
                weight_format(named) if (named := memory.weight_format or model.weight_format) else None,
                None if memory.cache_dtype is None else weight_format(memory.cache_dtype).bits,
            ),
            cast("Grain", self.grain or "module"),
            cast("Tied", self.tied or ("apart" if steady else "together")),
        )


def _tokens(text: str | None, flag: str) -> int | None:
    return None if text is None else parse_tokens(text, flag)
