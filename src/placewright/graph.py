"""The network that is to be placed: operators and the tensors between them, in topological order, frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

from placewright.errors import InvalidInput

if TYPE_CHECKING:
    import rustworkx

__all__ = ["RESIDENT_PARTS", "GrowingCache", "Operator", "OperatorGraph", "Source", "Tensor"]

RESIDENT_PARTS = {
    "weight_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimiser",
    "saved_bytes": "saved",
}
"""What an operator holds on its device for as long as the plan runs: field, and its name in reports."""

MOST_BYTES = 2**62
"""In all: what solvers add up in 64 bits."""


class GrowingCache(NamedTuple):
    """A part of an operator's key-value cache that grows with the tokens of a sequence.

    Attributes
    ----------
    token_bits : float
        Of one token of every sequence.
    tokens : int
        Of a sequence, that there is room for.
    most : int
        Tokens that are kept at most, by a sliding window; 0: all.
    """

    token_bits: float
    tokens: int
    most: int = 0

    def size_bytes(self, tokens: int) -> int:
        """Bytes with room for so many tokens; rounded up.

        Examples
        --------
        >>> [GrowingCache(12.0, 4, most=5).size_bytes(tokens) for tokens in (1, 4, 9)]
        [2, 6, 8]
        """
        return ceil(self.token_bits * (min(tokens, self.most) if self.most else tokens) / 8)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator v of the network: the unit that is placed.

    Attributes
    ----------
    name : str
        Unique in its graph; keeps the module path (``encoder.layer.3.attention.query``).
    kind : str
        What it computes, in the words of its source: ``Conv`` (ONNX), ``aten.linear`` (torch).
    flops : int
        Floating-point operations (a multiply-add is two).
    traffic_bytes : int
        Bytes that it must read and write: inputs, weights and outputs once each.
    weight_bytes : int
        Bytes of the weights that only this operator accounts for; a tied weight is counted at its first reader and
        its readers form a colocation class.
    kv_cache_bytes : int
        Bytes of key-value cache that live on the operator's device.
    dtype : str
        Of the arithmetic: ``fp32``, ``bf16``, ``fp16``, ``int8``...
    signature : str
        Equal signatures mean equal work (kind, attributes, shapes, dtypes): such operators are profiled once.
    parts : tuple of str
        The operators of the source that this one stands for, when several were fused; empty when it is one itself.
        One that stands in several operators runs on each device that has one of them.
    backward : bool
        Whether it belongs to the backward pass of training.
    folded : tuple of str
        Operators of the source that follow from weights alone and are not run: it holds their results as weights.
    gradient_bytes, optimizer_bytes : int
        In training: bytes of the gradients of its weights, and of what the optimiser keeps of them.
    saved_bytes : int
        In training: bytes that its forward pass keeps for the backward pass, of all micro-batches in flight.
    caches : tuple of GrowingCache
        What of ``kv_cache_bytes`` depends on how many tokens there is room for.
    """

    name: str
    kind: str = ""
    flops: int = 0
    traffic_bytes: int = 0
    weight_bytes: int = 0
    kv_cache_bytes: int = 0
    dtype: str = "fp32"
    signature: str = ""
    parts: tuple[str, ...] = ()
    backward: bool = False
    folded: tuple[str, ...] = ()
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    saved_bytes: int = 0
    caches: tuple[GrowingCache, ...] = ()

    def kv_cache_bytes_at(self, tokens: int) -> int:
        """Bytes of its key-value cache with room for so many tokens of each sequence."""
        return self.kv_cache_bytes + sum(c.size_bytes(tokens) - c.size_bytes(c.tokens) for c in self.caches)

    @property
    def resident_bytes(self) -> int:
        """Bytes held on its device for as long as the plan runs: all of :data:`RESIDENT_PARTS`."""
        return self.weight_bytes + self.kv_cache_bytes + self.gradient_bytes + self.optimizer_bytes + self.saved_bytes

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the operators of the source that move with this one."""
        return self.parts or (self.name,)

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of the operators of the source that are where this one is: those that it runs, and those folded."""
        return (*self.part_names, *self.folded)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor u: made by one operator, read by several.

    Attributes
    ----------
    name : str
        Unique in its graph.
    producer : int
        Index of the operator that makes it.
    readers : tuple of int
        Indices of the operators that read it, ascending, each once.
    size_bytes : int
        What a transfer moves.
    shape, dtype
        As the source states them; informative.
    output : bool
        Whether it leaves the network (it then stays in memory to the end).
    """

    name: str
    producer: int
    readers: tuple[int, ...] = ()
    size_bytes: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    output: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Where a graph came from, so that a plan can be run: never followed without the caller's consent.

    Attributes
    ----------
    format : str
        ``onnx``, ``pt2``, ``py``, ``hf`` (a configuration of transformers), ``gguf``, or the name of a problem format.
    location : str
        A file name or ``package.module:function``.
    sha256 : str
        Of the file's bytes; empty when there is no file.
    """

    format: Literal["onnx", "pt2", "py", "hf", "gguf", "problem", "synthetic"]
    location: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class OperatorGraph:
    """Operators in topological order, the tensors between them, and what must stay together.

    Parameters
    ----------
    operators : sequence of Operator
        Every tensor's producer stands before all of its readers. :meth:`build` sorts for you.
    tensors : sequence of Tensor
        In any order; kept sorted by producer.
    colocation : sequence of tuple of int
        Classes of operators that must share a device (tied weights, aliases); classes that overlap are merged.
    name : str
    source : Source or None

    Raises
    ------
    InvalidInput
        With every violation: names used twice, unknown indices, negative sizes, readers before their producer.

    Examples
    --------
    >>> graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), size_bytes=8)])
    >>> graph.predecessors, graph.successors
    (((), (0,)), ((1,), ()))
    """

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...] = ()
    colocation: tuple[tuple[int, ...], ...] = ()
    name: str = ""
    source: Source | None = field(default=None)

    def __init__(
        self,
        operators: Iterable[Operator],
        tensors: Iterable[Tensor] = (),
        colocation: Iterable[Iterable[int]] = (),
        name: str = "",
        source: Source | None = None,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "operators", tuple(operators))
        set_(self, "tensors", tuple(sorted(tensors, key=lambda t: (t.producer, t.name))))
        classes = [tuple(c) for c in colocation]
        set_(self, "name", name)
        set_(self, "source", source)
        violations = _violations(self.operators, self.tensors, classes)
        if violations:
            raise InvalidInput(violations, what=f"graph {name!r}" if name else "graph")
        set_(self, "colocation", _merge_classes(classes, len(self.operators)))

    @classmethod
    def build(
        cls,
        operators: Sequence[Operator],
        tensors: Iterable[tuple[str, str, Sequence[str], int] | Tensor],
        colocation: Iterable[Iterable[str]] = (),
        name: str = "",
        source: Source | None = None,
    ) -> OperatorGraph:
        """Make a graph from operators in any order; tensors and classes name operators instead of counting them.

        Parameters
        ----------
        operators : sequence of Operator
        tensors : iterable of (name, producer name, reader names, size_bytes) or Tensor
            A :class:`Tensor` counts operators in the order given.
        colocation : iterable of iterable of str

        Raises
        ------
        InvalidInput
            If a name is unknown or the graph has a cycle (which is then named).

        Examples
        --------
        >>> g = OperatorGraph.build([Operator("late"), Operator("early")], [("x", "early", ["late"], 4)])
        >>> [v.name for v in g.operators]
        ['early', 'late']
        """
        index = {v.name: k for k, v in enumerate(operators)}
        unknown: list[str] = []

        def at(operator: str, where: str) -> int:
            if operator not in index:
                unknown.append(
                    f"{where} names the operator {operator!r}, which is not in the graph; add it or correct the name"
                )
                return 0
            return index[operator]

        made: list[Tensor] = []
        for t in tensors:
            if isinstance(t, Tensor):
                made.append(t)
                continue
            tensor_name, producer, readers, size = t
            where = f"tensor {tensor_name!r}"
            made.append(Tensor(tensor_name, at(producer, where), tuple(sorted({at(r, where) for r in readers})), size))
        classes = [[at(v, "a colocation class") for v in c] for c in colocation]
        if unknown:
            raise InvalidInput(unknown, what=f"graph {name!r}" if name else "graph")
        order = _topological_order(operators, made, name)
        rank = [0] * len(order)
        for position, v in enumerate(order):
            rank[v] = position
        return cls(
            [operators[v] for v in order],
            [replace(t, producer=rank[t.producer], readers=tuple(sorted(rank[r] for r in t.readers))) for t in made],
            [[rank[v] for v in c] for c in classes],
            name,
            source,
        )

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Operator name -> index."""
        return {v.name: k for k, v in enumerate(self.operators)}

    @cached_property
    def inputs_of(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the indices of the tensors that it reads, ascending."""
        rows: list[list[int]] = [[] for _ in self.operators]
        for u, tensor in enumerate(self.tensors):
            for v in tensor.readers:
                rows[v].append(u)
        return tuple(map(tuple, rows))

    @cached_property
    def outputs_of(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the indices of the tensors that it makes, ascending."""
        rows: list[list[int]] = [[] for _ in self.operators]
        for u, tensor in enumerate(self.tensors):
            rows[tensor.producer].append(u)
        return tuple(map(tuple, rows))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each operator those whose tensors it reads, ascending, each once."""
        return tuple(tuple(sorted({self.tensors[u].producer for u in row})) for row in self.inputs_of)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each operator those that read its tensors, ascending, each once."""
        return tuple(tuple(sorted({v for u in row for v in self.tensors[u].readers})) for row in self.outputs_of)

    @cached_property
    def unit_of(self) -> tuple[int, ...]:
        """For each operator the index of its unit: a colocation class, or itself alone. Units count from 0 in order."""
        leader = list(range(len(self.operators)))
        for members in self.colocation:
            for v in members:
                leader[v] = members[0]
        seen: dict[int, int] = {}
        return tuple(seen.setdefault(root, len(seen)) for root in leader)


def _violations(
    operators: tuple[Operator, ...], tensors: tuple[Tensor, ...], classes: list[tuple[int, ...]]
) -> list[str]:
    found: list[str] = []
    late: list[str] = []
    n = len(operators)
    if n == 0:
        found.append("it has no operators; there is nothing to place")
    for what, names in (("operator", [v.name for v in operators]), ("tensor", [t.name for t in tensors])):
        seen: set[str] = set()
        for item in names:
            if item in seen:
                found.append(f"{what} {item!r} stands twice; names must be unique")
            seen.add(item)
    for v in operators:
        for quantity in ("flops", "traffic_bytes", *RESIDENT_PARTS):
            if getattr(v, quantity) < 0:
                found.append(f"operator {v.name!r}: {quantity} {getattr(v, quantity)} is below 0; give at least 0")
    whole = sum(v.resident_bytes for v in operators) + sum(t.size_bytes for t in tensors)
    if whole > MOST_BYTES:
        found.append(f"operators and tensors have {whole} bytes in all, more than {MOST_BYTES}; correct their sizes")
    for t in tensors:
        if t.size_bytes < 0:
            found.append(f"tensor {t.name!r}: size_bytes {t.size_bytes} is below 0; give at least 0")
        bad = [v for v in (t.producer, *t.readers) if not 0 <= v < n]
        if bad:
            found.append(f"tensor {t.name!r}: operator index {bad[0]} is outside 0..{n - 1}")
            continue
        if list(t.readers) != sorted(set(t.readers)):
            found.append(f"tensor {t.name!r}: readers {t.readers} are not ascending and distinct")
        if t.readers and t.readers[0] <= t.producer:
            late.append(
                f"tensor {t.name!r}: reader {operators[t.readers[0]].name!r} does not stand after its producer "
                f"{operators[t.producer].name!r}; put operators in topological order, as OperatorGraph.build does"
            )
    for members in classes:
        bad = [v for v in members if not 0 <= v < n]
        if bad:
            found.append(f"colocation class {members}: operator index {bad[0]} is outside 0..{n - 1}")
    if late:
        sound = [t for t in tensors if all(0 <= v < n for v in (t.producer, *t.readers))]
        cycle = _cycle(operators, sound)
        found += [cycle] if cycle else late
    return found


def _merge_classes(classes: list[tuple[int, ...]], n: int) -> tuple[tuple[int, ...], ...]:
    root = list(range(n))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    for members in classes:
        for v in members[1:]:
            a, b = sorted((find(members[0]), find(v)))
            root[b] = a
    merged: dict[int, list[int]] = {}
    for v in sorted({v for members in classes for v in members}):
        merged.setdefault(find(v), []).append(v)
    return tuple(tuple(m) for m in merged.values() if len(m) > 1)


def _topological_order(operators: Sequence[Operator], tensors: Sequence[Tensor], name: str) -> list[int]:
    """Of all topological orders the one nearest to the order given."""
    import rustworkx

    # Of a graph with a cycle it gives the operators before the cycle alone.
    order = list(rustworkx.lexicographical_topological_sort(_digraph(operators, tensors), lambda v: f"{v:012d}"))
    if len(order) < len(operators):
        raise InvalidInput(_cycle(operators, tensors), what=f"graph {name!r}" if name else "graph")
    return order


def _digraph(operators: Sequence[Operator], tensors: Sequence[Tensor]) -> rustworkx.PyDiGraph[int, None]:
    import rustworkx

    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(len(operators)))
    graph.add_edges_from_no_data([(t.producer, v) for t in tensors for v in t.readers])
    return graph


def _cycle(operators: Sequence[Operator], tensors: Sequence[Tensor]) -> str:
    """Name one cycle; empty when there is none."""
    import rustworkx

    cycle = [a for a, _ in rustworkx.digraph_find_cycle(_digraph(operators, tensors))]
    if not cycle:
        return ""
    shown = " -> ".join(repr(operators[v].name) for v in [*cycle, cycle[0]][:8]) + (" -> ..." if len(cycle) > 7 else "")
    return f"the operators form a cycle: {shown}; a placement needs an acyclic graph, so remove one of these tensors"
