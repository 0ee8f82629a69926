"""Running plans in worker processes, and every way in which that can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from placewright.cluster import Cluster
from placewright.errors import DeviceLost, ExecutionError, InvalidInput
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.onnx.unsplit import random_inputs, run_unsplit
from placewright.host import available_cores

from ..small_onnx import branching, cluster, plan_of, problem_of, saved


@contextmanager
def no_process_left() -> Iterator[None]:
    """Whatever happens inside, no child process is left."""
    before = {c.pid for c in psutil.Process().children(recursive=True)}
    yield
    assert {c.pid for c in psutil.Process().children(recursive=True)} <= before


def runner(folder: Path, device_of: list[int], *, devices: int = 2, **options: object) -> OnnxRunner:
    model = branching(layers=1)
    return OnnxRunner(
        saved(model, folder),
        (problem := problem_of(model, cluster(devices))),
        plan_of(problem, device_of),
        **options,  # type: ignore[arg-type]
    )


def while_running(r: OnnxRunner, act: Callable[[], None]) -> threading.Thread:
    """Act as soon as a run has been signalled that can't end, since device 1's worker is stopped."""
    os.kill(r._workers[1].process.pid, signal.SIGSTOP)
    assert r._shared is not None
    words, number = r._shared.words, r._number

    def wait_and_act() -> None:
        while words[0] == number:
            os.sched_yield()
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.parametrize("seed", range(4))
def test_random_placements_equal_the_unsplit_model(tmp_path: Path, seed: int) -> None:
    """Three workers on what cores there are, a new sample each run: every output is that of one session."""
    rng = np.random.default_rng(seed)
    model = branching(layers=3, seed=seed)
    cores = available_cores()
    problem = problem_of(model, cluster(3, tuple((cores[i % len(cores)],) for i in range(3))))
    n = len(problem.graph)
    path = saved(model, tmp_path)
    with no_process_left(), OnnxRunner(path, problem, plan_of(problem, rng.integers(0, 3, n).tolist())) as r:
        for sample in range(4):
            inputs = random_inputs(r.inputs, seed=sample)
            made, wanted = r.run(inputs), run_unsplit(path, inputs)
            assert list(made) == list(wanted) == ["y2", "s0", "mean"]
            for name in wanted:
                np.testing.assert_allclose(made[name], wanted[name], rtol=1e-5, atol=1e-5)


def test_every_operator_on_the_other_device(tmp_path: Path) -> None:
    """A -> B -> A -> B -> ... gives the unsplit model's outputs; no reader starts before its maker's end."""
    r = runner(tmp_path, [0, 1, 0, 1, 0, 1])
    with no_process_left(), r:
        inputs = random_inputs(r.inputs)
        made, wanted = r.run(inputs), run_unsplit(tmp_path / "model.onnx", inputs)
        r.go()
        spans = [s for s in r.spans() if s.kind == "compute"]
        for name in wanted:
            np.testing.assert_allclose(made[name], wanted[name], rtol=1e-5)
        assert len(spans) == len(r.split.calls)
        span_of = {v: s for s, c in zip(spans, r.split.calls, strict=True) for v in c.operators}
        for v in span_of:
            for u in r.problem.graph.predecessors[v]:
                assert span_of[u] is span_of[v] or span_of[u].finish_s <= span_of[v].start_s
        assert all(0 <= s.start_s <= s.finish_s for s in r.spans())


def test_more_threads_than_one_and_a_share(tmp_path: Path) -> None:
    """A worker with two threads and half of its cores' time is correct too, and takes at least twice its computing."""
    model = branching(width=64, layers=2)
    devices = [replace(d, threads=2, cpu_share=0.5) for d in cluster(2).devices]
    problem = problem_of(model, Cluster(devices, cluster(2).links))
    path = saved(model, tmp_path)
    with no_process_left(), OnnxRunner(path, problem, plan_of(problem, [0, 1] * 5 + [0])) as r:
        inputs = random_inputs(r.inputs)
        made, wanted = r.run(inputs), run_unsplit(path, inputs)
    for name in wanted:
        np.testing.assert_allclose(made[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_outputs_that_no_operator_makes(tmp_path: Path) -> None:
    """A constant, a weight and an input that are outputs come out as they are."""
    shape = numpy_helper.from_array(np.array([2], dtype=np.int64), "shape")
    weight = numpy_helper.from_array(np.array([5.0, 6.0], dtype=np.float32), "w")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["c"], name="const"),
        helper.make_node("Neg", ["x"], ["y"], name="a"),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y", "c", "w")]
    graph = helper.make_graph(nodes, "g", info[:1], [info[1], info[2], info[3], info[0]], [shape, weight])
    model = helper.make_model(graph, ir_version=9)
    problem = problem_of(model, cluster(1))
    with OnnxRunner(saved(model, tmp_path), problem, plan_of(problem, [0])) as r:
        made = r.run({"x": np.array([1.0, 2.0], dtype=np.float32)})
    assert {k: v.tolist() for k, v in made.items()} == {"y": [-1, -2], "c": [0, 0], "w": [5, 6], "x": [1, 2]}


def test_types_that_numpy_does_not_know(tmp_path: Path) -> None:
    """A bfloat16 tensor travels between devices."""
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], name="a", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["h"], ["y"], name="b", to=TensorProto.FLOAT),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]), ir_version=9)
    problem = problem_of(model, cluster(2))
    with OnnxRunner(saved(model, tmp_path), problem, plan_of(problem, [0, 1])) as r:
        made = [r.run({"x": np.array([1.0, 1.001 * k], dtype=np.float32)})["y"].tolist() for k in (1, 2)]
    assert made == [[1.0, 1.0], [1.0, 2.0]]  # eight bits of mantissa


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    """Weights beside the model are found by the workers; outside its folder they are refused before anything starts."""
    model = branching(layers=1)
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    problem = problem_of(model, cluster(2))
    plan = plan_of(problem, [0, 1, 0, 1, 0, 1])
    with OnnxRunner(path, problem, plan) as r:
        inputs = random_inputs(r.inputs)
        made = r.run(inputs)
    np.testing.assert_allclose(made["y0"], run_unsplit(path, inputs)["y0"], rtol=1e-5)
    stored = onnx.load(path, load_external_data=False)
    stored.graph.initializer[0].external_data[0].value = "../weights.bin"
    path.write_bytes(stored.SerializeToString())
    with no_process_left(), pytest.raises(InvalidInput, match="outside"):
        OnnxRunner(path, problem, plan)


