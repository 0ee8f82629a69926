"""Values of one rank: numbers that follow from sizes, and tensors as the bytes that travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from placewright.capture.torch_inline import attribute
from placewright.capture.torch_program import TorchProgram
from placewright.execute.ranks.segments import Message
from placewright.execute.torch.split import call

__all__ = ["free_values", "packed", "unpacked"]


def free_values(program: TorchProgram, inputs: Mapping[str, Any], place: torch.device) -> dict[str, Any]:
    """Numbers that follow from sizes alone; no weight is read for its own."""
    values: dict[Node, Any] = {}
    free: dict[str, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = node.meta.get("val") if node.name in program.weights else inputs.get(node.name)
        elif node.op == "get_attr" and node in program.free:
            values[node] = attribute(node, program.owner)
        elif node in program.free:
            free[node.name] = values[node] = call(node, values, place)
    return free


def packed(tensor: torch.Tensor, message: Message) -> torch.Tensor:
    """Bytes of a tensor as they travel."""
    compact = tensor.detach()
    for dimension in message.expanded:
        compact = compact.narrow(dimension, 0, 1)
    compact = compact.resolve_conj().resolve_neg()
    return compact.to("cpu").contiguous().reshape(-1).view(torch.uint8)


def unpacked(buffer: torch.Tensor, message: Message, place: torch.device) -> torch.Tensor:
    """Make a tensor of the bytes that came."""
    return buffer.view(message.dtype).reshape(message.sent_shape).to(place).expand(message.shape)
