"""From a problem to the document that a problem file holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, Tensor
from placewright.io.problem_document import (
    ClusterDocument,
    DeviceDocument,
    GraphDocument,
    LinkDocument,
    MakespanDocument,
    MaxLoadDocument,
    ObjectiveDocument,
    OffloadDocument,
    OperatorDocument,
    ProblemDocument,
    SourceDocument,
    TensorDocument,
    ThroughputDocument,
    WishDocument,
)
from placewright.objective import Makespan, Objective, Offload, Throughput
from placewright.problem import Problem

__all__ = ["cluster_document", "objective_document", "rows", "to_document"]

_D = TypeVar("_D")


def to_document(problem: Problem) -> ProblemDocument:
    """Make the document of a problem."""
    graph, cluster, times = problem.graph, problem.cluster, problem.times
    source = graph.source
    return ProblemDocument(
        schema="placewright/problem/1",
        name=problem.name,
        graph=GraphDocument(
            [_operator_document(v) for v in graph.operators],
            [_tensor_document(u) for u in graph.tensors],
            list(graph.colocation),
            graph.name,
            SourceDocument(source.format, source.location, source.sha256) if source else None,
        ),
        cluster=cluster_document(cluster),
        processing_s=rows(times.processing_s),
        transfer_s=None if times.transfer_s is None else rows(times.transfer_s),
        cut_s=None if times.cut_s is None else rows(times.cut_s),
        times_source=times.source,
        objective=objective_document(problem.objective),
        wishes=[WishDocument(w.pattern, w.device, w.forbid) for w in problem.wishes],
    )


def cluster_document(cluster: Cluster) -> ClusterDocument:
    """Make the document of a cluster."""
    devices, links = map(_device_document, cluster.devices), map(_link_document, cluster.links)
    return ClusterDocument(list(devices), list(links), cluster.name)


def objective_document(objective: Objective) -> ObjectiveDocument:
    """Make the document of an objective."""
    if isinstance(objective, Makespan):
        return MakespanDocument(objective.contention, msgspec.UNSET if objective.per == "sample" else objective.per)
    if isinstance(objective, Offload):
        return OffloadDocument(objective.calls)
    if isinstance(objective, Throughput):
        return ThroughputDocument(**_options(objective, ThroughputDocument))
    return MaxLoadDocument(**_options(objective, MaxLoadDocument))


def _options(objective: Objective, document: type[msgspec.Struct]) -> dict[str, Any]:
    """Fields of the document; the busy share where there is one, so that older files have the hashes they had."""
    options = {f: getattr(objective, f) for f in document.__struct_fields__}
    return options if options["busy_share"] else options | {"busy_share": msgspec.UNSET}


def _lean(struct: Callable[..., _D], defaults: Mapping[str, Any], /, **values: Any) -> _D:
    """Make a struct of what differs from its defaults: only what is left out of it is left out of its JSON."""
    return struct(**{key: value for key, value in values.items() if key not in defaults or value != defaults[key]})


def _defaults(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    fields = msgspec.structs.fields(kind)
    return {f.name: f.default if f.default is not msgspec.NODEFAULT else {} for f in fields if not f.required}


_DEVICE, _LINK = _defaults(DeviceDocument), _defaults(LinkDocument)


def _operator_document(v: Operator) -> OperatorDocument:
    return OperatorDocument(
        v.name,
        v.kind,
        int(v.flops),
        int(v.traffic_bytes),
        int(v.weight_bytes),
        int(v.kv_cache_bytes),
        "fp32" if v.dtype == "fp32" else v.dtype,  # the default itself, which is what is left out
        v.signature,
        tuple(v.parts),
        bool(v.backward),
        tuple(v.folded),
        int(v.gradient_bytes),
        int(v.optimizer_bytes),
        int(v.saved_bytes),
        tuple((float(c.token_bits), int(c.tokens), int(c.most)) for c in v.caches),
    )


def _tensor_document(u: Tensor) -> TensorDocument:
    readers, shape = tuple(map(int, u.readers)), tuple(map(int, u.shape))
    return TensorDocument(u.name, int(u.producer), readers, int(u.size_bytes), shape, u.dtype, bool(u.output))


def _device_document(d: Device) -> DeviceDocument:
    return _lean(
        DeviceDocument,
        _DEVICE,
        name=d.name,
        kind=d.kind,
        model=d.model,
        host=d.host,
        memory_bytes=None if d.memory_bytes is None else int(d.memory_bytes),
        reserve_bytes=int(d.reserve_bytes),
        flops_per_s={dtype: _positive(peak) for dtype, peak in d.flops_per_s.items()},
        memory_bandwidth_bytes_per_s=_positive(d.memory_bandwidth_bytes_per_s),
        launch_overhead_s=_positive(d.launch_overhead_s),
        cut_overhead_s=_positive(d.cut_overhead_s),
        cores=tuple(map(int, d.cores)),
        threads=int(d.threads),
        cpu_share=_positive(d.cpu_share),
    )


def _link_document(k: Link) -> LinkDocument:
    return _lean(
        LinkDocument,
        _LINK,
        latency_s=_positive(k.latency_s),
        bandwidth_bytes_per_s=None if k.bandwidth_bytes_per_s == float("inf") else float(k.bandwidth_bytes_per_s),
        link_class=k.link_class,
        between=tuple(k.between),
        channel=k.channel,
        one_way=bool(k.one_way),
        points=tuple((int(size), _positive(seconds)) for size, seconds in k.points),
    )


def _positive(figure: float) -> float:
    """Make a float of a figure, with one zero only."""
    return float(figure) + 0.0


def rows(times: npt.NDArray[np.float64]) -> Any:
    """Make nested lists of an array of times, with ``None`` for ``inf``, and with one zero only."""
    table = times + 0.0
    absent = np.isinf(table)
    if absent.any():
        table = table.astype(object)
        table[absent] = None
    return table.tolist()
