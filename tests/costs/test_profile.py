"""The profile as a whole: who is measured, how often, what is kept, and what happens when something fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from placewright import costs, host
from placewright.capture import capture
from placewright.cluster import Cluster, Device
from placewright.costs.tasks import Answer, Conversion, OnnxPieces, OnnxUnit, Setup, Task
from placewright.errors import ExecutionError, InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem

MODULE = sys.modules["placewright.costs.profile"]
CORE = host.available_cores()[0]

GRAPH = OperatorGraph(
    [
        Operator("a", flops=8 * 10**9, signature="s1"),
        Operator("b", flops=2 * 10**9, signature="s2"),
        Operator("c", flops=8 * 10**9, signature="s1"),
    ],
    [Tensor("x", 0, (1,), 8), Tensor("y", 1, (2,), 8)],
)


class Fake:
    """Network and measuring process in one: each operator takes its FLOPs in nanoseconds, on any device."""

    asked: list[str]

    def __init__(self, fails: str = "", whole_s: float = 0.0, cut_s: float = 0.004, conversions_s: float = 0.0) -> None:
        self.asked, self.setups, self.within = [], list[Setup](), tuple[Conversion, ...]()
        self.fails, self.whole_s, self.cut_s, self.conversions_s = fails, whole_s, cut_s, conversions_s

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Fake:
        monkeypatch.setattr(MODULE, "network_of", lambda model, graph: self)
        monkeypatch.setattr(MODULE, "MeasuringProcess", self.process)
        return self

    def process(self, setup: Setup) -> Fake:
        self.setups.append(setup)
        return self

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def prepare(self, ask: Callable[[Task], Answer]) -> None:
        return None

    def unit(self, operator: int) -> Task:
        if self.fails == "cut out " + GRAPH.operators[operator].name:
            raise InvalidInput("it can't be cut out")
        return OnnxUnit((), path=str(operator))

    def whole(self) -> Task:
        return OnnxUnit((), whole=True)

    def converting(self, conversion: Conversion) -> int | None:
        return {"x": 1, "y": 2}.get(conversion.tensor)

    def pieces(self) -> tuple[Task, list[int]] | None:
        return None if self.fails == "pieces" else (OnnxPieces((), "", ()), [0, 1, 1, 2])

    def ask(self, task: Task, *, timeout_s: float) -> Answer:
        if isinstance(task, OnnxPieces):
            self.asked.append("pieces")
            return Answer(self.cut_s, call_s=1e-3)
        assert isinstance(task, OnnxUnit)
        name = "whole" if task.whole else GRAPH.operators[int(task.path)].name
        self.asked.append(name)
        if name == self.fails or self.fails == "all":
            return Answer(error="it broke")
        if task.whole:
            return Answer(self.whole_s, call_s=1e-3, within=self.within)
        seconds = GRAPH.operators[int(task.path)].flops * 1e-9
        return Answer(seconds, call_s=1e-3, conversions_s=self.conversions_s * (name == "b"))


def cpu(name: str, **fields: Any) -> Device:
    return Device(name, kind="cpu", **{"cores": (CORE,), **fields})


def run(cluster: Cluster, **options: Any) -> costs.ProfileReport:
    return costs.profile("net.onnx", GRAPH, cluster, **{"cache": None, **options})


def test_each_distinct_operator_is_measured_once_for_alike_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three operators of two signatures on two alike devices: one process, two operators, three wholes, a cut."""
    fake = Fake(whole_s=18.0).install(monkeypatch)
    report = run(Cluster([cpu("one"), cpu("two")]))
    assert sorted(fake.asked) == ["a", "b", "pieces", "whole", "whole", "whole"]
    assert fake.setups == [Setup("one", (CORE,), 1)]
    assert report.times.processing_s.T.tolist() == [[8.0, 2.0, 8.0]] * 2
    assert (report.times.source, report.distinct, report.devices) == ("profiled", 2, ("one", "two"))
    assert report.sum_over_whole == {"one": 1.0, "two": 1.0}


def test_a_cpu_share_divides_times_and_another_thread_count_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a core takes twice as long; a device with another number of threads has a process of its own."""
    fake = Fake(whole_s=18.0).install(monkeypatch)
    report = run(Cluster([cpu("full"), cpu("half", cpu_share=0.5), cpu("more", threads=3)]))
    assert report.times.processing_s.T.tolist() == [[8.0, 2.0, 8.0], [16.0, 4.0, 16.0], [8.0, 2.0, 8.0]]
    assert report.whole_s == {"full": 18.0, "half": 36.0, "more": 18.0}
    assert [s.threads for s in fake.setups] == [1, 3]


def test_times_are_reconciled_with_the_whole_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of 18 s in a network of 20 s are scaled to sum up to 20 s; the raw sum is reported; it can be left."""
    Fake(whole_s=20.0).install(monkeypatch)
    report = run(Cluster([cpu("one")]))
    assert report.times.processing_s.sum() == pytest.approx(20.0)
    assert report.operator_sum_s == {"one": 18.0}
    assert run(Cluster([cpu("one")]), reconcile=False).times.processing_s.sum() == 18.0


