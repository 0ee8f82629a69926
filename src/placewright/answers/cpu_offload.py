"""Whether it is worth it to leave operators to a CPU, or to fetch their weights from RAM, and at which bandwidths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.evaluate import Evaluation
from placewright.objective import Makespan
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted, listed, percent
from placewright.units import format_bytes, format_seconds

__all__ = ["cpu_offload", "fetching_pays_from"]


def cpu_offload(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say whether the network needs its CPUs, what they cost, and what would pay from which bandwidth on."""
    kinds = [d.kind for d in problem.cluster.devices]
    cpus = [i for i, kind in enumerate(kinds) if kind == "cpu"]
    others = [i for i, kind in enumerate(kinds) if kind != "cpu"]
    if not cpus or not others:
        return []
    room = sum(problem.cluster.devices[i].capacity_bytes for i in others)
    held = int(problem.resident_bytes.sum())
    busy = [i for i in cpus if evaluation.devices[i].operators]
    if not busy:
        return [
            f"The plan does without: {listed([repr(problem.cluster.devices[i].name) for i in plan.devices_used])} "
            f"{'holds' if len(plan.devices_used) == 1 else 'hold'} all {format_bytes(held)}.",
            *_as_fast_from(problem, plan, cpus[0]),
        ]
    need = "more than" if held > room else "no more than"
    where = "accelerators have" if len(others) > 1 else "accelerator has"
    limit = f"the {format_bytes(room)} that the {where}" if room < float("inf") else "what accelerators have room for"
    said = [
        f"The network holds {format_bytes(held)}, {need} {limit}: "
        f"{'some of it has to be in RAM' if held > room else 'the CPU is used because that is faster, or fits better'}."
    ]
    for i in busy:
        said += _fetched(problem, plan, evaluation, i, others)
    return said


def fetching_pays_from(weight_bytes: float, there_s: float, here_s: float) -> float:
    """Bandwidth in bytes/s from which fetching weights to a faster device beats computing where they are.

    weights / bandwidth + here < there, so from weights / (there - here) on; ``inf`` where the other is no faster.

    Examples
    --------
    12 GB that take 0.5 s on the CPU and 0.1 s on a GPU: 12 / 0.4 = 30 GB/s.

    >>> round(fetching_pays_from(12e9, 0.5, 0.1) / 1e9, 6)
    30.0
    """
    return weight_bytes / (there_s - here_s) if there_s > here_s else float("inf")


def _fetched(problem: Problem, plan: Plan, evaluation: Evaluation, cpu: int, others: list[int]) -> list[str]:
    """Compare computing on a CPU with fetching what it reads for each sample, as offloading to RAM does.

    A KV cache for which the other device has no room has to be fetched like the weights.
    """
    rows = np.flatnonzero(plan.device_of == cpu)
    p, name = problem.times.processing_s, problem.cluster.devices[cpu].name
    there = float(p[rows, cpu].sum())
    share = f" ({percent(there / plan.value_s)} of the value)" if plan.value_s > 0 else ""
    said = [f"{name!r} computes {counted(len(rows), 'operator')} in {format_seconds(there)}{share}."]
    able = [i for i in others if np.isfinite(p[rows, i]).all()]
    several_steps = isinstance(problem.objective, Makespan) and problem.objective.per in ("answer", "picture")
    if not able or several_steps:
        return said
    best = min(able, key=lambda i: float(p[rows, i].sum()))
    use = evaluation.devices[best]
    cache = sum(problem.graph.operators[int(v)].kv_cache_bytes for v in rows)
    stays = use.limit_bytes is None or use.memory_bytes + cache <= use.limit_bytes
    weights = _read_bytes(problem, rows, with_cache=not stays)
    if not weights:
        return said
    here, target = float(p[rows, best].sum()), problem.cluster.devices[best].name
    pays = fetching_pays_from(weights, there, here)
    what = "weights" if stays or not cache else "weights and KV cache"
    begin = f"To compute them on {target!r} in {format_seconds(here)}, their {format_bytes(weights)} of {what}"
    if pays == float("inf"):
        return [*said, f"{begin} need not be fetched at any bandwidth: that is no faster."]
    if not np.isfinite(problem.cluster.latency_s[cpu, best]):
        return [*said, f"{begin} would have to be fetched each time, and no link joins the two."]
    per_byte = float(problem.cluster.seconds_per_byte[cpu, best])
    given = 1 / per_byte if per_byte > 0 else float("inf")
    better = "fetching would beat computing there" if given > pays else "computing there is better"
    return [
        *said,
        f"{begin} would have to be fetched each time, which pays from {_bandwidth(pays)} on; the link has "
        f"{_bandwidth(given)}, so {better}.",
    ]


def _read_bytes(problem: Problem, rows: npt.NDArray[np.intp], *, with_cache: bool) -> int:
    """Bytes that are read in a sample: of a table of embeddings a row, of experts and caches those that are active."""
    total = 0
    for v in (problem.graph.operators[int(k)] for k in rows):
        held = v.weight_bytes + (v.kv_cache_bytes if with_cache else 0)
        total += min(held, v.traffic_bytes) if v.traffic_bytes else held
    return total


def _as_fast_from(problem: Problem, plan: Plan, cpu: int) -> list[str]:
    """Say from which bandwidth of its memory on a CPU could be as fast as what the plan uses.

    An operator takes at least its traffic / bandwidth, so all together take no less than the sum of their traffic /
    bandwidth: below traffic / (time that the plan needs for it) a CPU is slower, however quickly it computes.
    """
    device, p = problem.cluster.devices[cpu], problem.times.processing_s
    now = p[np.arange(len(problem.graph)), plan.device_of]
    traffic = np.array([v.traffic_bytes for v in problem.graph.operators], dtype=np.float64)
    rows = np.flatnonzero((traffic > 0) & np.isfinite(p[:, cpu]))
    took = float(now[rows].sum())
    if not len(rows) or took <= 0:
        return []
    there = float(p[rows, cpu].sum())
    slower = int((p[rows, cpu] > now[rows]).sum())
    has = device.memory_bandwidth_bytes_per_s
    known = f"; it has {_bandwidth(has)}" if has else ""
    return [
        f"{device.name!r} is slower at {slower:,} of {counted(len(rows), 'operator')}, taking {there / took:.3g} times "
        f"as long for all of them. To be as fast it would need {_bandwidth(float(traffic[rows].sum()) / took)} of "
        f"memory bandwidth at least{known}."
    ]


def _bandwidth(bytes_per_s: float) -> str:
    return "any bandwidth" if bytes_per_s == float("inf") else f"{bytes_per_s / 1e9:.3g} GB/s"
