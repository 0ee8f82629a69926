"""What ``nvidia-smi topo -m`` prints: a matrix of how each two GPUs and network cards are joined, and their cores.

Its legend says what a cell means: ``NV#`` so many NVLinks, ``PIX`` one PCIe bridge, ``PXB`` several, ``PHB`` a host
bridge, ``NODE`` several within a NUMA node, ``SYS`` the way between NUMA nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from placewright.cluster import Device
from placewright.errors import InvalidInput
from placewright.io.interconnects import (
    MOST_DEVICES,
    NVLINK_DEFAULT,
    PCIE_DEFAULT,
    PROCESSORS_DEFAULT,
    Described,
    Domain,
    Gpu,
    links_of,
)
from placewright.io.name_ranges import parse_numbers

__all__ = ["is_nvidia_topo", "nvidia_topo"]

PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_HEADING = re.compile(r"(?:CPU|NUMA) Affinity|GPU NUMA ID")


def is_nvidia_topo(text: str) -> bool:
    """Whether the text has such a matrix."""
    return _head(_lines(text)) is not None


def nvidia_topo(text: str, what: str) -> Described:
    """Read the matrix; text before and after it, and network cards, are left out.

    It says neither which GPUs these are nor which generation of PCIe and NVLink joins them: NVLinks are taken to carry
    20 GB/s each, PCIe 12 GB/s, the way between processors 6 GB/s.

    Raises
    ------
    InvalidInput
        If there is no matrix, a row is missing or short, or a cell is unknown.
    """
    lines = _lines(text)
    head = _head(lines)
    if head is None:
        raise InvalidInput("has no row of headings 'GPU0 GPU1 ... CPU Affinity'; give what it printed", what=what)
    names = _HEADING.sub("", lines[head]).split()
    gpus = [name for name in names if re.fullmatch(r"GPU\d+", name)]
    if len(gpus) > MOST_DEVICES:
        raise InvalidInput(f"has {len(gpus)} GPUs, more than the {MOST_DEVICES} that are read", what=what)
    rows: dict[str, list[str]] = {}
    for line in lines[head + 1 :]:
        words = line.split()
        if words and words[0] in gpus:
            rows.setdefault(words[0], words[1:])
    violations = [f"there is no row for {gpu}" for gpu in gpus if gpu not in rows]
    violations += [
        f"row {gpu} has {len(rows[gpu])} cells, not one for each of the {len(names)} columns"
        for gpu in gpus
        if gpu in rows and len(rows[gpu]) < len(names)
    ]
    if violations:
        raise InvalidInput(violations, what=what)
    cells = {(a, b): rows[a][names.index(b)] for a in gpus for b in gpus}
    for (a, b), cell in cells.items():
        known = cell == "X" if a == b else cell in PCIE or re.fullmatch(r"NV[1-9]\d{0,2}", cell)
        if not known:
            violations.append(f"row {a}, column {b}: {cell[:20]!r} is not X, NV# or one of {', '.join(PCIE)}")
        elif cells[b, a] != cell:
            violations.append(f"rows {a} and {b} say {cell} and {cells[b, a][:20]!r} of the same two")
    if violations:
        raise InvalidInput(violations[:20], what=what)
    return _described(gpus, cells, [rows[gpu][len(names)] if len(rows[gpu]) > len(names) else "" for gpu in gpus], what)


def _lines(text: str) -> list[str]:
    return _ESCAPE.sub("", text).splitlines()


def _head(lines: Sequence[str]) -> int | None:
    return next((k for k, line in enumerate(lines) if re.match(r"\s+GPU\d+\s", line) and "CPU Affinity" in line), None)


def _described(gpus: list[str], cells: dict[tuple[str, str], str], affinity: list[str], what: str) -> Described:
    known = [cores if re.fullmatch(r"\d[\d,-]*", cores) else "" for cores in affinity]
    order = sorted(set(known), key=known.index)
    try:
        cores = [parse_numbers(text) if text else () for text in order]
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None
    domains = [Domain(Device(f"cpu{k}", kind="cpu", cores=c)) for k, c in enumerate(cores)]
    # GPUs that a bridge joins stand behind the bridge of the first of them.
    behind = [next((b for b in gpus if b != a and cells[a, b] in ("PIX", "PXB")), "") for a in gpus]
    bridges = [(min(a, b, key=gpus.index),) if b else () for a, b in zip(gpus, behind, strict=True)]
    found = [
        Gpu(Device(f"gpu{gpu[3:]}", kind="gpu"), order.index(known[k]), bridges[k], PCIE_DEFAULT)
        for k, gpu in enumerate(gpus)
    ]
    nvlinks = {
        (i, j): int(cells[a, b][2:]) * NVLINK_DEFAULT
        for i, a in enumerate(gpus)
        for j, b in enumerate(gpus)
        if i < j and cells[a, b].startswith("NV")
    }
    notes = [
        "it does not say which GPUs these are; give each its 'model' in the cluster file",
        f"PCIe is taken to carry {PCIE_DEFAULT / 1e9:g} GB/s, an NVLink {NVLINK_DEFAULT / 1e9:g} GB/s, the way between "
        f"processors {PROCESSORS_DEFAULT / 1e9:g} GB/s; latencies are rough",
    ]
    return Described(
        (*(d.device for d in domains), *(g.device for g in found)), links_of(domains, found, nvlinks), tuple(notes)
    )
