"""From a program that is taken apart to the operators and tensors of a graph."""

from __future__ import annotations

from torch.fx import Node

from placewright.capture import torch_costs
from placewright.capture.torch_meta import concrete, dtype_name, moved_bytes
from placewright.capture.torch_meta import tensors_of as leaves_of
from placewright.capture.torch_program import TorchProgram, sub_graphs, weights_read
from placewright.graph import Operator, Tensor

__all__ = ["operators_of", "tensors_of"]


def operators_of(parts: TorchProgram) -> list[Operator]:
    """Operators with their work and weights, in the program's order; equal signatures are costed once."""
    fixed = {n.name for n in parts.folded} | set(parts.weights)
    weight_bytes = _weight_bytes(parts)
    held = _folded_names(parts)
    known: dict[str, int] = {}
    made = []
    for k, v in enumerate(parts.operators):
        view = v.node in parts.aliases.views
        bodies = sub_graphs(v.node, parts.owner)
        signature = torch_costs.signature(v.node, fixed, view=view)
        if signature not in known or bodies:
            known[signature] = torch_costs.flops(v.node, bodies, view=view)
        made.append(
            Operator(
                v.name,
                torch_costs.kind(v.node),
                known[signature],
                torch_costs.traffic_bytes(v.node, view=view),
                weight_bytes[k],
                dtype=torch_costs.arithmetic_dtype(v.node),
                signature=signature,
                folded=held[k],
            )
        )
    return made


def _folded_names(parts: TorchProgram) -> list[tuple[str, ...]]:
    """For each operator the folded operators that what it reads is computed from, in the program's order."""
    position = {n: k for k, n in enumerate(parts.folded_operators)}
    names = list(parts.folded_operators.values())
    above: dict[Node, frozenset[int]] = {}
    for node in parts.graph.nodes if names else ():
        if node in parts.folded:
            own = {position[node]} if node in position else set()
            above[node] = frozenset(own).union(*(above.get(n, ()) for n in node.all_input_nodes))
    rows = (frozenset[int]().union(*(above.get(n, ()) for n in v.node.all_input_nodes)) for v in parts.operators)
    return [tuple(names[k] for k in sorted(row)) for row in rows]


def _weight_bytes(parts: TorchProgram) -> list[int]:
    """Parameters and written buffers once, at their first reader; other constants in equal shares at all readers.

    Readers of a constant may sit on several devices, each of which then holds a copy: sharing it out is exact where
    they sit together, and misses less than the constant's size on any device.
    """
    written = {s for row in parts.aliases.writes.values() for s in row}
    storage_of = {n.name: s for n, s in parts.aliases.storage_of.items()}
    size: dict[object, int] = {}
    readers: dict[object, list[int]] = {}
    shared: set[object] = set()
    for k, v in enumerate(parts.operators):
        for weight in weights_read(v.node, parts.weight_views, parts.weights):
            size[weight.storage] = max(size.get(weight.storage, 0), weight.size_bytes)
            readers.setdefault(weight.storage, []).append(k)
            if not weight.parameter and storage_of[weight.node] not in written:
                shared.add(weight.storage)
        for node in v.node.all_input_nodes:
            if node in parts.folded and node not in parts.weight_views:
                held = ("folded", parts.aliases.storage_of[parts.first_of[node]])
                size[held] = max(size.get(held, 0), moved_bytes(leaves_of(node.meta.get("val")), node.name))
                readers.setdefault(held, []).append(k)
                shared.add(held)
    totals = [0] * len(parts.operators)
    for key, row in readers.items():
        distinct = sorted(set(row))
        if key not in shared:
            totals[distinct[0]] += size[key]
            continue
        share, rest = divmod(size[key], len(distinct))
        for position, k in enumerate(distinct):
            totals[k] += share + (position < rest)
    return totals


def tensors_of(parts: TorchProgram) -> list[Tensor]:
    """Tensors between operators; what must follow a write reads the writer's tensor."""
    index = {r: k for k, v in enumerate(parts.operators) for r in (v.node, *v.results)}
    outputs = {n for n in parts.outputs if n in index}
    followers: dict[int, set[int]] = {}
    for earlier, later in parts.order:
        followers.setdefault(earlier, set()).add(later)
    made = []
    for k, v in enumerate(parts.operators):
        for position, result in enumerate(v.results):
            readers = {index[u] for u in result.users if u in index and u not in v.results}
            if position == 0:
                readers |= followers.get(k, set())
            first = next(iter(leaves_of(result.meta.get("val"))), None)
            made.append(
                Tensor(
                    result.name,
                    k,
                    tuple(sorted(readers)),
                    moved_bytes(result.meta.get("val"), result.name),
                    () if first is None else tuple(concrete(s, result.name) for s in first.shape),
                    "int64" if first is None else dtype_name(first.dtype),
                    result in outputs,
                )
            )
    return made
