"""Commands on real networks: capture, plan, profile, run, probe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import placewright as pw
from placewright.evaluate import judge, plan_for
from placewright.host import available_cores
from tests.cli.commands import Call

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RUN_KEYS = ["name", "predicted_s", "median_s", "quartiles_s", "prediction_error", "max_relative_error", "runs_s"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    from tests.execute.small_onnx import branching, saved

    return saved(branching(), tmp_path)


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    """Two devices on one core of this machine."""
    core = available_cores()[0]
    path = tmp_path / "workers.yaml"
    device = f"kind: cpu, cores: [{core}], threads: 1, flops: {{fp32: 10 GFLOP/s}}, memory_bandwidth: 5 GB/s"
    path.write_text(
        f"devices: [{{name: one, {device}}}, {{name: two, {device}}}]\n"
        "links: [{class: same-host, bandwidth: 5 GB/s, latency: 20 us}]\n"
    )
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_an_onnx_model_is_planned_by_the_roofline(placewright: Call, model: Path, cluster_file: Path) -> None:
    """21 operators are placed; nothing but the plan is left in the folder."""
    shown = placewright("plan", model, "--cluster", cluster_file, "--budget", "0", "--json", "--fuse", "none")
    assert shown.code == 0 and len(shown.json["placement"]) == 21
    assert shown.json["problem"]["name"] == "model"
    assert {p.name for p in model.parent.iterdir()} == {"model.onnx", "cluster.yaml"}


def test_wishes_are_checked_before_anything_is_measured(placewright: Call, model: Path, workers: Path) -> None:
    """A pin to a device that does not exist ends before the first measurement."""
    shown = placewright("plan", model, "--cluster", workers, "--pin", "left*=gone", "--budget", "0")
    assert shown.code == 2 and "no device is named 'gone'" in shown.line and "measuring" not in shown.err


def test_measured_cuts_are_part_of_the_problem(placewright: Call, model: Path, workers: Path) -> None:
    """Devices that state no cut overhead get the measured one, and profiling again takes all from the cache."""
    shown = placewright("convert", model, "--cluster", workers, "-o", "problem.json")
    assert shown.code == 0 and "measuring the operators" in shown.err
    problem = pw.read_problem("problem.json")
    assert problem.times.source == "profiled" and all(d.cut_overhead_s > 0 for d in problem.cluster.devices)
    again = placewright("profile", model, "--cluster", workers, "--json")
    assert again.code == 0 and list(again.json) == ["schema", "source", "processing_s"]
    assert again.json["processing_s"][problem.graph.operators[0].name] == {
        "one": problem.times.processing_s[0, 0],
        "two": problem.times.processing_s[0, 1],
    }
    shown = placewright("profile", model, "--cluster", workers)
    assert shown.code == 0 and "0 now" in shown.out


def test_profile_needs_a_device_that_is_here(placewright: Call, model: Path, cluster_file: Path) -> None:
    """A cluster of far devices can't be measured when that is asked for."""
    for arguments in (["plan", model, "--costs", "profile"], ["profile", model]):
        shown = placewright(*arguments, "--cluster", cluster_file)
        assert (shown.code, shown.out) == (2, "") and "--costs analytic" in shown.line


