"""Repeated blocks: layers that are alike, found once, by a hash of their structure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.graph import OperatorGraph

__all__ = ["Repeat", "block_groups", "repeated_blocks"]

LONGEST = 1024
"""Most operators of a block that is looked for."""

FEWEST = 4
"""Operators that a repeat covers at least; two operators that are alike are no layers."""

FAR_READERS = 8
"""What an operator with more readers makes (a mask, what an encoder made) is for all blocks, not one block's own."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Blocks that are alike, one behind the other in topological order.

    Attributes
    ----------
    first : int
        First operator of the first block.
    length : int
        Operators in a block.
    count : int
        Blocks.
    hash : str
        Of a block's structure: equal for equal blocks, also of other networks where they read nothing of all blocks.
    inside : tuple of Repeat
        Repeats within the first block, counted from the start of the network too.
    """

    first: int
    length: int
    count: int
    hash: str
    inside: tuple[Repeat, ...] = ()

    @property
    def blocks(self) -> tuple[range, ...]:
        """Operators of each block."""
        starts = range(self.first, self.first + self.count * self.length, self.length)
        return tuple(range(start, start + self.length) for start in starts)

    def __str__(self) -> str:
        """``24 x 9 operators``, with what is repeated inside in brackets."""
        inside = f" ({', '.join(map(str, self.inside))})" if self.inside else ""
        return f"{self.count} x {self.length} operator{'s' if self.length > 1 else ''}{inside}"


def repeated_blocks(graph: OperatorGraph) -> tuple[Repeat, ...]:
    """Find blocks that follow each other in the graph's order and are alike in every operator, size and connection.

    Each operator gets a label: kind, work and signature (of a fused one, the number of its parts), the sizes of what
    it makes, and where what it reads comes from: how many operators back, or, from an operator with more than 8
    readers, which one. That is one round of Weisfeiler and Lehman's refinement with positions for neighbours'
    colours, so that equal runs of labels are equal graphs, not just alike ones: operator k of a block reads what
    operator k of the next block reads, a block further on. A network that repeats itself with period p has the same
    label at k and k + p for a while; of all periods and places the one that covers most operators is taken, the
    shortest period of these, and then the rest before and behind it is looked through.

    Parameters
    ----------
    graph : OperatorGraph
        In the order in which capture leaves it, layer behind layer.

    Returns
    -------
    tuple of Repeat
        In topological order, disjoint. A first layer that differs (as it reads an embedding) is not among them.

    Notes
    -----
    O(n P) for n operators and the longest period P of 1,024, for each repeat that is found.

    Examples
    --------
    >>> from placewright.graph import Operator, Tensor
    >>> kinds = ["embed", *("attend", "add") * 3, "head"]
    >>> graph = OperatorGraph([Operator(f"v{k}", kind) for k, kind in enumerate(kinds)],
    ...                       [Tensor(f"t{k}", k, (k + 1,), 8) for k in range(7)])
    >>> [str(repeat) for repeat in repeated_blocks(graph)], repeated_blocks(graph)[0].blocks
    (['3 x 2 operators'], (range(1, 3), range(3, 5), range(5, 7)))
    """
    texts = _labels(graph)
    number: dict[str, int] = {}
    labels = np.array([number.setdefault(text, len(number)) for text in texts], dtype=np.int64)
    return tuple(_repeats(labels, texts, 0, len(labels)))


def block_groups(graph: OperatorGraph) -> list[tuple[int, ...]]:
    """Every repeated block as a group of operators for :func:`placewright.coarsen.contract`.

    **Acyclic**: a block is an interval of a topological order, and an edge between intervals only ever goes forward.
    """
    found = repeated_blocks(graph)
    return [tuple(block) for repeat in found for block in repeat.blocks if len(block) > 1]


def _labels(graph: OperatorGraph) -> list[str]:
    """Text of each operator: what it does, what it makes, and where from it reads."""
    rank = {u: k for v in range(len(graph)) for k, u in enumerate(_outputs(graph, v))}
    made = []
    for v, operator in enumerate(graph.operators):
        own = operator.signature or f"{operator.weight_bytes} {operator.kv_cache_bytes}"
        if (
            operator.parts
        ):  # a fused operator's signature counts its inputs by their names' order, its weights by shares
            own = f"{len(operator.parts)} parts"
        held = operator.resident_bytes - operator.weight_bytes
        own = f"{own} {held} {operator.kind} {operator.flops} {operator.traffic_bytes} {operator.dtype}"
        sizes = [(graph.tensors[u].size_bytes, graph.tensors[u].output) for u in _outputs(graph, v)]
        sources = []
        for u in graph.inputs_of[v]:
            t = graph.tensors[u]
            far = len(graph.successors[t.producer]) > FAR_READERS
            where, which = (f"at {t.producer}", -1) if far else (f"back {v - t.producer}", rank[u])
            sources.append((where, which, t.size_bytes))
        made.append(f"{own} {sizes} {sorted(sources)}")
    return made


def _outputs(graph: OperatorGraph, v: int) -> list[int]:
    """Tensors that an operator makes, told apart by what can be seen of them, not by name as the graph sorts them."""
    seen = {u: graph.tensors[u] for u in graph.outputs_of[v]}
    return sorted(seen, key=lambda u: (seen[u].size_bytes, seen[u].output, [r - v for r in seen[u].readers], u))


def _repeats(labels: npt.NDArray[np.int64], texts: Sequence[str], low: int, high: int) -> list[Repeat]:
    """Repeats between two places of the order."""
    best = (0, 0, 0, 0)  # operators covered, less the period; start; period
    for period in range(1, min(LONGEST, (high - low) // 2) + 1):
        if (high - low) < best[0]:
            break
        start, run = _longest_run(labels[low : high - period] == labels[low + period : high])
        count = run // period + 1
        if count >= 2 and count * period > max(best[0], FEWEST - 1):
            best = count * period, low + start, period, count
    covered, start, period, count = best
    if not covered:
        return []
    digest = hashlib.sha256("\n".join(texts[start : start + period]).encode()).hexdigest()[:16]
    inside = tuple(_repeats(labels, texts, start, start + period)) if period > 3 else ()
    repeat = Repeat(start, period, count, digest, inside)
    return [
        *_repeats(labels, texts, low, start),
        repeat,
        *_repeats(labels, texts, start + covered, high),
    ]


def _longest_run(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest run of True; the first of equal ones."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return 0, 0
    k = int(np.argmax(ends - starts))
    return int(starts[k]), int(ends[k] - starts[k])
