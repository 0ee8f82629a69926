"""What is written for ONNX Runtime, OpenVINO and other readers of ONNX is run by ONNX Runtime where that can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from placewright.capture import capture  # noqa: E402
from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.evaluate import plan_for  # noqa: E402
from placewright.export import export_plan, write_exported  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.problem import Problem  # noqa: E402
from tests.execute.small_onnx import branching, saved  # noqa: E402

BOX = Cluster([Device("ram", kind="cpu"), Device("gpu")], [Link(1e-6, 1e9, link_class="same-host")])
TWO = Cluster([Device("ram", kind="cpu"), Device("a"), Device("b")], [Link(1e-6, 1e9, link_class="same-host")])
X = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)


def planned(folder: Path, cluster: Cluster, spread: int) -> tuple[Problem, Plan]:
    """A plan that changes device at nearly each operator."""
    graph = capture(str(saved(branching(), folder)), fuse="none")
    problem = Problem(graph, cluster, np.ones((len(graph), len(cluster))))
    plan = plan_for(problem, np.arange(len(graph)) % spread)
    assert plan is not None
    return problem, plan


def script(text: str) -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script", "exec"), made)
    return made


def test_models_of_the_calls_compute_the_network(tmp_path: Path) -> None:
    """The models of a folder, run by ONNX Runtime in the order of calls.json, give the unsplit network's outputs."""
    problem, plan = planned(tmp_path, TWO, 3)
    write_exported(tmp_path / "parts", export_plan(problem, plan, "onnx-models", folder=tmp_path))
    calls = json.loads((tmp_path / "parts/calls.json").read_text())
    values = {"x": X}
    for call in calls["calls"]:
        session = onnxruntime.InferenceSession(tmp_path / "parts" / call["model"], providers=["CPUExecutionProvider"])
        made = session.run(call["outputs"], {name: values[name] for name in call["inputs"]})
        values.update(zip(call["outputs"], made, strict=True))
    whole = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for name, wanted in zip(calls["outputs"], whole.run(calls["outputs"], {"x": X}), strict=True):
        np.testing.assert_allclose(values[name], wanted, rtol=1e-5)
    assert {call["device"] for call in calls["calls"]} == {"ram", "a", "b"}


def test_a_folder_is_needed_and_the_model_beside_the_plan(tmp_path: Path) -> None:
    """A model that is not in the plan's folder is not looked for elsewhere."""
    problem, plan = planned(tmp_path, TWO, 3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="not in the plan's folder"):
        export_plan(problem, plan, "onnx-models", folder=tmp_path / "empty")


def test_layer_annotations_are_read_by_onnxruntime(tmp_path: Path) -> None:
    """The annotated model carries each node's device, and ONNX Runtime takes the settings and computes the same."""
    problem, plan = planned(tmp_path, BOX, 2)
    made = script(export_plan(problem, plan, "onnxruntime").text)
    model = made["annotate"](onnx.load(tmp_path / "model.onnx"))
    marks = {n.name: p.value for n in model.graph.node for p in n.metadata_props if p.key == "layer_ann"}
    words = ["on_cpu", "on_gpu_0"]
    assert marks == {v.name: words[i] for v, i in zip(problem.graph.operators, plan.device_of.tolist(), strict=True)}
    assert made["SETTINGS"] == "cpu(=on_cpu); gpu:0(=on_gpu_0)"
    onnx.save(model, tmp_path / "annotated.onnx")
    made["PROVIDERS"].remove("CUDAExecutionProvider")  # there is none here: the rule for it is passed over
    with_rules = made["session"](str(tmp_path / "annotated.onnx")).run(None, {"x": X})
    whole = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for got, wanted in zip(with_rules, whole.run(None, {"x": X}), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_one_session_has_one_accelerator(tmp_path: Path) -> None:
    """A plan on two accelerators becomes one on the CPU and one accelerator, and the loss is stated."""
    problem, plan = planned(tmp_path, TWO, 3)
    made = export_plan(problem, plan, "onnxruntime", budget=2)
    assert "ONNX Runtime can say this plan only by one accelerator and the CPU of one host" in made.notes[0]
    assert len(set(script(made.text)["DEVICE_OF"].values())) <= 2


class Port:
    """An input or output of an operation, as OpenVINO has them."""

    def __init__(self, node: Operation) -> None:
        self.node, self.targets = node, []  # type: ignore[var-annotated]

    def get_target_inputs(self) -> list[Port]:
        return self.targets

    def get_node(self) -> Operation:
        return self.node


class Operation:
    """The part of OpenVINO's ``Node`` that the script uses."""

    def __init__(self, name: str, reads: list[Operation]) -> None:
        self.name, self.reads, self.out, self.info = name, reads, Port(self), {}  # type: ignore[var-annotated]
        for maker in reads:
            maker.out.targets.append(Port(self))

    def get_friendly_name(self) -> str:
        return self.name

    def outputs(self) -> list[Port]:
        return [self.out]

    def inputs(self) -> list[Any]:
        return [type("Input", (), {"get_source_output": lambda _, m=m: m.out})() for m in self.reads]

    def get_rt_info(self) -> dict[str, str]:
        return self.info


def test_affinities_of_openvino_cover_operations_that_the_network_lacks(tmp_path: Path) -> None:
    """Planned operations get their device; weights go with their reader, results with what they read."""
    problem, plan = planned(tmp_path, BOX, 2)
    made = script(export_plan(problem, plan, "openvino").text)
    assert made["DEVICES"] == ["GPU.0", "CPU"]
    first, second = (problem.graph.operators[k].name for k in (0, 1))
    weight = Operation("w", [])
    a = Operation(first, [weight])
    b = Operation(second, [a])
    result = Operation("Result_1", [b])
    model = type("Model", (), {"get_ordered_ops": lambda _: [weight, a, b, result]})()
    made["set_affinities"](model)
    words = ["CPU", "GPU.0"]
    planned_on = [words[int(i)] for i in plan.device_of[:2]]
    assert [v.info["affinity"] for v in (weight, a, b, result)] == [planned_on[0], *planned_on, planned_on[1]]


def test_openvino_counts_gpus_among_themselves(tmp_path: Path) -> None:
    """An NPU before the GPUs makes none of them the second; cores that are two devices are one CPU there."""
    kinds = ["cpu", "npu", "gpu", "dsp", "gpu", "cpu"]
    devices = [Device(f"d{k}", kind=kind) for k, kind in enumerate(kinds)]
    problem, plan = planned(tmp_path, Cluster(devices, [Link(1e-6, 1e9, link_class="same-host")]), len(kinds))
    made = script(export_plan(problem, plan, "openvino").text)
    assert made["DEVICES"] == ["NPU", "GPU.1", "GPU.0", "DSP", "CPU"]
    words = ["CPU", "NPU", "GPU.0", "DSP", "GPU.1", "CPU"]
    for v, device in zip(problem.graph.operators, plan.device_of.tolist(), strict=True):
        assert {made["DEVICE_OF"][part] for part in v.part_names} == {words[device]}
