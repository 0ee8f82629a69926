"""The max-load of a network that repeats itself, as a program over counts: how many of the alike units each device has.

Units of one *sort* have the same processing times, wishes and bytes in memory. Messages are of one *flow* when their
producers are of one sort, their readers of the same sorts, and each costs every device and channel the same; no two of
a flow have one producer. Of each sort of readers a flow keeps a *mate* a message, no unit twice.

Variables: x[k, i], how many units of sort k device i has; sent[f, i] and got[f, i], how many messages of flow f leave
and enter it; T, the value. Minimise T such that

    sum_i x[k, i] = n_k,                      sum_k m_k x[k, i] <= M_i,
    sum_k p[k, i] x[k, i] + h sum_f (out[f, i] sent[f, i] + in[f, i] got[f, i]) <= T     for each device i,
    sum_f sum_i c[f, i] got[f, i] <= T                                                   for each channel,

and for each flow f of sort a, each sort b of its readers with q mates, and each device i

    sent[f, i] >= x[a, i] - x[b, i] - (n_a - q),      got[f, i] >= x[b, i] - x[a, i] - (n_b - q).

It is a relaxation. Of the x[a, i] units on device i at least x[a, i] - (n_a - q) send a message of f with a mate, and
at most x[b, i] of these mates, which are different units, are there too: the other messages leave i. Of the x[b, i]
units of the mates' sort at least x[b, i] - (n_b - q) are mates, of at most x[a, i] producers that are there: the other
messages enter i. A message that enters costs each channel at least the least over all devices that it may come from.
Both passes are added (max F + max B >= max (F + B)); the busy share h is 1 where no transfers overlap computing, and
what links carry beside it is left out. Contiguity is left out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.loads import Ints, Loads, loads_of, objective_of
from placewright.objective import busy_share_of
from placewright.problem import Problem

__all__ = ["CountsProgram", "Flow", "Sorts", "counts_program", "sorts_of"]

Floats = npt.NDArray[np.float64]
Row = tuple[list[tuple[int, float]], float, float]


@dataclass(frozen=True, eq=False)
class Sorts:
    """Alike units.

    Attributes
    ----------
    of_unit : (U,) int32
        Sort of each unit; sorts are numbered by their first unit.
    first : (K,) int32
        A unit of each.
    count : (K,) int32
    """

    of_unit: Ints
    first: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True)
class Flow:
    """Alike messages, one of them, how many there are, and how many of them have a mate of each sort of readers."""

    message: int
    sort: int
    count: int
    mates: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class CountsProgram:
    """Minimise the last variable subject to ``rows`` (terms, least, largest); times are in units of ``scale_s``.

    Attributes
    ----------
    sorts : Sorts
    scale_s : float
    upper : (n,) float64
        Largest value of each variable; the least is 0.
    whole : (n,) bool
        Whether it is a whole number.
    rows : list of (list of (int, float), float, float)
    """

    sorts: Sorts
    scale_s: float
    upper: Floats
    whole: npt.NDArray[np.bool_]
    rows: list[Row]

    def counts(self, values: npt.ArrayLike, devices: int) -> Ints:
        """(K, D) units of each sort on each device in a solution."""
        size = len(self.sorts) * devices
        return np.asarray(np.rint(np.asarray(values)[:size]), dtype=np.int32).reshape(-1, devices)


def sorts_of(a: Loads) -> Sorts:
    """Find the alike units."""
    seen: dict[Hashable, int] = {}
    of_unit = np.zeros(a.n_units, dtype=np.int32)
    first: list[int] = []
    for k in range(a.n_units):
        key = a.compute_s[:, k].tobytes(), a.allowed[k].tobytes(), float(a.resident[k])
        if key not in seen:
            seen[key] = len(first)
            first.append(k)
        of_unit[k] = seen[key]
    return Sorts(of_unit, np.array(first, dtype=np.int32), np.bincount(of_unit, minlength=len(first)).astype(np.int32))


def flows_of(a: Loads, sorts: Sorts) -> list[Flow]:
    """Find the flows, by their first message; messages that cost nothing anywhere are in none."""
    groups: dict[Hashable, list[int]] = {}
    made: dict[tuple[int, Hashable], int] = {}
    for u, producer in enumerate(a.producer.tolist()):
        costs = [a.send_s[u], a.receive_s[u], *(a.channel_s[u].ravel() if len(a.channel_s) else ())]
        if not any(np.any(c > 0) for c in costs):
            continue
        ends = np.unique(sorts.of_unit[_readers(a, u)]).tobytes()
        key: Hashable = (int(sorts.of_unit[producer]), ends, *(np.asarray(c).tobytes() for c in costs))
        rank = made.get((producer, key), 0)
        made[producer, key] = rank + 1
        groups.setdefault((key, rank), []).append(u)
    return [_flow(a, sorts, messages) for messages in groups.values()]


def _flow(a: Loads, sorts: Sorts, messages: list[int]) -> Flow:
    taken: set[int] = set()
    mates: dict[int, int] = {}
    for u in messages:
        mated: set[int] = set()
        for reader in _readers(a, u).tolist():
            sort = int(sorts.of_unit[reader])
            if reader not in taken and sort not in mated:
                taken.add(reader)
                mated.add(sort)
                mates[sort] = mates.get(sort, 0) + 1
    return Flow(messages[0], int(sorts.of_unit[a.producer[messages[0]]]), len(messages), tuple(sorted(mates.items())))


def _readers(a: Loads, message: int) -> Ints:
    return a.reader[a.reader_ptr[message] : a.reader_ptr[message + 1]]


def counts_program(problem: Problem, scale_s: float) -> CountsProgram:
    """Write the program of a problem without replicas.

    Parameters
    ----------
    problem : Problem
    scale_s : float
        Seconds in a unit of time.
    """
    a = loads_of(problem)
    sorts, D = sorts_of(a), len(a.pays)
    K = len(sorts)
    flows = flows_of(a, sorts)
    sent, got = K * D, (K + len(flows)) * D
    last = (K + 2 * len(flows)) * D
    upper = np.empty(last + 1)
    times = a.compute_s.sum(axis=0)[sorts.first]
    upper[:sent] = np.where(a.allowed[sorts.first] & np.isfinite(times), sorts.count[:, None], 0).ravel()
    upper[sent:last] = np.tile(np.repeat([float(f.count) for f in flows], D), 2)
    upper[last] = np.inf
    for start, seconds in ((sent, a.send_s), (got, a.receive_s)):  # what has no way out, or in, stays
        stays = np.array([np.isinf(seconds[flow.message]) for flow in flows], dtype=bool).reshape(-1, D)
        upper[start : start + stays.size][stays.ravel()] = 0.0
    whole = np.arange(last + 1) < sent
    rows: list[Row] = [([(k * D + i, 1.0) for i in range(D)], float(n), float(n)) for k, n in enumerate(sorts.count)]
    rows += _memory(a, sorts)
    share = busy_share_of(objective_of(problem))
    for i in range(D):
        terms = [(k * D + i, float(times[k, i]) / scale_s) for k in range(K) if upper[k * D + i] > 0]
        if share:
            for start, seconds in ((sent, a.send_s), (got, a.receive_s)):
                sums = [share * float(seconds[flow.message, i]) / scale_s for flow in flows]
                terms += [(start + f * D + i, c) for f, c in enumerate(sums)]
        rows.append(([*((v, c) for v, c in terms if 0 < c < np.inf), (last, -1.0)], -np.inf, 0.0))
    rows += _channels(a, flows, scale_s, got, last)
    for f, flow in enumerate(flows):
        for sort, mates in flow.mates:
            if sort == flow.sort:
                continue  # x[a, i] - x[a, i] says nothing
            for i in range(D):
                x, y = flow.sort * D + i, sort * D + i
                least = [float(mates - sorts.count[flow.sort]), float(mates - sorts.count[sort])]
                rows.append(([(sent + f * D + i, 1.0), (x, -1.0), (y, 1.0)], least[0], np.inf))
                rows.append(([(got + f * D + i, 1.0), (y, -1.0), (x, 1.0)], least[1], np.inf))
    return CountsProgram(sorts, scale_s, upper, whole, rows)


def _memory(a: Loads, sorts: Sorts) -> list[Row]:
    """Rows of devices that may not have room for all, in parts of their memory."""
    D = len(a.pays)
    found: list[Row] = []
    for i, capacity in enumerate(a.capacity.tolist()):
        if capacity < a.resident.sum():
            unit = max(capacity, 1.0)
            held = [(k * D + i, float(m) / unit) for k, m in enumerate(a.resident[sorts.first]) if m > 0]
            found.append((held, -np.inf, capacity / unit))
    return found


def _channels(a: Loads, flows: list[Flow], scale_s: float, got: int, last: int) -> list[Row]:
    """Rows of the channels: what enters a device costs each the least over all devices that it may come from."""
    D = len(a.pays)
    found: list[Row] = []
    apart = ~np.eye(D, dtype=bool)
    for channel in range(a.n_channels if len(a.channel_s) else 0):
        on = (a.channel_of == channel).sum(axis=2)  # a transfer may name a channel twice
        terms = []
        for f, flow in enumerate(flows):
            through = np.where(on > 0, a.channel_s[flow.message], 0.0) * on
            times = np.where(apart, through, np.inf).min(axis=0, initial=np.inf)
            terms += [(got + f * D + i, float(s) / scale_s) for i, s in enumerate(times.tolist()) if 0 < s < np.inf]
        if terms:
            found.append(([*terms, (last, -1.0)], -np.inf, 0.0))
    return found
