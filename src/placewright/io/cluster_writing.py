"""Writing of cluster files: a line a device and a line a link, with prefixes only where they are exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from placewright.catalogue import lookup
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.io.cluster_file import DeviceEntry, device_from_entry
from placewright.io.name_ranges import escape, escape_slots
from placewright.io.reading import write_atomic
from placewright.units import parse_bytes, parse_bytes_per_second, parse_flops_per_second, parse_seconds

__all__ = ["cluster_to_text", "write_cluster"]

_PREFIXES = ("T", "G", "M", "k")
_BYTES = ("TiB", "GiB", "MiB", "KiB", *(f"{p}B" for p in _PREFIXES))
_RATES = tuple(f"{p}B/s" for p in _PREFIXES)
_FLOPS = tuple(f"{p}FLOP/s" for p in _PREFIXES)
_SECONDS = ("s", "ms", "us", "ns")


def write_cluster(path: Path | str, cluster: Cluster) -> None:
    """Write a cluster as YAML that :func:`placewright.io.read_cluster` reads back as an equal one.

    A device whose ``model`` is in the catalogue is written as the model and what differs from it; a model that is not
    there, or lacks figures that the catalogue has, is left out and the figures stand alone.

    Raises
    ------
    InvalidInput
        If the path can't be written to.
    """
    write_atomic(path, cluster_to_text(cluster))


def cluster_to_text(cluster: Cluster) -> str:
    """YAML of a cluster.

    Examples
    --------
    >>> pair = Cluster([Device("a", memory_bytes=2**34), Device("b")], [Link(2e-6, 1.2e10, link_class="same-host")])
    >>> print(cluster_to_text(pair), end="")
    devices:
      - {name: a, memory: 16 GiB}
      - {name: b}
    links:
      - {class: same-host, bandwidth: 12 GB/s, latency: 2 us}
    """
    lines = [f"name: {_flow(cluster.name)}"] if cluster.name else []
    lines += ["devices:", *(f"  - {_flow(_device(d))}" for d in cluster.devices)]
    if cluster.links:
        lines += ["links:", *(f"  - {_flow(_link(link))}" for link in cluster.links)]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """YAML of a value in one line."""
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": float("inf")}
    text: str = yaml.safe_dump(value, allow_unicode=True, **options)
    if any(c in text for c in "\x85\u2028\u2029"):  # line breaks to YAML, which would come back as spaces
        text = yaml.safe_dump(value, allow_unicode=False, **options)
    return text.removesuffix("...\n").strip(" \n")


def _exact(value: float, units: tuple[str, ...], parse: Callable[[Any], float]) -> str | float:
    """Write a quantity in the largest unit that says exactly the same in few digits; else as the bare number."""
    for unit in units:
        number = value / parse(f"1 {unit}")
        text = f"{number:.6g} {unit}"
        if 1 <= number < 1e5 and "e" not in text and parse(text) == value:
            return text
    return value


def _device(device: Device) -> dict[str, Any]:
    base = _from_catalogue(device.model) if device.model else None
    if base is not None:
        entry = _entry(device, base)
        read = device_from_entry(msgspec.convert(entry, DeviceEntry))
        if read == replace(device, name=read.name, host=read.host):
            return entry
    return _entry(device, Device(""))


def _from_catalogue(model: str) -> Device | None:
    try:
        return lookup(model).device("")
    except InvalidInput:
        return None


def _entry(device: Device, base: Device) -> dict[str, Any]:
    """All that differs from a device that has nothing but defaults, or what the catalogue gives."""
    size, peaks = device.memory_bytes, device.flops_per_s
    figures: dict[str, tuple[str, Any]] = {
        "kind": ("kind", device.kind),
        "memory": ("memory_bytes", None if size is None else _exact(size, _BYTES, parse_bytes)),
        "reserve": ("reserve_bytes", _exact(device.reserve_bytes, _BYTES, parse_bytes)),
        "flops": (
            "flops_per_s",
            {t: _exact(f, _FLOPS, parse_flops_per_second) for t, f in peaks.items() if base.flops_per_s.get(t) != f},
        ),
        "memory_bandwidth": (
            "memory_bandwidth_bytes_per_s",
            _exact(device.memory_bandwidth_bytes_per_s, _RATES, parse_bytes_per_second),
        ),
        "launch_overhead": ("launch_overhead_s", _exact(device.launch_overhead_s, _SECONDS, parse_seconds)),
        "cut_overhead": ("cut_overhead_s", _exact(device.cut_overhead_s, _SECONDS, parse_seconds)),
        "cores": ("cores", list(device.cores)),
        "threads": ("threads", device.threads),
        "cpu_share": ("cpu_share", device.cpu_share),
    }
    written: dict[str, Any] = {"name": escape(device.name)}
    if base.model:
        written["model"] = base.model
    if device.host != "local":
        written["host"] = escape_slots(device.host)
    changed = {key: value for key, (field, value) in figures.items() if getattr(device, field) != getattr(base, field)}
    return written | changed


def _link(link: Link) -> dict[str, Any]:
    bandwidth = link.bandwidth_bytes_per_s
    written: dict[str, Any] = {"class": link.link_class} if link.link_class else {"between": list(link.between)}
    written["bandwidth"] = "inf" if bandwidth == float("inf") else _exact(bandwidth, _RATES, parse_bytes_per_second)
    if link.latency_s:
        written["latency"] = _exact(link.latency_s, _SECONDS, parse_seconds)
    if link.channel:
        written["channel"] = link.channel
    if link.one_way:
        written["one_way"] = True
    if link.points:
        exact = ((_exact(b, _BYTES, parse_bytes), _exact(s, _SECONDS, parse_seconds)) for b, s in link.points)
        written["points"] = [list(point) for point in exact]
    return written
