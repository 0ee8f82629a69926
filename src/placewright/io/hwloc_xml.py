"""hwloc's topology XML, as ``lstopo --of xml`` writes it (versions 1 and 2): NUMA nodes, PCI devices, GPUs.

The attributes are those of hwloc's ``hwloc2.dtd``: ``object`` with ``type``, ``cpuset``, ``local_memory``,
``pci_busid``, ``pci_type`` (class, maker, device) and ``pci_link_speed`` in GB/s; ``info`` with ``name`` and ``value``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from placewright.catalogue import find
from placewright.cluster import Device
from placewright.errors import InvalidInput
from placewright.io.bounded_xml import Element
from placewright.io.interconnects import (
    MOST_DEVICES,
    PCIE_DEFAULT,
    PROCESSORS,
    PROCESSORS_DEFAULT,
    Described,
    Domain,
    Gpu,
    cores_of_mask,
    links_of,
)

__all__ = ["hwloc_topology"]

PROTOCOL = 24.0 / 31.507692
"""Of a PCIe link's rate that transfers get: what NCCL reckons with for generation 4 and 16 lanes, over hwloc's own."""
DISPLAY = "03"
"""First digits of the PCI classes of GPUs."""


def hwloc_topology(topology: Element, what: str) -> Described:
    """Make the devices and links of one machine. hwloc knows no NVLinks: all GPUs are joined by PCIe.

    A PCI device of a display class is a GPU where a computing device of the operating system (``CoProc``) belongs to
    it; where none has one, all of them are.

    Raises
    ------
    InvalidInput
        If there is no NUMA node and no machine, or a mask or number is none.
    """
    objects = [e for e in topology.walk() if e.tag == "object"]
    nodes = [e for e in objects if e.get("type") == "NUMANode"] or [e for e in objects if e.get("type") == "Machine"]
    displays = [e for e in objects if e.get("type") == "PCIDev" and e.get("pci_type").startswith(DISPLAY)]
    cards = [e for e in displays if any(_computes(o) for o in e.children)] or displays
    if not nodes or len(nodes) + len(cards) > MOST_DEVICES:
        raise InvalidInput(
            f"has {len(nodes)} NUMA nodes and {len(cards)} GPUs; 1 to {MOST_DEVICES} devices can be read", what=what
        )
    infos = {e.get("name"): e.get("value") for e in topology.walk() if e.tag == "info"}
    host = infos.get("HostName") or "local"
    rate = PROCESSORS.get(infos.get("CPUVendor", ""), PROCESSORS_DEFAULT)
    try:
        domains = [
            Domain(
                Device(
                    f"cpu{k}",
                    kind="cpu",
                    host=host,
                    memory_bytes=_memory(node),
                    cores=cores_of_mask(node.get("cpuset")),
                ),
                rate,
            )
            for k, node in enumerate(nodes)
        ]
        gpus = [_gpu(k, card, nodes, host) for k, card in enumerate(cards)]
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None
    notes = [f"PCIe without a speed is taken to carry {PCIE_DEFAULT / 1e9:g} GB/s; latencies are rough"]
    if len(gpus) > 1:
        notes.append("hwloc tells of no NVLinks; add the links between GPUs that have them")
    nameless = [g.device.name for g in gpus if not g.device.model]
    if nameless:
        notes.append(f"{', '.join(nameless[:4])}: not in the catalogue; give the 'model' in the cluster file")
    devices = (*(d.device for d in domains), *(g.device for g in gpus))
    return Described(devices, links_of(domains, gpus, {}), tuple(notes))


def _computes(device: Element) -> bool:
    return device.get("type") == "OSDev" and device.get("osdev_type") in ("5", "CoProc")


def _memory(node: Element) -> int | None:
    text = node.get("local_memory")
    if not text:
        return None
    if not text.isdigit() or len(text) > 15:
        raise InvalidInput(f"local_memory {text[:20]!r} is not a number of bytes below 10^15; correct it")
    return int(text)


def _gpu(k: int, card: Element, nodes: Sequence[Element], host: str) -> Gpu:
    above = list(card.ancestors())
    near = [e for a in above for e in (a, *a.children) if any(e is node for node in nodes)]
    home = next((m for m, node in enumerate(nodes) if near and node is near[0]), 0)
    way = [card, *(e for e in above if e.get("type") == "Bridge" and e.get("pci_busid"))]
    rates = [rate for e in way if (rate := _rate(e)) > 0]
    bridges = tuple(e.get("pci_busid") for e in reversed(way[1:]))
    return Gpu(_device(f"gpu{k}", card, host), home, bridges, min(rates, default=PCIE_DEFAULT))


def _rate(element: Element) -> float:
    text = element.get("pci_link_speed", "0")
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < 1e6:
        raise InvalidInput(f"pci_link_speed {text[:20]!r} is not a number of GB/s; correct it")
    return rate * 1e9 * PROTOCOL


def _device(name: str, card: Element, host: str) -> Device:
    """Make the device, by the catalogue where its maker's name is in it."""
    told = {e.get("name"): e.get("value") for o in card.walk() for e in o.children if e.tag == "info"}
    words = re.sub(r"[^a-z0-9]+", "-", told.get("GPUModel", "").lower()).strip("-")
    for maker in ("nvidia-geforce-", "nvidia-", "amd-", "intel-"):
        entry = find(words.removeprefix(maker)) if words else None
        if entry is not None:
            return entry.device(name, host)
    return Device(name, kind="gpu", host=host)
