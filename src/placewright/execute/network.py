"""The network of a plan: found, compared with the one that was planned, and loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from placewright.errors import InvalidInput
from placewright.problem import Problem

__all__ = ["check_hash", "find_model", "load_torch"]


def find_model(problem: Problem, folder: Path) -> Path:
    """Return the network's file at or below ``folder``; a path in a plan file is never followed out of it."""
    source = problem.graph.source
    if source is not None and source.format == "py":
        raise InvalidInput(
            f"the network is made by the function {source.location!r}, which is not called unasked; "
            f"give --model py:{source.location} to call it"
        )
    if source is None or source.format not in ("onnx", "pt2"):
        raise InvalidInput("the plan names no network to run; give it with --model PATH")
    root = folder.resolve()
    for candidate in (root / source.location, root / Path(source.location).name):
        try:
            real = candidate.resolve()
            if real.is_relative_to(root) and real.is_file():
                return real
        except (OSError, ValueError, RuntimeError):  # a name too long, with a NUL, or a circle of links
            continue
    raise InvalidInput(
        f"the network {source.location!r} is not in the plan's folder {str(folder)!r}; give it with --model PATH"
    )


def check_hash(problem: Problem, path: Path) -> None:
    """Refuse another file than the one that was planned.

    Raises
    ------
    InvalidInput
        If it is absent, or has another hash.
    """
    source = problem.graph.source
    if not path.is_file():
        raise InvalidInput(f"model {str(path)!r} is not a file; correct --model")
    if source is None or not source.sha256:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise InvalidInput(
            f"model {str(path)!r} has the hash {found[:12]}, and the plan was made for {source.sha256[:12]}; plan again"
        )


def load_torch(problem: Problem, location: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a module or program with real weights and its inputs: the function's own, or random ones for a file."""
    if location.startswith("py:"):
        from placewright.capture.torch_spec import load_py

        return load_py(location.removeprefix("py:"))
    path = Path(location)
    check_hash(problem, path)
    import torch
    from torch.utils import _pytree as pytree

    from placewright.capture.torch_pt2 import read_pt2

    program = read_pt2(path, weights=True)
    named = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    torch.manual_seed(0)
    flat = []
    for name in program.graph_signature.user_inputs:
        value = named[str(name)].meta["val"]
        if not isinstance(value, torch.Tensor):
            flat.append(value)
            continue
        shape = [int(extent) for extent in value.shape]
        floating = value.dtype.is_floating_point
        # Whole numbers are indices as a rule: 0 and 1 lie in every table.
        flat.append(torch.randn(shape).to(value.dtype) if floating else torch.randint(0, 2, shape).to(value.dtype))
    args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return program, tuple(args), dict(kwargs)