def test_who_pays_for_a_conversion_inside_the_network_is_charged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two conversions for b and one for c, beside 8, 2 and 8 s; one of a tensor that nobody has is dropped. Kept."""
    for _ in range(2):
        fake = Fake(whole_s=18.0).install(monkeypatch)
        fake.within = tuple(Conversion(t, True, s) for t, s in (("x", 0.5), ("x", 0.25), ("y", 1.0), ("z", 9.0)))
        report = run(Cluster([cpu("one")]), cache=tmp_path, reconcile=False)
        assert report.times.processing_s[:, 0].tolist() == [8.0, 2.75, 9.0]
        assert report.operator_sum_s["one"] == 19.75
    assert not fake.asked


def test_gpus_of_one_name_are_measured_once_for_models_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards of one name: one process, for the first; ONNX models have them costed from their figures."""
    monkeypatch.setattr(host, "_gpu_names", lambda: ("Card", "Card"))
    cards = [Device(f"gpu{k}", flops_per_s={"fp32": 1e12}, memory_bandwidth_bytes_per_s=1e11) for k in range(2)]
    fake = Fake(whole_s=18.0).install(monkeypatch)
    monkeypatch.setattr(MODULE, "backend_version", lambda model: "torch")
    report = costs.profile("net.pt2", GRAPH, Cluster(cards), cache=None)
    assert [(s.place, s.cores) for s in fake.setups] == [("cuda:0", ())] and report.devices == ("gpu0", "gpu1")
    assert report.times.processing_s.tolist() == [[8.0, 8.0], [2.0, 2.0], [8.0, 8.0]]
    assert run(Cluster(cards)).devices == ()


def test_a_whole_that_is_worlds_apart_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of 18 s in a network of 90 s are left alone, and a note says so."""
    Fake(whole_s=90.0).install(monkeypatch)
    report = run(Cluster([cpu("one")]))
    assert report.times.processing_s.sum() == 18.0
    assert len(report.notes) == 1 and "disturbed" in report.notes[0]


@pytest.mark.parametrize(("fails", "reason"), [("b", "it broke"), ("cut out b", "it can't be cut out")])
def test_an_operator_that_fails_falls_back_to_the_scaled_roofline_and_is_listed(
    monkeypatch: pytest.MonkeyPatch, fails: str, reason: str
) -> None:
    """The others take 8 s for 8 GFLOP, so the operator of 2 GFLOP is taken as 2 s, whatever the device's peak."""
    Fake(fails=fails).install(monkeypatch)
    for peaks in ({}, {"flops_per_s": {"fp32": 3e10}, "memory_bandwidth_bytes_per_s": 1e12}):
        report = run(Cluster([cpu("one", **peaks)]))
        assert report.times.processing_s[:, 0] == pytest.approx([8.0, 2.0, 8.0])
        assert report.fallbacks == (costs.Fallback("one", "b", reason),)


def test_a_device_on_which_nothing_runs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is invented when there is none to scale by."""
    Fake(fails="all").install(monkeypatch)
    with pytest.raises(ExecutionError, match=r"'one'.*it broke"):
        run(Cluster([cpu("one")]))


def test_a_whole_that_fails_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators' times stand without it, and it is not tried three times."""
    fake = Fake(fails="whole").install(monkeypatch)
    report = run(Cluster([cpu("one")]))
    assert report.whole_s == {} and report.times.processing_s.sum() == 18.0
    assert fake.asked.count("whole") == 1
    assert "whole network" in report.notes[0]


def test_a_cut_costs_half_a_call_on_either_side_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 ms more at four sides: 1 ms a side; pieces that cost nothing, or can't be had: half the call of 1 ms."""
    for fake, expected in ((Fake(), 1e-3), (Fake(cut_s=-1.0), 5e-4), (Fake(fails="pieces"), 5e-4)):
        fake.install(monkeypatch)
        report = run(Cluster([cpu("one")]))
        assert report.cut_overhead_s == {"one": pytest.approx(expected)}
        assert report.times.cut_s is not None and report.times.cut_s == pytest.approx(np.full((3, 1), expected))
    given = report.cluster(Cluster([cpu("one"), cpu("two", cut_overhead_s=7.0)]))
    assert [d.cut_overhead_s for d in given.devices] == [pytest.approx(5e-4), 7.0]


