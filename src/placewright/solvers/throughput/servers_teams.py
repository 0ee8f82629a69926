"""Teams of servers, by how many of each kind they take: the states of the search, whatever the servers are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.highs import new_highs
from placewright.problem import Problem
from placewright.solvers.throughput.servers_line import Line
from placewright.symmetry import symmetry_of

__all__ = ["Team", "chosen", "kinds_of", "teams_of"]

Floats: TypeAlias = npt.NDArray[np.float64]
Servers: TypeAlias = tuple[tuple[int, ...], ...]
"""Servers of one kind, each its devices; those at equal places correspond."""

EVERY_SPLIT = 8
"""Devices of a server up to which all ways to split it are tried, else equal parts."""

DEEPER = (1, 2, 3, 4)
"""Times as many servers as hold the network that one pipeline may take."""

MORE = 3
"""Servers beyond those that hold the network, of its kind or another."""

FEW = 12
"""Numbers of servers of one kind that servers of another complete, about."""

SHARES = 32
"""Equal parts of all servers, or of all of a kind, at most."""

NODES = 2_000
"""Of the search for the best numbers of teams."""


@dataclass(frozen=True)
class Team:
    """Servers that work for themselves, and the pipelines on them.

    Attributes
    ----------
    takes : tuple of int
        Servers of each kind.
    pipelines : tuple of tuple of (int, int, int)
        Of each the devices in order: kind, which of the team's servers of this kind, place in it.
    """

    takes: tuple[int, ...]
    pipelines: tuple[tuple[tuple[int, int, int], ...], ...]

    def devices(self, pipeline: int, servers: Sequence[Sequence[Sequence[int]]]) -> tuple[int, ...]:
        """Devices of a pipeline, given the team's servers of each kind."""
        return tuple(servers[kind][which][place] for kind, which, place in self.pipelines[pipeline])


def kinds_of(problem: Problem) -> list[Servers]:
    """Return the hosts by kind: those that can be exchanged are of one kind."""
    symmetry, hosts = symmetry_of(problem), [d.host for d in problem.cluster.devices]
    number = {h: k for k, h in enumerate(dict.fromkeys(hosts))}
    group_of = np.array([number[h] for h in hosts], dtype=np.int32)
    for level in symmetry.levels:
        if np.array_equal(level.group_of, group_of):
            return [tuple(level.members[g] for g in groups) for groups in level.classes]
    order = sorted(range(len(hosts)), key=lambda i: (int(symmetry.device_class[i]), i))
    return [(tuple(order),)]


def teams_of(line: Line, kinds: Sequence[Servers]) -> Iterator[Team]:
    """Teams worth trying, each once, the plainest first.

    One server split among pipelines; as many servers of one kind as hold the network, some more or times as many, in
    one pipeline; equal parts of all servers, or of all of a kind; and servers of two kinds that hold it together, or
    some more.
    """
    seen: set[Team] = set()
    for team in _all_teams(line, kinds):
        if team not in seen:
            seen.add(team)
            yield team