def liar() -> onnx.ModelProto:
    """Places of what is not zero in x, stated as eight of them."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["h"], name="a"),
        helper.make_node("Neg", ["h"], ["y"], name="b"),
    ]
    info = {n: helper.make_tensor_value_info(n, TensorProto.INT64, [2, 8]) for n in ("h", "y")}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [info["y"]], value_info=[info["h"]]), ir_version=9)


@pytest.mark.parametrize("honest_runs", [0, 1, 3])
def test_a_model_that_lies_about_its_shapes(tmp_path: Path, honest_runs: int) -> None:
    """In the first run and in a later one the error names the tensor and both shapes; all workers are ended."""
    model = liar()
    problem = problem_of(model, cluster(2))
    x = np.ones((2, 4), dtype=np.float32)
    with no_process_left(), OnnxRunner(saved(model, tmp_path), problem, plan_of(problem, [0, 1])) as r:
        for _ in range(honest_runs):
            assert r.run({"x": x})["y"].shape == (2, 8)
        x[0] = 0
        with pytest.raises(ExecutionError, match=r"'cpu0': tensor 'h' .* shape \[2, 8\] but has the shape \[2, 4\]"):
            r.run({"x": x})
        assert psutil.Process().children(recursive=True) == []


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """Killed in the midst of a run: the error names its device and the signal; the other worker is ended too."""
    with no_process_left(), runner(tmp_path, [0, 1, 0, 1, 0, 1]) as r:
        r.run(random_inputs(r.inputs))
        thread = while_running(r, lambda: os.kill(r._workers[1].process.pid, signal.SIGKILL))
        with pytest.raises(DeviceLost, match=r"of device 'cpu1' was killed by SIGKILL.*; it was at \w+$") as caught:
            r.go()
        assert caught.value.device == "cpu1"
        thread.join()
        assert psutil.Process().children(recursive=True) == []
        with pytest.raises(ExecutionError, match="not running"):
            r.go()


def test_a_worker_that_hangs(tmp_path: Path) -> None:
    """The device that doesn't finish is named, not the one that waits for it."""
    with no_process_left(), runner(tmp_path, [0, 1, 0, 1, 0, 1], timeout_s=0.2) as r:
        r.run(random_inputs(r.inputs))
        os.kill(r._workers[1].process.pid, signal.SIGSTOP)
        with pytest.raises(DeviceLost, match=r"device 'cpu1' did not finish .* within 0\.2 s"):
            r.go()


