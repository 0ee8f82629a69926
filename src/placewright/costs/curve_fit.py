"""Fitting a curve to measured times: Levenberg and Marquardt on logarithms, robust against outliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from placewright.costs.curve import Curve, Figures, Work

__all__ = ["Measured", "fit_curve"]

_Array = npt.NDArray[np.float64]

SHAPE = ("arithmetic", "memory", "sharpness", "depth_cycles", "piece_cycles", "cached_gain", "cached_share")
STEP = 1e-4
LARGEST_STEP = 0.5
"""Of a logarithm, in one iteration."""

KNEE = 0.1
"""Relative error beyond which an error counts linearly, not squared: between least squares and the median."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of operators on one device.

    Attributes
    ----------
    work : Work
    figures : Figures
    seconds : array of shape (operators,)
    """

    work: Work
    figures: Figures
    seconds: _Array


def fit_curve(
    start: Curve,
    devices: Sequence[Measured],
    *,
    free: Sequence[str] = SHAPE,
    warm: bool = True,
    floor_s: float | None = None,
    iterations: int = 80,
) -> tuple[Curve, tuple[float, ...]]:
    """Fit one curve to the times of several devices, each with a floor of its own.

    Minimises sum over devices of the mean of sqrt(1 + (e / 0.1)^2), with e = ln(predicted / measured).

    Parameters
    ----------
    start : Curve
        Fields that aren't free keep its values; a free field must be above 0 in it.
    devices : sequence of Measured
    free : sequence of str
        Fields that are fitted, beside the floors.
    warm : bool
        Whether each kernel was repeated, so that it found its data in the cache.
    floor_s : float or None
        Of every device, if it is known: floors are not fitted then.

    Returns
    -------
    Curve
        Its ``floor_cycles`` is the median of the devices': what to expect of one that wasn't measured.
    tuple of float
        Cycles of each device's floor.

    Examples
    --------
    What a curve predicts is fitted by that curve:

    >>> sizes = 10.0 ** np.arange(4, 11)
    >>> work = Work(sizes, sizes[::-1].copy(), np.zeros(7), np.zeros(7))
    >>> true, card = Curve(arithmetic=0.7, memory=0.8, floor_cycles=5000), Figures(1e12, 1e11)
    >>> seen = Measured(work, card, true.seconds(work, card))
    >>> found, _ = fit_curve(Curve(floor_cycles=9000), [seen], free=("arithmetic", "memory"))
    >>> round(found.arithmetic, 3), round(found.memory, 3), round(found.floor_cycles)
    (0.7, 0.8, 5000)
    """
    names = tuple(free)
    weights = np.concatenate([np.full(m.seconds.size, 1 / m.seconds.size) for m in devices])
    measured = np.log(np.concatenate([m.seconds for m in devices]))

    def curve_at(point: _Array) -> Curve:
        return start.corrected(dict(zip(names, np.exp(point[: len(names)]).tolist(), strict=True)))

    def floors_at(point: _Array) -> tuple[float, ...]:
        if floor_s is not None:
            return tuple(floor_s * m.figures.clock_hz for m in devices)
        return tuple(np.exp(point[len(names) :]).tolist())

    def errors(point: _Array) -> _Array:
        curve = curve_at(point)
        predicted = [
            curve.seconds(m.work, m.figures, floor_s=cycles / m.figures.clock_hz, warm=warm)
            for m, cycles in zip(devices, floors_at(point), strict=True)
        ]
        return np.asarray(np.log(np.concatenate(predicted)) - measured, dtype=np.float64)

    floors = [max(start.floor_cycles, 1.0)] * (len(devices) if floor_s is None else 0)
    point = np.log(np.array([*(getattr(start, n) for n in names), *floors]))
    point = _minimise(errors, point, weights, iterations)
    found = floors_at(point)
    return curve_at(point).corrected({"floor_cycles": median(found)}), found


def _minimise(errors: Callable[[_Array], _Array], point: _Array, weights: _Array, iterations: int) -> _Array:
    def size_of(e: _Array) -> float:
        return float((weights * np.sqrt(1 + (e / KNEE) ** 2)).sum())

    now = errors(point)
    size, damping = size_of(now), 1e-2
    for _ in range(iterations):
        slopes = np.stack([(errors(point + STEP * unit) - now) / STEP for unit in np.eye(point.size)], axis=1)
        scaled = slopes * (weights / np.sqrt(1 + (now / KNEE) ** 2))[:, None]
        normal, gradient = slopes.T @ scaled, scaled.T @ now
        diagonal = np.diag(normal) + 1e-3 * np.diag(normal).max() + 1e-12
        for _ in range(12):
            move = -np.linalg.solve(normal + damping * np.diag(diagonal), gradient)
            tried = point + np.clip(move, -LARGEST_STEP, LARGEST_STEP)
            then = errors(tried)
            if size_of(then) < size:
                break
            damping *= 4
        else:
            return point
        gained = size - size_of(then)
        point, now, size, damping = tried, then, size - gained, max(damping / 5, 1e-8)
        if gained < 1e-7 * size:
            return point
    return point
