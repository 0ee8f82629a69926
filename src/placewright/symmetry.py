"""Which devices, and which groups of devices (servers), can be exchanged without changing any plan's value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from placewright.problem import Problem

__all__ = ["Level", "Symmetry", "exchange", "symmetry_of"]

Ints = npt.NDArray[np.int32]

MOST_STEPS = 2_000
"""Of the search for a way to match the devices of two groups."""

STEPS_OF_A_CHECK = 50
"""What comparing all entries counts as."""


@dataclass(frozen=True, eq=False)
class Level:
    """Disjoint groups of devices, some of which can be exchanged as a whole.

    Attributes
    ----------
    group_of : (D,) int32
        Group of each device; groups count from 0 in the order of their first devices.
    members : tuple of tuple of int
        Devices of each group. In groups of one class the devices at equal places correspond.
    class_of : (G,) int32
        Groups of one class can be exchanged: member k of one with member k of the other, for all k at once.
    """

    group_of: Ints
    members: tuple[tuple[int, ...], ...]
    class_of: Ints

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Groups of each class, ascending."""
        return tuple(tuple(np.flatnonzero(self.class_of == c).tolist()) for c in range(int(self.class_of.max()) + 1))


@dataclass(frozen=True, eq=False)
class Symmetry:
    """The exchanges of a problem's devices that were found; every one leaves times, memory and links as they are.

    Attributes
    ----------
    levels : tuple of Level
        From single devices to ever larger groups: hosts, and devices that links of at least some bandwidth connect.
    """

    levels: tuple[Level, ...]

    @property
    def device_class(self) -> Ints:
        """(D,) devices of one class can be exchanged one by one."""
        return self.levels[0].class_of

    @cached_property
    def orbit(self) -> Ints:
        """(D,) devices that exchanges, one after the other, turn into each other have the same number."""
        root = np.arange(len(self.device_class))
        for level in self.levels:
            for groups in level.classes:
                first = level.members[groups[0]]
                for other in groups[1:]:
                    for i, j in zip(first, level.members[other], strict=True):
                        low, high = sorted((int(root[i]), int(root[j])))
                        root[root == high] = low
        return np.unique(root, return_inverse=True)[1].astype(np.int32)

    def exchanges(self) -> Iterator[Ints]:
        """(D,) permutations that were checked: of every class its first group with each other one."""
        D = len(self.device_class)
        for level in self.levels:
            for groups in level.classes:
                for other in groups[1:]:
                    yield exchange(D, level.members[groups[0]], level.members[other])


_made: WeakKeyDictionary[Problem, Symmetry] = WeakKeyDictionary()


def symmetry_of(problem: Problem) -> Symmetry:
    """Find classes of devices, and of groups of devices, that can be exchanged; made once.

    Devices i and j are of one class when exchanging the two is an automorphism of the problem: equal processing times
    and permissions in every row, equal memory, both or neither of kind ``cpu``, and equal transfer times and channels
    to and from every other device. Groups are the hosts, and for each bandwidth the devices that links of at least it
    connect; two are of one class when some matching of their devices exchanges both as a whole, where the names of
    channels may be exchanged along. Exchanges of the first group of a class with each other one generate all
    permutations of them, so that any plan stays as good when groups of a class change roles.

    Notes
    -----
    Complete for single devices whose channels keep their names. For groups a matching is looked for in a bounded number
    of steps, so that a class may be split where groups are large and entangled; what is claimed was checked entry by
    entry. Rows are hashed, then
    each group is compared with one representative of each class: O(n D + D^2) for a bounded number of classes.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph
    >>> devices = [Device(f"{host}{k}", host=host) for host in "ab" for k in (0, 1)]
    >>> links = [Link(0.0, 9e9, link_class="same-host"), Link(0.0, 1e9, link_class="between-hosts", channel="nic")]
    >>> found = symmetry_of(Problem(OperatorGraph([Operator("v")]), Cluster(devices, links), [[1.0, 1.0, 1.0, 1.0]]))
    >>> found.device_class.tolist(), found.levels[1].members, found.levels[1].class_of.tolist(), found.orbit.tolist()
    ([0, 0, 1, 1], ((0, 1), (2, 3)), [0, 0], [0, 0, 0, 0])
    """
    if problem not in _made:
        _made[problem] = _Search(problem).found()
    return _made[problem]


def exchange(n_devices: int, one: Sequence[int], other: Sequence[int]) -> Ints:
    """Return the permutation that exchanges the k-th device of one group with the k-th of the other, for all k."""
    swap = np.arange(n_devices, dtype=np.int32)
    swap[list(one)], swap[list(other)] = other, one
    return swap


