"""What a target is: its rules, and what writes a plan that keeps to them in its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from placewright.export.nearest import Nearest, Rules

__all__ = ["Exported", "Target"]


@dataclass(frozen=True)
class Exported:
    """A plan in the words of a target.

    Attributes
    ----------
    text : str
        Of the file; empty where there are several.
    notes : tuple of str
        What the text leaves out; that of what the plan loses is put before them by the caller of ``write``.
    files : mapping of str to bytes
        Content by name, where the target reads a folder.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Target:
    """A runtime that a plan is written for.

    Attributes
    ----------
    summary : str
        What is written, in a few words.
    write : callable
        From a plan that keeps to the rules, and the folder of its plan file, to what is written.
    rules : Rules or None
        ``None``: any plan can be said.
    folder : bool
        Whether several files are written.
    of_onnx : bool
        Whether it goes by the nodes of an ONNX file, so that the plan must be one of such a file.
    """

    summary: str
    write: Callable[[Nearest, Path], Exported]
    rules: Rules | None = None
    folder: bool = False
    of_onnx: bool = False
