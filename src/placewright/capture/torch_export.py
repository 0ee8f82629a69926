"""Capture PyTorch networks by ``torch.export``: modules, exported programs, ``.pt2`` files and ``py:`` functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import InvalidInput, MissingExtra
from placewright.graph import OperatorGraph, Source

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["capture_module", "capture_program", "capture_pt2", "capture_py", "export_module"]


def capture_program(
    program: ExportedProgram, *, name: str = "", source: Source | None = None, fold: bool = False
) -> OperatorGraph:
    """Operators and tensors of an exported program; nothing is decomposed, nothing is computed.

    - An operator is one fx node; ``getitem`` nodes are its tensors. A tensor bears the name of its fx node.
    - Folded, so no operators: what depends on constants alone (as ONNX constant folding would; not what is computed
      from parameters), and views of weights. Every device that reads a constant holds a copy; its readers share its
      bytes equally.
    - Tied parameters make their readers a colocation class; their bytes are counted at the first reader.
    - A storage that is written in place makes a class of all operators that make, read or write it, and each of them
      follows the writes before it. Other views may be cut: the cut sends their content.
    - A size of an input that is symbolic has its example value.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Its weights may be on meta; they are not read.
    name : str
    source : Source or None
    fold : bool
        Whether what is computed from parameters and constants alone becomes weights of the operators that read it,
        which list it as ``folded``: see :func:`placewright.capture.torch_fold.folded_parameters`. A program that
        computes gradients is not folded.

    Raises
    ------
    InvalidInput
        If it holds something that can't be placed; the message names the operator.
    """
    _require_torch()
    from placewright.capture.torch_graph import operators_of, tensors_of
    from placewright.capture.torch_program import take_apart

    parts = take_apart(program, fold=fold)
    if not parts.operators:
        raise InvalidInput("the program has no operators but constant ones; there is nothing to place", what=name)
    return OperatorGraph(operators_of(parts), tensors_of(parts), parts.colocation, name, source)


def capture_module(
    module: torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    fold: bool = False,
) -> OperatorGraph:
    """Export a module (non-strict, inference) and capture the program.

    Build the module under ``torch.device("meta")`` and no weight takes memory.

    Parameters
    ----------
    module : torch.nn.Module
        Put it in ``eval()`` mode for inference.
    args, kwargs
        Example inputs of ``forward``; meta tensors will do.
    name : str
        Defaults to the class's name.
    fold : bool
        As for :func:`capture_program`; a module in training mode is not folded.

    Raises
    ------
    InvalidInput
        If the module can't be exported: its message names the cause and what to try.

    Examples
    --------
    >>> import torch
    >>> with torch.device("meta"):
    ...     graph = capture_module(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), (torch.zeros(2, 8),))
    >>> [(v.name, v.kind, v.flops, v.weight_bytes) for v in graph.operators]
    [('0', 'aten.linear', 128, 144), ('1', 'aten.relu', 8, 0)]
    """
    name = name or type(module).__name__
    return capture_program(export_module(module, args, kwargs), name=name, fold=fold and not module.training)


def export_module(
    module: torch.nn.Module, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
) -> ExportedProgram:
    """Export a module the way that capture does, so that operator names agree.

    Raises
    ------
    InvalidInput
        If that fails.
    """
    _require_torch()
    import torch

    from placewright.capture.torch_errors import export_failed, quiet

    try:
        with torch.no_grad(), quiet():
            return torch.export.export(module, args, dict(kwargs or {}), strict=False)
    except Exception as error:
        raise InvalidInput(export_failed(error), what=f"module {type(module).__name__!r}") from None


def capture_py(spec: str, *, fold: bool = False) -> OperatorGraph:
    """Capture the module that a function ``package.module:function`` returns; ``fold`` as for :func:`capture_module`.

    See :func:`placewright.capture.torch_spec.load_py` for what the function must return. This runs the user's code.

    Raises
    ------
    InvalidInput
        If the function can't be called or its module can't be exported.
    """
    _require_torch()
    from placewright.capture.torch_spec import load_py

    module, args, kwargs = load_py(spec)
    program = export_module(module, args, kwargs)
    folded = fold and not module.training
    return capture_program(program, name=spec.rpartition(":")[2], source=Source("py", spec), fold=folded)


def capture_pt2(path: Path, *, fold: bool = False) -> OperatorGraph:
    """Capture a program that ``torch.export.save`` wrote; the file is untrusted and nothing in it is executed.

    ``fold`` is that of :func:`capture_program`.

    No pickle in it is loaded and no weight is read: see :func:`placewright.capture.torch_pt2.read_pt2` for what is
    guaranteed.

    Raises
    ------
    InvalidInput
        If the file is truncated, no ``.pt2`` file, or uses what isn't read from files.
    """
    _require_torch()
    from placewright.capture.torch_pt2 import read_pt2

    path = Path(path)
    program = read_pt2(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        return capture_program(program, name=path.stem, source=Source("pt2", str(path), digest), fold=fold)
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=f"exported program {path.name!r}") from None
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(
            f"its program contradicts itself ({reason}); save it again with torch.export.save",
            what=f"exported program {path.name!r}",
        ) from None


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtra("torch", "torch", "capturing a PyTorch network") from None
