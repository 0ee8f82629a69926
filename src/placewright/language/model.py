"""From a configuration to the parts of a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from placewright.errors import InvalidInput
from placewright.language.configuration import Configuration
from placewright.language.decoder import add_decoder
from placewright.language.encoder_decoder import ENCODER_DECODERS
from placewright.language.families import FAMILIES
from placewright.language.part import Part, Parts, Stream
from placewright.language.quantised import kept_as_they_are, named_format
from placewright.language.vision import SEEING, add_vision

__all__ = ["LanguageModel", "model_of"]

_TEXT_OF: Mapping[str, str] = MappingProxyType(
    {
        "llava": "llama",
        "gemma3": "gemma3_text",
        "paligemma": "gemma",
        **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), "qwen2"),
    }
)
"""Families of decoders that have another name inside a vision-language model, or none of their own."""


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
    encodes_prompt : bool
        Whether a prompt is read by an encoder, and the decoder begins with one token.
    weight_format : str
        That its configuration says its weights have; empty where it says none.
    """

    name: str
    parts: tuple[Part, ...]
    tokens: Mapping[Stream, int] = field(default_factory=lambda: MappingProxyType({}))
    longest: int | None = None
    dtype: str = ""
    weight_bytes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    encodes_prompt: bool = False
    weight_format: str = ""

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
    parts = Parts()
    tokens: dict[Stream, int] = {}
    if kind in FAMILIES:
        family = FAMILIES[kind]
        text = Configuration(given, family.aliases, family.defaults)
        add_decoder(parts, text, family, family.root)
    elif kind in ENCODER_DECODERS:
        text = Configuration(given)
        tokens = ENCODER_DECODERS[kind](parts, text)
    elif kind in SEEING:
        text, tokens = _seeing(parts, given, kind)
    else:
        known = ", ".join(sorted((*FAMILIES, *ENCODER_DECODERS, *SEEING)))
        raise InvalidInput(
            f"model_type {kind!r} is not known; these are: {known}. "
            "Another network can be captured: py:package.module:function",
            what="configuration",
        )
    reach = next((n for n in ("max_position_embeddings", "max_target_positions") if text.value(n) is not None), None)
    longest = None if reach is None else text.count(reach)
    said = (c.get(name) for c in (text.given, given) for name in ("dtype", "torch_dtype"))
    dtype = DTYPES.get(str(next(filter(None, said), "")), "")
    encodes = kind in ENCODER_DECODERS and "source" not in tokens
    return LanguageModel(
        name or kind,
        kept_as_they_are(given, parts.parts),
        tokens,
        longest,
        dtype,
        encodes_prompt=encodes,
        weight_format=named_format(given),
    )


def _seeing(parts: Parts, given: Mapping[str, Any], kind: str) -> tuple[Configuration, dict[Stream, int]]:
    """Add a vision-language model; the configuration of its text, and the rows of an image."""
    whole = Configuration(given)
    inner = given["text_config"] if isinstance(given.get("text_config"), Mapping) else given
    of_text = str(inner.get("model_type", kind))
    family = FAMILIES.get(_TEXT_OF.get(of_text, of_text))
    if family is None:
        known = ", ".join(sorted((*FAMILIES, *_TEXT_OF)))
        raise InvalidInput(f"model_type {of_text!r} is not known; these are: {known}", what="text_config")
    tied = given.get("tie_word_embeddings", inner.get("tie_word_embeddings"))
    text = Configuration({**inner, "tie_word_embeddings": tied}, family.aliases, family.defaults, "text_config")
    seen, tokens = add_vision(parts, whole, text.count("hidden_size"))
    parts.stream = "text"
    add_decoder(parts, text, family, "model.language_model", (seen,))
    return text, tokens
