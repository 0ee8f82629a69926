"""Where a prediction was off and why: each second of a measured run's critical path against the plan's schedule.

The measured critical path is walked from its end. What a device did last before an instant is on the path; from a wait
that ended when a tensor arrived the path goes on over that transfer to the device that sent it. So its pieces fill the
time from the start to the end without a gap or an overlap, and their seconds sum to the measured time M.

The same operators and transfers have their places in the plan's schedule. From the end of one to the start of the next
the schedule has a gap (below 0 where the plan has them in the other order), also before the first and after the last.
Pieces and gaps sum to the predicted time P, whatever the path. So the differences, piece by piece and of measured
waiting from the plan's gaps, sum to M - P exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from placewright.measurement import Measurement, Span
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["KINDS", "DeviceSeconds", "Piece", "PredictionErrors", "prediction_errors"]

Kind = Literal["compute", "handover", "transfer", "wait"]
KINDS: tuple[Kind, ...] = ("compute", "handover", "transfer", "wait")


@dataclass(frozen=True, slots=True)
class Piece:
    """Seconds that something took, and that it was predicted to take.

    Attributes
    ----------
    kind : str
    device : str
        Of a transfer the one that sent.
    name : str
        Operator or tensor; empty for waiting that the plan has.
    measured_s, predicted_s : float
    to : str
        Who received a transfer.
    """

    kind: Kind
    device: str
    name: str
    measured_s: float
    predicted_s: float
    to: str = ""

    @property
    def error_s(self) -> float:
        """Measured - predicted."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True, slots=True)
class DeviceSeconds:
    """What a device did over the whole run; measured and predicted seconds of each kind.

    Transfers are those that it sent and whose arrival was seen; it waits when it does nothing else than sending.
    """

    device: str
    measured_s: Mapping[Kind, float]
    predicted_s: Mapping[Kind, float]


@dataclass(frozen=True)
class PredictionErrors:
    """A measured run against its plan.

    Attributes
    ----------
    measured_s, predicted_s : float
        Of the run that was traced, and of the plan's schedule of one sample.
    path : tuple of Piece
        The measured critical path in the order of time; measured and predicted seconds sum to the two above.
    devices : tuple of DeviceSeconds
    worst : tuple of Piece
        All operators (calls of several as one) and transfers, on the path or not, the largest error first.
    clock_error_s : float
        How far the clocks of hosts may be apart.
    """

    measured_s: float
    predicted_s: float
    path: tuple[Piece, ...]
    devices: tuple[DeviceSeconds, ...]
    worst: tuple[Piece, ...]
    clock_error_s: float = 0.0

    @property
    def error_s(self) -> float:
        """Measured - predicted."""
        return self.measured_s - self.predicted_s

    @cached_property
    def on_path(self) -> dict[tuple[str, Kind], Piece]:
        """The path's seconds by device and kind."""
        sums: dict[tuple[str, Kind], Piece] = {}
        for piece in self.path:
            key = piece.device, piece.kind
            old = sums.get(key, Piece(piece.kind, piece.device, "", 0.0, 0.0))
            sums[key] = Piece(
                old.kind, old.device, "", old.measured_s + piece.measured_s, old.predicted_s + piece.predicted_s
            )
        return sums

    @cached_property
    def by_kind(self) -> dict[Kind, Piece]:
        """The path's seconds by kind."""
        sums = {}
        for kind in KINDS:
            mine = [p for p in self.path if p.kind == kind]
            sums[kind] = Piece(kind, "", "", sum(p.measured_s for p in mine), sum(p.predicted_s for p in mine))
        return sums


