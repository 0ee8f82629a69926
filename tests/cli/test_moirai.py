"""Sheets of Moirai on the command line, and transfers for each edge or once to each device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Call
from tests.io.moirai_sheets import changed, sheet


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.xls"
    path.write_bytes(sheet())
    return path


def test_a_sheet_brings_its_cluster_and_its_objective(placewright: Call, net: Path) -> None:
    """It is planned for the makespan with port contention, each edge for itself, and that is said."""
    shown = placewright("plan", net, "--budget", "0", "-o", "plan.json")
    assert shown.code == 0
    assert "milliseconds are assumed" in shown.err
    assert "makespan, contention port, one transfer for each edge" in " ".join(shown.out.split())
    for command in ("evaluate", "verify"):
        assert placewright(command, net, "plan.json").code == 0
    assert placewright("plan", net, "--cluster", "c.yaml").line == (
        f"sheet '{net}' has its own cluster; leave --cluster out"
    )


def test_flags_change_what_a_sheet_is_posed_for(placewright: Call, net: Path) -> None:
    """Such a plan is judged as what it was made for, on the sheet."""
    options = ("--contention", "link", "--transfers", "per-device")
    shown = placewright("plan", net, "--budget", "0", "-o", "plan.json", "--report", "plan.html", *options)
    assert shown.code == 0 and "one transfer for each edge" not in " ".join(shown.out.split())
    assert "contention link" in shown.out
    assert "one to each device that reads" in Path("plan.html").read_text()
    assert placewright("evaluate", net, "plan.json").code == 0


def test_conversion_and_comparison(placewright: Call, net: Path) -> None:
    """A problem file keeps objective and transfers, and can be made per device later."""
    assert placewright("convert", net, "-o", "net.json").code == 0
    document = json.loads(Path("net.json").read_text())
    assert document["objective"]["contention"] == "port"
    shown = placewright("compare", "net.json", "--solvers", "heft,etf", "--budget", "0", "--json")
    assert [len(r["problem"]["name"]) > 0 for r in shown.json["results"]] == [True, True]
    for model, tensors, options in (
        (net, 5, ()),
        ("net.json", 5, ()),
        ("net.json", 4, ("--transfers", "per-device")),
        (net, 5, ("--transfers", "per-edge")),
    ):
        assert f"{tensors} tensors" in placewright("plan", model, "--budget", "0", *options).out


def test_a_problem_file_per_edge(placewright: Call, problem_file: Path) -> None:
    """x is read by b and c: four edges instead of three tensors."""
    shown = placewright("plan", problem_file, "--budget", "0", "--transfers", "per-edge")
    assert shown.code == 0 and "4 tensors" in shown.out and "one transfer for each edge" in " ".join(shown.out.split())
    shown = placewright("plan", problem_file, "--transfers", "twice")
    assert shown.code == 2 and shown.line == "--transfers 'twice' is unknown; use one of per-device, per-edge"


def test_a_wrong_sheet_ends_in_one_line(placewright: Call, net: Path) -> None:
    """With the cell that is wrong, and exit code 2, whatever the command."""
    placewright("plan", net, "--budget", "0", "-o", "plan.json")
    net.write_bytes(changed(3, "p1", "fast"))
    complaint = f"sheet '{net}': row 3, column p1: 'fast' is no number of milliseconds between 0 and 1e+15; correct it"
    commands: list[tuple[object, ...]] = [("plan", net), ("compare", net), ("convert", net, "-o", "net.json")]
    for arguments in [*commands, ("evaluate", net, "plan.json"), ("verify", net, "plan.json")]:
        shown = placewright(*arguments)
        assert (shown.code, shown.line) == (2, complaint)
