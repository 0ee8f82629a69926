"""Memory of an exported torch program run operator by operator: weights, inputs, live tensors and workspace.

What each operator makes, what it only views, and what it takes in between, comes out of calling it on meta tensors
while every storage is followed from its making to its release. A tensor lives from the operator that makes it to the
last one that reads it, or a view of it; one written in place is the tensor that it was.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode

from placewright.capture.torch_alias import is_getitem, operator_name
from placewright.capture.torch_inline import flat_graph
from placewright.capture.torch_meta import call_key, dtype_name, run_on_meta, tensors_of
from placewright.capture.torch_program import take_apart
from placewright.capture.torch_weights import find_weights

__all__ = ["CallMemory", "ProgramMemory", "call_memory", "program_memory", "workspaces"]


@dataclass(frozen=True, slots=True)
class CallMemory:
    """What one call of an operator takes.

    Attributes
    ----------
    results : tuple of (int, int)
        Of each tensor that comes out: the input, by position, whose storage it shares, else -1; and the bytes made.
    workspace_bytes : int
        Most bytes that the call holds beside its results.
    """

    results: tuple[tuple[int, int], ...]
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """Memory of a program on one device, in bytes, part by part.

    Attributes
    ----------
    weight_bytes : dict of str to int
        Parameters, buffers and constants by dtype, storages that are shared counted once.
    live_bytes, workspace_bytes : int
        Of the tensors that are made, and beside them, at the operator where both together are most.
    peak_at : str
        Name of that operator's node.
    """

    weight_bytes: dict[str, int]
    live_bytes: int
    workspace_bytes: int
    peak_at: str

    @property
    def activation_bytes(self) -> int:
        """Peak of what is taken while the program runs."""
        return self.live_bytes + self.workspace_bytes


class _Followed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the storages that live, and the most there were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_of(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.live:
                self.live[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, storage._cdata, None)
        self.peak = max(self.peak, sum(self.live.values()))
        return result


def call_memory(node: Node) -> CallMemory:
    """Find what a node's call takes; on a CPU, a convolution also holds its operands and result in oneDNN's layout.

    That workspace is the larger of input + weight and result: the operands go before the result is laid out again.
    """
    with _Followed() as followed:
        result, made = run_on_meta(node)
        positions = {
            tensor.untyped_storage()._cdata: k
            for k, source in enumerate(node.all_input_nodes)
            for tensor in tensors_of(made.get(source.name))
        }
        given = sum(followed.live[storage] for storage in positions if storage in followed.live)
    rows = []
    for tensor in tensors_of(result):
        storage = tensor.untyped_storage()
        k = positions.get(storage._cdata, -1)
        rows.append((k, storage.nbytes() if k < 0 else 0))
    own = sum(size for _, size in rows)
    workspace = max(0, followed.peak - given - own)
    if operator_name(node) in ("conv1d", "conv2d", "conv3d"):
        operands = [t for n in node.all_input_nodes[:2] for t in tensors_of(made.get(n.name))]
        workspace = max(sum(t.numel() * t.element_size() for t in operands), own)
    elif operator_name(node) == "scaled_dot_product_attention":
        workspace = _attention_workspace(node, made)
    return CallMemory(tuple(rows), workspace)


def _attention_workspace(node: Node, made: dict[str, Any]) -> int:
    """Take what flash attention holds on a CPU: a block of scores and sums for each thread, and a sum a query."""
    query, key = (tensors_of(made[n.name])[0] for n in node.all_input_nodes[:2])
    queries, keys, width = query.shape[-2], key.shape[-2], query.shape[-1]
    rows = min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32)
    each = rows * (min(512, keys) + 2 + width)
    return 4 * (torch.get_num_threads() * each + query.numel() // width)


def program_memory(program: ExportedProgram) -> ProgramMemory:
    """Find the memory of a program whose operators run one after the other in its order; inputs are the caller's."""
    graph = flat_graph(program)
    nodes = list(graph.nodes)
    place = {node: k for k, node in enumerate(nodes)}
    known: dict[str, CallMemory] = {}
    holds: dict[Node, list[int]] = {}
    sizes: list[int] = []
    born: list[list[int]] = [[] for _ in nodes]
    workspace = [0] * len(nodes)
    for k, node in enumerate(nodes):
        holds[node] = []
        if node.op != "call_function" or not tensors_of(node.meta.get("val")):
            continue
        if is_getitem(node):
            source, index = node.args
            row = holds[source] if isinstance(source, Node) else []
            holds[node] = [row[index]] if isinstance(index, int) and index < len(row) else row
            continue
        key = call_key(node)
        if key not in known:
            known[key] = call_memory(node)
        workspace[k] = known[key].workspace_bytes
        for position, size in known[key].results:
            if position < 0:
                sizes.append(size)
                born[k].append(len(sizes) - 1)
                holds[node].append(len(sizes) - 1)
            else:
                holds[node] += holds[node.all_input_nodes[position]][:1] or [-1]
    until = [0] * len(sizes)
    for node in nodes:
        end = max((place[u] for u in node.users), default=place[node])
        for storage in holds[node]:
            if storage >= 0:
                until[storage] = max(until[storage], end)
    dead: list[list[int]] = [[] for _ in nodes]
    for storage, end in enumerate(until):
        dead[end].append(storage)
    live, best = 0, (0, 0, "")
    for k, node in enumerate(nodes):
        live += sum(sizes[s] for s in born[k])
        if live + workspace[k] > best[0] + best[1]:
            best = live, workspace[k], node.name
        live -= sum(sizes[s] for s in dead[k])
    return ProgramMemory(_weights(program), *best)


def workspaces(program: ExportedProgram) -> dict[str, int]:
    """Find the bytes that operators hold beside their results while they run, by name; none: left out."""
    known: dict[str, int] = {}
    found = {}
    for v in take_apart(program).operators:
        if tensors_of(v.node.meta.get("val")) and v.node.op == "call_function":
            key = call_key(v.node)
            if key not in known:
                known[key] = call_memory(v.node).workspace_bytes
            found[v.name] = known[key]
    return {name: size for name, size in found.items() if size}


def _weights(program: ExportedProgram) -> dict[str, int]:
    seen: dict[object, tuple[str, int]] = {}
    for weight in find_weights(program, flat_graph(program)).values():
        name, size = dtype_name(weight.tensor.dtype), weight.size_bytes
        if size > seen.get(weight.storage, ("", -1))[1]:
            seen[weight.storage] = name, size
    totals: dict[str, int] = {}
    for name, size in seen.values():
        totals[name] = totals.get(name, 0) + size
    return totals