def prediction_errors(problem: Problem, plan: Plan, measured: Measurement) -> PredictionErrors | None:
    """Tell where a prediction was off; ``None`` without spans, and for plans whose schedule is not of one sample.

    Examples
    --------
    >>> from placewright import Cluster, Device, Operator, OperatorGraph, Schedule
    >>> problem = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu")]), [[2.0]])
    >>> ran = Measurement("plan", (3.5,), 2.0, (Span("gpu", "a", "compute", 0.5, 3.5, operators=("a",)),))
    >>> found = prediction_errors(problem, Plan([0], Schedule([0.0], [2.0]), 2.0), ran)
    >>> [(p.kind, p.measured_s, p.predicted_s) for p in found.path]  # half a second before the operator began
    [('wait', 0.5, 0.0), ('compute', 3.0, 2.0)]
    """
    done = [s for s in measured.spans if s.kind in ("compute", "handover", "wait")]
    if not any(s.kind == "compute" for s in done) or plan.call_of is not None or plan.copies:
        return None
    predicted = _Predicted(problem, plan)
    arrivals = {(s.name, s.peer): s for s in measured.spans if s.kind == "transfer"}
    path = tuple(_against(_walked(done, arrivals), predicted, plan.schedule.makespan_s))
    end = max(s.finish_s for s in done)
    computed = list(_all_computed(measured.spans, predicted))
    sent = [_sent(s, predicted) for s in measured.spans if s.kind == "transfer" and not s.found]
    worst = sorted((*computed, *sent), key=lambda p: (-abs(p.error_s), p.device, p.name))
    devices = tuple(_devices(problem, plan, done, sent, end))
    return PredictionErrors(end, plan.schedule.makespan_s, path, devices, tuple(worst), measured.clock_error_s)


