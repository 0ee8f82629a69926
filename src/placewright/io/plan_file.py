"""Plan files: versioned JSON with the placement by name, the schedule, and, unless left out, the whole problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.evaluate.evaluation import Evaluation
from placewright.evaluate.offload import numbered_calls
from placewright.io.plan_difference import first_difference
from placewright.io.plan_document import (
    OperatorTimes,
    PlanDocument,
    ProvenanceDocument,
    ScheduleDocument,
    TransferDocument,
)
from placewright.io.problem_file import problem_hash
from placewright.io.problem_reading import to_problem
from placewright.io.problem_writing import to_document
from placewright.io.reading import closest, decode_json, encode_lines, read_bounded, write_atomic
from placewright.io.result_json import result_document
from placewright.objective import Offload, Throughput
from placewright.plan import Copy, Plan, Provenance, Schedule, Transfer, as_placement
from placewright.problem import Problem
from placewright.result import Result

__all__ = ["PLAN_SCHEMA", "PlanFile", "names_placed", "read_plan", "write_plan"]

PLAN_SCHEMA = "placewright/plan/1"
MOST_NAMED = 20
LONGEST_S = 1e130
"""Of a time in a plan: above all sums of a problem's, and a trace can count it in microseconds."""
"""Violations of one kind that are named one by one."""


@dataclass(frozen=True, eq=False)
class PlanFile:
    """A plan file, matched with its problem.

    Attributes
    ----------
    plan : Plan
        Indices count the operators, tensors and devices of ``problem``.
    problem : Problem
        The one given to :func:`read_plan`, else the one in the file.
    document : PlanDocument
        All else that the file holds: status, bound, gap, use of devices, as they were when it was written.
    """

    plan: Plan
    problem: Problem
    document: PlanDocument

    @property
    def problem_hash(self) -> str:
        """Hash of the plan's problem, see :func:`placewright.io.problem_hash`."""
        return self.document.problem.hash

    @property
    def result(self) -> Result:
        """What the solver returned, as far as the file holds it."""
        written = self.document
        return Result(
            self.plan,
            _infinite(written.lower_bound_s),
            written.infeasible,
            written.runtime_s,
            written.solver,
            {name: _infinite(seconds) for name, seconds in written.bounds.items()},
            {name: _infinite(seconds) for name, seconds in written.alternatives.items()},
            written.interrupted,
            _infinite(written.rejected_s),
            written.rejected,
        )


def _infinite(seconds: float | None) -> float:
    return float("inf") if seconds is None else seconds


