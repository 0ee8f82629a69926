"""What a profile found: times, how they were had, and what could not be measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from placewright.cluster import Cluster
from placewright.problem import Times

__all__ = ["Fallback", "ProfileReport"]


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that could not be measured on a device, and why. Its time is the roofline's, scaled."""

    device: str
    operator: str
    reason: str


@dataclass(frozen=True, eq=False)
class ProfileReport:
    """Processing times and how they were had.

    Attributes
    ----------
    times : Times
        ``source`` is ``profiled``, ``profiled+analytic`` (some devices are not reachable here) or ``analytic``.
    devices : tuple of str
        Devices that were measured.
    distinct : int
        Distinct operators of the graph.
    measured, cache_hits : int
        Measurements that were made now, and that were found in the cache; of operators and whole networks.
    operator_sum_s : mapping of device to seconds
        Sum of the operators' times as they were measured, each by itself.
    whole_s : mapping of device to seconds
        The network run as one; without the devices where that failed.
    cut_overhead_s : mapping of device to seconds
        For :attr:`placewright.Device.cut_overhead_s`: what an operator pays at one side of a cut on average, that is,
        what the network costs more in pieces than as a whole over the operators at the sides of its cuts (another call,
        and a conversion of layout), and no less than half an empty call. ``times.cut_s`` has it by operator.
    fallbacks : tuple of Fallback
    notes : tuple of str
        What else could not be measured, and why.
    """

    times: Times
    devices: tuple[str, ...]
    distinct: int
    measured: int
    cache_hits: int
    operator_sum_s: Mapping[str, float]
    whole_s: Mapping[str, float]
    cut_overhead_s: Mapping[str, float]
    fallbacks: tuple[Fallback, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sum_over_whole(self) -> Mapping[str, float]:
        """For each measured device: the operators' sum over the whole network; 1 where operators tell all."""
        return {d: self.operator_sum_s[d] / w for d, w in self.whole_s.items() if w > 0}

    def cluster(self, cluster: Cluster) -> Cluster:
        """Return ``cluster`` with the cut overheads that were measured, where a device states none itself."""
        devices = [
            replace(d, cut_overhead_s=self.cut_overhead_s[d.name])
            if d.name in self.cut_overhead_s and d.cut_overhead_s == 0
            else d
            for d in cluster.devices
        ]
        return Cluster(devices, cluster.links, cluster.name)
