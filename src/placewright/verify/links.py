"""What the link rules of a cluster say of each pair of devices."""

from __future__ import annotations

import math

from placewright.cluster import Cluster, Link
from placewright.problem import Problem

__all__ = ["Links"]


class Links:
    """Link rules of a cluster by what they cover: the last rule of a pair, else the last one of its class."""

    def __init__(self, cluster: Cluster) -> None:
        self.hosts = [d.host for d in cluster.devices]
        self.names = [d.name for d in cluster.devices]
        self.pairs: dict[tuple[str, str], Link] = {}
        self.classes: dict[str, Link] = {}
        for link in cluster.links:
            if link.link_class:
                self.classes[link.link_class] = link
                continue
            self.pairs[link.between] = link
            if not link.one_way:
                self.pairs[link.between[1], link.between[0]] = link

    def between(self, source: int, target: int) -> Link | None:
        """Return the rule that holds for a transfer; none where devices are unreachable."""
        pair = self.pairs.get((self.names[source], self.names[target]))
        together = self.hosts[source] == self.hosts[target]
        return pair or self.classes.get("same-host" if together else "between-hosts")

    def seconds(self, problem: Problem, tensor: int, source: int, target: int) -> float:
        """Time of a transfer: the given table, or what the rule says; ``inf`` where unreachable."""
        if source == target:
            return 0.0
        if problem.times.transfer_s is not None:
            return float(problem.times.transfer_s[tensor, source, target])
        link = self.between(source, target)
        if link is None:
            return math.inf
        return _along(link, problem.graph.tensors[tensor].size_bytes)

    def channels(self, source: int, target: int) -> tuple[str, ...]:
        """Names of the channels that a transfer occupies: one a host for a class, at both ends between hosts."""
        link = self.between(source, target) if source != target else None
        if link is None or not link.channel:
            return ()
        if not link.link_class:
            return (link.channel,)
        return tuple(dict.fromkeys(f"{link.channel}@{self.hosts[i]}" for i in (source, target)))


def _along(link: Link, size_bytes: int) -> float:
    """Seconds on the line from (0, latency) over the points, and at the bandwidth beyond."""
    size, seconds = 0, link.latency_s
    for next_size, next_s in link.points:
        if size_bytes <= next_size:
            return seconds + (next_s - seconds) * ((size_bytes - size) / (next_size - size))
        size, seconds = next_size, next_s
    return seconds + (size_bytes - size) / link.bandwidth_bytes_per_s
