"""Sheets of Moirai: an operator a row, a transfer an edge, and what is wrong with a cell."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import numpy as np
import pytest

from placewright.errors import InvalidInput
from placewright.evaluate import evaluate
from placewright.io import read_any_problem, read_moirai
from placewright.io.moirai_sheet import MOST_TABLE, sheet_from_bytes
from placewright.io.xls_table import LARGEST_FILE_BYTES
from placewright.objective import Makespan
from tests.io.moirai_sheets import FORK, HEAD, changed, sheet
from tests.workloads import workload


def test_an_operator_a_row_and_a_tensor_an_edge() -> None:
    """Milliseconds and bits become seconds and bytes; rows are sorted topologically; notes are no operators."""
    read = sheet_from_bytes(sheet(), "fork.xls")
    problem, graph = read.problem, read.problem.graph
    assert (problem.name, problem.objective, read.notes) == ("fork", Makespan("port"), ())
    assert [(v.name, v.weight_bytes) for v in graph.operators] == [("7", 2), ("3", 1), ("5", 3), ("9", 0)]
    assert problem.times.processing_s == pytest.approx(np.array([[1, 2], [0.5, 6], [3, 4], [0, 0]]) * 1e-3)
    assert [(d.name, d.memory_bytes) for d in problem.cluster.devices] == [("device0", 100), ("device1", 10)]
    table = problem.times.transfer_s
    assert table is not None
    travels = {
        t.name: [round(1e3 * table[u, i, j], 9) for i, j in ((0, 1), (1, 0))] for u, t in enumerate(graph.tensors)
    }
    assert travels == {"7@3": [0, 0], "7@5": [0, 0], "3@5": [1, 3], "3@9": [2, 4], "5@9": [1.5, 2.5]}
    assert not table[:, [0, 1], [0, 1]].any()
    # 7 and 3 on device0 until 1.5; 3@5 arrives on device1 at 2.5, 3@9 at 4.5 behind it (one port); 5 until 6.5
    assert evaluate(problem, [0, 0, 1, 1]).value_s == pytest.approx(6.5e-3)


def test_bits_that_are_no_whole_bytes() -> None:
    """Each bit is taken as a byte, so that the same operators fit; a limit is then exact too."""
    read = sheet_from_bytes(changed(2, "mi", 5), "f.xls")
    assert [v.weight_bytes for v in read.problem.graph.operators] == [5, 8, 24, 0]
    assert [d.memory_bytes for d in read.problem.cluster.devices] == [800, 80]
    assert read.notes == ("its memory is not in whole bytes: each bit is taken as a byte",)


def test_a_limit_that_is_empty_or_no_whole_bytes() -> None:
    """No figure is no limit; of a limit whole bytes count, which changes nothing where all weights are whole bytes."""
    assert sheet_from_bytes(changed(2, "m0", ""), "f.xls").problem.cluster.devices[0].memory_bytes is None
    read = sheet_from_bytes(changed(2, "m0", 23), "f.xls")
    assert (read.problem.cluster.devices[0].memory_bytes, read.notes) == (2, ())


WRONG = [
    ((3, "task", "x"), "row 3, column task: 'x' is no id; correct it"),
    ((3, "task", ""), "row 3, column task: is empty, and the row is not; give the id of one operator"),
    ((3, "task", "5,6"), "row 3, column task: names 2 operators; give the id of one operator"),
    ((3, "task", 5.5), "row 3, column task: 5.5 is no id; give whole numbers"),
    ((3, "task", 7), "row 3, column task: 7 stands in row 2 already; keep one"),
    ((3, "c_task", "8,9"), "row 3, column c_task: lists 2 transfers, and dir_succ 1 successors; give as many"),
    ((3, "c_task", 10), "row 4, column c_task: the id 10 stands in row 3 too; keep one"),
    ((3, "c_task", 3), "row 3, column c_task: the id 3 stands in row 4 too; keep one"),
    ((3, "dir_succ", 4), "row 3, column dir_succ: there is no operator 4; add its row or correct the id"),
    ((2, "dir_succ", "5,5"), "row 2, column dir_succ: operator 5 stands in it twice; keep one"),
    ((3, "dir_succ", 5), "row 3, column dir_succ: operator 5 can't read its own output; remove it"),
    ((3, "dir_succ", 3), "the operators form a cycle: '5' -> '3' -> '5'; a placement needs an acyclic graph, so"),
    ((4, "pc01", "1"), "row 4, column pc01: lists 1 times for 2 transfers; give as many"),
    ((4, "pc01", "1,x"), "row 4, column pc01: 'x' is no number of milliseconds between 0 and 1e+15; correct it"),
    ((4, "pc01", "1,,2"), "row 4, column pc01: '' is no number of milliseconds between 0 and 1e+15; correct it"),
    (
        (4, "pc01", "1," + "9" * 500),
        "row 4, column pc01: '99999999999999999999999999999999999999999999999999999999999...",
    ),
    ((3, "p1", ""), "row 3, column p1: is empty; give one number of milliseconds"),
    ((3, "p1", "1,2"), "row 3, column p1: lists 2 numbers; give one number of milliseconds"),
    ((3, "p1", -1), "row 3, column p1: -1.0 is no number of milliseconds between 0 and 1e+15; correct it"),
    ((3, "p1", 1e16), "row 3, column p1: 1e+16 is no number of milliseconds between 0 and 1e+15; correct it"),
    ((3, "p1", "nan"), "row 3, column p1: 'nan' is no number of milliseconds between 0 and 1e+15; correct it"),
    ((3, "p1", True), "row 3, column p1: a truth value is no number of milliseconds between 0 and 1e+15; correct it"),
    ((3, "mi", 1e16), "row 3, column mi: 1e+16 is no number of bits between 0 and 9.0072e+15; correct it"),
    ((2, "m1", "much"), "row 2, column m1: 'much' is no number of bits between 0 and 9.0072e+15; correct it"),
]


@pytest.mark.parametrize(("cell", "complaint"), WRONG, ids=[f"{c}-{str(v)[:8]}" for (_, c, v), _ in WRONG])
def test_a_wrong_cell(cell: tuple[int, str, object], complaint: str) -> None:
    """The line names the file, row, column, value and remedy."""
    with pytest.raises(InvalidInput) as caught:
        sheet_from_bytes(changed(*cell), "net.xls")
    assert str(caught.value).startswith(f"sheet 'net.xls': {complaint}"), caught.value


def test_a_date_is_no_number() -> None:
    """A spreadsheet may have made one of '1,2'."""
    with pytest.raises(InvalidInput, match="row 3, column p1: a date is no number of milliseconds"):
        sheet_from_bytes(changed(3, "p1", datetime.date(2020, 2, 1)), "f.xls")


def test_all_violations_are_listed_up_to_a_number() -> None:
    """Twenty are named, and it is said that there are more."""
    rows = [[k, "", "", "", "x", 1, "", "", "", "", 0, "", ""] for k in range(40)]
    with pytest.raises(InvalidInput) as caught:
        sheet_from_bytes(sheet(rows), "f.xls")
    assert len(caught.value.violations) == 21
    assert caught.value.violations[-1] == "and there are more like these"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not an .xls file; save it as 'Excel 97-2003 workbook (.xls)'"),
        (b"task,c_task\n1,2\n", "is not an .xls file; save it as 'Excel 97-2003 workbook (.xls)'"),
        (b"PK\3\4rest", "is an .xlsx or another zip file; save it as 'Excel 97-2003 workbook (.xls)'"),
        (sheet([], []), "its first sheet is empty; give headings and a row for each operator"),
        (sheet([]), "has no row of an operator below the headings; add one"),
        (sheet(FORK, [*HEAD[:-1], "mem1"]), "row 1 has no heading m1; did you mean 'mem1'?"),
        (sheet(FORK, ["id", *HEAD[1:]]), "row 1 has no heading task; use one of id"),
        (sheet(FORK, [*HEAD[:7], *HEAD[8:]]), "row 1 has no heading pc01; add it"),
        (sheet(FORK, [*HEAD, "task"]), "row 1, column task: the heading stands twice; keep one"),
        (sheet(FORK, [*HEAD, "p11"]), "column p11: at most 10 devices are read; leave some out"),
    ],
)
def test_what_is_no_sheet(content: bytes, complaint: str) -> None:
    """Other files, empty sheets and missing headings end in one line."""
    with pytest.raises(InvalidInput) as caught:
        sheet_from_bytes(content, "net.xls")
    assert str(caught.value) == f"sheet 'net.xls': {complaint}"


def test_too_large() -> None:
    """A file is refused unread, and edges before the table of their times is made."""
    with pytest.raises(InvalidInput, match=r"sheets above 32 MiB are not read, give a smaller one"):
        sheet_from_bytes(sheet() + bytes(LARGEST_FILE_BYTES), "f.xls")
    D = 10
    head = ["task", "c_task", "dir_succ", *(f"p{i}" for i in range(D))]
    head += [*(f"pc{i}{j}" for i in range(D) for j in range(D)), "mi", *(f"m{i}" for i in range(D))]
    readers = ",".join(["2"] * 16_000)
    many = [[k, "", readers, *[1] * D, *[""] * D**2, 0] for k in range(25)]
    with pytest.raises(InvalidInput, match=rf"dir_succ: more than {MOST_TABLE // D**2:,} edges"):
        sheet_from_bytes(sheet(many, head), "f.xls")


def test_damaged_files_end_in_one_line() -> None:
    """Truncated anywhere and with bytes changed anywhere: read, or refused with the name of the file."""
    whole, rng = sheet(), random.Random(5)
    refused = 0
    for _ in range(250):
        content = bytearray(whole[: rng.randrange(8, len(whole))] if rng.random() < 0.4 else whole)
        for _ in range(rng.choice([0, 1, 3, 30])):
            content[rng.randrange(len(content))] = rng.choice([0, 1, 127, 128, 255])
        try:
            sheet_from_bytes(bytes(content), "f.xls")
        except InvalidInput as error:
            refused += 1
            assert str(error).startswith("sheet 'f.xls': ") and "\n" not in str(error)
    assert refused > 100


def test_any_problem_knows_sheets(tmp_path: Path) -> None:
    """By their content, or by their name when the content is something else."""
    path = tmp_path / "net.json"
    path.write_bytes(sheet())
    found = read_any_problem(path)
    assert (found.kind, found.states_objective, found.problem.objective) == ("sheet", False, Makespan("port"))
    path = tmp_path / "net.xls"
    path.write_text("{}")
    with pytest.raises(InvalidInput, match=r"sheet '.*net.xls': is not an .xls file"):
        read_any_problem(path)


@pytest.mark.parametrize(
    ("name", "operators", "transfers", "last_bytes"),
    [
        ("example-1", 14, 19, 0),
        ("GoogLeNet", 141, 167, 4 * (1024 * 1000 + 1000)),
        ("yolov5x", 419, 461, 10_452_960 // 8),
    ],
)
def test_published_sheets(name: str, operators: int, transfers: int, last_bytes: int) -> None:
    """Sizes as counted in the sheets; GoogLeNet's last operator has 1024 x 1000 fp32 weights and 1000 biases."""
    problem = read_moirai(workload(f"moirai/{name}.xls")).problem
    assert (len(problem.graph), len(problem.graph.tensors)) == (operators, transfers)
    assert problem.graph.operators[-1].weight_bytes == last_bytes
    assert all(len(t.readers) == 1 for t in problem.graph.tensors)
