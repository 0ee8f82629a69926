"""Exported command lines are given to llama.cpp itself, which then says where it put each layer, and computes the same.

Wanted are ``llama-server`` and ``ggml-rpc-server``, built with ``-DGGML_RPC=ON``: on the path, or in the folder that
PLACEWRIGHT_LLAMA_CPP names. Accelerators are CPUs behind RPC servers on addresses of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from placewright.costs import analytic
from placewright.evaluate import plan_for
from placewright.export import PLAN_FORMATS, export_plan, nearest
from placewright.io import read_cluster
from placewright.language import Asked, pose_model, read_language_model
from placewright.objective import Makespan
from placewright.problem import Problem
from placewright.solve import solve
from tests.export.tiny_gguf import write_llama


def program(name: str) -> str | None:
    folder = os.environ.get("PLACEWRIGHT_LLAMA_CPP")
    return shutil.which(name, path=folder) if folder else shutil.which(name)


SERVER, RPC_SERVER = program("llama-server"), program("ggml-rpc-server")

pytestmark = pytest.mark.skipif(
    SERVER is None or RPC_SERVER is None,
    reason="llama-server and ggml-rpc-server are not on the path; name their folder in PLACEWRIGHT_LLAMA_CPP",
)

LAYERS = 6
PATIENCE = 240
"""Quarters of a second that a server may take to start."""


@dataclass(frozen=True)
class Case:
    """Devices of the layers and the head, and the layers whose experts are in RAM of the machine that runs it all."""

    layers: Sequence[str]
    head: str
    experts: Sequence[int] = ()
    moe: bool = False


CASES = {
    "two hosts, the second GPU of one before its first": Case(["a1", "a1", "b", "a0", "a0", "a0"], "a0"),
    "RAM first": Case(["ram", "ram", "b", "b", "b", "a0"], "a0"),
    "RAM of another host between GPUs": Case(["a0", "far", "far", "far", "far", "b"], "b"),
    "all in RAM": Case(["ram"] * 6, "ram"),
    "one GPU": Case(["b"] * 6, "b"),
    "uneven": Case(["a0", "a1", "a1", "a1", "a1", "a1"], "a1"),
    "five devices": Case(["ram", "far", "a1", "b", "b", "a0"], "a0"),
    "experts of two layers": Case(["a0", "a0", "a0", "b", "b", "b"], "b", [1, 4], moe=True),
    "experts of the first layers": Case(["ram", "b", "b", "a1", "a1", "a1"], "a1", [1, 2], moe=True),
    "all experts": Case(["a0", "a0", "b", "b", "far", "far"], "far", range(6), moe=True),
}


CLUSTER = """
devices:
  - {name: ram, kind: cpu, host: NET.1, memory: 64 GiB, flops: {fp32: 1 TFLOP/s}, memory_bandwidth: 40 GB/s}
  - {name: a0, model: rtx-3090, host: NET.2}
  - {name: a1, model: gtx-1080-ti, host: NET.2}
  - {name: b, model: rtx-3060-12gb, host: NET.3}
  - {name: far, kind: cpu, host: NET.4, memory: 64 GiB, flops: {fp32: 1 TFLOP/s}, memory_bandwidth: 40 GB/s}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
  - {class: between-hosts, bandwidth: 1 GB/s, latency: 50 us}
"""
"""RAM where the program runs, two GPUs of one other host, one of a second, and the RAM of a third."""


def posed(model: Path, net: str, cluster: str = CLUSTER) -> Problem:
    file = model.with_suffix(".yaml")
    file.write_text(cluster.replace("NET", net))
    found, devices = read_language_model(str(model)), read_cluster(file)
    asked, objective = Asked(context=64), Makespan(per="token")
    return pose_model(found.model, devices, asked, objective, analytic, (), found.source).problem


def placed(problem: Problem, case: Case) -> list[str]:
    """Name the device of each operator."""
    names = []
    for v in problem.graph.operators:
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", v.name)
        if layer is None:
            names.append("ram" if v.name == "model.embed_tokens" else case.head)
        elif int(layer[1]) in case.experts and "experts" in layer[2]:
            names.append("ram")
        else:
            names.append(case.layers[int(layer[1])])
    return names


@contextmanager
def running(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answered(url: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server can be asked."""
    for _ in range(PATIENCE):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.25)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