def write_plan(
    path: Path | str,
    problem: Problem,
    result: Result,
    evaluation: Evaluation | None,
    *,
    seed: int | None = None,
    explanation: tuple[str, ...] | list[str] = (),
    embed_problem: bool = True,
) -> None:
    """Write a result's plan.

    Parameters
    ----------
    path : path
    problem : Problem
    result : Result
        With a plan.
    evaluation : Evaluation or None
        Of that plan.
    seed : int or None
        By default the one in the plan's provenance.
    explanation : sequence of str
        Sentences for a reader.
    embed_problem : bool
        Whether the file carries the problem, so that it can be shown, verified and run on its own.

    Raises
    ------
    NoPlan
        If the result has no plan.
    InvalidInput
        If the path can't be written to.
    """
    plan = result.require_plan()
    seed = plan.provenance.seed if seed is None else seed
    shared = result_document(problem, result, evaluation, seed, explanation)
    fields = {f: getattr(shared, f) for f in shared.__struct_fields__ if f != "schema"}
    origin = plan.provenance
    document = PlanDocument(
        schema="placewright/plan/1",
        **fields,
        schedule=_schedule_document(problem, plan),
        provenance=ProvenanceDocument(origin.solver, origin.seed, origin.version, _plain(origin.parameters)),
        problem_content=to_document(problem) if embed_problem else None,
    )
    write_atomic(path, encode_lines(document))


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON values; what has no such form is written as text."""

    def scalar(value: Any) -> Any:
        return value if isinstance(value, str | int | float | bool) else str(value)

    return {
        str(key): value
        if value is None
        else [*map(scalar, value)]
        if isinstance(value, tuple | list)
        else scalar(value)
        for key, value in parameters.items()
    }


def _schedule_document(problem: Problem, plan: Plan) -> ScheduleDocument:
    devices = [d.name for d in problem.cluster.devices]
    tensors = problem.graph.tensors
    return ScheduleDocument(
        OperatorTimes(
            [v.name for v in problem.graph.operators],
            [devices[i] for i in plan.device_of.tolist()],
            plan.schedule.start_s.tolist(),
            plan.schedule.finish_s.tolist(),
            None if plan.call_of is None else plan.call_of.tolist(),
        ),
        [
            TransferDocument(
                tensors[k.tensor].name, devices[k.source], devices[k.target], float(k.start_s), float(k.finish_s)
            )
            for k in plan.schedule.transfers
        ],
    )


def read_plan(path: Path | str, problem: Problem | None = None) -> PlanFile:
    """Read a plan file and match it with its problem.

    Nothing is evaluated: whether the plan is legal and worth what it states is for ``evaluate`` and ``verify`` to say.

    Parameters
    ----------
    path : path
    problem : Problem, optional
        By default the one that the file carries.

    Raises
    ------
    InvalidInput
        With every violation: no problem in the file and none given, a plan for another problem, unknown, missing or
        contradicting names.
    """
    what = f"plan file {str(path)!r}"
    document = decode_json(read_bounded(path, "plan file"), PlanDocument, what, schema=PLAN_SCHEMA)
    stated = document.problem.hash
    carried = None if document.problem_content is None else to_problem(document.problem_content, f"{what}: its problem")
    if carried is not None and problem_hash(carried) != stated:
        raise InvalidInput(
            f"states the problem {stated}, but carries {problem_hash(carried)}; it was changed, so make the plan again",
            what=what,
        )
    problem = problem or carried
    if problem is None:
        raise InvalidInput("does not carry its problem; give the problem file too", what=what)
    if problem_hash(problem) != stated:
        difference = first_difference(document, carried, problem)
        raise InvalidInput(
            f"is for the problem {stated}, not for {problem_hash(problem)}: {difference}; give the problem that it was "
            "made for, or plan again",
            what=what,
        )
    return PlanFile(_plan(document, problem, what), problem, document)


def names_placed(content: bytes, what: str) -> dict[str, str]:
    """Read of a plan file which device each operator is on, by name, whatever problem it is for.

    Raises
    ------
    InvalidInput
        If it is no plan file, or has not as many devices as operators.
    """
    times = decode_json(content, PlanDocument, what, schema=PLAN_SCHEMA).schedule.operators
    if len(times.name) != len(times.device):
        raise InvalidInput(f"has {len(times.name)} operators, but {len(times.device)} devices", what=what)
    return dict(zip(times.name, times.device, strict=True))


def _plan(document: PlanDocument, problem: Problem, what: str) -> Plan:
    schedule, times = document.schedule, document.schedule.operators
    for wrong in (_wrong_arrays, _wrong_names, _wrong_copies, _wrong_placement):
        violations = list(islice(wrong(document, problem), MOST_NAMED + 1))
        if violations:
            more = ["and there are more like these"] if len(violations) > MOST_NAMED else []
            raise InvalidInput([*violations[:MOST_NAMED], *more], what=what)
    devices = problem.cluster.index
    tensors = {u.name: k for k, u in enumerate(problem.graph.tensors)}
    legs = (
        Transfer(tensors[k.tensor], devices[k.source], devices[k.target], k.start_s, k.finish_s)
        for k in schedule.transfers
    )
    origin = document.provenance
    device_of = as_placement(devices[name] for name in times.device)
    offload = isinstance(problem.objective, Offload)
    return Plan(
        device_of,
        Schedule(np.array(times.start_s), np.array(times.finish_s), tuple(legs)),
        _infinite(document.value_s),
        Provenance(origin.solver, origin.seed, origin.version, dict(origin.parameters)),
        tuple(tuple(devices[name] for name in stage) for stage in document.replicas),
        numbered_calls(problem, device_of, times.call) if offload else None,
        _copies(document, problem, device_of),
    )


def _copies(document: PlanDocument, problem: Problem, device_of: npt.NDArray[np.int32]) -> tuple[Copy, ...]:
    if not isinstance(problem.objective, Throughput):
        return ()
    devices, names = problem.cluster.index, [v.name for v in problem.graph.operators]
    read = (Copy(as_placement(devices[k.placement[v]] for v in names), k.share) for k in document.copies)
    return tuple(read) or (Copy(device_of, 1.0),)


def _wrong_arrays(document: PlanDocument, problem: Problem) -> Iterator[str]:
    if document.value_s is None:
        yield "value_s is null; a plan has a value in seconds"
    if document.lower_bound_s is None:
        yield "lower_bound_s is null; what a plan is no less than is finite, and 0 where nothing is proved"
    times, legs = document.schedule.operators, document.schedule.transfers
    moves = (t for k in legs for t in (k.start_s, k.finish_s))
    stated = (document.value_s or 0.0, document.lower_bound_s or 0.0, *times.start_s, *times.finish_s, *moves)
    if (longest := max(map(abs, stated))) > LONGEST_S:
        yield f"has the time {longest:g} s; times are at most {LONGEST_S:g} s"
    names = [v.name for v in problem.graph.operators]
    for key in OperatorTimes.__struct_fields__:
        given = getattr(times, key)
        if given is not None and len(given) != len(names):
            yield f"schedule.operators.{key} has {len(given)} values; give one for each of the {len(names)} operators"
    if times.call is not None and not isinstance(problem.objective, Offload):
        yield f"schedule.operators.call is for the objective offload, and this is {document.objective}; leave it out"
    for k, call in enumerate(times.call or ()):
        if not 0 <= call < 2**31:
            yield f"schedule.operators.call[{k}] is {call}; calls are counted from 0"
    for k, (ours, theirs) in enumerate(zip(names, times.name, strict=False)):
        if ours != theirs:
            yield f"schedule.operators.name[{k}] is {theirs!r}, but {ours!r} in the problem; keep the problem's order"
            return


def _wrong_names(document: PlanDocument, problem: Problem) -> Iterator[str]:
    schedule, devices = document.schedule, problem.cluster.index
    tensors = {u.name for u in problem.graph.tensors}
    used = [*schedule.operators.device, *(end for k in schedule.transfers for end in (k.source, k.target))]
    for name in dict.fromkeys(used):
        if name not in devices:
            yield f"schedule: there is no device {name!r}{closest(name, devices)}"
    for name in dict.fromkeys(name for stage in document.replicas for name in stage):
        if name not in devices:
            yield f"replicas: there is no device {name!r}{closest(name, devices)}"
    for k, stage in enumerate(document.replicas):
        if not stage:
            yield f"replicas[{k}] is empty; list the devices of the stage, or leave it out"
    for name in dict.fromkeys(k.tensor for k in schedule.transfers):
        if name not in tensors:
            yield f"schedule: there is no tensor {name!r}{closest(name, tensors)}"


def _wrong_copies(document: PlanDocument, problem: Problem) -> Iterator[str]:
    """Tell of copies without the objective for them, or with other operators or devices than the problem's."""
    if document.copies and not isinstance(problem.objective, Throughput):
        yield f"copies are for the objective throughput, and this is {document.objective}; leave them out"
        return
    devices, operators = problem.cluster.index, {v.name: None for v in problem.graph.operators}
    for k, copy in enumerate(document.copies):
        for v in sorted(operators.keys() ^ copy.placement.keys()):
            what = "is missing; give its device" if v in operators else f"is unknown{closest(v, operators)}"
            yield f"copies[{k}].placement: operator {v!r} {what}"
        for name in dict.fromkeys(copy.placement.values()):
            if name not in devices:
                yield f"copies[{k}].placement: there is no device {name!r}{closest(name, devices)}"
    times = document.schedule.operators
    for v, device in zip(times.name, times.device, strict=True) if document.copies else ():
        first = document.copies[0].placement.get(v, device)
        if first != device:
            yield (
                f"copies[0].placement: {v!r} on {first!r}, but the schedule, which is the first copy's, runs it on "
                f"{device!r}; make them agree"
            )


def _wrong_placement(document: PlanDocument, problem: Problem) -> Iterator[str]:
    """Where the placement names the operators of the source otherwise than the schedule places those of the problem."""
    given = {k: [v] if isinstance(v, str) else v for k, v in (document.placement or {}).items()}
    known: dict[str, None] = {}
    for operator, device in zip(problem.graph.operators, document.schedule.operators.device, strict=True):
        parts = operator.source_names
        known.update(dict.fromkeys(parts))
        missing = [part for part in parts if part not in given]
        if missing:
            yield f"placement: operator {missing[0]!r} is missing; give its device"
            continue
        apart = [part for part in parts if device not in given[part]]
        if apart:
            shown = "; ".join(f"{part!r} on {', '.join(given[part])}" for part in parts[:4])
            yield (
                f"placement: {shown}, but the schedule runs {operator.name!r} on {device!r}"
                + (", and its parts share a device" if len(parts) > 1 else "")
                + "; make them agree"
            )
    for name in given:
        if name not in known:
            yield f"placement: there is no operator {name!r}{closest(name, list(known)[:5000])}"
