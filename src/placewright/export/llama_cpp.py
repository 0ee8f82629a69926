"""Command line of llama.cpp.

With ``--split-mode layer`` the last ``--n-gpu-layers`` of the layers and the head, which is one more, are on devices,
in the order of ``--device``: slot k of n is on the first device whose share of ``--tensor-split``, summed, is above k /
n (``src/llama-model.cpp``, ``load_tensors``; releases of 2026). Layers before them, and always the token embeddings,
are on the CPU. ``--n-cpu-moe N`` keeps the experts of the first N layers on the CPU, ``--override-tensor REGEX=CPU``
any (``common/arg.cpp``; https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md). Devices of other
hosts, CPUs too, are behind an RPC server (https://github.com/ggml-org/llama.cpp/blob/master/tools/rpc/README.md):
``--rpc HOST:PORT,...`` registers them as RPC0, RPC1, ... in the order of the servers, and of ``--device`` of each.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from placewright.cluster import Cluster
from placewright.export.device_words import bus_order, numbered_word, stage_lines
from placewright.export.modules import main_stack, units_of
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["EXPERTS", "RULES", "device_name", "write"]

EXPERTS = re.compile(r"\.(\d+)\..*\bexperts\b")
"""An operator of the experts of a numbered layer."""

RULES = Rules(
    "llama.cpp",
    "whole layers in device order, those on its own CPU first, and experts on that",
    ends=False,
    cpus="home",
    embedding_on_cpu=True,
    pipelined=False,
    apart=EXPERTS,
)

BACKENDS = {"apple": "Metal", "mi": "ROCm{}", "radeon": "ROCm{}", "rx-": "ROCm{}", "arc": "SYCL{}"}
"""What llama.cpp calls devices that are no CUDA devices, by how their catalogue entry begins."""

RPC_PORT = 50052


def device_name(cluster: Cluster, device: int) -> str:
    """Return llama.cpp's name for a device of its own host, as ``--list-devices`` shows it.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> device_name(Cluster([Device("a"), Device("b", model="rtx-3090")]), 1)
    'CUDA1'
    """
    if cluster.devices[device].kind == "cpu":
        return "CPU"
    return numbered_word(cluster, device, BACKENDS, "CUDA{}")


def write(found: Nearest, folder: Path) -> Exported:
    """Write one command line, after a comment for each stage and each RPC server."""
    cluster = found.problem.cluster
    handed = [
        (stage.device, n) for stage, n in zip(found.stages, found.layers, strict=True) if stage.device != found.home
    ]
    source = found.problem.graph.source
    model = source.location if source is not None and source.format == "gguf" else "MODEL.gguf"
    options = ["llama-server", "--model", model, "--fit", "off"]
    notes: list[str] = []
    here = cluster.devices[found.home if found.home >= 0 else handed[0][0]].host
    if not handed:
        options += ["--n-gpu-layers", "0", "--device", "none"]
    else:
        slots = [n for _, n in handed]
        slots[-1] += 1  # the head
        options += ["--n-gpu-layers", str(sum(slots))]
        servers = _servers(cluster, [i for i, _ in handed], here)
        if servers:
            options += ["--rpc", ",".join(f"{host}:{RPC_PORT}" for host in servers)]
            notes = [_server_line(cluster, host, there) for host, there in servers.items()]
        away = [i for there in servers.values() for i in there]
        names = [f"RPC{away.index(i)}" if i in away else device_name(cluster, i) for i, _ in handed]
        options += ["--device", ",".join(names)]
        if len(handed) == 1:
            options += ["--split-mode", "none", "--main-gpu", "0"]
        else:
            options += ["--split-mode", "layer", "--tensor-split", ",".join(map(str, slots))]
    options += _expert_options(found)
    comments = stage_lines(found) + "".join(f"# {note}\n" for note in notes)
    return Exported(f"{comments}{bus_order(cluster, here)}{shlex.join(options)}\n", tuple(notes))


def _servers(cluster: Cluster, devices: Sequence[int], here: str) -> dict[str, list[int]]:
    """Devices that are handed over on each other host, both in the order in which they are used."""
    found: dict[str, list[int]] = {}
    for i in devices:
        if cluster.devices[i].host != here:
            found.setdefault(cluster.devices[i].host, []).append(i)
    return found


def _server_line(cluster: Cluster, host: str, devices: Sequence[int]) -> str:
    """Say what is to be started on another host."""
    names = ",".join(device_name(cluster, i) for i in devices)
    return (
        f"on {host}, in a network that you trust: {bus_order(cluster, host)}ggml-rpc-server --host 0.0.0.0 "
        f"--port {RPC_PORT} --device {names}"
    )


def _expert_options(found: Nearest) -> list[str]:
    """Say which layers have their experts on the CPU though they are elsewhere themselves."""
    problem, device_of = found.problem, found.plan.device_of
    units = units_of(problem.graph)
    stack = main_stack(units)
    apart, whole = [], 0
    for unit in units:
        experts = [v for v in unit.operators if EXPERTS.search(problem.graph.operators[v].name)]
        others = [v for v in unit.operators if v not in experts]
        if unit.stack != stack or not experts or not others:
            continue
        whole += 1
        if device_of[others[0]] != found.home and device_of[experts[0]] == found.home:
            apart.append(unit.number)
    if not apart:
        return []
    first = sorted(unit.number for unit in units if unit.stack == stack)
    if apart == first[: len(apart)]:
        return ["--cpu-moe"] if len(apart) == whole else ["--n-cpu-moe", str(len(apart))]
    return ["--override-tensor", rf"blk\.({'|'.join(map(str, apart))})\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"]
