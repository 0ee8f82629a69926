"""What an exported program need not compute for every sample: constants, and what follows from parameters alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch.fx import Graph, Node

from placewright.capture.torch_alias import Aliases, is_getitem
from placewright.capture.torch_meta import moved_bytes, tensors_of
from placewright.capture.torch_weights import Weight

__all__ = ["constant_nodes", "first_equals", "folded_parameters"]

FOLDED_SHARE = 0.05
"""Of all weights: what results may hold that are larger than the weights they come from, or that several read."""

FOLDED_BYTES = 64 * 1024
"""What such results may hold in any network, however small."""


def constant_nodes(
    graph: Graph,
    live: Iterable[Node],
    aliases: Aliases,
    weights: dict[str, Weight],
    changing: Collection[str],
    *,
    parameters: bool = False,
) -> set[Node]:
    """Nodes that depend on constants alone, and on parameters where those count as constants.

    A storage that is written counts only if all its writes do.
    """
    live = list(live)
    varying_storages = {
        aliases.storage_of[n]
        for n in graph.nodes
        if (n.op == "placeholder" and n.name not in weights)
        or n.name in changing
        or (n.name in weights and weights[n.name].parameter and not parameters)
    }
    written = {s for row in aliases.writes.values() for s in row}
    varying_storages |= {aliases.storage_of[n] for n in graph.nodes if n.name in weights} & written
    accesses = aliases.accesses(n for n in live if n.op == "call_function" and not is_getitem(n))
    while True:
        constant: set[Node] = set()
        for node in live:
            known = node.name in weights or node.op != "placeholder"
            fixed = node.op in ("placeholder", "get_attr") or (node.op == "call_function" and _is_pure(node))
            if (
                known
                and fixed
                and aliases.storage_of[node] not in varying_storages
                and all(n in constant for n in node.all_input_nodes)
            ):
                constant.add(node)
        lost = set()
        for storage, nodes in accesses.items():
            if storage in varying_storages:
                continue
            kinds = [n in constant for n in nodes]
            last_write = max(k for k, n in enumerate(nodes) if storage in aliases.writes.get(n, ()))
            if not all(kinds[: last_write + 1]):
                lost.add(storage)
        if not lost:
            return {n for n in constant if n.op == "call_function" and tensors_of(n.meta.get("val"))}
        varying_storages |= lost


def folded_parameters(
    live: list[Node],
    candidates: Collection[Node],
    fixed: Collection[Node],
    aliases: Aliases,
    weights: dict[str, Weight],
) -> set[Node]:
    """Of the nodes that follow from parameters alone those whose results are held as weights instead.

    What is held are the results that an operator reads which is computed for every sample. One reader's result that is
    no larger than the weights it comes from (a transposed or narrowed matrix) takes no more memory than they did. The
    others (a table of positions that every layer reads, a widened matrix) are taken from the smallest on while they
    hold at most :data:`FOLDED_SHARE` of all weights together, or :data:`FOLDED_BYTES`: bytes of a result with several
    readers are shared out among them, so this is also the most that any device can lack.

    Parameters
    ----------
    live : list of Node
        In the program's order.
    candidates : collection of Node
        What depends on parameters and constants alone.
    fixed : collection of Node
        What is folded anyway.
    """
    written = {s for row in aliases.writes.values() for s in row}
    limit = max(FOLDED_BYTES, FOLDED_SHARE * sum({w.storage: w.size_bytes for w in weights.values()}.values()))
    chosen = set(candidates)
    while True:
        first_of = first_equals(live, chosen | set(fixed), aliases)
        held: dict[int, list[Node]] = {}
        for node in live:
            if node in chosen and any(u not in chosen and u not in fixed for u in node.users):
                held.setdefault(aliases.storage_of[first_of[node]], []).append(node)
        extra = []
        for storage, nodes in held.items():
            size = max(moved_bytes(n.meta.get("val"), n.name) for n in nodes)
            readers = {u for n in nodes for u in n.users if u not in chosen and u not in fixed}
            if len(readers) > 1 or size > _source_bytes(nodes[0], weights):
                extra.append((size, storage))
        total = 0
        dear = set()
        for size, storage in sorted(extra):
            total += size
            if total > limit:
                dear.update(held[storage])
        if not dear:
            return chosen
        dear_storages = {aliases.storage_of[n] for n in dear} & written
        lost = {n for n in chosen if n in dear or aliases.storage_of[n] in dear_storages}
        for node in live:  # what is computed from them is computed for every sample, too
            if node in chosen and any(n in lost for n in node.all_input_nodes):
                lost.add(node)
        chosen -= lost


def first_equals(live: Iterable[Node], folded: Collection[Node], aliases: Aliases) -> dict[Node, Node]:
    """Find the first equal of each folded node: a mask that every layer builds anew is held once."""
    written = {s for row in aliases.writes.values() for s in row}
    first: dict[str, Node] = {}
    first_of: dict[Node, Node] = {}
    for node in live:
        if node in folded:
            args = torch.fx.map_arg((node.args, node.kwargs), lambda n: first_of.get(n, n))
            fixed = aliases.storage_of[node] in written
            first_of[node] = node if fixed else first.setdefault(f"{node.target} {args}", node)
    return first_of


def _source_bytes(node: Node, weights: dict[str, Weight]) -> int:
    """Bytes of the weights that a node is computed from."""
    seen: set[Node] = set()
    pending = [node]
    while pending:
        for source in pending.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return sum({w.storage: w.size_bytes for n in seen if (w := weights.get(n.name)) is not None}.values())


def _is_pure(node: Node) -> bool:
    if is_getitem(node):
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    symbolic = any(isinstance(s, torch.SymInt) for t in tensors_of(node.meta.get("val")) for s in t.shape)
    return torch.Tag.nondeterministic_seeded not in node.target.tags and not symbolic
