"""Predicted and real fusions, compared pair by pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from placewright.coarsen import FusionRules, fuse
from placewright.graph import Operator, OperatorGraph

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Pairs (producer, reader) of operators, one of which reads a tensor of the other.

    Attributes
    ----------
    pairs : int
        All that were compared.
    real, predicted, both : int
        Those that the back-end runs as one, those that the rules merge, and those that it and they do.
    around : int
        Of the real ones that the rules miss, those that can't be merged once the rest is: another path leads from the
        one to the other. The back-end computes the producer more than once.
    missed, wrong : Counter of (producer's kind, reader's kind)
    """

    pairs: int
    real: int
    predicted: int
    both: int
    around: int
    missed: Counter[tuple[str, str]]
    wrong: Counter[tuple[str, str]]

    @property
    def recall(self) -> float:
        """Share of the real fusions that the rules predict."""
        return self.both / self.real if self.real else 1.0

    @property
    def precision(self) -> float:
        """Share of the predicted fusions that are real."""
        return self.both / self.predicted if self.predicted else 1.0


def compare(
    graph: OperatorGraph,
    rules: FusionRules,
    groups_of: Mapping[str, frozenset[int]],
    is_free: Callable[[Operator], bool],
) -> Comparison:
    """Compare what rules merge with what a back-end did.

    Parameters
    ----------
    graph : OperatorGraph
        As captured, not fused.
    rules : FusionRules
    groups_of : mapping of operator name to frozenset of int
        What the back-end made of each operator: two are fused when they have one in common. Operators that are not in
        it, and are not free, were removed; their pairs don't count.
    is_free : callable
        Whether an operator does nothing when the network runs: what reads it then reads its inputs.
    """
    pairs = [
        (a, b)
        for a, b in _pairs(graph, is_free)
        if graph.operators[a].name in groups_of and graph.operators[b].name in groups_of
    ]
    names = [v.name for v in graph.operators]
    fused = fuse(graph, rules)
    group = {part: k for k, v in enumerate(fused.operators) for part in v.part_names}
    real = {(a, b) for a, b in pairs if groups_of[names[a]] & groups_of[names[b]]}
    predicted = {(a, b) for a, b in pairs if group[names[a]] == group[names[b]]}

    def kinds(chosen: set[tuple[int, int]]) -> Counter[tuple[str, str]]:
        return Counter((graph.operators[a].kind, graph.operators[b].kind) for a, b in chosen)

    missed = real - predicted
    around = sum(_leads_around(fused, group[names[a]], group[names[b]]) for a, b in missed)
    return Comparison(
        len(pairs), len(real), len(predicted), len(real & predicted), around, kinds(missed), kinds(predicted - real)
    )


def _pairs(graph: OperatorGraph, is_free: Callable[[Operator], bool]) -> set[tuple[int, int]]:
    sources: list[set[int]] = []
    found: set[tuple[int, int]] = set()
    for v, operator in enumerate(graph.operators):
        read: set[int] = set()
        for p in graph.predecessors[v]:
            read |= sources[p] if is_free(graph.operators[p]) else {p}
        sources.append(read)
        if not is_free(operator):
            found |= {(p, v) for p in read}
    return found


def _leads_around(graph: OperatorGraph, a: int, b: int) -> bool:
    """Whether a path leads from a to b through a third operator."""
    pending = [w for w in graph.successors[a] if w != b]
    seen = set(pending)
    while pending:
        v = pending.pop()
        if v == b:
            return True
        fresh = [w for w in graph.successors[v] if w <= b and w not in seen]
        seen.update(fresh)
        pending += fresh
    return False
