"""A problem from a file whose kind its content tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from placewright.errors import InvalidInput
from placewright.io.moirai_sheet import sheet_from_bytes
from placewright.io.partitioning_file import partitioning_from_json
from placewright.io.problem_file import problem_from_bytes
from placewright.io.reading import read_bounded
from placewright.io.xls_table import is_xls
from placewright.objective import MaxLoad, Objective
from placewright.problem import Problem

__all__ = ["FoundProblem", "read_any_problem"]


class FoundProblem(NamedTuple):
    """A problem, and what its file is.

    Attributes
    ----------
    problem : Problem
    kind : str
        ``problem file``, ``workload`` or ``sheet``.
    states_objective : bool
        Whether the objective is the file's own, or the default of its kind.
    notes : tuple of str
        What was assumed in reading it.
    """

    problem: Problem
    kind: str
    states_objective: bool
    notes: tuple[str, ...] = ()


class _Head(msgspec.Struct):
    """The keys by which kinds of files are told apart."""

    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    nodes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    edges: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    maxFPGAs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 (the file's own word)
    cpus: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    fpgas: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    def has(self, *keys: str) -> bool:
        return all(getattr(self, key) is not msgspec.UNSET for key in keys)


def read_any_problem(path: Path | str, workload_objective: Callable[[], Objective] = MaxLoad) -> FoundProblem:
    """Read a problem file, a sheet of Moirai (``.xls``) or a workload of dnn-partitioning.

    A workload is an object without ``schema`` that has nodes and edges.

    Parameters
    ----------
    path : path
    workload_objective : callable
        Gives what a workload is for, which states none itself; called for a workload only. A sheet is for Moirai's.

    Raises
    ------
    InvalidInput
        With every violation, in one line.
    """
    data = read_bounded(path, "problem file")
    if is_xls(data) or str(path).lower().endswith(".xls"):
        sheet = sheet_from_bytes(data, path)
        return FoundProblem(sheet.problem, "sheet", False, sheet.notes)
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        head = _Head()  # what is wrong is said below
    if not head.has("schema") and (head.has("nodes", "edges") or head.has("maxFPGAs")):
        return FoundProblem(partitioning_from_json(data, path, workload_objective()), "workload", False)
    if not head.has("schema") and head.has("cpus", "fpgas"):
        raise InvalidInput(
            "is a split of dnn-partitioning, not a problem; give the workload, and the split with --expert",
            what=f"file {str(path)!r}",
        )
    return FoundProblem(problem_from_bytes(data, path), "problem file", True)
