"""A plan's schedule, and the runs that were measured, in the Chrome trace event format that ui.perfetto.dev opens.

Format: "Trace Event Format" (Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete
events ``X``, metadata ``M``, flow events ``s``/``t``/``f``; times in microseconds.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from placewright.evaluate import Evaluation, calls_of, judge
from placewright.measurement import Measurement, Span
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Plan, Transfer
from placewright.problem import Problem
from placewright.report.calls import drawn_times, parts_of
from placewright.report.lanes import lanes_of
from placewright.report.listing import counted
from placewright.report.loads import copies

__all__ = ["trace", "trace_json"]

COMPUTE = 0
"""Thread of a device's operators; transfers and waits get threads after it."""

ALONE = "one sample alone"
"""What the schedule of a plan for the max-load shows: its value is the load, not the end of this schedule."""

Event = dict[str, Any]


def trace(problem: Problem, plan: Plan, measurements: Sequence[Measurement] = ()) -> dict[str, Any]:
    """Trace with a process for each device, once predicted and once for each measured run.

    A device's first thread holds its operators; the threads below it the tensors that it sends, one thread for each
    receiver (several where transfers overlap). Arrows lead from the operator that makes a tensor over its transfer to
    its first reader. Of a plan for the max-load it is one sample alone in the empty pipeline, which passes one copy of
    each stage. Of an offload plan an accelerator's thread holds its calls, and in each of them the transfers in, the
    operators and the transfers out; CPUs have as many threads as operators run there at once.

    Parameters
    ----------
    problem : Problem
    plan : Plan
    measurements : sequence of Measurement
        Those without spans are left out.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Schedule
    >>> problem = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu")]), [[0.5]])
    >>> events = trace(problem, Plan([0], Schedule([0.0], [0.5]), 0.5))["traceEvents"]
    >>> [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    [('a', 0.0, 500000.0)]
    """
    events = list(_predicted(problem, plan) if plan.call_of is None else _offloaded(problem, plan))
    D = len(problem.cluster)
    number = {d.name: i for i, d in enumerate(problem.cluster.devices)}
    flow = max((e["id"] for e in events if "id" in e), default=0)
    for k, m in enumerate((m for m in measurements if m.spans), start=1):
        events += _measured(problem, m, first_process=1 + k * D, number=number, flow=flow)
        flow += len(m.spans)
    about = {
        "network": problem.name,
        "objective": problem.objective.name,
        "value_s": plan.value_s if math.isfinite(plan.value_s) else None,
        "solver": plan.provenance.solver,
        "seed": plan.provenance.seed,
        "version": plan.provenance.version,
    }
    if isinstance(problem.objective, MaxLoad | Throughput):
        about["shows"] = ALONE
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def trace_json(problem: Problem, plan: Plan, measurements: Sequence[Measurement] = ()) -> bytes:
    """:func:`trace` as UTF-8 JSON: one event a line, the same bytes for the same input."""
    made = trace(problem, plan, measurements)
    lines = ",\n".join(_json(event) for event in made.pop("traceEvents"))
    rest = _json(made)[1:]
    return f'{{"traceEvents":[\n{lines}\n],{rest}\n'.encode()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _predicted(problem: Problem, plan: Plan) -> Iterator[Event]:
    devices, operators = problem.cluster.devices, problem.graph.operators
    start, finish = plan.schedule.start_s.tolist(), plan.schedule.finish_s.tolist()
    at = plan.device_of.tolist()
    steady = isinstance(problem.objective, MaxLoad | Throughput)
    stage_of = {stage[0]: stage for stage in plan.replicas}
    for i in sorted(set(at)) if steady else plan.devices_used:
        name = copies([devices[j].name for j in stage_of.get(i, (i,))])
        yield from _process(1 + i, f"{ALONE if steady else 'predicted'}: {name}", 1 + i)
        yield _thread(1 + i, COMPUTE, "compute")
    for v, operator in enumerate(operators):
        about = {"flops": operator.flops, "weight_bytes": operator.weight_bytes}
        if operator.parts:
            about["parts"] = len(operator.parts)
        yield from _slice(1 + at[v], COMPUTE, operator.name, operator.kind or "operator", start[v], finish[v], about)
    flow = 0
    for pid, tid, x in _placed_transfers(problem, plan):
        if isinstance(x, str):
            yield _thread(pid, tid, x)
            continue
        tensor = problem.graph.tensors[x.tensor]
        yield from _slice(
            pid, tid, tensor.name, "transfer", x.start_s, x.finish_s,
            {"size_bytes": tensor.size_bytes, "from": devices[x.source].name, "to": devices[x.target].name},
        )  # fmt: skip
        readers = [v for v in tensor.readers if at[v] == x.target]
        if not readers:
            continue
        first = min(readers, key=lambda v: (start[v], v))
        flow += 1
        steps = (
            ("s", 1 + x.source, COMPUTE, start[tensor.producer], finish[tensor.producer]),
            ("t", pid, tid, x.start_s, x.finish_s),
            ("f", 1 + x.target, COMPUTE, start[first], finish[first]),
        )
        for phase, process, thread, begin, end in steps:
            # The middle of a slice: at its very end an arrow would be bound to the next one.
            middle = (begin + end) / 2
            if math.isfinite(middle):
                event = {"ph": phase, "id": flow, "name": "tensor", "cat": "tensor", "pid": process, "tid": thread}
                yield {**event, "ts": _us(middle), **({"bp": "e"} if phase == "f" else {})}


