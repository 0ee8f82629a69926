"""Placements that other programs make by themselves: accelerate's own maps, and splits in proportion to memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate import infer_auto_device_map, init_empty_weights
from accelerate.utils import CustomDtype, get_balanced_memory
from transformers import AutoModelForCausalLM, AutoModelForSpeechSeq2Seq

from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.export.accelerate import device_key
from placewright.export.given_map import placed_by_map
from placewright.export.modules import Unit, main_stack, units_of
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["accelerate_plan", "exo_plan", "llama_cpp_plan", "on_meta", "vllm_plan"]

Ints = npt.NDArray[np.int32]

LOWERED = 0.97
"""Factor of ``max_memory`` each time that a map does not fit."""


def on_meta(config: Any) -> torch.nn.Module:
    """Build a model without weights."""
    auto = AutoModelForSpeechSeq2Seq if config.is_encoder_decoder else AutoModelForCausalLM
    with init_empty_weights(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: torch.nn.Module = auto.from_config(config)
    model.tie_weights()  # type: ignore[operator]
    return model


def accelerate_plan(problem: Problem, model: torch.nn.Module, bits: float, *, balanced: bool) -> Plan | None:
    """Call accelerate for a map of a host's devices, as somebody does who lowers ``max_memory`` until the model runs.

    ``infer_auto_device_map`` counts weights alone, so each device is given its memory less its share of the KV cache;
    weights of formats that accelerate has no type for are counted in 4, 8 or 16 bits, and memory is scaled to match.
    Of several hosts the best one is taken.
    """
    devices = problem.cluster.devices
    hosts = dict.fromkeys(d.host for d in devices)
    rows = [[i for i, d in enumerate(devices) if d.host == host] for host in hosts]
    found = [_on_host(problem, model, bits, row, balanced=balanced) for row in rows]
    return min((plan for plan in found if plan is not None), key=lambda plan: plan.value_s, default=None)


def _on_host(
    problem: Problem, model: torch.nn.Module, bits: float, own: Sequence[int], *, balanced: bool
) -> Plan | None:
    devices = problem.cluster.devices
    counted: Any = next(d for b, d in ((4, CustomDtype.INT4), (8, torch.int8), (99, torch.bfloat16)) if bits < 2 * b)
    scale = {CustomDtype.INT4: 4, torch.int8: 8, torch.bfloat16: 16}[counted] / bits
    cache = sum(v.kv_cache_bytes for v in problem.graph.operators)
    gpus = sum(problem.cluster.capacity_bytes[i] for i in own if devices[i].kind != "cpu")
    factor = 1.0
    while factor > 0.5:
        limits: dict[int | str, int] = {}
        for i in own:
            share = problem.cluster.capacity_bytes[i] / gpus if devices[i].kind != "cpu" else float(not gpus)
            limits[device_key(problem.cluster, i)] = int(
                scale * factor * max(0.0, problem.cluster.capacity_bytes[i] - share * cache)
            )
        whole = {"no_split_module_classes": list(model._no_split_modules or []), "dtype": counted}
        if balanced:
            limits = get_balanced_memory(model, max_memory=limits, **whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = infer_auto_device_map(model, max_memory=dict(limits), **whole)
        if "disk" in found.values():
            return None
        names = {device_key(problem.cluster, i): problem.cluster.devices[i].name for i in own}
        try:
            return placed_by_map({path: names[key] for path, key in found.items()}, problem, "map of accelerate")
        except InvalidInput:
            factor *= LOWERED
    return None


def llama_cpp_plan(problem: Problem) -> Plan | None:
    """Split as llama.cpp does without ``--tensor-split``, with as many layers on its devices as fit.

    Layers and the head are dealt out in proportion to the devices' memory, in the cluster's order; embeddings and the
    layers that are left are on the CPU.
    """
    gpus = [i for i, d in enumerate(problem.cluster.devices) if d.kind != "cpu"]
    cpu = next((i for i, d in enumerate(problem.cluster.devices) if d.kind == "cpu"), None)
    units = units_of(problem.graph)
    layers = sum(unit.stack == main_stack(units) for unit in units)
    if not gpus:  # one host computes
        return None if cpu is None else plan_for(problem, np.full(len(problem.graph), cpu))
    memory = [problem.cluster.capacity_bytes[i] for i in gpus]
    ends = np.array(list(accumulate(memory))) / sum(memory)
    for offloaded in range(layers + 1, 0, -1):
        start = layers + 1 - offloaded
        if start and cpu is None:
            break
        at = [
            cpu if slot < start else gpus[int(np.searchsorted(ends, (slot - start) / offloaded, side="right"))]
            for slot in range(layers + 1)
        ]
        plan = plan_for(problem, _dealt(problem, units, at, at[0] if cpu is None else cpu))
        if plan is not None:
            return plan
    return None


def exo_plan(problem: Problem) -> Plan | None:
    """Split as exo does: a ring of devices, the largest first, each with layers in proportion to its memory."""
    devices = problem.cluster.devices
    nodes = [i for i, d in enumerate(devices) if d.kind != "cpu"] or list(range(len(devices)))
    nodes.sort(key=lambda i: (-problem.cluster.capacity_bytes[i], i))
    units = units_of(problem.graph)
    layers = sum(unit.stack == main_stack(units) for unit in units)
    memory = [problem.cluster.capacity_bytes[i] for i in nodes]
    ends = [round(layers * part / sum(memory)) for part in accumulate(memory)]
    at = [next(i for i, end in zip(nodes, ends, strict=True) if k < end) for k in range(layers)]
    return plan_for(problem, _dealt(problem, units, [*at, at[-1]], at[0]))


def vllm_plan(problem: Problem) -> Plan | None:
    """Split as vLLM does without ``VLLM_PP_LAYER_PARTITION``: as many layers on each accelerator, all of them used.

    Layers that are left over go to the stages before the last one, from its end (``get_pp_indices``).
    """
    stages = [i for i, d in enumerate(problem.cluster.devices) if d.kind != "cpu"]
    units = units_of(problem.graph)
    layers = sum(unit.stack == main_stack(units) for unit in units)
    if not stages or layers < len(stages):
        return None
    counts = [layers // len(stages)] * len(stages)
    for k in range(layers % len(stages)):
        counts[-2 - k] += 1
    at = [i for i, count in zip(stages, counts, strict=True) for _ in range(count)]
    return plan_for(problem, _dealt(problem, units, [*at, at[-1]], at[0]))


def _dealt(problem: Problem, units: Sequence[Unit], at: Sequence[int | None], first: int) -> Ints:
    """Place operators, given the devices of the layers and the head; what stands before the layers is on ``first``."""
    stack = main_stack(units)
    device = np.zeros(len(problem.graph), dtype=np.int32)
    seen = 0
    for unit, behind in _with_place(units, stack):
        here = at[seen] if unit.stack == stack else at[-1] if behind else first
        device[list(unit.operators)] = here
        seen += unit.stack == stack
    for members in problem.graph.colocation:  # a tied head is where its embedding is, or the other way round
        device[list(members)] = device[members[-1]]
    return device


def _with_place(units: Sequence[Unit], stack: str) -> Iterator[tuple[Unit, bool]]:
    behind = False
    for unit in units:
        yield unit, behind
        behind |= unit.stack == stack
