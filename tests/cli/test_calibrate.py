"""``placewright calibrate`` and ``--catalogue``: an entry that is written, and used."""

import json
from pathlib import Path

import pytest

from placewright import catalogue, host
from tests.cli.commands import Call

CLUSTER = """
devices:
  - {name: here, kind: cpu, cores: [CORE], flops: {fp32: 80 GFLOP/s}, memory_bandwidth: 10 GB/s, launch_overhead: 2 us}
"""


@pytest.fixture(autouse=True)
def no_user_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(catalogue.ENVIRONMENT, "")  # what a command sets is taken back
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


def test_a_device_is_calibrated_into_a_catalogue(placewright: Call, tmp_path: Path) -> None:
    """Ten operators are shown, and the entry is found under its name by the cluster file that names it."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "c.yaml").write_text(CLUSTER.replace("CORE", str(host.available_cores()[0])))
    shown = placewright("calibrate", "-c", "c.yaml", "-o", "own.yaml", "--runtime", "onnxruntime", "--name", "My CPU")
    assert shown.code == 0 and "3 x 3 convolution" in shown.out and "median error after" in shown.out
    entry = catalogue.lookup("my-cpu", tmp_path / "own.yaml")
    assert entry.flops_per_s["fp32"] == 80e9 and entry.efficiency["product"]["arithmetic"] > 0


def test_a_catalogue_named_before_the_command_is_used(placewright: Call, tmp_path: Path) -> None:
    """A cluster of a card that only the user's file knows; without it the card is unknown."""
    pytest.importorskip("onnx")
    own = "devices: {my-card: {vendor: me, kind: gpu, flops: {fp32: 1}, memory_bandwidth: 1, source: s, date: ''}}"
    (tmp_path / "own.yaml").write_text(own)
    (tmp_path / "c.yaml").write_text("devices: [{name: d, model: my-card}]")
    unknown = placewright("calibrate", "-c", "c.yaml", "-o", "x.yaml")
    assert unknown.code == 2 and "'my-card' is not in the hardware catalogue" in unknown.line
    within = placewright("plan", "absent.onnx", "-c", "c.yaml", "--catalogue", "own.yaml")
    assert within.code == 2 and "absent.onnx" in within.line
    known = placewright("--catalogue", "own.yaml", "calibrate", "-c", "c.yaml", "-o", "x.yaml")
    assert known.code == 2 and "device 'd' is no CPU" in known.line


def test_a_file_that_is_no_catalogue_is_refused_before_anything_is_measured(placewright: Call, tmp_path: Path) -> None:
    """The entry could not be added to it: nothing is said of measuring, and the file stays as it is."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "c.yaml").write_text(CLUSTER.replace("CORE", str(host.available_cores()[0])))
    (tmp_path / "own.yaml").write_text("colour: red")
    shown = placewright("calibrate", "-c", "c.yaml", "-o", "own.yaml", "--runtime", "onnxruntime")
    assert shown.code == 2 and "unknown field `colour`" in shown.line and "measuring" not in shown.err
    assert (tmp_path / "own.yaml").read_text() == "colour: red"


def test_a_bad_catalogue_ends_in_one_line(placewright: Call, tmp_path: Path) -> None:
    """As every bad file does: exit code 2, the file and the remedy."""
    (tmp_path / "own.yaml").write_text(json.dumps({"devices": {"a": {"vendor": "x"}}}))
    shown = placewright("--catalogue", "own.yaml", "solvers")
    assert shown.code == 2 and "own.yaml" in shown.line and "missing required field" in shown.line
    absent = placewright("--catalogue", "absent.yaml", "solvers")
    assert absent.code == 2 and "can't be read" in absent.line
