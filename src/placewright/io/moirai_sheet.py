"""Sheets of Moirai (arXiv 2312.04025, repository moirai-placement/moirai): operators, transfers, and their times.

The first sheet of an ``.xls`` file. Headings ``task, c_task, dir_succ, p0.., pc00.., mi, m0..``; a row an operator.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source
from placewright.io.partitioning_file import LONGEST, MILLISECONDS, MOST_NAMED, MOST_TABLE, UNIT_S
from placewright.io.reading import closest, read_bounded
from placewright.objective import Makespan, Objective
from placewright.problem import Problem, Times
from placewright.units import format_bytes

__all__ = ["MOIRAI_OBJECTIVE", "MoiraiSheet", "is_xls", "read_moirai", "sheet_from_bytes"]

MOIRAI_OBJECTIVE = Makespan("port")
"""What the sheets are for."""

LARGEST_FILE_BYTES = 32 * 2**20
MOST_DEVICES = 10
"""More would make the headings ambiguous: ``pc111`` is from 1 to 11, or from 11 to 1."""
MOST_TEXT = 2**27
"""Characters of all cells together."""
MOST_BITS = 2**53
"""Of one figure of memory: a larger number in a cell is not exact."""

_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SHOWN = 60


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


@dataclass(slots=True)
class _Table:
    """The cells below the headings, and where each column stands."""

    columns: dict[str, int]
    rows: list[tuple[int, Sequence[Any], Sequence[int]]]
    violations: list[str] = field(default_factory=list)

    def blame(self, number: int, column: str, what: str) -> None:
        self.violations.append(f"row {number}, column {column}: {what}")

    @property
    def full(self) -> bool:
        return len(self.violations) > MOST_NAMED


def is_xls(data: bytes) -> bool:
    """Whether a file's content is an OLE2 container, as ``.xls`` files are."""
    return data.startswith(_MAGIC)


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
        unknown successors, cycles, text in place of numbers, figures out of range.
    """
    return sheet_from_bytes(read_bounded(path, "sheet"), path, objective)


def sheet_from_bytes(data: bytes, path: Path | str, objective: Objective = MOIRAI_OBJECTIVE) -> MoiraiSheet:
    """Read a sheet from the content of its file; see :func:`read_moirai`."""
    what = f"sheet {str(path)!r}"
    if len(data) > LARGEST_FILE_BYTES:
        limit = format_bytes(LARGEST_FILE_BYTES)
        raise InvalidInput(
            f"has {format_bytes(len(data))}; sheets above {limit} are not read, give a smaller one", what=what
        )
    table = _cells(data, what)
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


def _cells(data: bytes, what: str) -> _Table:
    """Headings and rows of the first sheet."""
    if not is_xls(data):
        is_zip = data.startswith(b"PK")
        reason = "is an .xlsx or another zip file" if is_zip else "is not an .xls file"
        raise InvalidInput(f"{reason}; save it as 'Excel 97-2003 workbook (.xls)'", what=what)
    import xlrd

    try:
        # Ragged rows: a cell far to the right costs memory in its own row alone.
        book = xlrd.open_workbook(file_contents=data, logfile=io.StringIO(), on_demand=True, ragged_rows=True)
        sheet = book.sheet_by_index(0)
        rows = [(r + 1, sheet.row_values(r), sheet.row_types(r)) for r in range(sheet.nrows)]
    except Exception as error:  # of every kind: a damaged file also breaks its assertions and its indexing
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput(f"can't be read as a workbook ({said}); save it again as .xls", what=what) from None
    if not rows:
        raise InvalidInput("its first sheet is empty; give headings and a row for each operator", what=what)
    if sum(len(c) for _, cells, _ in rows for c in cells if isinstance(c, str)) > MOST_TEXT:
        raise InvalidInput(f"holds more than {MOST_TEXT:,} characters of text; give a smaller one", what=what)
    columns: dict[str, int] = {}
    table = _Table(columns, rows[1:])
    for place, heading in enumerate(rows[0][1]):
        name = heading.strip() if isinstance(heading, str) else ""
        if name and name in columns:
            table.blame(1, name[:_SHOWN], "the heading stands twice; keep one")
        elif name:
            columns[name] = place
    return table


_TIME = re.compile(r"p(0|[1-9]\d?\d?)")


def _devices(table: _Table, what: str) -> int:
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


def _rows(table: _Table, count: int) -> dict[int, _Row]:
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
        own = _ids(table, number, "task", cells)
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


_Cells = dict[str, tuple[Any, int]]


def _row(table: _Table, number: int, cells: _Cells, count: int) -> _Row:
    transfers, successors = _ids(table, number, "c_task", cells), _ids(table, number, "dir_succ", cells)
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
            times = _numbers(table, number, name, cells, LONGEST, "milliseconds")
            if i == j and not times:  # nothing travels
                times = [0.0] * len(transfers)
            if len(times) != len(transfers) and len(table.violations) == before:
                table.blame(number, name, f"lists {len(times)} times for {len(transfers)} transfers; give as many")
            moves.append(times)
    times_ms = [_number(table, number, f"p{i}", cells, LONGEST, "milliseconds") for i in range(count)]
    bits = _number(table, number, "mi", cells, MOST_BITS, "bits")
    return _Row(number, transfers, successors, times_ms, moves, bits)


_NUMBER = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]{1,40}")


def _numbers(table: _Table, number: int, name: str, cells: _Cells, most: float, unit: str) -> list[float]:
    """Read a cell: a number, comma text of numbers, or none."""
    value, kind = cells[name]
    said = f"is no number of {unit} between 0 and {most:g}; correct it"
    if isinstance(value, str) and kind != 5:
        if not value.strip():
            return []
        numbers = []
        for part in value.split(","):
            one = float(part) if _NUMBER.fullmatch(part.strip()) else math.nan
            if not 0 <= one <= most:
                table.blame(number, name, f"{_shown(part)} {said}")
                return []
            numbers.append(one)
        return numbers
    if kind == 2 and isinstance(value, float) and 0 <= value <= most:
        return [value]
    words = {3: "a date", 4: "a truth value", 5: "an error"}.get(kind, _shown(value))
    table.blame(number, name, f"{words} {said}")
    return []


def _number(table: _Table, number: int, name: str, cells: _Cells, most: float, unit: str) -> float:
    before = len(table.violations)
    numbers = _numbers(table, number, name, cells, most, unit)
    if len(numbers) != 1 and len(table.violations) == before:
        what = f"lists {len(numbers)} numbers" if numbers else "is empty"
        table.blame(number, name, f"{what}; give one number of {unit}")
    return numbers[0] if len(numbers) == 1 else 0.0


def _ids(table: _Table, number: int, name: str, cells: _Cells) -> list[int]:
    before = len(table.violations)
    numbers = _numbers(table, number, name, cells, 1e9, "an id")
    if len(table.violations) > before:
        table.violations[before] = table.violations[before].replace(
            "is no number of an id between 0 and 1e+09", "is no id"
        )
    broken = [x for x in numbers if x != math.floor(x)]
    if broken:
        table.blame(number, name, f"{broken[0]:g} is no id; give whole numbers")
        return []
    return [int(x) for x in numbers]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_ids(table: _Table, rows: dict[int, _Row]) -> None:
    """Successors are operators, and no transfer's id is used twice."""
    taken = {task: row.number for task, row in rows.items()}
    for task, row in rows.items():
        for transfer in row.transfers:
            if transfer in taken:
                table.blame(row.number, "c_task", f"the id {transfer} stands in row {taken[transfer]} too; keep one")
            taken[transfer] = row.number
        for successor in row.successors:
            if successor not in rows:
                table.blame(row.number, "dir_succ", f"there is no operator {successor}; add its row or correct the id")
            elif successor == task:
                table.blame(row.number, "dir_succ", f"operator {task} can't read its own output; remove it")
        if table.full:
            break


def _limits(table: _Table, count: int) -> list[float | None]:
    """Bits of each device, on the first row below the headings; ``None`` where the cell is empty."""
    limits: list[float | None] = [None] * count
    if not table.rows or table.violations:
        return limits
    number, values, types = table.rows[0]
    for i in range(count):
        name = f"m{i}"
        place = table.columns[name]
        cells = {name: (values[place], types[place])} if place < len(values) else {name: ("", 0)}
        found = _numbers(table, number, name, cells, MOST_BITS, "bits")
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
            if tensor in moves:
                if not row.transfers:
                    continue
                tensor = f"{task}#{row.transfers[k]}@{successor}"
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