def test_run(placewright: Call, model: Path, workers: Path, tmp_path: Path) -> None:
    """A plan over two workers is run, checked, measured beside each device alone, and reported."""
    pins = ["--pin", "left*=one", "--pin", "right*=two"]
    plan = ["plan", model, "--cluster", workers, "--costs", "roofline", "--fuse", "none", "--budget", "0", *pins]
    assert placewright(*plan, "-o", "plan.json").code == 0
    shown = placewright("run", "plan.json", "--runs", "3", "--json", "--trace", "t.json", "--report", "r.html")
    keys = ["schema", "problem", "measurements", "prediction", "plan", "lost"]
    assert shown.code == 0 and list(shown.json) == keys and shown.json["lost"] == []
    off = shown.json["prediction"]
    assert sum(piece["measured_s"] for piece in off["path"]) == pytest.approx(off["measured_s"])
    assert sum(piece["predicted_s"] for piece in off["path"]) == pytest.approx(off["predicted_s"])
    rows = shown.json["measurements"]
    assert [list(m) for m in rows] == [RUN_KEYS] * len(rows) and rows[0]["name"] == "plan"
    assert len(rows[0]["runs_s"]) == 3 and rows[0]["max_relative_error"] <= 1e-5
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] and (tmp_path / "r.html").exists()
    shown = placewright("run", "plan.json", "--runs", "2", "--no-alone")
    assert shown.code == 0 and "where the prediction was off" in shown.out


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_run_goes_on_without_a_worker_that_is_killed(
    placewright: Call, model: Path, workers: Path, tmp_path: Path
) -> None:
    """The plan without it is on the other one, written, run and reported; where operators are pinned to it: code 3."""
    pins = ["--pin", "left*=one", "--pin", "right*=two"]
    plan = ["plan", model, "--cluster", workers, "--costs", "roofline", "--fuse", "none", "--budget", "0", *pins]
    assert placewright(*plan, "-o", "pinned.json").code == 0
    file = pw.read_plan("pinned.json")
    problem = pw.Problem(file.problem.graph, file.problem.cluster, file.problem.times)
    free = plan_for(problem, file.plan.device_of)
    assert free is not None
    pw.write_plan("plan.json", problem, pw.Result(free), judge(problem, free))
    run = ("run", "--runs", "1", "--json", "--replan", "--budget", "0")
    with killed("two"):
        shown = placewright(*run, "plan.json", "-o", "new.json")
    assert shown.code == 0 and [row["device"] for row in shown.json["lost"]] == ["two"]
    assert "two is lost: the worker of device 'two' was killed by SIGKILL" in shown.err
    assert set(pw.read_plan("new.json").plan.device_of.tolist()) == {0}
    assert shown.json["plan"] == "new.json" and shown.json["measurements"][0]["max_relative_error"] <= 1e-5
    with killed("two"):
        shown = placewright(*run, "pinned.json")
    assert shown.code == 3 and "without 'two' there is no plan" in shown.line
    assert not (tmp_path / "pinned.replanned.json").exists()


@contextmanager
def killed(device: str) -> Iterator[None]:
    """Kill the first worker of a device that is started meanwhile, as the system does for want of memory."""
    from placewright.execute.onnx import process as onnx_process

    start = onnx_process.WorkerProcess.send
    left = [device]

    def send(worker: onnx_process.WorkerProcess, job: object) -> None:
        start(worker, job)
        if worker.device.name in left:
            left.remove(worker.device.name)
            worker.process.kill()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_process.WorkerProcess, "send", send)
        yield


def test_a_mask_is_computed_on_both_devices(placewright: Call, workers: Path, tmp_path: Path) -> None:
    """Layers on two workers: neither waits for the mask, the run's outputs are right, and 0s leaves the mask single."""
    from tests.execute.small_onnx import masked, saved

    model = saved(masked(6, 900), tmp_path)
    plan = ["plan", model, "--cluster", workers, "--costs", "roofline", "--fuse", "none", "--budget", "0"]
    pins = [text for k in range(6) for text in ("--pin", f"layer{k}={'one' if k % 2 else 'two'}")]
    shown = placewright(*plan, *pins, "--json", "-o", "plan.json")
    assert shown.code == 0 and shown.json["placement"]["mask"] == shown.json["placement"]["cast"] == ["two", "one"]
    assert "computed wherever they are read: cast, mask (2 cheap operators)" in shown.err
    measured = placewright("run", "plan.json", "--runs", "2", "--no-alone", "--json")
    assert measured.code == 0 and measured.json["measurements"][0]["max_relative_error"] <= 1e-5
    single = placewright(*plan, *pins, "--json", "--duplicate-below", "0s")
    assert single.json["placement"]["mask"] in ("one", "two") and "wherever" not in single.err


def test_a_limit_below_zero_is_refused(placewright: Call, model: Path, cluster_file: Path) -> None:
    """What is no time is said to be none."""
    shown = placewright("plan", model, "--cluster", cluster_file, "--duplicate-below", "-1s")
    assert shown.code == 2 and "--duplicate-below" in shown.line


