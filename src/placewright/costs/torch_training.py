"""Memory that training a torch program takes: what each operator saves for the backward pass, and what comes and goes.

The program runs forward and backward on meta tensors under autograd, where nothing is computed; every storage is
followed from its making to its release, and each one that autograd saves is put down to the operator that saves it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from placewright.capture.torch_alias import operator_name
from placewright.capture.torch_inline import attribute
from placewright.capture.torch_meta import concrete, on_meta, tensors_of
from placewright.capture.torch_program import TorchProgram, take_apart, weights_read
from placewright.costs.recomputation import Storage
from placewright.errors import InvalidInput

__all__ = ["TrainingMemory", "training_memory"]


@dataclass(frozen=True)
class TrainingMemory:
    """What one micro-batch of training takes beside the weights, in bytes.

    Attributes
    ----------
    parameters : dict of str to (int, int)
        Numbers and bytes of the parameters that are trained, by the operator that reads them first.
    storages : tuple of Storage
        What the forward pass makes, in its order.
    working_bytes : int
        Most that lives at any instant of either pass beside what is saved: results on their way to their readers,
        gradients of activations, a parameter's gradient before it is added, and what operators take in between.
    peak_bytes : int
        Most that lives at any instant, saved or not; gradients of parameters are there already and not counted.
    """

    parameters: Mapping[str, tuple[int, int]]
    storages: tuple[Storage, ...]
    working_bytes: int
    peak_bytes: int

    @property
    def saved_bytes(self) -> int:
        """Bytes of all that is saved for the backward pass."""
        return sum(s.size_bytes for s in self.storages if s.savers)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters that are trained."""
        return sum(size for _, size in self.parameters.values())


@dataclass(slots=True)
class _Made:
    """A storage while it is followed."""

    maker: str
    size: int
    savers: dict[str, None] = field(default_factory=dict)
    readers: dict[str, None] = field(default_factory=dict)


