"""What descriptions of machines leave out: how fast PCIe, NVLink and the ways between processors are; and their links.

Bandwidths are those that NCCL reckons with (its ``src/graph/topo.h`` and ``topo.cc``): what is left of the wire's rate
after its protocol. No description has latencies: these are rough, and to be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placewright.cluster import Device, Link
from placewright.errors import InvalidInput

__all__ = ["Described", "Domain", "Gpu", "cores_of_mask", "links_of", "nvlink_bytes_per_s", "pcie_bytes_per_s"]

GB = 1e9
PCIE_DEFAULT = 12.0 * GB
"""Generation 3, 16 lanes."""
PROCESSORS = {"GenuineIntel": 10.0 * GB, "AuthenticAMD": 16.0 * GB, "power": 32.0 * GB}
PROCESSORS_DEFAULT = 6.0 * GB
"""Between two processors, or parts of one with memory of their own; above, Skylake, Zen 2 and POWER9."""
NVLINK_LATENCY_S, PCIE_LATENCY_S = 5e-6, 10e-6
MOST_DEVICES = 512
_LANE_BITS = {"2.5": 1.5e9, "5": 3e9, "8": 6e9, "16": 12e9, "32": 24e9, "64": 48e9}
_NVLINK = ((100, 40.1 * GB), (90, 20.6 * GB), (87, 20.0 * GB), (86, 12.0 * GB), (70, 20.0 * GB), (60, 18.0 * GB))
NVLINK_DEFAULT = 20.0 * GB


class Described(NamedTuple):
    """Devices and links of a description, and what it did not say and was assumed."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...]


class Domain(NamedTuple):
    """A processor, or a part of one, with memory of its own."""

    device: Device
    bytes_per_s: float = PROCESSORS_DEFAULT


class Gpu(NamedTuple):
    """A GPU and its way from a domain: the bridges on it from the outermost in, and the slowest rate from each on."""

    device: Device
    domain: int
    bridges: tuple[str, ...]
    bytes_per_s: float


def pcie_bytes_per_s(speed: str, width: str) -> float:
    """Bytes per second of a PCIe link, by what Linux calls its speed and its number of lanes.

    Examples
    --------
    >>> pcie_bytes_per_s("16.0 GT/s PCIe", "16") / 1e9, pcie_bytes_per_s("", "0") / 1e9
    (24.0, 12.0)
    """
    lane = _LANE_BITS.get(speed.split(" ")[0].removesuffix(".0"), 6e9)
    lanes = int(width) if width.isdigit() and 0 < int(width) <= 32 else 16
    return lane * lanes / 8


def nvlink_bytes_per_s(capability: int) -> float:
    """Bytes per second of one NVLink of a GPU, by its compute capability (80: 8.0)."""
    return next((rate for least, rate in _NVLINK if capability >= least), NVLINK_DEFAULT)


def cores_of_mask(mask: str) -> tuple[int, ...]:
    """Cores of a mask in words of 32 bits, the highest first: ``0x00000001,0x0000000f`` or ``1,f``; none for none.

    Raises
    ------
    InvalidInput
        If it is no such mask, or goes on for ever.

    Examples
    --------
    >>> cores_of_mask("0x00000001,0x80000001"), cores_of_mask("")
    ((0, 31, 32), ())
    """
    words = [word.removeprefix("0x") for word in mask.split(",")] if mask else []
    try:
        value = 0
        for word in words[:4096]:
            value = value << 32 | int(word or "0", 16)
        if value < 0 or len(words) > 4096 or any(len(word) > 8 for word in words):
            raise ValueError
    except ValueError:
        raise InvalidInput(f"{mask[:40]!r} is no mask of cores; write words of 32 bits as 0000000f,ffffffff") from None
    return tuple(k for k, bit in enumerate(reversed(f"{value:b}")) if bit == "1")


def links_of(
    domains: Sequence[Domain], gpus: Sequence[Gpu], nvlinks: Mapping[tuple[int, int], float]
) -> tuple[Link, ...]:
    """Links between all devices: NVLink where it is, else PCIe as far as the nearest common bridge, else processors.

    GPUs behind one bridge share the way to the processors: that is a channel. What passes between two processors is one
    more, which ways through it share.
    """
    links = []
    shared = {b for g in gpus for b in g.bridges[:1] if sum(b in other.bridges for other in gpus) > 1}
    for i, gpu in enumerate(gpus):
        for j in range(i + 1, len(gpus)):
            other, pair = gpus[j], (gpu.device.name, gpus[j].device.name)
            if (i, j) in nvlinks:
                links.append(Link(NVLINK_LATENCY_S, nvlinks[i, j], between=pair))
                continue
            rate = min(gpu.bytes_per_s, other.bytes_per_s)
            channel = ""
            if gpu.domain != other.domain:
                rate = min(rate, domains[gpu.domain].bytes_per_s, domains[other.domain].bytes_per_s)
                channel = _between(gpu.domain, other.domain)
            links.append(Link(PCIE_LATENCY_S, rate, between=pair, channel=channel))
        for k, domain in enumerate(domains):
            rate = gpu.bytes_per_s if k == gpu.domain else min(gpu.bytes_per_s, domain.bytes_per_s)
            channel = next((f"bridge {b}" for b in gpu.bridges if b in shared), "")
            if k != gpu.domain:
                channel = _between(gpu.domain, k)
            links.append(Link(PCIE_LATENCY_S, rate, between=(gpu.device.name, domain.device.name), channel=channel))
    for k, domain in enumerate(domains):
        for m in range(k + 1, len(domains)):
            rate = min(domain.bytes_per_s, domains[m].bytes_per_s)
            pair = domain.device.name, domains[m].device.name
            links.append(Link(PCIE_LATENCY_S, rate, between=pair, channel=_between(k, m)))
    return tuple(links)


def _between(one: int, other: int) -> str:
    return f"processors {min(one, other)}-{max(one, other)}"