class _Predicted:
    """The plan's schedule by names."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.start, self.finish = plan.schedule.start_s.tolist(), plan.schedule.finish_s.tolist()
        names = [d.name for d in problem.cluster.devices]
        at = [int(i) for i in plan.device_of]
        self.computing = [float(problem.times.processing_s[v, i]) for v, i in enumerate(at)]
        self._operator: dict[tuple[str, str], int] = {}
        for v, operator in enumerate(problem.graph.operators):
            for part in (operator.name, *operator.part_names):
                self._operator.setdefault((part, names[at[v]]), v)
        tensors = problem.graph.tensors
        self._transfer = {(tensors[x.tensor].name, names[x.target]): x for x in plan.schedule.transfers}

    def operators(self, span: Span) -> list[int]:
        """Operators of the problem that a span computes some part of."""
        found = (self._operator.get((name, span.device)) for name in span.operators or (span.name,))
        return list(dict.fromkeys(v for v in found if v is not None))

    def transfer(self, tensor: str, to: str) -> tuple[float, float] | None:
        """When the plan has a tensor sent to a device, and there."""
        x = self._transfer.get((tensor, to))
        return None if x is None else (x.start_s, x.finish_s)


def _walked(done: Sequence[Span], arrivals: Mapping[tuple[str, str], Span]) -> list[tuple[Span, float]]:
    """Walk the critical path; give its spans in the order of time, each with the seconds of it that are on the path."""
    of_device: dict[str, list[Span]] = {}
    for span in sorted((s for s in done if s.finish_s > s.start_s), key=lambda s: (s.start_s, s.finish_s)):
        of_device.setdefault(span.device, []).append(span)
    starts = {device: [s.start_s for s in row] for device, row in of_device.items()}
    last = max(done, key=lambda s: (s.finish_s, s.device))
    device, now = last.device, last.finish_s
    walked: list[tuple[Span, float]] = []
    for _ in range(4 * (len(done) + len(arrivals)) + 4):  # transfers that take no time could else lead round for ever
        if now <= 0:
            break
        k = bisect_left(starts.get(device, []), now) - 1
        span = of_device[device][k] if k >= 0 else Span(device, "", "wait", 0.0, 0.0)
        if span.finish_s < now:
            walked.append((Span(device, "", "wait", span.finish_s, now), now - span.finish_s))
            now = span.finish_s
            continue
        arrival = arrivals.get((span.name, device)) if span.kind == "wait" else None
        if arrival is None or arrival.found or arrival.finish_s < span.start_s:
            walked.append((span, now - span.start_s))
            now = span.start_s
            continue
        until = min(arrival.finish_s, now)
        walked.append((span, now - until))
        walked.append((arrival, until - arrival.start_s))
        device, now = arrival.device, arrival.start_s
    if now > 0:
        walked.append((Span(device, "", "wait", 0.0, now), now))
    return [(span, seconds) for span, seconds in reversed(walked) if seconds != 0 or span.kind == "transfer"]


def _against(walked: Sequence[tuple[Span, float]], predicted: _Predicted, makespan_s: float) -> Iterator[Piece]:
    """Put the plan beside a path: what it has for each piece, and its gaps between them."""
    at, counted = 0.0, set[int]()
    device = walked[-1][0].device if walked else ""
    for span, seconds in walked:
        if span.kind == "transfer":
            planned = predicted.transfer(span.name, span.peer)
            start, finish = planned if planned is not None else (at, at)
            if start != at:
                yield Piece("wait", span.device, "", 0.0, start - at)
            yield Piece("transfer", span.device, span.name, seconds, finish - start, span.peer)
            at = finish
            continue
        fresh = [v for v in predicted.operators(span) if v not in counted] if span.kind == "compute" else []
        if not fresh:  # of an operator in several pieces the first one has what was predicted
            yield Piece(span.kind, span.device, span.name, seconds, 0.0)
            continue
        counted.update(fresh)
        finish = max(predicted.finish[v] for v in fresh)
        computing = sum(predicted.computing[v] for v in fresh)
        cut = sum(predicted.finish[v] - predicted.start[v] for v in fresh) - computing
        idle = finish - at - computing - cut
        if idle:
            yield Piece("wait", span.device, "", 0.0, idle)
        yield Piece("compute", span.device, span.name, seconds, computing)
        if cut:
            yield Piece("handover", span.device, span.name, 0.0, cut)
        at = finish
    if at != makespan_s:
        yield Piece("wait", device, "", 0.0, makespan_s - at)


def _all_computed(spans: Sequence[Span], predicted: _Predicted) -> Iterator[Piece]:
    """Yield each operator, or call of several, with all that was computed of it."""
    rows: dict[tuple[str, tuple[int, ...]], tuple[str, float]] = {}
    for s in spans:
        if s.kind == "compute":
            key = s.device, tuple(predicted.operators(s))
            name, seconds = rows.get(key, (s.name, 0.0))
            rows[key] = name, seconds + s.finish_s - s.start_s
    for (device, operators), (name, seconds) in rows.items():
        yield Piece("compute", device, name, seconds, sum(predicted.computing[v] for v in operators))


def _sent(span: Span, predicted: _Predicted) -> Piece:
    start, finish = predicted.transfer(span.name, span.peer) or (0.0, 0.0)
    return Piece("transfer", span.device, span.name, span.finish_s - span.start_s, finish - start, span.peer)


def _devices(
    problem: Problem, plan: Plan, done: Sequence[Span], sent: Sequence[Piece], end_s: float
) -> Iterator[DeviceSeconds]:
    busy = plan.schedule.finish_s - plan.schedule.start_s
    for i in plan.devices_used:
        name, mine = problem.cluster.devices[i].name, plan.device_of == i
        computing = float(problem.times.processing_s[mine, i].sum())
        measured: dict[Kind, float] = {
            "compute": sum(s.finish_s - s.start_s for s in done if s.device == name and s.kind == "compute"),
            "handover": sum(s.finish_s - s.start_s for s in done if s.device == name and s.kind == "handover"),
            "transfer": sum(p.measured_s for p in sent if p.device == name),
        }
        predicted: dict[Kind, float] = {
            "compute": computing,
            "handover": max(0.0, float(busy[mine].sum()) - computing),
            "transfer": sum(p.predicted_s for p in sent if p.device == name),
        }
        for sums, whole in ((measured, end_s), (predicted, plan.schedule.makespan_s)):
            sums["wait"] = max(0.0, whole - sums["compute"] - sums["handover"])
        yield DeviceSeconds(name, measured, predicted)
