"""From a configuration to the parts of a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from placewright.errors import InvalidInput
from placewright.language.configuration import Configuration
from placewright.language.decoder import add_decoder
from placewright.language.families import FAMILIES
from placewright.language.part import Part, Parts, Stream

__all__ = ["LanguageModel", "model_of"]

MOST_LAYERS_TOLD = 8


@dataclass(frozen=True)
class LanguageModel:
    """A model as its parts, in an order in which they can run.

    Attributes
    ----------
    name : str
    parts : tuple of Part
    tokens : mapping of stream to int
        Rows of each stream but the text's, for each sequence, where the configuration says how many.
    longest : int or None
        Tokens that its positions reach.
    dtype : str
        Of its weights and activations as its configuration says: ``bf16``; empty where it doesn't.
    weight_bytes : mapping of str to int
        True bytes of the weights of parts, where a file says them.
    """

    name: str
    parts: tuple[Part, ...]
    tokens: Mapping[Stream, int] = field(default_factory=lambda: MappingProxyType({}))
    longest: int | None = None
    dtype: str = ""
    weight_bytes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def parameters(self) -> int:
        """How many weights and biases it has, shared ones once."""
        return sum(p.parameters for p in self.parts)


DTYPES: Mapping[str, str] = MappingProxyType({"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"})


def model_of(given: Mapping[str, Any], name: str = "") -> LanguageModel:
    """Make the parts of a model from its configuration in transformers.

    Parameters
    ----------
    given : mapping
        What a ``config.json`` holds.
    name : str
        Defaults to its ``model_type``.

    Raises
    ------
    InvalidInput
        If the kind of model is unknown, or a number is missing or out of range.
    """
    kind = str(given.get("model_type", ""))
    parts, tokens = Parts(), dict[Stream, int]()
    if kind in FAMILIES:
        family = FAMILIES[kind]
        text = Configuration(given, family.aliases, family.defaults)
        add_decoder(parts, text, family, family.root)
    else:
        raise InvalidInput(
            f"model_type {kind!r} is not known; these are: {', '.join(sorted(FAMILIES))}. "
            "Another network can be captured: py:package.module:function",
            what="configuration",
        )
    longest = text.value("max_position_embeddings")
    dtype = DTYPES.get(str(text.value("dtype") or text.value("torch_dtype") or given.get("torch_dtype")), "")
    return LanguageModel(name or kind, tuple(parts.parts), tokens, longest, dtype)
