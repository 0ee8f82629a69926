"""Small graphs of operators that a back-end runs as one: how they are written, and where they occur."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from types import MappingProxyType

from placewright.coarsen.groups import Groups
from placewright.coarsen.kinds import base_kind
from placewright.graph import OperatorGraph

__all__ = ["Pattern", "join_patterns", "parse_pattern"]

SCALAR_BYTES = 8
MOST_INPUTS = 4
"""Of an operator whose inputs a pattern names; all their orders are tried."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One operator and what it reads.

    Attributes
    ----------
    kinds : frozenset of str
        Any of them; empty for a tensor, which is then all that the pattern says.
    inputs : tuple of Pattern or None
        One for each tensor that the operator reads, in any order; weights are no tensors. ``None``: whatever it reads.
    label : str
        Of the tensor that is read or made: the same label is the same tensor.
    optional : bool
        Whether its first input alone will do.
    conditions : tuple of str
        Names in :data:`CONDITIONS`.
    """

    kinds: frozenset[str]
    inputs: tuple[Pattern, ...] | None = None
    label: str = ""
    optional: bool = False
    conditions: tuple[str, ...] = ()

    @property
    def root_kinds(self) -> frozenset[str]:
        """Kinds of the operator at which the pattern may end."""
        return self.kinds | (self.inputs[0].root_kinds if self.optional and self.inputs else frozenset())


def _dense(graph: OperatorGraph, v: int) -> bool:
    read, made = graph.inputs_of[v], graph.outputs_of[v]
    if not read or not made or len(graph.tensors[read[0]].shape) < 2:
        return True
    each = 2 * graph.tensors[read[0]].shape[1] * math.prod(graph.tensors[made[0]].shape)
    return graph.operators[v].flops >= each


def _image(graph: OperatorGraph, v: int) -> bool:
    made = graph.outputs_of[v]
    return len(made) == 1 and len(graph.tensors[made[0]].shape) == 4


def _scalar(graph: OperatorGraph, v: int) -> bool:
    return 0 < graph.operators[v].weight_bytes <= SCALAR_BYTES


def _weights(graph: OperatorGraph, v: int) -> bool:
    return graph.operators[v].weight_bytes > 0


def _last_two(graph: OperatorGraph, v: int) -> bool:
    read, made = graph.inputs_of[v], graph.outputs_of[v]
    if len(read) != 1 or len(made) != 1:
        return False
    a, b = graph.tensors[read[0]].shape, graph.tensors[made[0]].shape
    return len(a) > 1 and b == (*a[:-2], a[-1], a[-2])


CONDITIONS: Mapping[str, Callable[[OperatorGraph, int], bool]] = MappingProxyType(
    {"dense": _dense, "image": _image, "last-two": _last_two, "scalar": _scalar, "weights": _weights}
)
"""What may be asked of an operator: that each element of its result depends on all channels; that its
result has four dimensions; that it exchanges the last
two dimensions; that its other input is one number; that it has weights."""

_TOKEN = re.compile(r"\s*(?:([$\w.|-]+)|(.))")


def parse_pattern(text: str) -> Pattern:
    """Read a pattern.

    ``Relu?(Conv(*))`` is a convolution with whatever it reads, and a Relu behind it where there is one; ``|`` stands
    between alternatives, ``[scalar]`` behind a kind is a condition, ``$x`` a tensor, and ``$d=Sub($x)`` gives a name to
    the tensor that an operator makes.

    Raises
    ------
    ValueError
        If it is no pattern.

    Examples
    --------
    >>> silu = parse_pattern("Mul($x, Sigmoid($x))")
    >>> sorted(silu.kinds), [sorted(p.kinds) or p.label for p in silu.inputs]
    (['Mul'], ['$x', ['Sigmoid']])
    """
    tokens = [a or b for a, b in _TOKEN.findall(text.strip())]
    pattern, at = _parsed(tokens, 0)
    if at != len(tokens):
        raise ValueError(f"pattern {text!r} has {tokens[at]!r} too much")
    return pattern


def _parsed(tokens: Sequence[str], at: int) -> tuple[Pattern, int]:
    def here() -> str:
        return tokens[at] if at < len(tokens) else ""

    label = ""
    if here().startswith("$"):
        label, at = here(), at + 1
        if here() != "=":
            return Pattern(frozenset(), label=label), at
        at += 1
    kinds = frozenset(here().split("|"))
    if not all(re.fullmatch(r"\w+(\.\w+)*", kind) for kind in kinds):
        raise ValueError(f"{here()!r} is no kind of operator")
    at += 1
    optional = False
    conditions: list[str] = []
    while here() in ("?", "["):
        if here() == "?":
            optional, at = True, at + 1
            continue
        end = tokens.index("]", at) if "]" in tokens[at:] else len(tokens)
        conditions = "".join(tokens[at + 1 : end]).split(",")
        unknown = [c for c in conditions if c not in CONDITIONS]
        if unknown:
            raise ValueError(f"condition {unknown[0]!r} is none of {', '.join(CONDITIONS)}")
        at = end + 1
    inputs: list[Pattern] | None = []
    if here() != "(":
        raise ValueError(f"{'|'.join(sorted(kinds))} states no inputs; write (*) for any")
    while here() != ")":
        at += 1
        if here() == "*":
            inputs, at = None, at + 1
        elif here() and inputs is not None:
            made, at = _parsed(tokens, at)
            inputs.append(made)
        if here() not in (",", ")"):
            raise ValueError(f"{'|'.join(sorted(kinds))}: {here()!r} stands where ',' or ')' was expected")
    if optional and not inputs:
        raise ValueError(f"{'|'.join(sorted(kinds))} is optional, but states no input that would do")
    return Pattern(kinds, None if inputs is None else tuple(inputs), label, optional, tuple(conditions)), at + 1


def join_patterns(groups: Groups, patterns: Sequence[Pattern]) -> None:
    """Merge what patterns describe, from the end of the network to its start, the first pattern that fits first.

    An operator belongs to at most one occurrence. All tensors that are made within an occurrence, apart from those of
    its last operator, are read within it alone, and are no outputs of the network.

    Parameters
    ----------
    groups : Groups
        Changed in place; what is merged already is left as it is.
    patterns : sequence of Pattern

    Notes
    -----
    **Acyclic by construction.** An occurrence S has one operator r whose tensors leave it, and every member of S leads
    to r within S. A cycle through S in the graph of groups leaves S from r and comes back to some s in S; s leads to r,
    so r, ..., s, ..., r was a cycle before, which argues for one occurrence after the other.

    **Complexity.** O(n P) for n operators and P patterns of bounded size.
    """
    graph = groups.graph
    kinds = [base_kind(v.kind) for v in graph.operators]
    by_root: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        for kind in sorted(pattern.root_kinds):
            by_root.setdefault(kind, []).append(pattern)
    matcher = _Matcher(graph, kinds, [len(groups.members[groups.of(v)]) > 1 for v in range(len(graph))])
    for v in range(len(graph) - 1, -1, -1):
        if matcher.taken[v]:
            continue
        for pattern in by_root.get(kinds[v], ()):
            found = (m for m in matcher.at(pattern, v) if len(m) > 1 and _closed(graph, m, v) and groups.alike(m))
            members = next(found, None)
            if members is not None:
                groups.merge(members)
                for w in members:
                    matcher.taken[w] = True
                break


def _closed(graph: OperatorGraph, members: frozenset[int], root: int) -> bool:
    """Whether only the root's tensors leave."""
    tensors = (graph.tensors[u] for v in members if v != root for u in graph.outputs_of[v])
    return all(not t.output and members.issuperset(t.readers) for t in tensors)


