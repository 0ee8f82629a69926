"""Small sheets of Moirai, written cell by cell."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence

import xlwt

HEAD = ["task", "c_task", "dir_succ", "dir_succ_add", "p0", "p1", "pc00", "pc01", "pc10", "pc11", "mi", "m0", "m1"]
FORK: list[list[object]] = [
    [7, "", "3,5", "3,5", 1, 2, "", "", "", "", 16, 800, 80],  # a source: no transfers
    [5, 8, 9, "8,9", 3, 4, 0, 1.5, 2.5, 0, "24", "", ""],  # stands before an operator that it does not need
    [3, "10,11", "5,9", "10,11,5,9", "0.5", 6, "0,0", "1, 2", "3,4", "0,0", 8, "", ""],
    [9, "", "", "", 0, 0, "", "", "", "", 0, "", ""],
    [],
    ["a note", "", "", "", "", "", "", "", "", "", "", "", ""],
]
"""Operators 7 -> 3, 5; 3 -> 5, 9; 5 -> 9 on two devices, out of order, with a note below."""


def sheet(rows: Sequence[Sequence[object]] = FORK, head: Sequence[object] = HEAD) -> bytes:
    """Return the content of an .xls file."""
    book = xlwt.Workbook()
    page = book.add_sheet("instances")
    for r, row in enumerate([head, *rows]):
        for c, value in enumerate(row):
            if isinstance(value, datetime.date):
                page.write(r, c, value, xlwt.easyxf(num_format_str="YYYY-MM-DD"))
            elif value != "":
                page.write(r, c, value)
    book.add_sheet("Sheet1").write(0, 0, "not looked at")
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def changed(row: int, column: str, value: object) -> bytes:
    """The fork with one cell changed; rows count from 1 at the headings, as a spreadsheet does."""
    rows = [[*r, *[""] * (len(HEAD) - len(r))] for r in FORK]
    rows[row - 2][HEAD.index(column)] = value
    return sheet(rows)
