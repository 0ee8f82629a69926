"""The only places where a real number is rounded on its way into a bound or an integer solver."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["quantise_down", "rounded_down"]

RELATIVE_SLACK = 1e-10
"""Covers the rounding errors of sums of some 100,000 double-precision terms."""


def rounded_down(value: float) -> float:
    """Lower a computed bound by the slack that floating-point sums may have added.

    Examples
    --------
    >>> rounded_down(1.0) < 1.0, rounded_down(0.0)
    (True, 0.0)
    """
    return value if math.isinf(value) else max(0.0, value * (1.0 - RELATIVE_SLACK))


def quantise_down(seconds: npt.ArrayLike, quantum_s: float) -> npt.NDArray[np.int64]:
    """Whole quanta in each time, rounded down: integer schedules are then a relaxation of the real ones.

    Examples
    --------
    >>> quantise_down([0.25, 0.99], 0.5).tolist()
    [0, 1]
    """
    return np.floor(np.asarray(seconds, dtype=np.float64) / quantum_s * (1.0 - 1e-15)).astype(np.int64)