def _offloaded(problem: Problem, plan: Plan) -> Iterator[Event]:
    """Events of a plan of calls. Arrows lead from a tensor's producer to the transfers in, or the operator on a CPU."""
    devices, operators, at = problem.cluster.devices, problem.graph.operators, plan.device_of.tolist()
    evaluation = judge(problem, plan)
    start, finish = (x.tolist() for x in drawn_times(problem, plan, evaluation))
    thread = [COMPUTE] * len(at)
    for i in plan.devices_used:
        yield from _process(1 + i, f"predicted: {devices[i].name}", 1 + i)
        members = [v for v, j in enumerate(at) if j == i]
        pool = devices[i].kind == "cpu"
        lanes = lanes_of([(start[v], finish[v]) for v in members]) if pool else [0]
        for lane in range(max(lanes) + 1):
            name = "compute" if pool else "calls"
            yield _thread(1 + i, COMPUTE + lane, f"{name} ({lane + 1})" if max(lanes) else name)
        for v, lane in zip(members, lanes, strict=False) if pool else ():
            thread[v] = COMPUTE + lane
    entry = yield from _call_slices(problem, plan, evaluation)
    for v, operator in enumerate(operators):
        about = {"flops": operator.flops, "weight_bytes": operator.weight_bytes}
        yield from _slice(1 + at[v], thread[v], operator.name, operator.kind or "operator", start[v], finish[v], about)
    flow = 0
    for tensor in problem.graph.tensors:
        u = tensor.producer
        first: dict[tuple[int, int], int] = {}
        for v in tensor.readers:
            first.setdefault(entry.get(v, (-1, v, 0.0))[:2], v)
        first.pop(entry.get(u, (-1, u, 0.0))[:2], None)
        for v in first.values():
            flow += 1
            there = entry[v][2] if v in entry else (start[v] + finish[v]) / 2
            for phase, w, middle in (("s", u, (start[u] + finish[u]) / 2), ("f", v, there)):
                if not math.isfinite(middle):
                    continue
                event = {"ph": phase, "id": flow, "name": "tensor", "cat": "tensor", "pid": 1 + at[w], "tid": thread[w]}
                yield {**event, "ts": _us(middle), **({"bp": "e"} if phase == "f" else {})}


def _call_slices(
    problem: Problem, plan: Plan, evaluation: Evaluation
) -> Generator[Event, None, dict[int, tuple[int, int, float]]]:
    """Yield calls and their transfers; return of each operator in one the device, the call, and when inputs enter."""
    entry: dict[int, tuple[int, int, float]] = {}
    calls = calls_of(problem, plan, evaluation)
    for call in calls:
        enters = call.start_s + (call.load.in_s or call.load.load_s) / 2
        entry.update(dict.fromkeys(call.operators, (call.device, call.number, enters)))
        name = f"call {call.number + 1}: {counted(len(call.operators), 'operator')}"
        about = {"in_s": call.load.in_s, "compute_s": call.load.compute_s, "out_s": call.load.out_s}
        yield from _slice(1 + call.device, COMPUTE, name, "call", call.start_s, call.finish_s, about)
    for part in parts_of(problem, calls):
        name = f"{'out' if part.out else 'in'}: {counted(part.tensors, 'tensor')}"
        bytes_ = {"size_bytes": part.size_bytes}
        yield from _slice(1 + part.call.device, COMPUTE, name, "transfer", part.start_s, part.finish_s, bytes_)
    return entry


