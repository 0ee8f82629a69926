"""A cluster in a word: ``rtx-3090+rtx-3060-12gb+64GiB`` is a PC with these devices and so much RAM."""

from __future__ import annotations

import re
from pathlib import Path

from placewright.catalogue import lookup
from placewright.errors import InvalidInput

__all__ = ["assumed_of", "cluster_text"]

MOST_NAMED = 64
_RAM = re.compile(r"\d+(\.\d+)?\s*[KMGT]i?B", re.IGNORECASE)

LINK = "{class: same-host, bandwidth: 12 GB/s, latency: 15 us, channel: pcie}"
"""What a PC's slots leave of PCIe 4.0 when it is shared, as in ``examples/4090-3090-64gb.yaml``."""

RAM = "flops: {fp32: 0.8 TFLOP/s}, memory_bandwidth: 50 GB/s"
"""Eight cores and two channels of DDR4, as in ``examples/3090-3060.yaml``."""

RESERVE = "1 GiB"


def cluster_text(named: Path | str) -> str | None:
    """Write the cluster file that names joined by ``+`` stand for; ``None`` where they are a file's name.

    Parameters
    ----------
    named : Path or str
        Entries of the hardware catalogue, and at most one size of RAM.

    Raises
    ------
    InvalidInput
        If one of several names is not in the catalogue, or there are too many.

    Examples
    --------
    >>> print(cluster_text("rtx-3090+64GiB"))
    devices:
      - {name: gpu0, model: rtx-3090, host: pc, reserve: 1 GiB}
      - {name: cpu, kind: cpu, host: pc, memory: 64GiB, flops: {fp32: 0.8 TFLOP/s}, memory_bandwidth: 50 GB/s}
    links: [{class: same-host, bandwidth: 12 GB/s, latency: 15 us, channel: pcie}]
    >>> cluster_text("box.yaml") is None
    True
    """
    parts = [part.strip() for part in str(named).split("+")]
    if not any(_known(part) for part in parts) or Path(named).exists():
        return None
    if len(parts) > MOST_NAMED:
        raise InvalidInput(f"{len(parts)} devices are more than the {MOST_NAMED} that a line names; write a file")
    numbers: dict[str, int] = {}
    lines = []
    for part in parts:
        if _RAM.fullmatch(part):
            lines.append(f"  - {{name: {_name('cpu', numbers)}, kind: cpu, host: pc, memory: {part}, {RAM}}}")
            continue
        kind = lookup(part).kind
        reserve = "" if kind == "cpu" else f", reserve: {RESERVE}"
        lines.append(f"  - {{name: {_name(kind, numbers)}, model: {part}, host: pc{reserve}}}")
    return "\n".join(["devices:", *lines, f"links: [{LINK}]"])


def assumed_of(named: Path | str) -> str:
    """Say what is assumed of a cluster that is named in a word; empty for a file."""
    if cluster_text(named) is None:
        return ""
    ram = ", RAM of 50 GB/s with 0.8 TFLOP/s" if any(map(_RAM.fullmatch, str(named).split("+"))) else ""
    return (
        f"cluster {str(named)!r}: one PC, 12 GB/s and 15 us between its devices, {RESERVE} of each accelerator kept "
        f"free{ram}; a cluster file can say otherwise (docs/clusters.md)"
    )


def _known(part: str) -> bool:
    try:
        lookup(part)
    except InvalidInput:
        return False
    return True


def _name(kind: str, numbers: dict[str, int]) -> str:
    """Accelerators are numbered from 0; a CPU gets a number from the second on."""
    number = numbers.setdefault(kind, 0)
    numbers[kind] += 1
    return kind if kind == "cpu" and number == 0 else f"{kind}{number}"
