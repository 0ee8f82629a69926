"""What a problem file holds, as the structs that decode it strictly.

Operators, tensors and devices are counted from 0 in the order in which they are listed. Keys that are left out have
the defaults of the schema. ``null`` stands for what JSON has no number for: a processing time where the device can't
run the operator, a transfer time where there is no way, a memory without a limit, an infinite bandwidth.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

__all__ = [
    "ClusterDocument",
    "DeviceDocument",
    "GraphDocument",
    "LinkDocument",
    "MakespanDocument",
    "MaxLoadDocument",
    "ObjectiveDocument",
    "OffloadDocument",
    "OperatorDocument",
    "ProblemDocument",
    "SourceDocument",
    "TensorDocument",
    "ThroughputDocument",
    "WishDocument",
]

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
        Literal["token", "answer", "picture"] | msgspec.UnsetType,
        Meta(
            description="What the network does once, where that is no sample: a decode step, a whole answer, or a "
            "picture in all of its steps."
        ),
    ] = msgspec.UNSET


BusyShare: TypeAlias = Annotated[
    float | msgspec.UnsetType,
    Meta(description="Part of a transfer's time, 0 to 1, that the device can't compute; 0 where it is left out."),
]


class MaxLoadDocument(msgspec.Struct, forbid_unknown_fields=True, tag_field="name", tag="max-load"):
    """Time per sample of a pipeline in steady state: the largest load of a device."""

    contiguity: Literal["contiguous", "convex", "any"] = "contiguous"
    contiguous_cpus: bool = True
    training: Literal["sum", "separate"] = "sum"
    overlap: Literal["none", "transfers", "full"] = "none"
    replicate: bool = False
    sync_period: int = 1
    sync_bandwidth_bytes_per_s: float | None = None
    busy_share: BusyShare = msgspec.UNSET


class ThroughputDocument(msgspec.Struct, forbid_unknown_fields=True, tag_field="name", tag="throughput"):
    """Time per sample in steady state when copies of the network, or of parts of it, run side by side."""

    contiguity: Literal["contiguous", "convex", "any"] = "contiguous"
    contiguous_cpus: bool = True
    overlap: Literal["none", "transfers", "full"] = "none"
    sync_period: int = 1
    sync_bandwidth_bytes_per_s: float | None = None
    busy_share: BusyShare = msgspec.UNSET


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
