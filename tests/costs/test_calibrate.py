"""Calibration: the twelve operators, the correction of a curve that is known, and the way from a device to an entry."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from placewright import catalogue, host
from placewright.capture import onnx_flops
from placewright.cluster import Cluster, Device
from placewright.costs.analytic import device_curves
from placewright.costs.calibrate import GROUPS, as_runtime, calibrate, chosen_device, correct, entry_of, trials
from placewright.costs.curve import Curve, Figures, Work
from placewright.errors import InvalidInput

FIGURES = {"flops_per_s": {"fp32": 1e11}, "memory_bandwidth_bytes_per_s": 2e10, "launch_overhead_s": 2e-6}
CPU = Device("cpu", kind="cpu", cores=(host.available_cores()[0],), **FIGURES)  # type: ignore[arg-type]


def test_twelve_operators_speak_for_five_classes() -> None:
    """Each class has at least as many operators as numbers that are fitted to them."""
    found = trials()
    assert len(found) == 12 == len({t.name for t in found})
    counts = {g: sum(t.group == g for t in found) for g in GROUPS}
    assert counts == {"product": 3, "convolution": 3, "other": 4, "function": 1, "window": 1}


def test_their_work_is_counted_as_that_of_captured_networks() -> None:
    """FLOPs and bytes equal those that capturing the same operator as ONNX gives."""
    onnx = pytest.importorskip("onnx")
    assert onnx
    from placewright.capture.onnx_values import Value

    for trial in trials("onnxruntime"):
        kind, attributes = trial.onnx
        inputs = [Value(shape, "fp32", 32) for shape in trial.inputs]
        if kind == "Conv":
            (n, _, h, w), (made, *_, window) = trial.inputs
            stride, pad = attributes["strides"][0], attributes["pads"][0]
            shape: tuple[int, ...] = (n, made, *((s + 2 * pad - window) // stride + 1 for s in (h, w)))
        elif kind == "MatMul":
            shape = (trial.inputs[0][0], trial.inputs[1][1])
        else:
            shape = trial.inputs[0]
        output = Value(shape, "fp32", 32)
        assert trial.flops == onnx_flops.operator_flops(kind, attributes, inputs, [output]), trial.name
        assert trial.traffic_bytes == onnx_flops.operator_traffic_bytes(kind, inputs, [output]), trial.name
        if trial.depth:
            assert trial.flops == 2 * trial.depth * output.elements


def test_the_correction_finds_a_device_that_is_known() -> None:
    """Times made by curves with other shares and another overhead are explained to 1 % afterwards, not before."""
    true = {
        "product": Curve(1.6, 3.0, 2.0),
        "convolution": Curve(0.7, 1.5, 2.0),
        "other": Curve(0.1, 2.5, 2.0),
        "function": Curve(0.02, 2.5, 2.0),
        "window": Curve(0.003, 2.5, 2.0),
    }
    figures = Figures(1e11, 2e10)
    seconds = np.array(
        [
            true[t.group].seconds(
                Work(*(np.array([x], dtype=float) for x in (t.flops, t.traffic_bytes, t.depth, 0))),
                figures,
                floor_s=5e-6,
            )[0]
            for t in trials()
        ]
    )
    found = correct(CPU, trials(), seconds)
    assert np.abs(found.after_s / seconds - 1).max() < 0.01 < np.abs(found.before_s / seconds - 1).max()
    assert found.launch_overhead_s == pytest.approx(5e-6, rel=0.02)
    assert found.curves["product"].arithmetic == pytest.approx(1.6, rel=0.02)
    assert found.curves["prefill"].arithmetic == found.curves["product"].arithmetic


def test_an_entry_survives_the_file_and_changes_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written to a user's catalogue beside an older entry, read again, and used by the device that names it."""
    monkeypatch.setattr("placewright.costs.calibrate.version", lambda name: "1.0")
    seconds = np.array([t.flops / 5e10 + 1e-6 for t in trials()])
    found = correct(CPU, trials(), seconds)
    path = tmp_path / "own.yaml"
    path.write_text(
        "devices: {old: {vendor: x, kind: gpu, flops: {fp32: 1}, memory_bandwidth: 1, source: s, date: ''}}"
    )
    path.write_text(catalogue.with_entry(path, "My CPU", entry_of(found, "2026-01-01")))
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(path))
    entry = catalogue.lookup("my-cpu")
    assert catalogue.lookup("old").vendor == "x" and entry.date == "2026-01-01" and "torch 1.0" in entry.source
    device = entry.device("d")
    assert device.launch_overhead_s == pytest.approx(found.launch_overhead_s, rel=1e-3)
    for name, curve in device_curves(device).items():
        assert curve.arithmetic == pytest.approx(found.curves[name].arithmetic, rel=1e-3)
    again = msgspec.yaml.decode(catalogue.with_entry(path, "my cpu", entry_of(found, "2027-01-01")))
    assert list(again["devices"]) == ["old", "my cpu"]


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_every_operator_can_be_measured_here(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One CPU core of this machine: twelve positive times, and the corrected curve is nearer than the assumed one."""
    pytest.importorskip(runtime)
    pytest.importorskip("onnx")
    monkeypatch.setattr("placewright.costs.calibrate.ROUNDS", 1)
    found = calibrate(CPU, runtime=as_runtime(runtime))
    assert found.measured_s.shape == (12,) and (found.measured_s > 0).all()
    before, after = (np.median(np.abs(np.log(p / found.measured_s))) for p in (found.before_s, found.after_s))
    assert after < before


def test_what_cannot_be_calibrated_is_refused() -> None:
    """A device that isn't here, one without figures, an unknown name and an unknown runtime, each with the remedy."""
    with pytest.raises(InvalidInput, match="'g' is no CPU with 'cores'"):
        calibrate(Device("g"))
    with pytest.raises(InvalidInput, match="states no peak"):
        calibrate(Device("bare", kind="cpu", cores=CPU.cores))
    with pytest.raises(InvalidInput, match=r"no device 'x'.*cpu"):
        chosen_device(Cluster([CPU]), "x")
    with pytest.raises(InvalidInput, match=r"'tensorrt'.*torch or onnxruntime"):
        as_runtime("tensorrt")


def test_the_first_device_that_is_here_is_taken() -> None:
    """Unless one is named."""
    cluster = Cluster([Device("g"), CPU])
    assert chosen_device(cluster, None).name == "cpu"
    assert chosen_device(cluster, "g").name == "g"
