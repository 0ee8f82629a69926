"""``plan`` with wishes: operators together, few devices, a device_map to start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph
from placewright.io import problem_to_json
from placewright.problem import Problem
from tests.cli.commands import Call, written


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """Four operators that nothing joins, on a fast and a slow accelerator and a slower CPU."""
    graph = OperatorGraph([Operator(f"h.{k}.{half}") for k in range(2) for half in "ab"])
    devices = [Device("fast"), Device("slow"), Device("ram", kind="cpu")]
    cluster = Cluster(devices, [Link(0.0, 1e9, link_class="same-host")])
    return written(tmp_path, problem_to_json(Problem(graph, cluster, [[1.0, 1.5, 4.0]] * 4)))


def planned(placewright: Call, four: Path, *wishes: str) -> dict[str, object]:
    shown = placewright("plan", four, "--budget", "2", "--json", *wishes)
    assert shown.code == 0, shown.err
    return {"value_s": shown.json["value_s"], "alternatives": shown.json["alternatives"], "said": shown.err}


def test_wishes_change_the_plan(placewright: Call, four: Path) -> None:
    """Two and two take 3 s; on one device 4 s; three that are together are 3 s as well, all four 4 s."""
    assert planned(placewright, four)["value_s"] == 3.0
    one = planned(placewright, four, "--max-devices", "1")
    assert one["value_s"] == 4.0
    assert "chosen of 3 devices: fast (4 s; no 1 devices are below 4 s)" in str(one["said"])
    assert planned(placewright, four, "--min-gain", "30%")["value_s"] == 4.0  # 3 s are a quarter less
    assert planned(placewright, four, "--min-gain", "20%")["value_s"] == 3.0
    assert planned(placewright, four, "--together", "h.*")["value_s"] == 4.0


def test_a_device_map_is_where_the_search_begins(placewright: Call, four: Path, tmp_path: Path) -> None:
    """It stands among the alternatives, and the plan is no worse; a device that is not there is refused."""
    (tmp_path / "map.json").write_text(json.dumps({"device_map": {"h.0": 1, "h.1": "cpu"}}))
    shown = planned(placewright, four, "--from", "map.json")
    assert shown["value_s"] == 3.0
    assert "given" in json.dumps(shown["alternatives"])
    (tmp_path / "map.json").write_text(json.dumps({"": 5}))
    refused = placewright("plan", four, "--from", "map.json")
    assert refused.code == 2
    assert "puts modules on 5, which is no device of this cluster; there are 0, cuda:0, fast, 1" in refused.line


@pytest.mark.parametrize(
    ("wishes", "complaint"),
    [
        (["--max-devices", "4"], "--max-devices 4 is not between 1 and the cluster's 3 devices"),
        (["--min-gain", "120%"], "--min-gain 120% is not between 0% and 100%"),
        (["--min-gain", "five"], "--min-gain 'five' is not a number with a unit; write for example '5%'"),
        (["--together", "g.*"], "together 'g.*': no operator matches it"),
    ],
)
def test_wishes_that_are_refused(placewright: Call, four: Path, wishes: list[str], complaint: str) -> None:
    """One line, exit code 2."""
    refused = placewright("plan", four, *wishes)
    assert refused.code == 2
    assert complaint in refused.line


def test_what_a_file_places_is_kept_and_the_rest_placed(placewright: Call, four: Path, tmp_path: Path) -> None:
    """One on the CPU takes 4 s, the three others 3 s on the others; a plan file holds all that it has."""
    (tmp_path / "part.json").write_text(json.dumps({"device_map": {"h.0.a": "cpu"}}))
    shown = placewright("plan", four, "--budget", "2", "--json", "--keep", "part.json", "-o", "kept.json")
    assert shown.code == 0, shown.err
    assert shown.json["value_s"] == 4.0
    placed = json.loads((tmp_path / "kept.json").read_text())["schedule"]["operators"]
    assert dict(zip(placed["name"], placed["device"], strict=True))["h.0.a"] == "ram"
    again = placewright("plan", four, "--budget", "2", "--json", "--keep", "kept.json")
    assert again.json["value_s"] == 4.0
    assert again.json["status"] == "optimal"


@pytest.mark.parametrize(
    ("kept", "more", "code", "complaint"),
    [
        ({"h.0": 7}, [], 2, "puts 'h.0' on 7, which is no device of this cluster; there are 0, cuda:0, fast, 1"),
        ({"h.00": 0}, [], 2, "names 'h.00', of which this network has no operator; did you mean 'h.0"),
        ({"h.0": 1}, ["--pin", "h.0.a=fast"], 2, "keeps 'h.0.a' on 'slow', but it may run on fast alone"),
        ({"h.0.a": 1, "h.0.b": 0}, ["--together", "h.0.*"], 2, "keeps 'h.0.a' on 'slow' and 'h.0.b' on 'fast'"),
        ({"h.0": 0, "h": 1}, ["--forbid", "h.1.b=slow"], 2, "keeps 'h.1.b' on 'slow', but it may run on fast, ram"),
        ([], [], 2, "file to keep 'part.json'"),
    ],
)
def test_what_can_not_be_kept_is_refused(
    placewright: Call, four: Path, tmp_path: Path, kept: object, more: list[str], code: int, complaint: str
) -> None:
    """The file, what it says, and what stands against it."""
    (tmp_path / "part.json").write_text(json.dumps(kept))
    shown = placewright("plan", four, "--keep", "part.json", *more)
    assert (shown.code, complaint in shown.line) == (code, True), shown.line


def test_a_rest_that_does_not_fit_is_infeasible(placewright: Call, tmp_path: Path) -> None:
    """Two of 1 GiB on a device of 1.5 GiB: what can run nowhere else needs 2 GiB there."""
    graph = OperatorGraph([Operator(f"h.{k}", weight_bytes=2**30) for k in range(3)])
    devices = [Device("small", memory_bytes=3 * 2**29), Device("large")]
    cluster = Cluster(devices, [Link(0.0, 1e9, link_class="same-host")])
    path = written(tmp_path, problem_to_json(Problem(graph, cluster, [[1.0, 1.5]] * 3)))
    (tmp_path / "part.json").write_text(json.dumps({"h.0": 0, "h.1": "small"}))
    shown = placewright("plan", path, "--keep", "part.json")
    assert shown.code == 3
    assert "device 'small' has 1.5 GiB, but what can run nowhere else needs 2 GiB there: 2 operators" in shown.line
