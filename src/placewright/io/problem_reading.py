"""From the document that a problem file holds to the problem, with every violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import GrowingCache, Operator, OperatorGraph, Source, Tensor
from placewright.io.problem_document import (
    ClusterDocument,
    GraphDocument,
    MakespanDocument,
    ObjectiveDocument,
    OffloadDocument,
    OperatorDocument,
    ProblemDocument,
    ThroughputDocument,
)
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput
from placewright.problem import Problem, Times, Wish

__all__ = ["to_problem"]

_D = TypeVar("_D")
_M = TypeVar("_M")


def to_problem(document: ProblemDocument, what: str = "problem") -> Problem:
    """Make the problem of a document; ``what`` names it in messages.

    Raises
    ------
    InvalidInput
        With every violation of the part that fails first: cluster, graph, shapes, times and wishes.
    """
    violations: list[str] = []
    cluster = _without_faults(_cluster, document.cluster, violations)
    graph = _without_faults(_graph, document.graph, violations)
    if cluster is not None:
        violations += _wrong_rows(document, [d.name for d in cluster.devices])
    if violations or graph is None or cluster is None:
        raise InvalidInput(violations, what=what)
    n, D, T = len(graph), len(cluster), len(graph.tensors)
    transfer = None
    if document.transfer_s is not None:
        transfer = _times(document.transfer_s, (T, D, D))[_order_given(document.graph)]
    cut = None if document.cut_s is None else _times(document.cut_s, (n, D))
    try:
        return Problem(
            graph,
            cluster,
            Times(_times(document.processing_s, (n, D)), transfer, document.times_source, cut),
            _objective(document.objective),
            [Wish(w.pattern, w.device, w.forbid) for w in document.wishes],
            document.name,
        )
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None


def _without_faults(make: Callable[[_D], _M], document: _D, violations: list[str]) -> _M | None:
    try:
        return make(document)
    except InvalidInput as error:
        violations += [f"{error.what}: {line}" for line in error.violations]
        return None


def _cluster(document: ClusterDocument) -> Cluster:
    devices = (
        Device(
            **{f: getattr(d, f) for f in d.__struct_fields__ if f != "flops_per_s"},
            flops_per_s=MappingProxyType(d.flops_per_s),
        )
        for d in document.devices
    )
    links = (
        Link(
            k.latency_s,
            float("inf") if k.bandwidth_bytes_per_s is None else k.bandwidth_bytes_per_s,
            k.link_class,
            k.between,
            k.channel,
            k.one_way,
            k.points,
        )
        for k in document.links
    )
    return Cluster(devices, links, document.name)


def _graph(document: GraphDocument) -> OperatorGraph:
    source = document.source
    return OperatorGraph(
        map(_operator, document.operators),
        (Tensor(*msgspec.structs.astuple(u)) for u in document.tensors),
        document.colocation,
        document.name,
        Source(source.format, source.location, source.sha256) if source else None,
    )


def _operator(document: OperatorDocument) -> Operator:
    fields = msgspec.structs.astuple(document)
    return Operator(*fields[:-1], *[tuple(GrowingCache(*c) for c in document.caches)])


def _objective(document: ObjectiveDocument) -> Objective:
    if isinstance(document, MakespanDocument):
        per = "sample" if isinstance(document.per, msgspec.UnsetType) else document.per
        return Makespan(document.contention, per=per)
    if isinstance(document, OffloadDocument):
        return Offload(document.calls)
    if isinstance(document, ThroughputDocument):
        return Throughput(**_options(document))
    return MaxLoad(**_options(document))


def _options(document: msgspec.Struct) -> dict[str, Any]:
    """Give what the document says, without what it leaves unset."""
    return {k: v for k, v in msgspec.structs.asdict(document).items() if not isinstance(v, msgspec.UnsetType)}


def _order_given(document: GraphDocument) -> list[int]:
    """Where each tensor of the graph, which sorts them, stands in the document."""
    tensors = document.tensors
    return sorted(range(len(tensors)), key=lambda u: (tensors[u].producer, tensors[u].name))


def _wrong_rows(document: ProblemDocument, devices: list[str]) -> list[str]:
    """Tables of times that are not one row an operator, or tensor, by one column a device."""
    operators, tensors = document.graph.operators, document.graph.tensors
    found = _misshapen("processing_s", document.processing_s, "operator", [v.name for v in operators], len(devices))
    names = [v.name for v in operators]
    found += [] if document.cut_s is None else _misshapen("cut_s", document.cut_s, "operator", names, len(devices))
    if document.transfer_s is None:
        return found
    found += _misshapen("transfer_s", document.transfer_s, "tensor", [u.name for u in tensors], None)
    if not found:
        for u, rows in zip(tensors, document.transfer_s, strict=True):
            found += _misshapen(f"transfer_s of tensor {u.name!r}", rows, "device", devices, len(devices))
    return found


def _misshapen(what: str, rows: Sequence[Sequence[Any]], thing: str, names: list[str], width: int | None) -> list[str]:
    if len(rows) != len(names):
        return [f"{what} has {len(rows)} rows; give one for each of the {len(names)} {thing}s"]
    wrong = [k for k, row in enumerate(rows) if width is not None and len(row) != width]
    more = f" ({len(wrong) - 1} more rows are like it)" if len(wrong) > 1 else ""
    return [
        f"{what}: the row of {thing} {names[k]!r} has {len(rows[k])} values; "
        f"give one for each of the {width} devices{more}"
        for k in wrong[:1]
    ]


def _times(rows: Iterable[Any], shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Array of rows with ``inf`` for ``None``; JSON has no NaN, so that one can't be meant."""
    times = np.array(rows, dtype=np.float64).reshape(shape)
    times[np.isnan(times)] = np.inf
    return times
