"""One line for a failed export: what stopped it, and what to try."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["export_failed", "quiet"]

_REMEDIES = (
    (
        r"data.dependent|unbacked|GuardOnDataDependent",
        "avoid branching on values of tensors, or bound them with torch._check",
    ),
    (r"expert|grouped_mm|moe", "set config._experts_implementation = 'batched_mm'"),
    (r"flash|flex_attention|attn_mask|attention", "build the model with attn_implementation='sdpa'"),
    (r"cache|past_key_values", "build the model with use_cache=False"),
    (r"out of memory|can't allocate|allocate memory", "build the module under torch.device('meta')"),
    (
        r"missing .*argument|unexpected keyword|takes .* positional",
        "make the example inputs fit the module's forward()",
    ),
    (
        r"same device|device mismatch|different devices|expected all tensors|meta",
        "put module and example inputs on one device, all on meta",
    ),
    (r"mkldnn|sparse|quantiz", "export a dense, unquantised module"),
)
_OPERATOR = re.compile(r"(?:torch\.ops\.)?(?:aten|prims|torchvision)[.:]{1,2}[\w.]+")
_DEFAULT = (
    "try attn_implementation='sdpa', use_cache=False, experts_implementation='batched_mm' and eval(), on "
    "torch.device('meta')"
)


def export_failed(error: BaseException) -> str:
    """Say in one line why ``torch.export`` failed: the operator where the message names one, the cause, a remedy.

    Examples
    --------
    >>> export_failed(RuntimeError("aten.foo needs a cache"))
    "it can't be exported: RuntimeError: aten.foo needs a cache; build the model with use_cache=False"
    """
    text = " ".join(str(error).split())
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    first = (lines or ["no reason given"])[0][:240].rstrip(".")
    operator = _OPERATOR.search(text)
    at = f" at operator {operator[0]!r}" if operator and operator[0] not in first else ""
    remedy = next((r for pattern, r in _REMEDIES if re.search(pattern, text, re.IGNORECASE)), _DEFAULT)
    return f"it can't be exported{at}: {type(error).__name__}: {first}; {remedy}"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's own warnings and log lines about tracing from the terminal."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
