"""Formats of weights that a configuration says its checkpoint has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from placewright.language.part import Part

__all__ = ["kept_as_they_are", "named_format"]

_ALIKE = ("awq", "gptq", "fp8", "mxfp4")
"""Methods whose name is that of a format, of 4 bits or 8."""

GROUP_BITS = 20 / 128
"""Scale and zero point of a group of 128, for each weight."""


def named_format(given: Mapping[str, Any]) -> str:
    """Name the format that ``quantization_config`` speaks of, as ``--weight-format`` does; empty where it says none.

    Examples
    --------
    >>> named_format({"quantization_config": {"quant_method": "gptq", "bits": 8}})
    '8.15625'
    >>> named_format({"quantization_config": {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}})
    'nf4-double'
    """
    said = given.get("quantization_config")
    if not isinstance(said, Mapping):
        return ""
    method, bits = said.get("quant_method"), said.get("bits", 4)
    if said.get("load_in_4bit") is True:
        return "nf4-double" if said.get("bnb_4bit_use_double_quant") is True else "nf4"
    if said.get("load_in_8bit") is True:
        return "int8"
    if method in ("awq", "gptq") and isinstance(bits, int) and 1 <= bits <= 8 and bits != 4:
        return str(bits + GROUP_BITS)
    return str(method) if method in _ALIKE else ""


def kept_as_they_are(given: Mapping[str, Any], parts: Iterable[Part]) -> tuple[Part, ...]:
    """Take out of the format what ``modules_to_not_convert`` names, by parts of paths or patterns."""
    said = given.get("quantization_config")
    names = said.get("modules_to_not_convert") if isinstance(said, Mapping) else None
    patterns = [f"*{name}*" for name in names if isinstance(name, str)][:1000] if isinstance(names, list) else []
    return tuple(
        replace(p, quantised=False) if patterns and any(fnmatchcase(p.name, pattern) for pattern in patterns) else p
        for p in parts
    )
