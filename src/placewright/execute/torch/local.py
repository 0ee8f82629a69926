"""Run a plan of a PyTorch network in one process: cut by the plan, run part by part, compared with the whole."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.errors import ExecutionError, InvalidInput, MissingExtra
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from placewright.capture.torch_program import TorchProgram
    from placewright.execute.torch.split import SubModule

__all__ = ["TorchRun", "flat_inputs", "places_of", "relative_error", "run_torch_local", "unsplit_outputs"]


@dataclass(frozen=True)
class TorchRun:
    """What came out of a plan's run.

    Attributes
    ----------
    outputs : tuple
        What the network returns, flat and in order; tensors are on the CPU.
    max_relative_error : float
        Largest over all outputs of max |split - whole| / max |whole|.
    submodules : tuple of SubModule
        In the order in which they ran.
    transfers : tuple of (str, str, str)
        (tensor, source device, target device), each tensor at most once to a device.
    runs_s : tuple of float
        Wall seconds of each run of the parts and transfers, one after the other; without cutting and comparing.
    """

    outputs: tuple[Any, ...]
    max_relative_error: float
    submodules: tuple[SubModule, ...]
    transfers: tuple[tuple[str, str, str], ...]
    runs_s: tuple[float, ...]


def run_torch_local(
    model: torch.nn.Module | ExportedProgram,
    args: tuple[Any, ...],
    problem: Problem,
    plan: Plan,
    *,
    kwargs: Mapping[str, Any] | None = None,
    torch_devices: Mapping[str, str] | None = None,
    runs: int = 1,
) -> TorchRun:
    """Run a placement of a network and compare it with the network unsplit.

    The program is cut into (level, device) parts, which are acyclic for any placement (see
    :func:`placewright.execute.torch.split.levels`). A tensor that another device reads is copied there once, also
    where both devices are the same piece of hardware here; weights and folded constants are held only by the devices
    that read them. Neither inputs nor weights that the network writes to are changed by the split run.

    Parameters
    ----------
    model : Module or ExportedProgram
        With real weights. A module is exported the way that capture does, so that operator names agree.
    args, kwargs
        Real inputs of ``forward``, of the captured shapes.
    problem : Problem
        Its graph's operators, or their ``parts``, bear the names that capture gave.
    plan : Plan
    torch_devices : mapping of device name to torch device
        Default ``cpu`` for all.
    runs : int
        How often the parts run, at least once. The outputs are those of the first run; state that the network writes
        to moves on from run to run.

    Raises
    ------
    InvalidInput
        If the problem's operators aren't those of the model, or weights are on meta.
    ExecutionError
        If a part fails.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch", "running a PyTorch network") from None
    from torch.export import ExportedProgram

    from placewright.capture.torch_export import export_module
    from placewright.capture.torch_program import take_apart
    from placewright.execute.torch.parts import Run, held_by_devices
    from placewright.execute.torch.split import split

    given = dict(kwargs or {})
    program = model if isinstance(model, ExportedProgram) else export_module(model, args, given)
    parts = take_apart(program, fold=any(v.folded for v in problem.graph.operators))
    places = places_of(parts, problem, plan)
    names = [d.name for d in problem.cluster.devices]
    devices = [torch.device((torch_devices or {}).get(name, "cpu")) for name in names]
    with torch.no_grad():
        held = held_by_devices(parts, places, devices)
        submodules = split(parts, places, devices, held)
        flat = flat_inputs(program, args, given)
        inputs = dict(zip(parts.inputs, flat, strict=True))
        first = Run(parts, submodules, places, devices, inputs, held)
        outputs = first.run(names)
        runs_s = [first.seconds]
        for _ in range(1, runs):
            again = Run(parts, submodules, places, devices, inputs, held)
            again.run(names)
            runs_s.append(again.seconds)
        reference = unsplit_outputs(model, args, given)
    error = relative_error(outputs, reference)
    transfers = tuple((tensor, names[i], names[j]) for tensor, i, j in first.transfers)
    return TorchRun(outputs, error, tuple(submodules), transfers, tuple(runs_s))


def relative_error(outputs: Sequence[Any], reference: Sequence[Any]) -> float:
    """Largest over all tensors of max |a - b| / max |b|; ``inf`` where shapes or non-finite places differ.

    Examples
    --------
    >>> import torch
    >>> relative_error([torch.tensor([1.0, 2.02])], [torch.tensor([1.0, 2.0])])  # doctest: +ELLIPSIS
    0.0099...
    """
    import torch

    left = [t for t in outputs if isinstance(t, torch.Tensor)]
    right = [t for t in reference if isinstance(t, torch.Tensor)]
    if len(left) != len(right):
        raise ExecutionError(f"the plan gave {len(left)} output tensors and the unsplit network {len(right)}")
    largest = 0.0
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return float("inf")
        wide = torch.complex128 if b.is_complex() else torch.float64
        a, b = a.detach().cpu().to(wide), b.detach().cpu().to(wide)
        odd = ~torch.isfinite(b)
        if not torch.equal(a[odd].nan_to_num(7.0), b[odd].nan_to_num(7.0)) or not torch.isfinite(a[~odd]).all():
            return float("inf")
        difference, scale = (
            float(t[~odd].abs().max()) if (~odd).any() else 0.0 for t in (torch.where(odd, 0, a - b), b)
        )
        largest = max(largest, 0.0 if difference == 0 else difference / scale if scale else float("inf"))
    return largest


def places_of(parts: TorchProgram, problem: Problem, plan: Plan) -> list[tuple[int, ...]]:
    """Devices of each operator: several where it stands in several operators of the plan."""
    placed: dict[str, set[int]] = {}
    for k, v in enumerate(problem.graph.operators):
        for part in v.part_names:
            placed.setdefault(part, set()).add(int(plan.device_of[k]))
    known = {v.name for v in parts.operators}
    missing = [v.name for v in parts.operators if v.name not in placed]
    extra = [name for name in placed if name not in known]
    if missing or extra:
        shown = ", ".join(repr(name) for name in (missing or extra)[:3])
        what = "the plan places no" if missing else "the model has no"
        raise InvalidInput(
            f"{what} operator {shown} ({len(missing)} missing, {len(extra)} unknown of {len(known)}); "
            "plan the same model with the same input shapes"
        )
    return [tuple(sorted(placed[v.name])) for v in parts.operators]


def flat_inputs(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Put the inputs of a call in the order of the program's input nodes."""
    from torch.export._tree_utils import reorder_kwargs
    from torch.utils._pytree import tree_flatten

    spec = program.call_spec.in_spec
    ordered = reorder_kwargs(kwargs, spec) if kwargs else kwargs
    flat, given = tree_flatten((args, ordered))
    if given.num_leaves != spec.num_leaves:
        raise InvalidInput(f"the model takes {spec.num_leaves} inputs and {given.num_leaves} were given; give all")
    return flat


def unsplit_outputs(
    model: torch.nn.Module | ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Give the outputs of the unsplit network, flat."""
    import torch
    from torch.export.passes import move_to_device_pass
    from torch.utils._pytree import tree_leaves, tree_map_only

    args, kwargs = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
    if isinstance(model, torch.nn.Module):
        return tree_leaves(model(*args, **kwargs))
    if torch.device("meta") in {n.kwargs.get("device") for n in model.graph.nodes}:
        model = copy.copy(model)
        model._example_inputs = None  # meta tensors, which the pass can't move
        model = move_to_device_pass(model, "cpu")
    return tree_leaves(model.module()(*args, **kwargs))
