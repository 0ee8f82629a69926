"""The first sheet of an ``.xls`` file as columns by heading, and numbers in its cells."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from placewright.errors import InvalidInput
from placewright.io.partitioning_file import MOST_NAMED
from placewright.units import format_bytes

__all__ = ["LARGEST_FILE_BYTES", "Cells", "XlsTable", "ids_in", "is_xls", "number_in", "numbers_in", "table_of"]

LARGEST_FILE_BYTES = 32 * 2**20
MOST_TEXT = 2**27
"""Characters of all cells together."""

_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SHOWN = 60


@dataclass(slots=True)
class XlsTable:
    """The cells below the headings, and where each column stands."""

    columns: dict[str, int]
    rows: list[tuple[int, Sequence[Any], Sequence[int]]]
    violations: list[str] = field(default_factory=list)

    def blame(self, number: int, column: str, what: str) -> None:
        """Note what is wrong with a cell; rows count from 1."""
        self.violations.append(f"row {number}, column {column}: {what}")

    @property
    def full(self) -> bool:
        """Whether enough is wrong to stop."""
        return len(self.violations) > MOST_NAMED


def is_xls(data: bytes) -> bool:
    """Whether a file's content is an OLE2 container, as ``.xls`` files are."""
    return data.startswith(_MAGIC)


def table_of(data: bytes, what: str) -> XlsTable:
    """Headings and rows of the first sheet; ``what`` names the file.

    Raises
    ------
    InvalidInput
        If it is too large, no ``.xls``, damaged or empty.
    """
    if len(data) > LARGEST_FILE_BYTES:
        limit = format_bytes(LARGEST_FILE_BYTES)
        raise InvalidInput(
            f"has {format_bytes(len(data))}; sheets above {limit} are not read, give a smaller one", what=what
        )
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
    table = XlsTable(columns, rows[1:])
    for place, heading in enumerate(rows[0][1]):
        name = heading.strip() if isinstance(heading, str) else ""
        if name and name in columns:
            table.blame(1, name[:_SHOWN], "the heading stands twice; keep one")
        elif name:
            columns[name] = place
    return table


Cells: TypeAlias = dict[str, tuple[Any, int]]
"""Value and kind (as xlrd counts kinds) of each cell of a row, by heading."""


_NUMBER = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]{1,40}")


def numbers_in(table: XlsTable, number: int, name: str, cells: Cells, most: float, unit: str) -> list[float]:
    """Read a cell: a number, comma text of numbers, or none; none where something is wrong, which is noted."""
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


def number_in(table: XlsTable, number: int, name: str, cells: Cells, most: float, unit: str) -> float:
    """Read a cell that holds one number; 0 where that is wrong, which is noted."""
    before = len(table.violations)
    numbers = numbers_in(table, number, name, cells, most, unit)
    if len(numbers) != 1 and len(table.violations) == before:
        what = f"lists {len(numbers)} numbers" if numbers else "is empty"
        table.blame(number, name, f"{what}; give one number of {unit}")
    return numbers[0] if len(numbers) == 1 else 0.0


def ids_in(table: XlsTable, number: int, name: str, cells: Cells) -> list[int]:
    """Read a cell of whole numbers, as :func:`numbers_in` does."""
    before = len(table.violations)
    numbers = numbers_in(table, number, name, cells, 1e9, "an id")
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