class _Search:
    """A problem as numbers that are equal where nothing tells things apart."""

    def __init__(self, problem: Problem) -> None:
        cluster, D = problem.cluster, len(problem.cluster)
        self.kind = _numbers(
            np.stack(
                [
                    _columns(np.where(problem.allowed, problem.times.processing_s, np.inf)),
                    _columns(problem.cut_s),
                    _numbers(cluster.capacity_bytes[:, None]),
                    np.array([d.kind == "cpu" for d in cluster.devices], dtype=np.int64),
                ],
                axis=1,
            )
        )
        none = len(cluster.channels)
        self.channels = np.where(cluster.channels_of < 0, none, cluster.channels_of)
        first, second = self.channels[..., 0], self.channels[..., 1]
        latencies, rates = (np.unique(t, return_inverse=True)[1] for t in (cluster.latency_s, cluster.seconds_per_byte))
        pattern = (first < none) * 1 + (second < none) * 2 + (first == second) * 4
        link = (latencies.reshape(D, D) * (1 + int(rates.max())) + rates.reshape(D, D)) * 8 + pattern
        if problem.transfer_table is not None:
            table = problem.transfer_table.copy()
            table[:, np.arange(D), np.arange(D)] = 0.0
            link = link * (D * D) + _columns(table.reshape(len(table), D * D)).reshape(D, D)
        np.fill_diagonal(link, -1)
        self.link = np.unique(link, return_inverse=True)[1].reshape(D, D).astype(np.int32)
        """(D, D) equal where links are alike but for the names of their channels."""
        named = (self.link.astype(np.int64) * (none + 1) + first) * (none + 1) + second
        self.named = np.unique(named, return_inverse=True)[1].reshape(D, D).astype(np.int32)
        """(D, D) equal where links are alike and share their channels."""
        self.hosts = np.unique([d.host for d in cluster.devices], return_inverse=True)[1]
        self.rate = np.where(np.isfinite(cluster.latency_s), -cluster.seconds_per_byte, -np.inf)
        self.D, self.none = D, none

    def found(self) -> Symmetry:
        levels, seen = [self._singles()], {tuple(range(self.D))}
        partitions = [self.hosts, *self._connected()]
        for partition in sorted(partitions, key=lambda p: -len(np.unique(p))):
            group_of = _in_order(partition)
            if tuple(group_of.tolist()) in seen or not 1 < int(group_of.max()) + 1 < self.D:
                continue
            seen.add(tuple(group_of.tolist()))
            levels.append(self._level(group_of))
        return Symmetry(tuple(levels))

    def _singles(self) -> Level:
        """Classes of devices: rows and columns of links are equal once both devices' own entries are made equal."""
        out, into = self.named.copy(), self.named.T.copy()
        class_of = np.arange(self.D, dtype=np.int32)
        mutual = np.unique(self.named[(self.named == self.named.T) & ~np.eye(self.D, dtype=bool)])
        for link in mutual.tolist():
            np.fill_diagonal(out, link)
            np.fill_diagonal(into, link)
            first: dict[tuple[int, bytes, bytes], int] = {}
            for i in range(self.D):
                key = (int(self.kind[i]), out[i].tobytes(), into[i].tobytes())
                j = first.setdefault(key, i)
                if j != i:
                    class_of[class_of == class_of[i]] = class_of[j]
        alone: dict[tuple[int, ...], list[int]] = {}
        for i in np.flatnonzero(np.bincount(self.hosts)[self.hosts] == 1).tolist():  # their channels have their names
            if class_of[i] == i:
                alike = alone.setdefault(self._profiles([i])[0], [])
                same = next((j for j in alike if self._exchangeable([j], [i])), i)
                class_of[class_of == i] = same
                if same == i:
                    alike.append(i)
        each = np.arange(self.D, dtype=np.int32)
        return Level(each, tuple((i,) for i in range(self.D)), _in_order(class_of))

    def _connected(self) -> Iterator[npt.NDArray[np.int64]]:
        """For each bandwidth the parts that links of at least it connect, the highest first, until all is connected."""
        for rate in np.unique(self.rate[np.isfinite(self.rate) & ~np.eye(self.D, dtype=bool)])[::-1].tolist():
            joined = self.rate >= rate
            joined |= joined.T
            part, before = np.arange(self.D), np.full(self.D, -1)
            while (part != before).any():
                before = part
                part = np.minimum(part, np.where(joined, part, self.D).min(axis=1))
                part = part[part]
            yield part
            if (part == 0).all():
                return

    def _level(self, group_of: Ints) -> Level:
        members = [np.flatnonzero(group_of == g).tolist() for g in range(int(group_of.max()) + 1)]
        profile = [self._profiles(group) for group in members]
        members = [
            [group[k] for k in sorted(range(len(group)), key=lambda k: (seen[k], k))]
            for group, seen in zip(members, profile, strict=True)
        ]
        class_of = np.full(len(members), -1, dtype=np.int32)
        alike_outside = self._alike_outside(group_of)
        first: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        count = 0
        for g, group in enumerate(members):
            alike = first.setdefault(tuple(sorted(profile[g])), [])
            for other in alike:
                matched = self._matched(members[other], group) if alike_outside[other, g] else None
                if matched is not None:
                    members[g], class_of[g] = matched, class_of[other]
                    break
            if class_of[g] < 0:
                class_of[g] = count
                count += 1
                alike.append(g)
        return Level(group_of, tuple(tuple(group) for group in members), class_of)

    def _alike_outside(self, group_of: Ints) -> npt.NDArray[np.bool_]:
        """(G, G) false where the links of two groups to what is in neither differ, whatever the order of their devices.

        An exchange keeps every link from the two to a device outside both. So a sum over those links, of a number for
        each link's kind times one for the device outside, is equal for both groups. Numbers are drawn, and sums taken
        modulo 2^64: equal sums prove nothing, unequal ones that there is no exchange. Most pairs, among hundreds of
        groups, are told apart so before an exchange is tried.
        """
        drawn = np.random.default_rng(0).integers(2**64, size=int(self.link.max()) + 1 + self.D, dtype=np.uint64)
        weighted = drawn[self.D :][self.link] * drawn[: self.D]
        order = np.argsort(group_of, kind="stable")
        starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
        rows = np.add.reduceat(weighted[order], starts, axis=0)
        between = np.add.reduceat(rows[:, order], starts, axis=1)
        outside = (between.sum(axis=1) - between.diagonal())[:, None] - between
        return np.asarray(outside == outside.T)

    def _profiles(self, group: list[int]) -> list[tuple[int, ...]]:
        """Of each device of a group what any exchange keeps: its kind, and its links within the group and in all."""
        inner = self.link[np.ix_(group, group)]
        kinds = int(self.link.max()) + 1
        return [
            (
                int(self.kind[i]),
                *np.sort(inner[k]).tolist(),
                *np.sort(inner[:, k]).tolist(),
                *np.bincount(self.link[i], minlength=kinds).tolist(),
                *np.bincount(self.link[:, i], minlength=kinds).tolist(),
            )
            for k, i in enumerate(group)
        ]

    def _matched(self, one: list[int], other: list[int]) -> list[int] | None:
        """Order the second group such that exchanging the two is an automorphism; ``None``: no order was found."""
        chosen: list[int] = []
        left = MOST_STEPS

        def search() -> bool:
            nonlocal left
            if len(chosen) == len(one):
                left -= STEPS_OF_A_CHECK
                return self._exchangeable(one, chosen)
            i = one[len(chosen)]
            for j in other:
                left -= 1
                if left < 0:
                    return False
                if j in chosen or self.kind[i] != self.kind[j]:
                    continue
                before = one[: len(chosen)]
                if (self.link[i, before] == self.link[j, chosen]).all() and (
                    self.link[before, i] == self.link[chosen, j]
                ).all():
                    chosen.append(j)
                    if search():
                        return True
                    chosen.pop()
            return False

        return chosen if search() else None

    def _exchangeable(self, one: list[int], other: list[int]) -> bool:
        """Whether the exchange is an automorphism, entry by entry; channels may be renamed consistently."""
        swap, rows = exchange(self.D, one, other), np.array([*one, *other])
        moved = swap[rows]
        if not (
            (self.kind[moved] == self.kind[rows]).all()
            and (self.link[np.ix_(moved, swap)] == self.link[rows]).all()
            and (self.link[np.ix_(swap, moved)] == self.link[:, rows]).all()
        ):
            return False
        before = np.concatenate([self.channels[rows].ravel(), self.channels[:, rows].ravel()])
        after = np.concatenate([self.channels[np.ix_(moved, swap)].ravel(), self.channels[np.ix_(swap, moved)].ravel()])
        name = np.full(len(self.uses), -1)
        name[before] = after
        untouched = self.uses - self._counts(self.channels[rows]) - self._counts(self.channels[:, rows])
        kept = np.flatnonzero(untouched + self._counts(self.channels[np.ix_(rows, rows)]) > 0)
        if (name[before] != after).any() or ((name[kept] >= 0) & (name[kept] != kept)).any():
            return False
        name[kept] = kept  # also those that the exchange does not touch
        given = name[name >= 0]
        return len(np.unique(given)) == len(given)

    @cached_property
    def uses(self) -> npt.NDArray[np.int64]:
        """How many entries of links name each channel; the last number is for none."""
        return np.bincount(self.channels.ravel(), minlength=self.none + 1)

    def _counts(self, channels: Ints) -> npt.NDArray[np.int64]:
        return np.asarray(np.bincount(channels.ravel(), minlength=len(self.uses)))


def _numbers(rows: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Give equal rows equal numbers."""
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def _columns(table: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Give equal columns equal numbers."""
    number: dict[bytes, int] = {}
    rows = np.ascontiguousarray(table.T + 0.0)
    return np.array([number.setdefault(row.tobytes(), len(number)) for row in rows], dtype=np.int64)


def _in_order(numbers: npt.NDArray[np.integer]) -> Ints:
    """Give parts numbers in the order of their first members."""
    seen: dict[int, int] = {}
    return np.array([seen.setdefault(x, len(seen)) for x in numbers.tolist()], dtype=np.int32)
