"""Devices and stages as runtimes and their readers call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from placewright.cluster import Cluster
from placewright.export.modules import Unit
from placewright.export.nearest import Nearest

__all__ = ["accelerator_index", "bus_order", "listed_units", "numbered_word", "stage_lines", "visible"]


def accelerator_index(cluster: Cluster, device: int) -> int:
    """Count an accelerator among those of its kind on its host, in the cluster's order; -1 for a CPU.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> accelerator_index(Cluster([Device("n", kind="npu"), Device("a", kind="gpu")]), 1)
    0
    """
    own = cluster.devices[device]
    if own.kind == "cpu":
        return -1
    return sum((d.kind, d.host) == (own.kind, own.host) for d in cluster.devices[:device])


def numbered_word(cluster: Cluster, device: int, words: Mapping[str, str], default: str) -> str:
    """Return a runtime's word for an accelerator, which counts those of its host that it has the same word for.

    Parameters
    ----------
    cluster : Cluster
    device : int
    words : mapping of str to str
        Word, with ``{}`` for the number, by how an entry of the catalogue begins.
    default : str
        Of entries that begin otherwise.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> pair = Cluster([Device("a", model="rtx-3090"), Device("b", model="rx-7900-xtx")])
    >>> numbered_word(pair, 1, {"rx-": "ROCm{}"}, "CUDA{}")
    'ROCm0'
    """

    def said(i: int) -> tuple[str, str, str]:
        own = cluster.devices[i]
        word = next((word for begin, word in words.items() if own.model.startswith(begin)), default)
        return (own.kind, own.host, word)

    return said(device)[-1].format(sum(said(i) == said(device) for i in range(device)))


def bus_order(cluster: Cluster, host: str) -> str:
    """Return the setting that numbers unlike accelerators of a host as the cluster does; empty where all are alike.

    CUDA's own order begins with the fastest; in that of the bus numbers are those of nvidia-smi.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> bus_order(Cluster([Device("a", model="gtx-1080-ti"), Device("b", model="rtx-4090")]), "local")
    'CUDA_DEVICE_ORDER=PCI_BUS_ID '
    """
    models = {d.model for d in cluster.devices if d.host == host and d.kind != "cpu"}
    return "CUDA_DEVICE_ORDER=PCI_BUS_ID " if len(models) > 1 else ""


def visible(cluster: Cluster, devices: Sequence[int]) -> str:
    """Return the setting that makes these accelerators of one host the ranks 0, 1...; empty where that is so by itself.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> visible(Cluster([Device("a"), Device("b")]), [1, 0])
    'CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,0 '
    """
    numbers = [accelerator_index(cluster, i) for i in devices]
    groups = {(cluster.devices[i].kind, cluster.devices[i].host) for i in devices}
    if len(groups) > 1 or -1 in numbers:
        return ""
    present = sum((d.kind, d.host) in groups for d in cluster.devices)
    if numbers == list(range(present)):
        return bus_order(cluster, cluster.devices[devices[0]].host)
    return f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(map(str, numbers))} "


def listed_units(units: Iterable[Unit]) -> str:
    """List paths of modules, layers that follow each other as a range.

    Examples
    --------
    >>> listed_units([Unit("wte", (0,)), Unit("h.0", (1,), "h", 0), Unit("h.1", (2,), "h", 1)])
    'wte, h.0-1'
    """
    rows: list[tuple[Unit, Unit]] = []
    for unit in units:
        if rows and unit.stack and rows[-1][1].stack == unit.stack and rows[-1][1].number == unit.number - 1:
            rows[-1] = (rows[-1][0], unit)
        else:
            rows.append((unit, unit))
    return ", ".join(a.path if a is b else f"{a.path}-{b.number}" for a, b in rows)


def stage_lines(found: Nearest, mark: str = "#") -> str:
    """Make a comment line a stage, with its rank, device and modules, after one for what was lost."""
    cluster = found.problem.cluster
    lines = [f"{mark} {found.loss}"] if found.loss else []
    for rank, stage in enumerate(found.stages):
        device = cluster.devices[stage.device]
        number = accelerator_index(cluster, stage.device)
        place = f"CPU of {device.host}" if number < 0 else f"{device.kind} {number} of {device.host}"
        lines.append(f"{mark} rank {rank}, {device.name} ({place}): {listed_units(stage.units)}")
    return "".join(f"{''.join(c if c.isprintable() else '?' for c in line)}\n" for line in lines)