def _placed_transfers(problem: Problem, plan: Plan) -> Iterator[tuple[int, int, Transfer | str]]:
    """Process and thread of every transfer, each thread's name before its first."""
    of_link: dict[tuple[int, int], list[Transfer]] = {}
    for x in plan.schedule.transfers:
        of_link.setdefault((x.source, x.target), []).append(x)
    next_thread: dict[int, int] = {}
    for (source, target), transfers in sorted(of_link.items()):
        lanes = lanes_of([(x.start_s, x.finish_s) for x in transfers])
        first = next_thread.get(source, COMPUTE + 1)
        count = max(lanes) + 1
        next_thread[source] = first + count
        for lane in range(count):
            suffix = f" ({lane + 1})" if count > 1 else ""
            yield 1 + source, first + lane, f"send to {problem.cluster.devices[target].name}{suffix}"
        for x, lane in zip(transfers, lanes, strict=True):
            yield 1 + source, first + lane, x


def _measured(
    problem: Problem, measured: Measurement, first_process: int, number: dict[str, int], flow: int
) -> Iterator[Event]:
    """Yield what was measured; arrows lead from a transfer to what its receiver computes next."""
    rows: dict[str, dict[str, list[Span]]] = {}
    for span in measured.spans:
        rows.setdefault(span.device, {}).setdefault(span.kind, []).append(span)
    known = [d for d in number if d in rows]
    # A device that is not in the cluster (a relay, say) comes after those that are.
    listed = [*known, *(d for d in rows if d not in number)]
    process = {
        device: first_process + (number[device] if device in number else len(number) * 1000 + extra)
        for extra, device in enumerate(listed)
    }
    computed = {d: sorted(rows[d].get("compute", []), key=lambda s: s.start_s) for d in rows}
    starts = {d: [s.start_s for s in row] for d, row in computed.items()}
    for device in listed:
        pid = process[device]
        yield from _process(pid, f"measured {measured.name}: {device}", pid)
        tid = COMPUTE
        for kind in ("compute", "handover", "transfer", "wait"):
            spans = rows[device].get(kind, [])
            lanes = lanes_of([(s.start_s, s.finish_s) for s in spans])
            for lane in range(max(lanes, default=-1) + 1):
                yield _thread(pid, tid + lane, kind + (f" ({lane + 1})" if max(lanes) else ""))
            for s, lane in zip(spans, lanes, strict=True):
                about = {"to" if kind == "transfer" else "with": s.peer} if s.peer else {}
                yield from _slice(
                    pid,
                    tid + lane,
                    s.name,
                    kind,
                    s.start_s,
                    s.finish_s,
                    about | ({"found there": True} if s.found else {}),
                )
                k = bisect_left(starts.get(s.peer, []), s.finish_s) if kind == "transfer" else -1
                if 0 <= k < len(starts.get(s.peer, [])):
                    flow += 1
                    yield _end("s", flow, pid, tid + lane, s)
                    yield _end("f", flow, process[s.peer], COMPUTE, computed[s.peer][k])
            tid += max(lanes, default=-1) + 1


def _end(phase: str, flow: int, pid: int, tid: int, at: Span) -> Event:
    """One end of an arrow, in the middle of a slice."""
    event = {"ph": phase, "id": flow, "name": "tensor", "cat": "tensor", "pid": pid, "tid": tid}
    return {**event, "ts": _us((at.start_s + at.finish_s) / 2), **({"bp": "e"} if phase == "f" else {})}


def _process(pid: int, name: str, rank: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": rank}}


def _thread(pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(
    pid: int, tid: int, name: str, category: str, start_s: float, finish_s: float, about: dict[str, Any]
) -> Iterator[Event]:
    """Yield nothing for a slice that never ends: JSON has no infinity."""
    if math.isfinite(start_s) and math.isfinite(finish_s):
        ends = {"ts": _us(start_s), "dur": _us(finish_s - start_s)}
        yield {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, **ends, "args": about}