def tokens(line: Sequence[str], log: Path) -> list[int]:
    """Start llama-server by an exported line, and generate greedily."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert line[0] == "llama-server" and SERVER is not None
    words = [SERVER, *line[1:], "--host", "127.0.0.1", "--port", str(port)]
    words += ["--ctx-size", "64", "--parallel", "1", "--threads", "1", "--verbosity", "10", "--offline"]
    with running(words, log) as process:
        answered(f"http://127.0.0.1:{port}", log, process)
        asked = {
            "prompt": [1, 20, 30, 40],
            "n_predict": 12,
            "temperature": 0,
            "ignore_eos": True,
            "return_tokens": True,
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return list(json.load(answer)["tokens"])


def servers_of(text: str) -> dict[str, list[str]]:
    """What the comments say is to be started: devices of each host."""
    found = re.findall(r"^# on ([\d.]+), .*ggml-rpc-server --host 0.0.0.0 --port 50052 --device (\S+)$", text, re.M)
    return {host: devices.split(",") for host, devices in found}


def device_names(log: str, servers: dict[str, list[str]], problem: Problem) -> dict[str, str]:
    """Name in the cluster of each device that llama.cpp lists: the n-th of a server is the n-th that this was given."""
    names = {"CPU": "ram"}
    count: dict[str, int] = {}
    for word, host in re.findall(r"- (RPC\d+) *: ([\d.]+):50052", log):
        count[host] = count.get(host, -1) + 1
        kind, number = re.fullmatch(r"([A-Z]+)(\d*)", servers[host][count[host]]).groups()  # type: ignore[union-attr]
        of_host = [d.name for d in problem.cluster.devices if d.host == host and (d.kind == "cpu") == (kind == "CPU")]
        names[word] = of_host[int(number or 0)]
    return names


def run(line: Sequence[str], servers: dict[str, list[str]], folder: Path) -> tuple[list[int], str]:
    """Start the RPC servers, with a CPU for each device, and llama-server: tokens and log."""
    with ExitStack() as stack:
        for host, devices in servers.items():
            words = [str(RPC_SERVER), "--host", host, "--port", "50052", "--device", ",".join(["CPU"] * len(devices))]
            stack.enter_context(running(words, folder / f"{host}.log"))
        for host in servers:
            for _ in range(PATIENCE):
                with socket.socket() as asking:
                    if asking.connect_ex((host, 50052)) == 0:
                        break
                time.sleep(0.25)
        made = tokens(line, folder / "server.log")
    return made, (folder / "server.log").read_text(errors="replace")


def layers_of(log: str, names: dict[str, str]) -> dict[int, str]:
    """Device of each layer, and of the head, which is one more."""
    found = re.findall(r"load_tensors: layer +(\d+) assigned to device (\w+)", log)
    return {int(k): names[word] for k, word in found}


@pytest.mark.parametrize("name", CASES)
def test_llama_cpp_runs_the_plan_that_was_exported(name: str, tmp_path: Path) -> None:
    """Layers, head, KV caches and experts are where the plan has them, and the tokens are those of one device."""
    case, net = CASES[name], f"127.0.{list(CASES).index(name) + 1}"
    model = write_llama(tmp_path / "tiny.gguf", LAYERS, experts=4 if case.moe else 0)
    problem = posed(model, net)
    wanted = placed(problem, case)
    plan = plan_for(problem, np.array([problem.cluster.index[i] for i in wanted]))
    assert plan is not None
    made = export_plan(problem, plan, "llama.cpp")
    assert "can say this plan only by" not in made.text
    line = shlex.split(made.text.splitlines()[-1])
    servers = servers_of(made.text)
    log = tmp_path / "server.log"
    alone = tokens(["llama-server", "--model", str(model), "--n-gpu-layers", "0", "--device", "none"], log)
    assert len(alone) == 12
    generated, told = run(line, servers, tmp_path)
    assert generated == alone
    names = device_names(told, servers, problem)
    assert layers_of(told, names) == {**dict(enumerate(case.layers)), LAYERS: case.head}
    caches = {int(k): names[word] for k, word in re.findall(r"llama_kv_cache: layer +(\d+): dev = (\w+)", told)}
    assert caches == dict(enumerate(case.layers))
    moved = re.findall(r"tensor blk\.(\d+)\.ffn_(\w+)_exps\.weight .* buffer type overridden to CPU", told)
    in_ram = [k for k in case.experts if case.layers[k] != "ram"]
    assert sorted({int(k) for k, _ in moved} & set(in_ram)) == in_ram
    assert {int(k) for k, _ in moved} <= {*case.experts, *(k for k, i in enumerate(case.layers) if i == "ram")}
    assert len(re.findall("buffer type overridden", told)) == len(moved)  # no other tensor


@pytest.mark.parametrize("experts", [0, 4])
def test_llama_cpp_runs_what_is_planned_for_little_memory(experts: int, tmp_path: Path) -> None:
    """No device holds the model: what is planned, and written as the nearest plan, is what runs."""
    model = write_llama(tmp_path / "tiny.gguf", LAYERS, experts=experts)
    size = model.stat().st_size
    small = re.sub(r"(rtx-3090|gtx-1080-ti|rtx-3060-12gb),", rf"\1, memory: {size // 3} B,", CLUSTER)
    problem = posed(model, f"127.0.{len(CASES) + 1 + experts}", small.replace("64 GiB", f"{size // 2} B"))
    plan = solve(problem, budget=3).require_plan()
    rules = PLAN_FORMATS["llama.cpp"].rules
    assert rules is not None
    wanted = nearest(problem, plan, rules, budget=3)
    made = export_plan(problem, plan, "llama.cpp", budget=3)
    servers = servers_of(made.text)
    generated, told = run(shlex.split(made.text.splitlines()[-1]), servers, tmp_path)
    assert len(generated) == 12
    cluster = problem.cluster
    layers = [cluster.devices[s.device].name for s in wanted.stages for unit in s.units if unit.stack]
    head = cluster.devices[wanted.stages[-1].device].name
    assert layers_of(told, device_names(told, servers, problem)) == {**dict(enumerate(layers)), LAYERS: head}
    assert len({*layers, head}) > 1
