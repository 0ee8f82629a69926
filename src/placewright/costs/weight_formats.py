"""Formats of weights by name: bits of a weight, scales and zero points included, and which weights are put into it."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal, NamedTuple

from placewright.errors import InvalidInput

__all__ = ["WEIGHT_FORMATS", "WeightFormat", "is_head", "weight_format"]

_GGML = "block sizes in ggml-common.h of llama.cpp"
_MIX = "bits per weight of Llama 2 7B in the table of llama.cpp's tools/quantize/README.md"
_BNB = "Dettmers et al. 2023 (QLoRA, arXiv 2305.14314), section 3"
_GROUP = "4 bits; 16 of a scale and 4 of a zero point for each group (AWQ arXiv 2306.00978, GPTQ 2210.17323)"

KEPT_HEADS = ("lm_head*", "*.lm_head*", "embed_out*", "score*")
"""Heads of language models that transformers leaves as they are when it quantises products."""


class WeightFormat(NamedTuple):
    """How weights are held.

    Attributes
    ----------
    bits : float
        A weight takes, with its share of scales and zero points.
    covers : {"all", "matrices", "products"}
        Which weights are put into it: all; those of matrix products and look-up tables; of matrix products alone, and
        not of a language model's head.
    source : str
        Where the figure stands.
    """

    bits: float
    covers: Literal["all", "matrices", "products"] = "matrices"
    source: str = _GGML


WEIGHT_FORMATS: Mapping[str, WeightFormat] = MappingProxyType(
    {
        "fp32": WeightFormat(32, "all", "IEEE 754"),
        "fp16": WeightFormat(16, "all", "IEEE 754"),
        "bf16": WeightFormat(16, "all", "Kalamkar et al. 2019, arXiv 1905.12322"),
        "fp8": WeightFormat(8, "products", "Micikevicius et al. 2022, arXiv 2209.05433; one scale a tensor"),
        "int8": WeightFormat(8, "products", "Dettmers et al. 2022, arXiv 2208.07339; one scale a row"),
        "nf4": WeightFormat(4.5, "products", f"{_BNB}: a constant of 32 bits for 64 weights"),
        "nf4-double": WeightFormat(4 + 8 / 64 + 32 / (64 * 256), "products", f"{_BNB}: constants quantised too"),
        "awq": WeightFormat(4 + 20 / 128, "products", f"{_GROUP}, 128 weights"),
        "gptq": WeightFormat(4 + 20 / 128, "products", f"{_GROUP}, 128 weights"),
        "mxfp4": WeightFormat(4.25, "products", "OCP Microscaling Formats 1.0: a scale of 8 bits for 32 weights"),
        "q8_0": WeightFormat(8.5),
        "q6_k": WeightFormat(6.5625),
        "q5_1": WeightFormat(6),
        "q5_0": WeightFormat(5.5),
        "q5_k": WeightFormat(5.5),
        "q5_k_m": WeightFormat(5.68, source=_MIX),
        "q5_k_s": WeightFormat(5.52, source=_MIX),
        "q4_1": WeightFormat(5),
        "q4_0": WeightFormat(4.5),
        "q4_k": WeightFormat(4.5),
        "q4_k_m": WeightFormat(4.84, source=_MIX),
        "q4_k_s": WeightFormat(4.58, source=_MIX),
        "iq4_nl": WeightFormat(4.5),
        "iq4_xs": WeightFormat(4.25),
        "q3_k": WeightFormat(3.4375),
        "q3_k_m": WeightFormat(3.91, source=_MIX),
        "q2_k": WeightFormat(2.625),
    }
)
"""By name. A mixture (``_m``, ``_s``) is an average over a whole model, taken for each of its matrices."""


def weight_format(text: str) -> WeightFormat:
    """Find a format by its name, or make one of so many bits for matrix products and look-up tables.

    Raises
    ------
    InvalidInput
        If it is no known name and no number of bits from 1 to 64.

    Examples
    --------
    >>> weight_format("q8_0").bits, weight_format("4.25").bits
    (8.5, 4.25)
    """
    if (known := WEIGHT_FORMATS.get(text.lower())) is not None:
        return known
    try:
        bits = float(text)
    except ValueError:
        bits = 0.0
    if not 1 <= bits <= 64:
        raise InvalidInput(
            f"weight format {text!r} is unknown; use bits per weight from 1 to 64, or one of "
            f"{', '.join(WEIGHT_FORMATS)}"
        )
    return WeightFormat(bits, source="given")


def is_head(name: str) -> bool:
    """Whether an operator is a head by its name."""
    return any(fnmatchcase(name, pattern) for pattern in KEPT_HEADS)
