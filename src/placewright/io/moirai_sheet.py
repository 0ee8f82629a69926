"""Sheets of Moirai (arXiv 2312.04025, repository moirai-placement/moirai): operators, transfers, and their times.

The first sheet of an ``.xls`` file. Headings ``task, c_task, dir_succ, p0.., pc00.., mi, m0..``; a row an operator.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source
from placewright.io.partitioning_file import LONGEST, MILLISECONDS, MOST_NAMED, MOST_TABLE, UNIT_S
from placewright.io.reading import closest, read_bounded
from placewright.io.xls_table import Cells, XlsTable, ids_in, number_in, numbers_in, table_of
from placewright.objective import Makespan, Objective
from placewright.problem import Problem, Times

__all__ = ["MOIRAI_OBJECTIVE", "MoiraiSheet", "read_moirai", "sheet_from_bytes"]

MOIRAI_OBJECTIVE = Makespan("port")
"""What the sheets are for."""

MOST_DEVICES = 10
"""More would make the headings ambiguous: ``pc111`` is from 1 to 11, or from 11 to 1."""
MOST_BITS = 2**53
"""Of one figure of memory: a larger number in a cell is not exact."""


class MoiraiSheet(NamedTuple):
    """A problem from a sheet, and what was assumed on the way.

    Attributes
    ----------
    problem : Problem
    notes : tuple of str
        To be told to the user.
    """

    problem: Problem
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Row:
    """An operator: row of the sheet (from 1), transfers and successors in the same order, milliseconds, bits."""

    number: int
    transfers: list[int]
    successors: list[int]
    times_ms: list[float]
    moves_ms: list[list[float]]
    bits: float


def read_moirai(path: Path | str, objective: Objective = MOIRAI_OBJECTIVE) -> MoiraiSheet:
    """Read a sheet as a problem with its own devices ``device0``.. and a transfer for each edge.

    Times are taken as milliseconds. A transfer between two devices takes what the sheet says for that pair, 0 on one
    device; edges of an operator without ``c_task`` take no time anywhere. Figures of memory are bits: of weights, whole
    bytes; where they are not, each bit is taken as a byte, weights and limits alike, so that what fits stays the same.
    Operators may stand in any order. Rows that are empty, or hold only text in one of the columns, are notes.

    Parameters
    ----------
    path : path
    objective : Objective
        What to pose the problem for; by default Moirai's: makespan with ``port`` contention.

    Raises
    ------
    InvalidInput
        With every violation, each with its row and column: no ``.xls``, absent headings, lists of unequal length,
        unknown or repeated successors, cycles, text in place of numbers, figures out of range.
    """
    return sheet_from_bytes(read_bounded(path, "sheet"), path, objective)


def sheet_from_bytes(data: bytes, path: Path | str, objective: Objective = MOIRAI_OBJECTIVE) -> MoiraiSheet:
    """Read a sheet from the content of its file; see :func:`read_moirai`."""
    what = f"sheet {str(path)!r}"
    table = table_of(data, what)
    count = _devices(table, what)
    rows = _rows(table, count)
    if not table.violations:
        _check_ids(table, rows)
    limits = _limits(table, count)
    if table.violations:
        more = ["and there are more like these"] if table.full else []
        raise InvalidInput([*table.violations[:MOST_NAMED], *more], what=what)
    source = Source("problem", str(path), hashlib.sha256(data).hexdigest())
    try:
        return _problem(rows, limits, Path(path).stem, source, objective)
    except InvalidInput as error:  # a cycle
        raise InvalidInput(error.violations, what=what) from None


_TIME = re.compile(r"p(0|[1-9]\d?\d?)")


def _devices(table: XlsTable, what: str) -> int:
    """Count the devices by the columns of processing times; every column that they need must be there."""
    known = [int(found[1]) for name in table.columns if (found := _TIME.fullmatch(name))]
    count = 1 + max(known, default=0)
    if count > MOST_DEVICES:
        raise InvalidInput(f"column p{count - 1}: at most {MOST_DEVICES} devices are read; leave some out", what=what)
    needed = ["task", "c_task", "dir_succ", *(f"p{i}" for i in range(count))]
    needed += [f"pc{i}{j}" for i in range(count) for j in range(count)]
    needed += ["mi", *(f"m{i}" for i in range(count))]
    absent = [name for name in needed if name not in table.columns]
    if absent:
        others = [name for name in table.columns if name not in needed and name != "dir_succ_add"]
        like = closest(absent[0], others) if others else "; add it"
        shown = ", ".join(absent[:12]) + (", ..." if len(absent) > 12 else "")
        raise InvalidInput(f"row 1 has no heading {shown}{like}", what=what)
    table.columns = {name: table.columns[name] for name in needed}
    return count


def _rows(table: XlsTable, count: int) -> dict[int, _Row]:
    """Operators by id, in the order of the sheet."""
    found: dict[int, _Row] = {}
    edges = 0
    for number, values, types in table.rows:
        if table.full:
            break
        cells = {
            name: (values[place], types[place]) if place < len(values) else ("", 0)
            for name, place in table.columns.items()
        }
        filled = [name for name, (value, _) in cells.items() if not isinstance(value, str) or value.strip()]
        if not filled or (len(filled) == 1 and isinstance(cells[filled[0]][0], str)):
            continue
        before = len(table.violations)
        own = ids_in(table, number, "task", cells)
        if len(own) != 1:
            if len(table.violations) == before:
                what = f"names {len(own)} operators" if own else "is empty, and the row is not"
                table.blame(number, "task", f"{what}; give the id of one operator")
            continue
        row = _row(table, number, cells, count)
        if own[0] in found:
            table.blame(number, "task", f"{own[0]} stands in row {found[own[0]].number} already; keep one")
        found[own[0]] = row
        edges += len(row.successors)
        if edges * count**2 > MOST_TABLE:
            table.blame(
                number,
                "dir_succ",
                f"more than {MOST_TABLE // count**2:,} edges: their table of times would be too large; give fewer",
            )
            break
    if not found and not table.violations:
        table.violations.append("has no row of an operator below the headings; add one")
    return found


def _row(table: XlsTable, number: int, cells: Cells, count: int) -> _Row:
    transfers, successors = ids_in(table, number, "c_task", cells), ids_in(table, number, "dir_succ", cells)
    if transfers and len(transfers) != len(successors):
        table.blame(
            number,
            "c_task",
            f"lists {len(transfers)} transfers, and dir_succ {len(successors)} successors; give as many",
        )
        transfers = []
    moves = []
    if transfers:
        for i, j in product(range(count), repeat=2):
            name, before = f"pc{i}{j}", len(table.violations)
            times = numbers_in(table, number, name, cells, LONGEST, "milliseconds")
            if i == j and not times:  # nothing travels
                times = [0.0] * len(transfers)
            if len(times) != len(transfers) and len(table.violations) == before:
                table.blame(number, name, f"lists {len(times)} times for {len(transfers)} transfers; give as many")
            moves.append(times)
    times_ms = [number_in(table, number, f"p{i}", cells, LONGEST, "milliseconds") for i in range(count)]
    bits = number_in(table, number, "mi", cells, MOST_BITS, "bits")
    return _Row(number, transfers, successors, times_ms, moves, bits)


def _check_ids(table: XlsTable, rows: dict[int, _Row]) -> None:
    """Successors are operators, each listed once, and no transfer's id is used twice."""
    taken = {task: row.number for task, row in rows.items()}
    for task, row in rows.items():
        for transfer in row.transfers:
            if transfer in taken:
                table.blame(row.number, "c_task", f"the id {transfer} stands in row {taken[transfer]} too; keep one")
            taken[transfer] = row.number
        seen: set[int] = set()
        for successor in row.successors:
            if successor in seen:
                table.blame(row.number, "dir_succ", f"operator {successor} stands in it twice; keep one")
            seen.add(successor)
            if successor not in rows:
                table.blame(row.number, "dir_succ", f"there is no operator {successor}; add its row or correct the id")
            elif successor == task:
                table.blame(row.number, "dir_succ", f"operator {task} can't read its own output; remove it")
        if table.full:
            break


