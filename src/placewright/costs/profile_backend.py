"""What the profiler asks of a back-end, and which one runs a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from placewright.costs.tasks import Answer, Conversion, Task
from placewright.graph import OperatorGraph

__all__ = ["Network", "backend_version", "network_of"]


class Network(Protocol):
    """A network that a back-end can measure."""

    def prepare(self, ask: Callable[[Task], Answer]) -> None:
        """Ask for what units need to know."""

    def unit(self, operator: int) -> Task:
        """Make the task of one operator."""
        ...

    def whole(self) -> Task:
        """Make the task of the network."""
        ...

    def converting(self, conversion: Conversion) -> int | None:
        """Say which operator a conversion inside the network is charged to."""
        ...

    def pieces(self) -> tuple[Task, list[int]] | None:
        """Make the task of the network in pieces, and say which operators are at sides of its cuts."""
        ...


def network_of(model: str | Path, graph: OperatorGraph) -> Network:
    """Take the network apart for the back-end that runs such models."""
    if str(model).lower().endswith(".onnx"):
        from placewright.costs.profile_onnx import OnnxNetwork

        return OnnxNetwork(model, graph)
    from placewright.costs.profile_torch import TorchNetwork

    return TorchNetwork(model, graph)


def backend_version(model: str | Path) -> str:
    """Name and release of that back-end, which times depend on."""
    from importlib.metadata import PackageNotFoundError, version

    package = "onnxruntime" if str(model).lower().endswith(".onnx") else "torch"
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        from placewright.errors import MissingExtra

        raise MissingExtra(package, "onnx" if package == "onnxruntime" else "torch", "profiling") from None