def test_plans_of_chains(placewright: Call, problem_file: Path) -> None:
    """The plan of the coarse problem is among the alternatives; a way that does not exist is refused."""
    from tests.coarsen.test_solving import layers

    pw.write_problem("chain.json", layers())
    shown = placewright("plan", "chain.json", "--coarsen", "chains", "--budget", "0", "--json")
    assert shown.code == 0 and shown.json["alternatives"]["chains as one"] == pytest.approx(18.0)
    shown = placewright("compare", "chain.json", "--solvers", "heft", "--coarsen", "chains", "--budget", "0", "--json")
    assert shown.code == 0 and "chains as one" in shown.json["results"][0]["alternatives"]
    shown = placewright("plan", problem_file, "--coarsen", "layers", "--budget", "0")
    assert shown.code == 2 and shown.line == "coarsening 'layers' is unknown; use one of none, chains, blocks"


def test_run_finds_no_model(placewright: Call, model: Path, cluster_file: Path, tmp_path: Path) -> None:
    """Moved: say where it was looked for. Changed: say that it is another. Beside a moved plan: found."""
    assert placewright("plan", model, "--cluster", cluster_file, "--budget", "0", "-o", "plan.json").code == 0
    (tmp_path / "away").mkdir()
    moved = model.rename(tmp_path / "away" / "model.onnx")
    shown = placewright("run", "plan.json")
    assert shown.code == 2 and "is not in the plan's folder" in shown.line and "--model PATH" in shown.line
    shown = placewright("run", "plan.json", "--model", "gone.onnx")
    assert shown.code == 2 and "model 'gone.onnx' is not a file; correct --model" in shown.line
    moved.write_bytes(moved.read_bytes() + b"\x00")
    shown = placewright("run", "plan.json", "--model", moved)
    assert shown.code == 2 and "and the plan was made for" in shown.line and shown.line.endswith("plan again")


@pytest.mark.parametrize("option", [("--output", "new.json"), ("--budget", "5s")])
def test_what_only_a_new_plan_has_is_refused_without_one(placewright: Call, option: tuple[str, str]) -> None:
    """Before anything is read: nothing would be written, or searched."""
    shown = placewright("run", "plan.json", *option)
    assert shown.code == 2 and f"{option[0]} is for the plan that --replan makes" in shown.line


@pytest.mark.parametrize(("size", "name"), [(0, "empty.onnx"), (700, "cut.onnx")])
def test_truncated_models(placewright: Call, model: Path, cluster_file: Path, size: int, name: str) -> None:
    """A file that ends too early is no model."""
    Path(name).write_bytes(model.read_bytes()[:size])
    shown = placewright("plan", name, "--cluster", cluster_file)
    assert shown.code == 2 and shown.line.startswith(f"ONNX model '{name}'") and "Traceback" not in shown.err


def test_external_data_outside_the_folder(placewright: Call, model: Path, cluster_file: Path) -> None:
    """A weight that claims to lie in another folder is not looked for."""
    changed = onnx.load(model)
    weight = changed.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = weight.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../secret"
    model.write_bytes(changed.SerializeToString())
    shown = placewright("plan", model, "--cluster", cluster_file)
    assert shown.code == 2 and "'../secret' lies outside the model's folder" in shown.line


def test_probe_describes_this_machine(placewright: Call) -> None:
    """One device: the text on standard output is a cluster file."""
    shown = placewright("probe", "--devices", "1")
    assert shown.code == 0
    Path("c.yaml").write_text(shown.out)
    (device,) = pw.read_cluster("c.yaml").devices
    assert device.kind == "cpu" and device.flops_per_s["fp32"] > 0 and device.cores == available_cores()


def test_a_function_is_planned_and_run(
    placewright: Call, cluster_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``py:`` makes the network; running it needs the user's word again; outputs equal the unsplit network's."""
    pytest.importorskip("torch")
    (tmp_path / "tiny_net.py").write_text(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()\n"
        "    return net, (torch.ones(3, 4),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pins = ["--pin", "0=big", "--pin", "2=small"]
    plan = ["plan", "py:tiny_net:make", "--cluster", cluster_file, "--budget", "0", *pins]
    planned = placewright(*plan, "-o", "plan.json")
    assert planned.code == 0, planned.err
    shown = placewright("run", "plan.json")
    assert shown.code == 2 and "give --model py:tiny_net:make to call it" in shown.line
    shown = placewright("run", "plan.json", "--model", "py:tiny_net:make", "--runs", "4", "--json")
    assert shown.code == 0 and len(shown.json["measurements"][0]["runs_s"]) == 4
    assert shown.json["measurements"][0]["max_relative_error"] <= 1e-5
