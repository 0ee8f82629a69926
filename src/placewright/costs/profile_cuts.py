"""What an operator loses beside a cut, from what its layout conversions take and how much longer pieces take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.graph import OperatorGraph

__all__ = ["CutFigures", "fit_cuts", "sides_of"]

LEAST_SCALE, MOST_SCALE = 0.5, 5.0
"""Conversions are timed in caches that are warmer than a network's; further than this the two are not one thing."""


@dataclass(frozen=True, slots=True)
class CutFigures:
    """What cuts cost on a device, whatever the operator.

    Attributes
    ----------
    call_s : float
        An empty call.
    overhead_s : float
        A side of a cut on average: for operators whose conversions could not be measured, and where nothing converts.
    scale : float
        What conversions take between the pieces of a network, over what they take by themselves; 0: nothing converts.
    """

    call_s: float
    overhead_s: float
    scale: float = 1.0

    def cut_s(self, conversions_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Seconds at one side of a cut, by operator: half an empty call and half of its conversions.

        Parameters
        ----------
        conversions_s : (n,) array
            Of what it reads and what it makes, in seconds; NaN where not known.

        Examples
        --------
        >>> CutFigures(2.0, 5.0, scale=3.0).cut_s(np.array([0.0, 4.0, np.nan])).tolist()
        [1.0, 7.0, 5.0]
        """
        if self.scale == 0:
            return np.full(len(conversions_s), self.overhead_s)
        made = (self.call_s + self.scale * conversions_s) / 2
        return np.where(np.isnan(made), self.overhead_s, made)


def sides_of(graph: OperatorGraph, places: Sequence[int]) -> list[int]:
    """Operators at the sides of cuts, once when they read across a cut and once when they are read across one.

    Parameters
    ----------
    graph : OperatorGraph
    places : sequence of int
        Ascending positions in the order of the operators before which it is cut.
    """
    piece = np.searchsorted(np.asarray(places), np.arange(len(graph)), side="right")
    across = [(t.producer, v) for t in graph.tensors for v in t.readers if piece[v] != piece[t.producer]]
    return [*sorted({u for u, _ in across}), *sorted({v for _, v in across})]


def fit_cuts(conversions_s: npt.NDArray[np.float64], call_s: float, more_s: float, sides: Sequence[int]) -> CutFigures:
    """Fit the figures to a network in pieces.

    Parameters
    ----------
    conversions_s : (n,) array
        By operator, in seconds; NaN where not known.
    call_s : float
    more_s : float
        Seconds that the pieces took more than the network.
    sides : sequence of int
        Operators at the sides of its cuts.

    Examples
    --------
    >>> fit_cuts(np.array([4.0, 8.0]), 2.0, 14.0, [0, 1])
    CutFigures(call_s=2.0, overhead_s=7.0, scale=2.0)
    """
    overhead_s = max(call_s / 2, more_s / len(sides))
    at = conversions_s[list(sides)]
    known = ~np.isnan(at)
    converting = float(at[known].sum()) / 2
    if converting <= 0:
        return CutFigures(call_s, overhead_s, 0.0)
    left = more_s - float(known.sum()) * call_s / 2 - float((~known).sum()) * overhead_s
    return CutFigures(call_s, overhead_s, float(np.clip(left / converting, LEAST_SCALE, MOST_SCALE)))