def _limits(table: XlsTable, count: int) -> list[float | None]:
    """Bits of each device, on the first row below the headings; ``None`` where the cell is empty."""
    limits: list[float | None] = [None] * count
    if not table.rows or table.violations:
        return limits
    number, values, types = table.rows[0]
    for i in range(count):
        name = f"m{i}"
        place = table.columns[name]
        cells = {name: (values[place], types[place])} if place < len(values) else {name: ("", 0)}
        found = numbers_in(table, number, name, cells, MOST_BITS, "bits")
        if len(found) > 1:
            table.blame(number, name, f"lists {len(found)} numbers; give one number of bits")
        limits[i] = found[0] if len(found) == 1 else None
    return limits


def _problem(
    rows: dict[int, _Row], limits: list[float | None], name: str, source: Source, objective: Objective
) -> MoiraiSheet:
    whole = all(row.bits % 8 == 0 for row in rows.values())
    per_byte = 8 if whole else 1
    operators = [Operator(str(task), weight_bytes=math.ceil(row.bits / per_byte)) for task, row in rows.items()]
    devices = [
        Device(f"device{i}", kind="accelerator", memory_bytes=None if m is None else math.floor(m / per_byte))
        for i, m in enumerate(limits)
    ]
    cluster = Cluster(devices, [Link(0.0, float("inf"), link_class="same-host")])
    D = len(devices)
    edges: list[tuple[str, str, Sequence[str], int]] = []
    moves: dict[str, list[float]] = {}
    for task, row in rows.items():
        for k, successor in enumerate(row.successors):
            tensor = f"{task}@{successor}"
            edges.append((tensor, str(task), [str(successor)], 0))
            moves[tensor] = [times[k] for times in row.moves_ms] or [0.0] * D**2
    graph = OperatorGraph.build(operators, edges, name=name, source=source)
    table = np.array([moves[t.name] for t in graph.tensors], dtype=np.float64).reshape(len(graph.tensors), D, D)
    table *= UNIT_S * ~np.eye(D, dtype=bool)
    on = np.array([rows[int(v.name)].times_ms for v in graph.operators]) * UNIT_S
    problem = Problem(graph, cluster, Times(on, table, MILLISECONDS), objective, name=name)
    bound = any(m is not None for m in limits)
    notes = () if whole or not bound else ("its memory is not in whole bytes: each bit is taken as a byte",)
    return MoiraiSheet(problem, notes)