def _all_teams(line: Line, kinds: Sequence[Servers]) -> Iterator[Team]:
    capacity = line.problem.cluster.capacity_bytes
    total = float(line.resident[-1])
    memory = [float(capacity[list(kind[0])].sum()) for kind in kinds]
    K, places, have = len(kinds), [len(kind[0]) for kind in kinds], [len(kind) for kind in kinds]

    def least(k: int, held: float = 0.0) -> int:
        if held >= total or memory[k] >= total - held:
            return 1
        return int(np.ceil((total - held) / memory[k] * (1.0 - 1e-12))) if memory[k] > 0 else have[k] + 1

    for k in range(K):
        for sizes in _splits(places[k]):
            yield _one_server(k, K, sizes)
        need = least(k)
        for count in sorted({need + more for more in range(MORE + 1)} | {need * deeper for deeper in DEEPER}):
            if count <= have[k]:
                yield _chain(places, {k: count})
    for parts in range(1, SHARES + 1):
        for members in (range(K), *([k] for k in range(K) if K > 1)):
            counts = {k: have[k] // parts for k in members if have[k] >= parts}
            if sum(memory[k] * count for k, count in counts.items()) >= total and counts:
                yield _chain(places, counts)
    for k in range(K):
        need = least(k)
        step = -(-need // FEW)
        for j in range(k + 1, K):
            for count in range(step, min(need + MORE, have[k]) + 1, step):
                other = least(j, count * memory[k])
                for more in range(min(MORE, have[j] - other) + 1):
                    yield _chain(places, {k: count, j: other + more})


def _splits(devices: int) -> Iterator[tuple[int, ...]]:
    """Sizes of the parts of a server, from single devices to all of it; without those that leave devices out."""
    if devices > EVERY_SPLIT:
        for parts in range(devices, 0, -1):
            yield tuple(devices // parts + (p < devices % parts) for p in range(parts))
        return

    def ways(left: int, least: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
        for first in range(least, left + 1):
            yield from ((first, *rest) for rest in ways(left - first, first))

    yield from ways(devices, 1)


def _one_server(kind: int, kinds: int, sizes: Sequence[int]) -> Team:
    ends = np.cumsum([0, *sizes]).tolist()
    parts = tuple(tuple((kind, 0, p) for p in range(ends[k], ends[k + 1])) for k in range(len(sizes)))
    return Team(tuple(int(k == kind) for k in range(kinds)), parts)


def _chain(places: Sequence[int], counts: dict[int, int]) -> Team:
    """One pipeline through servers, kind after kind as given."""
    devices = tuple((k, s, p) for k, count in counts.items() for s in range(count) for p in range(places[k]))
    return Team(tuple(counts.get(k, 0) for k in range(len(places))), (devices,))


def chosen(teams: Sequence[Team], rates: Sequence[float], available: Sequence[int]) -> list[int]:
    """How many of each team make the most samples a second of the servers that there are: an integer program.

    Where the search finds nothing: by samples a second for a server, as many of each as there is room for.
    """
    import highspy

    top = max(rates, default=0.0)
    if not top > 0.0:
        return [0] * len(teams)
    solver: Any = new_highs()
    endless = float(highspy.kHighsInf)
    for count in available:
        solver.addRow(-endless, float(count), 0, np.array([], dtype=np.int32), np.array([]))
    for team, rate in zip(teams, rates, strict=True):
        kinds = [k for k, taken in enumerate(team.takes) if taken]
        most = min(available[k] // team.takes[k] for k in kinds) if rate > 0.0 else 0
        rows, taken = np.array(kinds, dtype=np.int32), np.array([float(team.takes[k]) for k in kinds])
        solver.addCol(-rate / top, 0.0, float(most), len(rows), rows, taken)
    solver.changeColsIntegrality(
        len(teams),
        np.arange(len(teams), dtype=np.int32),
        np.full(len(teams), int(highspy.HighsVarType.kInteger), np.uint8),
    )
    solver.setOptionValue("mip_max_nodes", NODES)
    solver.setOptionValue("mip_rel_gap", 1e-6)
    solver.run()
    values = np.round(np.array(solver.getSolution().col_value))
    used = np.array([team.takes for team in teams]).T @ values
    if len(values) != len(teams) or (used > np.array(available)).any():
        return _greedily(teams, rates, available)
    return [int(v) for v in values]


def _greedily(teams: Sequence[Team], rates: Sequence[float], available: Sequence[int]) -> list[int]:
    left, counts = list(available), [0] * len(teams)
    for t in sorted(range(len(teams)), key=lambda t: (-rates[t] / sum(teams[t].takes), t)):
        if rates[t] > 0.0:
            counts[t] = min(left[k] // n for k, n in enumerate(teams[t].takes) if n)
            left = [have - counts[t] * n for have, n in zip(left, teams[t].takes, strict=True)]
    return counts
