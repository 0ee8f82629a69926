"""What an exported program holds: parameters, buffers and constants, and which of them share storage."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph

from placewright.capture.torch_inline import attribute
from placewright.errors import InvalidInput

__all__ = ["Weight", "find_weights", "mutation_targets"]


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter, buffer or constant of a program.

    Attributes
    ----------
    node : str
        Name of the fx node that stands for it.
    target : str
        Its name in the module.
    tensor : Tensor
        May be on meta.
    parameter : bool
    storage : hashable
        Equal for tied weights.
    """

    node: str
    target: str
    tensor: torch.Tensor
    parameter: bool
    storage: Hashable

    @property
    def size_bytes(self) -> int:
        """Bytes of its content."""
        return self.tensor.numel() * self.tensor.element_size()


def find_weights(program: ExportedProgram, graph: Graph) -> dict[str, Weight]:
    """All weights by the name of their fx node.

    Raises
    ------
    InvalidInput
        If the program holds something that is no tensor (a script object, a token).
    """
    by_node: dict[str, Weight] = {}
    values: dict[str, object] = {**program.constants, **program.state_dict}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            continue
        value = values.get(str(spec.target))
        if not isinstance(value, torch.Tensor):
            raise InvalidInput(
                f"the input {spec.arg.name!r} ({spec.target}) is {spec.kind.name.lower()}, not a tensor; "
                "placewright places tensors only, so keep this object out of forward()"
            )
        by_node[spec.arg.name] = _weight(spec.arg.name, str(spec.target), value, spec.kind == InputKind.PARAMETER)
    for node in graph.nodes:
        if node.op == "get_attr":
            value = attribute(node, program.graph_module)
            if isinstance(value, torch.Tensor):
                by_node[node.name] = _weight(node.name, str(node.target), value, isinstance(value, torch.nn.Parameter))
    return by_node


def mutation_targets(program: ExportedProgram) -> dict[str, str]:
    """For functional programs: name of the fx node of a result -> that of the input or buffer it is written back to."""
    of_target = {str(s.target): s.arg.name for s in program.graph_signature.input_specs if s.target}
    found: dict[str, str] = {}
    for spec in program.graph_signature.output_specs:
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION):
            target = str(spec.target)
            found[spec.arg.name] = of_target.get(target, target)
    return found


def _weight(node: str, target: str, tensor: torch.Tensor, parameter: bool) -> Weight:
    storage: Hashable = (node,)
    if tensor.layout == torch.strided:
        storage = tensor.untyped_storage()._cdata
    return Weight(node, target, tensor, parameter, storage)
