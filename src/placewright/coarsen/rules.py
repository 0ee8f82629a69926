"""Rules of fusion, by back-end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from placewright.coarsen import rules_inductor, rules_onnxruntime, rules_tensorrt
from placewright.coarsen.loops import Loops
from placewright.coarsen.patterns import Pattern, parse_pattern
from placewright.errors import InvalidInput

__all__ = ["ANY", "RULES", "FusionRules", "rules_named"]


@dataclass(frozen=True)
class FusionRules:
    """What a back-end fuses.

    Attributes
    ----------
    name : str
    summary : str
        One line.
    stages : tuple of tuple of Pattern
        Small graphs that become one operator, and in which order they are looked for; see
        :func:`placewright.coarsen.patterns.join_patterns`.
    loops : Loops or None
        Operators that become one kernel; see :func:`placewright.coarsen.loops.join_loops`.
    regions : bool
        Whether views, and light operators behind one tensor, are merged, too, as no back-end gains by separating them;
        see :func:`placewright.coarsen.regions.join_regions`.
    """

    name: str
    summary: str
    stages: tuple[tuple[Pattern, ...], ...] = ()
    loops: Loops | None = None
    regions: bool = False


def _stages(*texts: str) -> tuple[tuple[Pattern, ...], ...]:
    """One pattern a line; what follows # is a remark."""
    rows = [[line.partition("#")[0].strip() for line in text.splitlines()] for text in texts]
    return tuple(tuple(parse_pattern(line) for line in row if line) for row in rows)


ONNXRUNTIME = FusionRules("onnxruntime", "ONNX Runtime on CPUs, all optimisations", _stages(*rules_onnxruntime.CPU))
ONNXRUNTIME_CUDA = FusionRules(
    "onnxruntime-cuda", "ONNX Runtime on CUDA, as documented", _stages(*rules_onnxruntime.CUDA)
)
INDUCTOR = FusionRules("inductor", "TorchInductor", loops=rules_inductor.LOOPS)
TENSORRT = FusionRules("tensorrt", "TensorRT, as documented", _stages(rules_tensorrt.PATTERNS), rules_tensorrt.LOOPS)
ANY = FusionRules(
    "auto",
    "what one of the back-ends fuses, and what none gains by separating",
    ONNXRUNTIME.stages,
    replace(rules_inductor.LOOPS, near=True),
    regions=True,
)
NONE = FusionRules("none", "nothing: every operator of the source is placed by itself")

RULES: Mapping[str, FusionRules] = MappingProxyType(
    {r.name: r for r in (ANY, ONNXRUNTIME, ONNXRUNTIME_CUDA, INDUCTOR, TENSORRT, NONE)}
)


def rules_named(name: str) -> FusionRules:
    """Find rules by name.

    Raises
    ------
    InvalidInput
        If there are none of that name.

    Examples
    --------
    >>> rules_named("inductor").summary
    'TorchInductor'
    """
    if name not in RULES:
        raise InvalidInput(f"fusion rules {name!r} are unknown; use one of {', '.join(RULES)}")
    return RULES[name]
