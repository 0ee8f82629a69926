"""How much of its peaks a device reaches, by the size of the work: one smooth curve a class of operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["CLASSES", "Curve", "Figures", "Work", "curves_of"]

CLASSES = ("product", "convolution", "prefill", "decode", "function", "window", "other")
"""Matrix products; convolutions; attention over many new tokens; over one; functions, and windows that slide over a
tensor, which a CPU's back-end computes an element at a time; and all else."""

_STANDS_FOR = {"convolution": "product"}
"""Class whose curve another one has where its own isn't given; the rest have that of ``other``."""

USUAL_CLOCK_HZ = 1.8e9
"""Of a device whose clock isn't known: the middle of the four GPUs that the curves were fitted to."""

_SHIPPED = Path(__file__).parents[1] / "data" / "efficiency.yaml"
_Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Work:
    """What operators ask of a device, each column of shape (operators,).

    Attributes
    ----------
    flops, traffic_bytes : array
    depth : array
        Length of the chain of additions behind one result: k of an (m, k) x (k, n) product; keys of an attention.
    pieces : array
        Independent pieces that are handed to the compute units one by one; 0 where that isn't known.
    """

    flops: _Column
    traffic_bytes: _Column
    depth: _Column
    pieces: _Column


@dataclass(frozen=True, slots=True)
class Figures:
    """What a device's datasheet says.

    Attributes
    ----------
    peak_flops_per_s, bandwidth_bytes_per_s : float
    clock_hz : float
    compute_units : float
        Multiprocessors, compute units or cores; 0: not known.
    cache_bytes : float
        Of the last level; 0: not known.
    """

    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    clock_hz: float = USUAL_CLOCK_HZ
    compute_units: float = 0.0
    cache_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of an operator from its work and a device's figures.

    With A = flops / (arithmetic x peak) and M = bytes / (memory x bandwidth), an operator takes

    floor + (A^q + M^q)^(1/q) + (depth_cycles sqrt(depth / 128) + piece_cycles pieces / units) / clock.

    The roofline is its limit for q = inf and no other terms (Williams, Waterman, Patterson, CACM 2009). The rounded
    corner is where arithmetic and memory overlap badly; the floor and the depth are what bends the efficiency of small
    work: a pipeline of loads and multiply-adds must fill before it runs at its rate.

    Attributes
    ----------
    arithmetic, memory : float
        Share of the peak and of the bandwidth that large work reaches.
    sharpness : float
        q.
    floor_cycles : float
        What an empty kernel takes; used where no launch overhead is given.
    depth_cycles, piece_cycles : float
    cached_gain, cached_share : float
        Work that was just done, repeated: bytes come ``1 + cached_gain`` times as fast when they are few against this
        share of the cache. Counts where ``warm`` is asked for: benchmarks that repeat one kernel.

    Examples
    --------
    1 GFLOP at 1 TFLOP/s and 0.1 GB at 100 GB/s take 1 ms each, both together 2 ms at q = 1 and 1 ms at the roofline:

    >>> one = np.array([1e9]), np.array([1e8]), np.zeros(1), np.zeros(1)
    >>> card = Figures(1e12, 1e11)
    >>> Curve(sharpness=1).seconds(Work(*one), card, floor_s=0).tolist()
    [0.002]
    >>> Curve(sharpness=float("inf")).seconds(Work(*one), card, floor_s=0).tolist()
    [0.001]
    """

    arithmetic: float = 1.0
    memory: float = 1.0
    sharpness: float = float("inf")
    floor_cycles: float = 0.0
    depth_cycles: float = 0.0
    piece_cycles: float = 0.0
    cached_gain: float = 0.0
    cached_share: float = 0.1

    def seconds(self, work: Work, figures: Figures, *, floor_s: float | None = None, warm: bool = False) -> _Column:
        """Time each operator; ``floor_s`` replaces the curve's own floor."""
        bandwidth: float | _Column = self.memory * figures.bandwidth_bytes_per_s
        if warm and figures.cache_bytes and self.cached_gain:
            few = work.traffic_bytes / (self.cached_share * figures.cache_bytes)
            bandwidth = bandwidth * (1 + self.cached_gain / (1 + few**4))
        body = _rounded_max(
            work.flops / (self.arithmetic * figures.peak_flops_per_s), work.traffic_bytes / bandwidth, self.sharpness
        )
        cycles = self.depth_cycles * np.sqrt(work.depth / 128)
        if figures.compute_units:
            cycles = cycles + self.piece_cycles * work.pieces / figures.compute_units
        floor = self.floor_cycles / figures.clock_hz if floor_s is None else floor_s
        return np.asarray(floor + body + cycles / figures.clock_hz, dtype=np.float64)

    def corrected(self, fields_given: Mapping[str, float]) -> Curve:
        """Return this curve with some of its numbers replaced."""
        return replace(self, **fields_given)


@cache
def curves_of(kind: str) -> Mapping[str, Curve]:
    """Return the shipped curves of a kind of device, by class of operators; those of ``other`` for an unknown kind.

    Examples
    --------
    >>> sorted(curves_of("gpu")) == sorted(CLASSES)
    True
    """
    shipped = _shipped().curves
    given = shipped.get(kind, shipped["other"])
    usual = {name: given.get(_STANDS_FOR.get(name, ""), given["other"]) for name in CLASSES}
    return MappingProxyType({name: Curve(**given.get(name, usual[name])) for name in CLASSES})


class _File(msgspec.Struct, forbid_unknown_fields=True):
    curves: dict[str, dict[str, dict[str, float]]]
    source: str


@cache
def _shipped() -> _File:
    return msgspec.yaml.decode(_SHIPPED.read_bytes(), type=_File)


def _rounded_max(a: _Column, b: _Column, sharpness: float) -> _Column:
    """(a^q + b^q)^(1/q), without overflow."""
    large, small = np.maximum(a, b), np.minimum(a, b)
    if np.isinf(sharpness):
        return large
    ratio = np.divide(small, large, out=np.zeros_like(large), where=large > 0)
    return np.asarray(large * (1 + ratio**sharpness) ** (1 / sharpness), dtype=np.float64)
