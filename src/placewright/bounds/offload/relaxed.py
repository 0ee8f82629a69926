"""What the bounds of the offload latency see of a problem: one kind of accelerator that is at least as good as each."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright.offloads import offload_of, offloads_of
from placewright.problem import Problem

__all__ = ["Relaxed", "relaxed"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Relaxed:
    """n operators in topological order, T tensors; every time is the least over accelerators and links.

    Attributes
    ----------
    cpu_s, acc_s : (n,) float64
        ``inf`` where an operator, or one that must be with it, may not run.
    in_s, out_s : (T,) float64
        Finite: a tensor that nothing carries costs a lot instead.
    producer, reader_ptr, reader
        Of tensors, as in :class:`placewright.offloads.Offloads`.
    made, read : tuple of tuples of int
        Tensors that each operator makes and reads.
    makers, readers : tuple of tuples of int
        Operators before and after each.
    unit_of : (n,) int32
    members : tuple of tuples of int
        Of each unit.
    size : (n,) float64
    unit_size : (units,) float64
    supported : (n,) bool
        Whether some accelerator may run the unit of an operator, and holds it.
    accelerators : int
    capacity, total_capacity : float
        Of the largest accelerator, and of all together.
    calls : int or None
        The most calls of an accelerator.
    above, below : (n, ceil(n/8)) uint8
        Ancestors and descendants of each operator, itself among both, one bit each.
    """

    cpu_s: Floats
    acc_s: Floats
    in_s: Floats
    out_s: Floats
    producer: npt.NDArray[np.int32]
    reader_ptr: npt.NDArray[np.int32]
    reader: npt.NDArray[np.int32]
    made: tuple[tuple[int, ...], ...]
    read: tuple[tuple[int, ...], ...]
    makers: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]
    unit_of: npt.NDArray[np.int32]
    members: tuple[tuple[int, ...], ...]
    size: Floats
    unit_size: Floats
    supported: Flags
    accelerators: int
    capacity: float
    total_capacity: float
    calls: int | None
    above: Bits
    below: Bits

    def __len__(self) -> int:
        """Return the number of operators."""
        return len(self.cpu_s)

    def flags(self, bits: Bits) -> Flags:
        """Unpack a row of ``above`` or ``below``."""
        return np.unpackbits(bits, count=len(self)).astype(np.bool_)

    def hull(self, inside: Flags) -> Flags:
        """Return what lies on paths between operators of a set, which is not empty, and the set itself."""
        rows = np.flatnonzero(inside)
        after, before = np.bitwise_or.reduce(self.below[rows], axis=0), np.bitwise_or.reduce(self.above[rows], axis=0)
        return self.flags(after & before)

    def whole_units(self, some: Flags) -> Flags:
        """Return all operators of the units that a set touches."""
        touched = np.zeros(len(self.unit_size), dtype=np.bool_)
        touched[self.unit_of[some]] = True
        return np.asarray(touched[self.unit_of])

    def held(self, some: Flags) -> float:
        """Bytes of the units that a set touches."""
        touched = np.zeros(len(self.unit_size), dtype=np.bool_)
        touched[self.unit_of[some]] = True
        return float(self.unit_size[touched].sum())


_made: WeakKeyDictionary[Problem, Relaxed] = WeakKeyDictionary()


def relaxed(problem: Problem) -> Relaxed:
    """Return the relaxed problem, made once."""
    if problem not in _made:
        _made[problem] = _make(problem)
    return _made[problem]


def _make(problem: Problem) -> Relaxed:
    o = offloads_of(problem)
    n, A, T = len(o.cpu_s), len(o.accelerator), len(o.producer)
    members: list[list[int]] = [[] for _ in range(int(o.unit_of.max(initial=-1)) + 1)]
    for v, z in enumerate(o.unit_of.tolist()):
        members[z].append(v)
    unit_size = np.array([o.size[rows].sum() for rows in members])
    cpu_s, acc_s, supported = o.cpu_s.copy(), o.acc_s.copy(), np.zeros(n, dtype=np.bool_)
    for z, rows in enumerate(members):
        if not np.isfinite(cpu_s[rows]).all():
            cpu_s[rows] = np.inf
        may = np.isfinite(acc_s[rows]).all(axis=0) & (unit_size[z] <= o.capacity)
        acc_s[np.ix_(np.array(rows), np.flatnonzero(~may))] = np.inf
        supported[rows] = may.any()
    fastest = acc_s.min(axis=1) if A else np.full(n, np.inf)
    ins, outs = (o.in_s.min(axis=1), o.out_s.min(axis=1)) if A else (np.zeros(T), np.zeros(T))
    far = sum(float(x[np.isfinite(x)].sum()) for x in (cpu_s, fastest, ins, outs))
    bounds = zip(o.reader_ptr.tolist()[:-1], o.reader_ptr.tolist()[1:], strict=True)
    readers_of = [o.reader[a:b].tolist() for a, b in bounds]
    made = tuple(tuple(range(o.made_ptr[v], o.made_ptr[v + 1])) for v in range(n))
    read = tuple(tuple(o.read[o.read_ptr[v] : o.read_ptr[v + 1]].tolist()) for v in range(n))
    makers = tuple(tuple(dict.fromkeys(int(o.producer[t]) for t in read[v])) for v in range(n))
    readers = tuple(tuple(dict.fromkeys(r for t in made[v] for r in readers_of[t])) for v in range(n))
    return Relaxed(
        cpu_s, fastest, np.where(np.isfinite(ins), ins, far), np.where(np.isfinite(outs), outs, far),
        o.producer, o.reader_ptr, o.reader, made, read, makers, readers,
        o.unit_of, tuple(map(tuple, members)), o.size, unit_size, supported,
        A, float(o.capacity.max(initial=0.0)), float(o.capacity.sum()), offload_of(problem).calls,
        _closure(n, makers, range(n)), _closure(n, readers, range(n - 1, -1, -1)),
    )  # fmt: skip


def _closure(n: int, next_to: tuple[tuple[int, ...], ...], order: range) -> Bits:
    rows = np.packbits(np.eye(n, dtype=np.bool_), axis=1)
    for v in order:
        for u in next_to[v]:
            rows[v] |= rows[u]
    return rows