def test_an_operator_that_converts_layouts_loses_more_beside_a_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The pieces' 4 ms beyond the network: four sides of half a call, and conversions of b, which is at two sides.

    2 ms are left for twice half of its conversions. Without pieces they count as measured, on half of a core twice, and
    a device that is not here keeps what it states. All is found in the cache again.
    """
    figures: dict[str, Any] = {"flops_per_s": {"fp32": 1e12}, "memory_bandwidth_bytes_per_s": 1e11}
    away = Device("away", cut_overhead_s=7.0, **figures)
    Fake(conversions_s=1e-3).install(monkeypatch)
    cluster = Cluster([cpu("one"), cpu("half", cpu_share=0.5), away])
    for _ in range(2):
        cut_s = run(cluster, cache=tmp_path).times.cut_s
        assert cut_s is not None
        assert cut_s == pytest.approx(np.array([[5e-4, 1e-3, 7.0], [1.5e-3, 3e-3, 7.0], [5e-4, 1e-3, 7.0]]))
        Fake(fails="all").install(monkeypatch)
    Fake(fails="pieces", conversions_s=1e-3).install(monkeypatch)
    cut_s = run(Cluster([cpu("one")])).times.cut_s
    assert cut_s is not None and cut_s[:, 0] == pytest.approx([5e-4, 1e-3, 5e-4])


def test_an_operator_that_fails_loses_the_average_beside_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 4 ms more at four sides are 1 ms a side on average."""
    Fake(fails="b", conversions_s=1e-3).install(monkeypatch)
    cut_s = run(Cluster([cpu("one")])).times.cut_s
    assert cut_s is not None and cut_s[1, 0] == pytest.approx(1e-3)


def test_what_is_kept_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second profile starts no process and gives the same times; other threads, or another processor, are new."""
    fake = Fake(whole_s=18.0).install(monkeypatch)
    first = run(Cluster([cpu("one")]), cache=tmp_path)
    again = run(Cluster([cpu("renamed")]), cache=tmp_path)
    assert len(fake.setups) == 1
    assert (first.measured, first.cache_hits, again.measured, again.cache_hits) == (4, 0, 0, 4)
    assert np.array_equal(first.times.processing_s, again.times.processing_s)
    run(Cluster([cpu("one", threads=2)]), cache=tmp_path)
    monkeypatch.setattr(host, "cpu_name", lambda: "another")
    run(Cluster([cpu("one")]), cache=tmp_path)
    assert len(fake.setups) == 3


def test_devices_that_are_not_here_are_costed_from_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, and a CPU on a core that is not there, get analytic times; only the one that is here is measured."""
    Fake(whole_s=18.0).install(monkeypatch)
    figures: dict[str, Any] = {"flops_per_s": {"fp32": 1e12}, "memory_bandwidth_bytes_per_s": 1e11}
    cluster = Cluster([Device("gpu", **figures), cpu("here", **figures), cpu("away", cores=(10**6,), **figures)])
    report = run(cluster)
    modelled = costs.analytic(GRAPH, cluster).processing_s
    assert report.times.source == "profiled+analytic" and report.devices == ("here",)
    assert np.array_equal(report.times.processing_s[:, [0, 2]], modelled[:, [0, 2]])
    assert report.times.processing_s[:, 1].tolist() == [8.0, 2.0, 8.0]
    assert run(cluster, device_names=[]).times.source == "analytic"
    with pytest.raises(InvalidInput, match="no device 'gone'"):
        run(cluster, device_names=["gone"])


def test_progress_names_device_and_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each measurement, the last one complete."""
    Fake().install(monkeypatch)
    lines: list[str] = []
    run(Cluster([cpu("one")]), on_progress=lines.append)
    assert any("one" in line and line.endswith(" a") for line in lines)
    assert lines[-1] == "profiling on one: 4 of 4"


def test_a_real_network_is_profiled_for_real(tmp_path: Path) -> None:
    """Ten matrix products of two sizes on a core of this machine: two are measured, and the larger takes longer."""
    nodes, weights = [], []
    for k in range(10):
        width = 256 if k % 2 else 16
        weights += [
            helper.make_tensor(f"u{k}", TensorProto.FLOAT, [256, width], np.full(256 * width, 0.1)),
            helper.make_tensor(f"v{k}", TensorProto.FLOAT, [width, 256], np.full(256 * width, 0.1)),
        ]
        nodes += [
            helper.make_node("MatMul", [f"x{k}", f"u{k}"], [f"h{k}"], name=f"in{k}"),
            helper.make_node("MatMul", [f"h{k}", f"v{k}"], [f"x{k + 1}"], name=f"out{k}"),
        ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 256]) for n in ("x0", "x10")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    captured = capture(path, fuse="none")
    report = costs.profile(path, captured, Cluster([cpu("one")]), cache=tmp_path / "cache")
    Problem(captured, Cluster([cpu("one")]), report.times)
    assert (report.distinct, report.measured, report.fallbacks) == (3, 5, ())
    # A busy machine may disturb the measurement; nothing else may be noted.
    assert all("something disturbed the measurement" in note for note in report.notes)
    by_name = {v.name: report.times.processing_s[k, 0] for k, v in enumerate(captured.operators)}
    assert by_name["in1"] > by_name["in0"] > 0 and by_name["in2"] == by_name["in0"]
    assert report.whole_s["one"] > 0 and report.cut_overhead_s["one"] > 0
    again = costs.profile(path, captured, Cluster([cpu("one")]), cache=tmp_path / "cache")
    assert again.measured == 0 and np.array_equal(again.times.processing_s, report.times.processing_s)
