"""A cluster from another program's description of a machine, whose kind its content tells."""

from __future__ import annotations

from pathlib import Path

from placewright.cluster import Cluster
from placewright.errors import InvalidInput
from placewright.io.bounded_xml import parse_xml
from placewright.io.hwloc_xml import hwloc_topology
from placewright.io.interconnects import Described
from placewright.io.nccl_topology import nccl_topology
from placewright.io.nvidia_topo import is_nvidia_topo, nvidia_topo
from placewright.io.reading import read_bounded

__all__ = ["read_description"]

LARGEST_FILE_BYTES = 64 * 2**20


def read_description(path: Path | str) -> tuple[Cluster, tuple[str, ...]]:
    """Read what ``nvidia-smi topo -m`` printed, NCCL's topology XML or hwloc's.

    Returns
    -------
    cluster : Cluster
    notes : tuple of str
        What the description does not say, and was assumed.

    Raises
    ------
    InvalidInput
        If it is none of these, or with what is wrong with it.
    """
    what = f"description {str(path)!r}"
    data = read_bounded(path, "description", LARGEST_FILE_BYTES)
    described = _described(data, what)
    try:
        return Cluster(described.devices, described.links), described.notes
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None


def _described(data: bytes, what: str) -> Described:
    text = data.decode("utf-8", errors="replace")
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        root = parse_xml(data, what)
        if root.tag == "system":
            return nccl_topology(root, what)
        if root.tag == "topology":
            return hwloc_topology(root, what)
        raise InvalidInput(
            f"is XML of a {root.tag[:40]!r}; a 'system' of NCCL and a 'topology' of hwloc can be read", what=what
        )
    if is_nvidia_topo(text):
        return nvidia_topo(text, what)
    raise InvalidInput(
        "is neither what 'nvidia-smi topo -m' prints nor topology XML of NCCL or hwloc; give one of these", what=what
    )
