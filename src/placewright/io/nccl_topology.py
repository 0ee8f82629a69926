"""NCCL's topology XML, as ``NCCL_TOPO_DUMP_FILE`` writes it: processors, PCIe below them, GPUs with NVLinks, networks.

The elements and attributes are those that ``src/graph/topo.cc`` of NCCL reads: ``system``, ``cpu`` (``affinity``,
``vendor``), ``pci`` (``busid``, ``class``, ``link_speed``, ``link_width``), ``gpu`` (``dev``, ``sm``), ``nvlink``
(``target``, ``count``, ``tclass``), ``net`` (``speed`` in Mbit/s).
"""

from __future__ import annotations

from collections.abc import Sequence

from placewright.cluster import Device, Link
from placewright.errors import InvalidInput
from placewright.io.bounded_xml import Element
from placewright.io.interconnects import (
    MOST_DEVICES,
    PROCESSORS,
    PROCESSORS_DEFAULT,
    Described,
    Domain,
    Gpu,
    cores_of_mask,
    links_of,
    nvlink_bytes_per_s,
    pcie_bytes_per_s,
)

__all__ = ["nccl_topology"]

SWITCH = "0x068000"
"""PCI class of an NVSwitch."""
NETWORK_LATENCY_S = 20e-6


def nccl_topology(system: Element, what: str) -> Described:
    """Make the devices and links of one machine; its fastest network card becomes the class ``between-hosts``.

    Raises
    ------
    InvalidInput
        If there is no GPU, a number is none, or GPUs have the same bus.
    """
    processors = [element for element in system.walk() if element.tag == "cpu"]
    found = [element for element in system.walk() if element.tag == "gpu"]
    if not found or len(found) + len(processors) > MOST_DEVICES:
        raise InvalidInput(
            f"has {len(found)} GPUs and {len(processors)} processors; 1 GPU to {MOST_DEVICES} devices can be read",
            what=what,
        )
    try:
        domains = [_domain(k, element) for k, element in enumerate(processors)]
        gpus = [_gpu(element, processors) for element in found]
        nvlinks = _nvlinks(found)
        network = max((_number(e, "speed") for e in system.walk() if e.tag == "net"), default=0)
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None
    links = links_of(domains, gpus, nvlinks)
    if network:
        links += (Link(NETWORK_LATENCY_S, network * 1e6 / 8, link_class="between-hosts", channel="nic"),)
    notes = (
        "it does not say which GPUs these are; give each its 'model' in the cluster file",
        "bandwidths are those that NCCL reckons with; latencies are rough",
    )
    return Described((*(d.device for d in domains), *(g.device for g in gpus)), links, notes)


def _number(element: Element, name: str) -> int:
    text = element.get(name, "0")
    if not text.isdigit() or len(text) > 9:
        raise InvalidInput(f"{element.tag}: {name} {text[:20]!r} is not a whole number of at least 0; correct it")
    return int(text)


def _domain(k: int, element: Element) -> Domain:
    maker = "power" if element.get("arch") == "ppc64" else element.get("vendor")
    cores = cores_of_mask(element.get("affinity"))
    return Domain(Device(f"cpu{k}", kind="cpu", cores=cores), PROCESSORS.get(maker, PROCESSORS_DEFAULT))


def _gpu(element: Element, processors: Sequence[Element]) -> Gpu:
    above = list(element.ancestors())
    way = [e for e in above if e.tag == "pci"]
    home = next((k for k, cpu in enumerate(processors) if any(cpu is e for e in above)), None)
    if home is None or not way:
        raise InvalidInput(f"GPU {element.get('dev')[:20]!r} stands in no pci element of a cpu; move it there")
    rates = [pcie_bytes_per_s(e.get("link_speed"), e.get("link_width")) for e in way]
    bridges = tuple(e.get("busid") for e in reversed(way[1:]))
    return Gpu(Device(f"gpu{_number(element, 'dev')}", kind="gpu"), home, bridges, min(rates))


def _bus(element: Element) -> str:
    return next((e.get("busid").lower() for e in element.ancestors() if e.tag == "pci"), "")


def _nvlinks(gpus: Sequence[Element]) -> dict[tuple[int, int], float]:
    """Bytes per second between two GPUs: of the NVLinks that join them, or of the fewer that each has to a switch."""
    place = {_bus(gpu): k for k, gpu in enumerate(gpus)}
    if len(place) < len(gpus):
        raise InvalidInput("two GPUs have the same busid; each has its own")
    direct: dict[tuple[int, int], float] = {}
    switched = [0.0] * len(gpus)
    for i, gpu in enumerate(gpus):
        each = nvlink_bytes_per_s(_number(gpu, "sm"))
        for link in gpu.children:
            if link.tag != "nvlink":
                continue
            rate = _number(link, "count") * each
            j = place.get(link.get("target").lower())
            if link.get("tclass") == SWITCH:
                switched[i] += rate
            elif j is not None and i != j:
                pair = (min(i, j), max(i, j))
                direct[pair] = max(direct.get(pair, 0.0), rate)
    for i, mine in enumerate(switched):
        for j in range(i):
            if min(mine, switched[j]) > 0:
                direct[j, i] = direct.get((j, i), 0.0) + min(mine, switched[j])
    return {pair: rate for pair, rate in direct.items() if rate > 0}
