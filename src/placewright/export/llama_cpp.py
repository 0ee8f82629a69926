"""Command line of llama.cpp.

With ``--split-mode layer`` the last ``--n-gpu-layers`` of the layers and the head, which is one more, are on devices,
in the order of ``--device``: slot k of n is on the first device whose share of ``--tensor-split``, summed, is above k /
n (``src/llama-model.cpp``, ``load_tensors``; releases of 2026). Layers before them, and always the token embeddings,
are on the CPU. ``--n-cpu-moe N`` keeps the experts of the first N layers on the CPU, ``--override-tensor REGEX=CPU``
any (``common/arg.cpp``; https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md). Devices of other
hosts are reached by ``--rpc HOST:PORT`` (https://github.com/ggml-org/llama.cpp/blob/master/tools/rpc/README.md).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from placewright.cluster import Cluster
from placewright.export.device_words import numbered_word, stage_lines
from placewright.export.modules import main_stack, units_of
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["EXPERTS", "RULES", "device_name", "write"]

EXPERTS = re.compile(r"\.(\d+)\..*\bexperts\b")
"""An operator of the experts of a numbered layer."""

RULES = Rules(
    "llama.cpp",
    "whole layers in device order, those on the CPU first, and experts on the CPU",
    ends=False,
    cpus="first",
    embedding_on_cpu=True,
    pipelined=False,
    apart=EXPERTS,
)

BACKENDS = {"apple": "Metal", "mi": "ROCm{}", "radeon": "ROCm{}", "rx-": "ROCm{}", "arc": "SYCL{}"}
"""What llama.cpp calls devices that are no CUDA devices, by how their catalogue entry begins."""

RPC_PORT = 50052


def device_name(cluster: Cluster, device: int) -> str:
    """Return llama.cpp's name for an accelerator, as ``--list-devices`` shows it.

    Examples
    --------
    >>> from placewright.cluster import Device
    >>> device_name(Cluster([Device("a"), Device("b", model="rtx-3090")]), 1)
    'CUDA1'
    """
    return numbered_word(cluster, device, BACKENDS, "CUDA{}")


def write(found: Nearest, folder: Path) -> Exported:
    """Write one command line, after a comment for each stage."""
    cluster = found.problem.cluster
    on_gpus = [
        (stage.device, n) for stage, n in zip(found.stages, found.layers, strict=True) if _is_gpu(cluster, stage.device)
    ]
    options = ["llama-server", "--model", "MODEL.gguf", "--fit", "off"]
    notes = []
    if not on_gpus:
        options += ["--n-gpu-layers", "0", "--device", "none"]
    else:
        slots = [n for _, n in on_gpus]
        slots[-1] += 1  # the head
        cpus = [i for i in found.plan.devices_used if not _is_gpu(cluster, i)]
        here = cluster.devices[(cpus or [on_gpus[0][0]])[0]].host  # where the program runs, whose CPU it uses
        away = list(dict.fromkeys(cluster.devices[i].host for i, _ in on_gpus if cluster.devices[i].host != here))
        options += ["--n-gpu-layers", str(sum(slots))]
        if away:
            options += ["--rpc", ",".join(f"{host}:{RPC_PORT}" for host in away)]
            notes.append(
                f"start rpc-server --port {RPC_PORT} on {', '.join(away)}, and put the names that --list-devices shows "
                "there in place of RPC0, RPC1, ..."
            )
        names = _names(cluster, [i for i, _ in on_gpus], here)
        options += ["--device", ",".join(names)]
        if len(on_gpus) == 1:
            options += ["--split-mode", "none", "--main-gpu", "0"]
        else:
            options += ["--split-mode", "layer", "--tensor-split", ",".join(map(str, slots))]
    options += _expert_options(found)
    return Exported(f"{stage_lines(found)}{shlex.join(options)}\n", tuple(notes))


def _is_gpu(cluster: Cluster, device: int) -> bool:
    return cluster.devices[device].kind != "cpu"


def _names(cluster: Cluster, devices: Iterable[int], here: str) -> list[str]:
    names, away = [], 0
    for i in devices:
        if cluster.devices[i].host == here:
            names.append(device_name(cluster, i))
        else:
            names.append(f"RPC{away}")
            away += 1
    return names


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
        if _is_gpu(problem.cluster, int(device_of[others[0]])) and not _is_gpu(
            problem.cluster, int(device_of[experts[0]])
        ):
            apart.append(unit.number)
    if not apart:
        return []
    first = sorted(unit.number for unit in units if unit.stack == stack)
    if apart == first[: len(apart)]:
        return ["--cpu-moe"] if len(apart) == whole else ["--n-cpu-moe", str(len(apart))]
    return ["--override-tensor", rf"blk\.({'|'.join(map(str, apart))})\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"]