class _Followed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Storages that live, by who made them and whether they are saved; those given are not counted."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = given  # lest another storage gets the address of one
        self.given = {t.untyped_storage()._cdata for t in given}
        self.at = ""
        self.living: dict[int, _Made] = {}
        self.rows: list[_Made] = []
        self.live = self.peak = self.live_kept = self.working = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_of(result):
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self.given and key not in self.living:
                self.living[key] = _Made(self.at, size)
                self.rows.append(self.living[key])
                self.live += size
                weakref.finalize(storage, self._gone, key)
        workspace = _workspace(func, args, result)
        self.peak = max(self.peak, self.live + workspace)
        self.working = max(self.working, self.live - self.live_kept + workspace)
        return result

    def save(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note that autograd saves a tensor."""
        made = self.living.get(tensor.untyped_storage()._cdata)
        if made is not None:
            self.live_kept += 0 if made.savers else made.size
            made.savers[self.at] = None
        return tensor.detach()

    def read(self, value: Any) -> None:
        """Note that the operator at hand reads what is in a value."""
        for tensor in tensors_of(value):
            made = self.living.get(tensor.untyped_storage()._cdata)
            if made is not None:
                made.readers[self.at] = None

    def _gone(self, key: int) -> None:
        made = self.living.pop(key)
        self.live -= made.size
        self.live_kept -= made.size if made.savers else 0


def _workspace(func: Any, args: Any, result: Any) -> int:
    """Take what oneDNN holds of a convolution in its own layout: the larger of what it reads and what it makes."""
    if func not in (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default):
        return 0
    read, made = (sum(t.numel() * t.element_size() for t in tensors_of(value)) for value in (args, result))
    return max(read, made)


def training_memory(program: ExportedProgram) -> TrainingMemory:
    """Find what training with a program takes on one device, operator by operator.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Of a module in training mode: in evaluation mode dropout saves nothing and normalisation other things. Its
        outputs that depend on parameters are what is differentiated; a loss that is computed outside is not counted.

    Raises
    ------
    InvalidInput
        If it can't run on meta tensors, or no output depends on a parameter.
    """
    parts = take_apart(program)
    values, parameters = _given(parts)
    for tensor in parameters:
        tensor.grad = torch.zeros_like(tensor)
    kept = [*tensors_of(list(values.values())), *(t.grad for t in parameters if t.grad is not None)]
    names = {v.node.name: v.name for v in parts.operators}
    followed = _Followed(kept)
    try:
        with followed, torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(followed.save, lambda t: t):
            outputs = [t for t in _outputs(parts, values, followed, names) if t.requires_grad]
            values.clear()
            followed.at, forward = "", len(followed.rows)
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    except (RuntimeError, TypeError, NotImplementedError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(
            f"operator {followed.at!r} can't be followed forward and backward without data ({reason}); "
            "leave the memory of training out"
        ) from None
    if not outputs:
        raise InvalidInput("no output depends on a parameter, so there is nothing to train; give a module that trains")
    storages = [Storage(s.maker, s.size, tuple(s.savers), tuple(s.readers)) for s in followed.rows[:forward]]
    return TrainingMemory(_parameters(parts), tuple(storages), followed.working, followed.peak)


def _given(parts: TorchProgram) -> tuple[dict[Node, Any], list[torch.Tensor]]:
    """Make inputs and weights on meta, tied ones once, and those of them that are trained."""
    trained = _trained(parts)
    shared: dict[Hashable, torch.Tensor] = {}
    values: dict[Node, Any] = {}
    for node in parts.graph.nodes:
        if node.op not in ("placeholder", "get_attr"):
            continue
        weight = parts.weights.get(node.name)
        if weight is None:
            value = attribute(node, parts.owner) if node.op == "get_attr" else node.meta.get("val")
            value = tree_map_only(torch.Tensor, lambda t, at=node.name: on_meta(t, at), value)
            values[node] = _without_symbols(value, node.name)
            continue
        key = weight.storage, tuple(weight.tensor.shape), weight.tensor.stride()
        if key not in shared:
            shared[key] = on_meta(weight.tensor, node.name).requires_grad_(weight.storage in trained)
        values[node] = shared[key]
    return values, [t for t in shared.values() if t.requires_grad]


def _trained(parts: TorchProgram) -> set[Hashable]:
    """Storages of the parameters that want gradients: all where a file says of none that it does."""
    weights = [w for w in parts.weights.values() if w.parameter and w.tensor.is_floating_point()]
    wanting = {w.storage for w in weights if w.tensor.requires_grad}
    return wanting or {w.storage for w in weights}


def _parameters(parts: TorchProgram) -> dict[str, tuple[int, int]]:
    trained = _trained(parts)
    found: dict[str, tuple[int, int]] = {}
    for v in parts.operators:
        for weight in weights_read(v.node, parts.weight_views, parts.weights):
            if weight.storage in trained:
                trained.discard(weight.storage)
                numbers, size = found.get(v.name, (0, 0))
                found[v.name] = numbers + weight.tensor.numel(), size + weight.size_bytes
    return found


def _outputs(
    parts: TorchProgram, values: dict[Node, Any], followed: _Followed, names: Mapping[str, str]
) -> list[torch.Tensor]:
    """Run the program; each value goes after its last reader."""
    nodes = list(parts.graph.nodes)
    uses = Counter(source for node in nodes for source in node.all_input_nodes)
    returned: list[torch.Tensor] = []
    for node in nodes:
        if node.op == "call_function":
            followed.at = names.get(node.name, followed.at)
            followed.read([values[source] for source in node.all_input_nodes])
            values[node] = _called(node, values)
        elif node.op == "output":
            returned = tensors_of(torch.fx.map_arg(node.args, values.__getitem__))
        for source in node.all_input_nodes:
            uses[source] -= 1
            if not uses[source]:
                del values[source]
        if not uses[node]:
            values.pop(node, None)
    return returned


def _called(node: Node, values: Mapping[Node, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = tree_map_only(torch.device, lambda _: torch.device("meta"), (args, kwargs))
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    if operator_name(node) == "scaled_dot_product_attention":
        return _attention(*args, **kwargs)
    return _without_symbols(target(*args, **kwargs), node.name)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attend as torch does on a CPU: without scores where nothing is dropped, which meta tensors alone would not do."""
    alike = query.dim() == 4 and query.shape[-1] == key.shape[-1] == value.shape[-1]
    if not alike or dropout_p or (attn_mask is not None and attn_mask.requires_grad):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(query.dtype)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    result: torch.Tensor = flash(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return result


def _without_symbols(value: Any, where: str) -> Any:
    return tree_map_only((torch.SymInt, torch.SymFloat, torch.SymBool), lambda s: concrete(s, where), value)
