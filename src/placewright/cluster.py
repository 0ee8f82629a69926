"""The devices and the links between them: what a network is placed on, frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput

__all__ = ["Cluster", "Device", "Link"]

SAME_HOST = "same-host"
BETWEEN_HOSTS = "between-hosts"
CLASSES = (SAME_HOST, BETWEEN_HOSTS)
MOST_POINTS = 64
MOST_BYTES = 2**50
"""What files hold, so that sums stay within 64 bits."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device i.

    Attributes
    ----------
    name : str
        Unique in its cluster.
    kind : str
        ``cpu``, ``gpu``, ``npu``...; informative, and what a runtime goes by.
    model : str
        Entry of the hardware catalogue that its figures came from; empty when the file gives them.
    host : str
        Devices of one host are joined by ``same-host`` links.
    memory_bytes : int or None
        ``None``: no limit is known.
    reserve_bytes : int
        Of ``memory_bytes`` kept free for the runtime.
    flops_per_s : mapping of dtype to FLOP/s
        Peak by dtype (``fp32``, ``bf16``, ``int8``...).
    memory_bandwidth_bytes_per_s : float
    launch_overhead_s : float
        What every operator costs on top of its arithmetic.
    cut_overhead_s : float
        What the device loses at an operator that reads tensors from elsewhere (another session call), and again at one
        whose tensors are read elsewhere (the hand-over): o of LogP (Culler et al. 1993).
    cores : tuple of int
        CPU cores that a worker for this device is pinned to; empty when it is none or not known.
    threads : int
        Threads that a worker for this device computes with; 0: one per core.
    cpu_share : float
        Share of its cores' time that a worker for this device may use, above 0 and up to 1.
    """

    name: str
    kind: str = "gpu"
    model: str = ""
    host: str = "local"
    memory_bytes: int | None = None
    reserve_bytes: int = 0
    flops_per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    memory_bandwidth_bytes_per_s: float = 0.0
    launch_overhead_s: float = 0.0
    cut_overhead_s: float = 0.0
    cores: tuple[int, ...] = ()
    threads: int = 0
    cpu_share: float = 1.0

    @property
    def capacity_bytes(self) -> float:
        """Bytes that a plan may use: memory less reserve; ``inf`` without a limit."""
        return float("inf") if self.memory_bytes is None else float(self.memory_bytes - self.reserve_bytes)


@dataclass(frozen=True, slots=True)
class Link:
    """A rule that gives latency and bandwidth to a class of device pairs, or to one pair in both directions.

    Exactly one of ``link_class`` and ``between`` is set. A later rule overrides an earlier one, and a pair a class.

    Attributes
    ----------
    link_class : str
        ``same-host`` or ``between-hosts``.
    between : (str, str)
        Names of two devices; ``one_way`` restricts it to transfers from the first to the second.
    latency_s : float
        Of a transfer of 0 bytes.
    bandwidth_bytes_per_s : float
        May be infinite. A pair that no rule covers is unreachable.
    points : tuple of (bytes, seconds)
        Where bytes alone don't tell the time: it runs straight from 0 bytes to the first point, from each point to the
        next, and beyond the last as the bandwidth says. Bytes ascend and seconds never fall; the line may bend either
        way. Without points: latency + bytes / bandwidth.
    channel : str
        Transfers over one channel exclude each other when contention is modelled. On a ``same-host`` class it stands
        for one channel a host (a PCIe switch), on ``between-hosts`` for one at either end (a NIC a host), on a pair
        for one with exactly this name.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    link_class: str = ""
    between: tuple[str, str] = ("", "")
    channel: str = ""
    one_way: bool = False
    points: tuple[tuple[int, float], ...] = ()

    def seconds(self, sizes_bytes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Seconds of transfers of these sizes, in an array of the same shape.

        Examples
        --------
        1 us, up to 1 kB at 0.5 GB/s, then at 1 GB/s:

        >>> bent = Link(1e-6, 1e9, link_class="same-host", points=((1000, 3e-6),))
        >>> [round(float(t) * 1e6, 6) for t in bent.seconds([0, 500, 1000, 3000])]
        [1.0, 2.0, 3.0, 5.0]
        """
        sizes = np.asarray(sizes_bytes, dtype=np.float64)
        at, seconds = (np.array(line, dtype=np.float64) for line in zip((0, self.latency_s), *self.points, strict=True))
        beyond = np.maximum(sizes - at[-1], 0.0) * (1.0 / self.bandwidth_bytes_per_s)
        return np.asarray(np.interp(sizes, at, seconds) + beyond)


@dataclass(frozen=True)
class Cluster:
    """Devices and link rules; the matrices that the rules expand to are computed on demand.

    Parameters
    ----------
    devices : sequence of Device
    links : sequence of Link
    name : str

    Raises
    ------
    InvalidInput
        With every violation: no devices, names used twice, negative or NaN figures, unknown devices or classes.

    Examples
    --------
    >>> two = Cluster([Device("a"), Device("b")], [Link(1e-5, 1e9, link_class="same-host")])
    >>> two.transfer_s(1_000_000, 0, 1), two.transfer_s(1_000_000, 0, 0)
    (0.00101, 0.0)
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    name: str = ""

    def __init__(self, devices: Iterable[Device], links: Iterable[Link] = (), name: str = "") -> None:
        object.__setattr__(self, "devices", tuple(devices))
        object.__setattr__(self, "links", tuple(links))
        object.__setattr__(self, "name", name)
        violations = _violations(self.devices, self.links)
        if violations:
            raise InvalidInput(violations, what=f"cluster {name!r}" if name else "cluster")

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Device name -> index."""
        return {d.name: i for i, d in enumerate(self.devices)}

    @cached_property
    def capacity_bytes(self) -> npt.NDArray[np.float64]:
        """(D,) bytes that a plan may use on each device; ``inf`` without a limit."""
        return np.array([d.capacity_bytes for d in self.devices])

    @cached_property
    def rule_of(self) -> npt.NDArray[np.int32]:
        """(D, D) index into ``links`` of the rule that holds for transfers from row to column; -1: unreachable."""
        hosts = {h: k for k, h in enumerate(dict.fromkeys(d.host for d in self.devices))}
        host = np.array([hosts[d.host] for d in self.devices], dtype=np.int32)
        same = host[:, None] == host[None, :]
        rules = np.full((len(self.devices),) * 2, -1, dtype=np.int32)
        for k, link in enumerate(self.links):
            if link.link_class:
                rules[same if link.link_class == SAME_HOST else ~same] = k
        for k, link in enumerate(self.links):
            if not link.link_class:
                i, j = (self.index[name] for name in link.between)
                rules[i, j] = k
                if not link.one_way:
                    rules[j, i] = k
        np.fill_diagonal(rules, -1)
        return rules

    @cached_property
    def latency_s(self) -> npt.NDArray[np.float64]:
        """(D, D) seconds; 0 on the diagonal, ``inf`` where unreachable."""
        table = np.array([link.latency_s for link in self.links] + [np.inf])[self.rule_of]
        np.fill_diagonal(table, 0.0)
        return table

    @cached_property
    def seconds_per_byte(self) -> npt.NDArray[np.float64]:
        """(D, D) reciprocal bandwidth; 0 on the diagonal and where unreachable (the latency is infinite there)."""
        table = np.array([1.0 / link.bandwidth_bytes_per_s for link in self.links] + [0.0])[self.rule_of]
        np.fill_diagonal(table, 0.0)
        return table

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Names of the shared channels."""
        names: dict[str, None] = {}
        for link in self.links:
            if link.channel and not link.link_class:
                names[link.channel] = None
            elif link.channel:
                names.update(dict.fromkeys(f"{link.channel}@{d.host}" for d in self.devices))
        return tuple(names)

    @cached_property
    def channels_of(self) -> npt.NDArray[np.int32]:
        """(D, D, 2) indices into ``channels`` of those that a transfer from row to column occupies; -1: none."""
        number = {name: k for k, name in enumerate(self.channels)}
        table = np.full((*self.rule_of.shape, 2), -1, dtype=np.int32)
        hosts = [d.host for d in self.devices]
        for k, link in enumerate(self.links):
            if not link.channel:
                continue
            rows, columns = np.nonzero(self.rule_of == k)
            if not link.link_class:
                table[rows, columns, 0] = number[link.channel]
                continue
            of_device = np.array([number[f"{link.channel}@{h}"] for h in hosts], dtype=np.int32)
            table[rows, columns, 0] = of_device[rows]
            if link.link_class == BETWEEN_HOSTS:
                table[rows, columns, 1] = of_device[columns]
        return table

    def transfer_s(self, size_bytes: float, source: int, target: int) -> float:
        """Seconds that ``size_bytes`` take between two devices: what the rule of the link says, 0 for equal ones."""
        rule = int(self.rule_of[source, target])
        if rule >= 0 and self.links[rule].points:
            return float(self.links[rule].seconds(size_bytes))
        return float(self.latency_s[source, target] + size_bytes * self.seconds_per_byte[source, target])

    def transfer_table(
        self, sizes_bytes: npt.ArrayLike, sources: npt.ArrayLike | None = None, targets: npt.ArrayLike | None = None
    ) -> npt.NDArray[np.float64]:
        """(T, sources, targets) seconds of tensors of these sizes between devices, between all by default.

        0 from a device to itself, ``inf`` where no link is.
        """
        everyone = range(len(self.devices))
        among = np.ix_(*(np.asarray(everyone if x is None else x, dtype=np.intp) for x in (sources, targets)))
        sizes = np.asarray(sizes_bytes, dtype=np.float64)
        table = self.latency_s[among] + sizes[:, None, None] * self.seconds_per_byte[among]
        for k, link in enumerate(self.links):
            if link.points and (mine := self.rule_of[among] == k).any():
                table[:, mine] = link.seconds(sizes)[:, None]
        return np.asarray(table)

    @cached_property
    def bends(self) -> bool:
        """Whether a link has points, so that latency and bandwidth alone don't give its times."""
        return any(link.points for link in self.links)


def _violations(devices: tuple[Device, ...], links: tuple[Link, ...]) -> list[str]:
    found: list[str] = []
    if not devices:
        found.append("it has no devices; list at least one under 'devices'")
    names: set[str] = set()
    for d in devices:
        where = f"device {d.name!r}"
        if d.name in names:
            found.append(f"{where} stands twice; names must be unique")
        names.add(d.name)
        figures = {
            "memory_bandwidth": d.memory_bandwidth_bytes_per_s,
            "launch_overhead": d.launch_overhead_s,
            "cut_overhead": d.cut_overhead_s,
            **{f"flops[{t}]": f for t, f in d.flops_per_s.items()},
        }
        found += [
            f"{where}: {what} {value} is not a finite number of at least 0"
            for what, value in figures.items()
            if not 0 <= value < float("inf")
        ]
        if not 0 < d.cpu_share <= 1:
            found.append(f"{where}: cpu_share {d.cpu_share} is not above 0 and up to 1; use 1 for the whole core")
        if d.memory_bytes is not None and d.memory_bytes > MOST_BYTES:
            found.append(
                f"{where}: memory {min(d.memory_bytes, 10**300):.4g} B is above 1 PiB; leave it out for no limit"
            )
        elif d.memory_bytes is not None and not 0 <= d.reserve_bytes <= d.memory_bytes:
            found.append(
                f"{where}: reserve {d.reserve_bytes} B is not between 0 and its memory of {d.memory_bytes} B; lower it"
            )
    for link in links:
        where = f"link {'-'.join(link.between)}" if not link.link_class else f"link class {link.link_class!r}"
        if bool(link.link_class) == any(link.between):
            found.append(f"{where}: give either a class or a pair of devices")
        elif link.link_class and link.link_class not in CLASSES:
            found.append(f"{where} is unknown; use one of {', '.join(CLASSES)}")
        elif not link.link_class:
            found += [f"{where}: there is no device {name!r}" for name in link.between if name not in names]
            if link.between[0] == link.between[1]:
                found.append(f"{where}: a device needs no link to itself; remove it")
        if not 0 <= link.latency_s < float("inf"):
            found.append(f"{where}: latency {link.latency_s} s is not a finite number of at least 0")
        if not link.bandwidth_bytes_per_s > 0:
            found.append(
                f"{where}: bandwidth {link.bandwidth_bytes_per_s} B/s is not above 0; leave out an absent link"
            )
        found += [f"{where}: {line}" for line in _bad_points(link)]
    return found


def _bad_points(link: Link) -> list[str]:
    found = []
    last_size, last_s = 0.0, link.latency_s
    for size, seconds in link.points:
        if not last_size < size < float("inf"):
            found.append(f"the point at {size} B does not lie beyond {last_size} B; list points by ascending bytes")
        if not last_s <= seconds < float("inf"):
            found.append(
                f"the point at {size} B takes {seconds} s, not a finite time of at least the {last_s} s of less bytes"
            )
        if size > MOST_BYTES:
            found.append(f"the point at {min(size, 10**300):.4g} B lies beyond 1 PiB; leave it out")
        last_size, last_s = size, seconds
    if len(link.points) > MOST_POINTS:
        found.append(f"{len(link.points)} points are more than the {MOST_POINTS} that a link may have; thin them out")
    return found
