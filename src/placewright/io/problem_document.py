"""What a problem file holds, as the structs that decode it strictly, and the way from there to a Problem and back.

Operators, tensors and devices are counted from 0 in the order in which they are listed. Keys that are left out have
the defaults of the schema. ``null`` stands for what JSON has no number for: a processing time where the device can't
run the operator, a transfer time where there is no way, a memory without a limit, an infinite bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import GrowingCache, Operator, OperatorGraph, Source, Tensor
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput
from placewright.problem import Problem, Times, Wish

__all__ = [
    "MakespanDocument",
    "ObjectiveDocument",
    "ProblemDocument",
    "cluster_document",
    "objective_document",
    "rows",
    "to_document",
    "to_problem",
]

_D = TypeVar("_D")
_M = TypeVar("_M")
Bytes: TypeAlias = Annotated[int, Meta(le=2**50)]
"""Up to 1 PiB, so that sums stay within 64 bits; the data modules refuse what is below 0."""
Work: TypeAlias = Annotated[int, Meta(le=2**62)]
Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=2**40)]
CacheDocument: TypeAlias = tuple[Annotated[float, Meta(ge=0, le=2**50)], Tokens, Tokens]


class OperatorDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An operator."""

    name: str
    kind: str = ""
    flops: Work = 0
    traffic_bytes: Bytes = 0
    weight_bytes: Bytes = 0
    kv_cache_bytes: Bytes = 0
    dtype: str = "fp32"
    signature: str = ""
    parts: tuple[str, ...] = ()
    backward: bool = False
    folded: tuple[str, ...] = ()
    gradient_bytes: Bytes = 0
    optimizer_bytes: Bytes = 0
    saved_bytes: Bytes = 0
    caches: Annotated[
        tuple[CacheDocument, ...],
        Meta(description="Of the KV cache: bits a token of all sequences, tokens with room, most that a window keeps."),
    ] = ()


class TensorDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A tensor: the operator that makes it, and those that read it, ascending."""

    name: str
    producer: int
    readers: tuple[int, ...] = ()
    size_bytes: Bytes = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    output: bool = False


class SourceDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where the network came from; never followed without the reader's consent."""

    format: Literal["onnx", "pt2", "py", "hf", "gguf", "problem", "synthetic"]
    location: str = ""
    sha256: str = ""


class GraphDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Operators in topological order, the tensors between them, and classes that share a device."""

    operators: list[OperatorDocument]
    tensors: list[TensorDocument] = []
    colocation: list[tuple[int, ...]] = []
    name: str = ""
    source: SourceDocument | None = None


class DeviceDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A device, every figure in SI units."""

    name: str
    kind: str = "gpu"
    model: str = ""
    host: str = "local"
    memory_bytes: Bytes | None = None
    reserve_bytes: Bytes = 0
    flops_per_s: dict[str, float] = {}
    memory_bandwidth_bytes_per_s: float = 0.0
    launch_overhead_s: float = 0.0
    cut_overhead_s: float = 0.0
    cores: tuple[int, ...] = ()
    threads: int = 0
    cpu_share: float = 1.0


class LinkDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"link_class": "class"}):
    """A rule for a class of pairs of devices, or for one pair."""

    latency_s: float
    bandwidth_bytes_per_s: float | None = None
    link_class: str = ""
    between: tuple[str, str] = ("", "")
    channel: str = ""
    one_way: bool = False
    points: Annotated[tuple[tuple[Bytes, float], ...], Meta(description="(bytes, seconds), ascending.")] = ()


class ClusterDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Devices and links."""

    devices: list[DeviceDocument]
    links: list[LinkDocument] = []
    name: str = ""


class MakespanDocument(msgspec.Struct, forbid_unknown_fields=True, tag_field="name", tag="makespan"):
    """Finish of the last operator for one sample."""

    contention: Literal["none", "link", "port"] = "link"
    per: Annotated[
        Literal["token", "answer"] | msgspec.UnsetType,
        Meta(description="What the network does once, where that is no sample: a decode step, or a whole answer."),
    ] = msgspec.UNSET


class MaxLoadDocument(msgspec.Struct, forbid_unknown_fields=True, tag_field="name", tag="max-load"):
    """Time per sample of a pipeline in steady state: the largest load of a device."""

    contiguity: Literal["contiguous", "convex", "any"] = "contiguous"
    contiguous_cpus: bool = True
    training: Literal["sum", "separate"] = "sum"
    overlap: Literal["none", "transfers", "full"] = "none"
    replicate: bool = False
    sync_period: int = 1
    sync_bandwidth_bytes_per_s: float | None = None


class ThroughputDocument(msgspec.Struct, forbid_unknown_fields=True, tag_field="name", tag="throughput"):
    """Time per sample in steady state when copies of the network, or of parts of it, run side by side."""

    contiguity: Literal["contiguous", "convex", "any"] = "contiguous"
    contiguous_cpus: bool = True
    overlap: Literal["none", "transfers", "full"] = "none"
    sync_period: int = 1
    sync_bandwidth_bytes_per_s: float | None = None


class OffloadDocument(msgspec.Struct, forbid_unknown_fields=True, tag_field="name", tag="offload"):
    """Latency of one sample when accelerators take subgraphs, one call each, off a pool of CPUs."""

    calls: Annotated[int | None, Meta(description="Most calls of a device; null: no limit.")] = None


ObjectiveDocument: TypeAlias = MakespanDocument | MaxLoadDocument | ThroughputDocument | OffloadDocument


class WishDocument(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A pin, or a forbid."""

    pattern: str
    device: str
    forbid: bool = False


class ProblemDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A problem file: everything that determines a plan's value."""

    schema: Literal["placewright/problem/1"]
    name: str = ""
    graph: GraphDocument
    cluster: ClusterDocument
    processing_s: Annotated[
        list[list[float | None]],
        Meta(description="A row an operator, a column a device; seconds, null where the device can't run it."),
    ]
    transfer_s: Annotated[
        list[list[list[float | None]]] | None,
        Meta(description="For each tensor rows (from) and columns (to); null for all: the links give the times."),
    ] = None
    cut_s: Annotated[
        list[list[float]] | None,
        Meta(description="A row an operator, a column a device: seconds lost at a side of a cut; null: the device's."),
    ] = None
    times_source: str = "given"
    objective: ObjectiveDocument = msgspec.field(default_factory=MakespanDocument)
    wishes: list[WishDocument] = []


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
        return ThroughputDocument(**{f: getattr(objective, f) for f in ThroughputDocument.__struct_fields__})
    return MaxLoadDocument(**{f: getattr(objective, f) for f in MaxLoadDocument.__struct_fields__})


def _objective(document: ObjectiveDocument) -> Objective:
    if isinstance(document, MakespanDocument):
        per = "sample" if isinstance(document.per, msgspec.UnsetType) else document.per
        return Makespan(document.contention, per=per)
    if isinstance(document, OffloadDocument):
        return Offload(document.calls)
    if isinstance(document, ThroughputDocument):
        return Throughput(*msgspec.structs.astuple(document))
    return MaxLoad(*msgspec.structs.astuple(document))


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
