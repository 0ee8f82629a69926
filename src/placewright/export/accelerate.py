"""``device_map`` and ``max_memory`` of transformers and accelerate.

Keys are paths of modules, values the number of an accelerator, ``cpu``, ``mps`` or ``xpu:N``; every parameter must be
in a module that is named (https://huggingface.co/docs/accelerate/usage_guides/big_modeling, "Designing a device map";
``accelerate.utils.check_device_map``). Layers are not parted: accelerate moves tensors at the entry of modules, and a
layer's own operators, the residual sums, read from all of its parts (``_no_split_modules`` of transformers).
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from placewright.cluster import Cluster
from placewright.export.device_words import bus_order, numbered_word
from placewright.export.modules import module_devices
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "device_key", "device_map", "order_notes", "write"]

RULES = Rules(
    "accelerate", "whole layers on devices of one host", ordered=False, one_host=True, pipelined=False, tied_twice=False
)

KEYS = {"apple": "mps", "arc": "xpu:{}"}
"""Of accelerators that are no CUDA devices, by how their catalogue entry begins."""


def device_key(cluster: Cluster, device: int) -> int | str:
    """Return accelerate's word for a device."""
    if cluster.devices[device].kind == "cpu":
        return "cpu"
    word = numbered_word(cluster, device, KEYS, "{}")
    return int(word) if word.isdecimal() else word


def device_map(found: Nearest) -> dict[str, int | str]:
    """Map the path of every module to accelerate's word for its device."""
    devices = module_devices(found.problem.graph, found.plan.device_of)
    return {path: device_key(found.problem.cluster, i) for path, i in devices.items()}


def order_notes(found: Nearest) -> tuple[str, ...]:
    """Say which accelerators the numbers mean where those of the host are unlike."""
    cluster = found.problem.cluster
    used = [i for i in found.plan.devices_used if isinstance(device_key(cluster, i), int)]
    setting = bus_order(cluster, cluster.devices[used[0]].host) if used else ""
    return (f"set {setting.strip()}, so that numbers are those of nvidia-smi",) if setting else ()


def write(found: Nearest, folder: Path) -> Exported:
    """Write a JSON object with ``device_map`` and ``max_memory``, in bytes, of the devices that are used."""
    cluster = found.problem.cluster
    used = sorted(found.plan.devices_used, key=lambda i: (cluster.devices[i].kind == "cpu", i))
    limits = {str(device_key(cluster, i)): cluster.capacity_bytes[i] for i in used}
    document = {
        "device_map": device_map(found),
        "max_memory": {key: int(limit) for key, limit in limits.items() if math.isfinite(limit)},
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
    return Exported(text, order_notes(found))