def test_an_interrupt_ends_all_workers(tmp_path: Path) -> None:
    """Ctrl-C in the driver comes out as KeyboardInterrupt, with no worker left."""
    # A background job starts with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _interrupted(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(tmp_path: Path) -> None:
    with no_process_left(), runner(tmp_path, [0, 1, 0, 1, 0, 1]) as r:
        r.run(random_inputs(r.inputs))
        thread = while_running(r, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            r.go()
        thread.join()


def test_workers_end_with_their_driver(tmp_path: Path) -> None:
    """When the driver is killed, its workers see the end of their input and end themselves."""
    runner(tmp_path, [0] * 6)  # saves the model
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from execute.small_onnx import *
model = branching(layers=1)
problem = problem_of(model, cluster(2))
from placewright.execute.onnx.runner import OnnxRunner
with OnnxRunner({str(tmp_path / "model.onnx")!r}, problem, plan_of(problem, [0, 1] * 3)) as r:
    print(*(w.process.pid for w in r._workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    driver = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    assert driver.returncode == -signal.SIGKILL
    workers = []
    for pid in driver.stdout.split():
        try:
            workers.append(psutil.Process(int(pid)))
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert alive == []


def test_a_core_that_is_not_there(tmp_path: Path) -> None:
    """A device on a core that this machine lacks is named, with the cores that there are."""
    model = branching(layers=1)
    problem = problem_of(model, cluster(2, ((available_cores()[0],), (4095,))))
    path = saved(model, tmp_path)
    with (
        no_process_left(),
        pytest.raises(ExecutionError, match="'cpu1' is on core 4095, but this process may use only"),
    ):
        OnnxRunner(path, problem, plan_of(problem, [0, 1] * 3)).__enter__()


def test_a_model_that_the_runtime_refuses(tmp_path: Path) -> None:
    """An operator that ONNX Runtime does not know ends in one line that names the device."""
    node = helper.make_node("Nonsense", ["x"], ["y"], name="a", domain="nowhere")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    model = helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), ir_version=9)
    model.opset_import.append(helper.make_opsetid("nowhere", 1))
    problem = problem_of(model, cluster(1))
    path = saved(model, tmp_path)
    with no_process_left(), pytest.raises(ExecutionError, match=r"device 'cpu0': .*Nonsense") as caught:
        OnnxRunner(path, problem, plan_of(problem, [0])).__enter__()
    assert "\n" not in str(caught.value)


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    """An absent input, a wrong shape and a wrong type are each named, and leave the workers running."""
    with runner(tmp_path, [0] * 6) as r:
        with pytest.raises(ExecutionError, match="input 'x' of the network is not given"):
            r.run({})
        with pytest.raises(
            ExecutionError, match=r"input 'x' is float32 \[4, 9\] but was planned for as float32 \[4, 8\]"
        ):
            r.run({"x": np.zeros((4, 9), dtype=np.float32)})
        with pytest.raises(ExecutionError, match="input 'x' is float64"):
            r.run({"x": np.zeros((4, 8))})
        assert r.run({"x": np.zeros((4, 8), dtype=np.float32)})["mean"].shape == (1, 1)