Bound = dict[str, int]


@dataclass(frozen=True, slots=True)
class _Matcher:
    """Finds the occurrences of a pattern that end at an operator."""

    graph: OperatorGraph
    kinds: Sequence[str]
    taken: list[bool]

    def at(self, pattern: Pattern, v: int) -> Iterator[frozenset[int]]:
        """Yield the members of each occurrence whose last operator is v, the one with most optional operators first."""
        for members, _ in self._operator(pattern, v, {}):
            yield members

    def _operator(self, pattern: Pattern, v: int, bound: Bound) -> Iterator[tuple[frozenset[int], Bound]]:
        if self.kinds[v] in pattern.kinds and not self.taken[v] and self._holds(pattern, v):
            if pattern.inputs is None:
                yield frozenset({v}), bound
            else:
                read = self.graph.inputs_of[v]
                if len(read) == len(pattern.inputs) <= MOST_INPUTS:
                    for order in permutations(read):
                        for members, more in self._all(pattern.inputs, order, bound):
                            yield members | {v}, more
        if pattern.optional and pattern.inputs and pattern.inputs[0].kinds:
            yield from self._operator(pattern.inputs[0], v, bound)

    def _all(
        self, patterns: Sequence[Pattern], tensors: Sequence[int], bound: Bound
    ) -> Iterator[tuple[frozenset[int], Bound]]:
        if not patterns:
            yield frozenset(), bound
            return
        for members, more in self._tensor(patterns[0], tensors[0], bound):
            for others, most in self._all(patterns[1:], tensors[1:], more):
                yield members | others, most

    def _tensor(self, pattern: Pattern, u: int, bound: Bound) -> Iterator[tuple[frozenset[int], Bound]]:
        if pattern.label:
            if bound.get(pattern.label, u) != u:
                return
            bound = bound | {pattern.label: u}
        if not pattern.kinds:
            yield frozenset(), bound
            return
        producer = self.graph.tensors[u].producer
        if self.kinds[producer] in pattern.kinds:
            bare = Pattern(pattern.kinds, pattern.inputs, conditions=pattern.conditions)
            yield from self._operator(bare, producer, bound)
        if pattern.optional and pattern.inputs:
            yield from self._tensor(pattern.inputs[0], u, bound)

    def _holds(self, pattern: Pattern, v: int) -> bool:
        return all(CONDITIONS[c](self.graph, v) for c in pattern.conditions)
