"""Flags and files of runtimes that don't install here, read as their documentation and sources read them."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.export import Exported, export_plan
from placewright.graph import Operator, OperatorGraph, Source, Tensor
from placewright.problem import Problem

LAYERS = 6
BOX = [Device("ram", kind="cpu"), Device("slow", model="gtx-1080-ti"), Device("fast", model="rtx-4090")]
LINKS = [Link(1e-6, 1e12, link_class="same-host"), Link(1e-5, 1e12, link_class="between-hosts")]


def network(experts: bool = False) -> OperatorGraph:
    """An embedding, six layers of attention and feed-forward, norm and head; one tensor from each to the next."""
    names = ["model.embed_tokens"]
    for k in range(LAYERS):
        names += [f"model.layers.{k}.self_attn", f"model.layers.{k}.mlp" + (".experts.0" if experts else "")]
    names += ["model.norm", "lm_head"]
    tensors = [Tensor(f"t{k}", k, (k + 1,), 8) for k in range(len(names) - 1)]
    return OperatorGraph([Operator(name, weight_bytes=64) for name in names], tensors)


def exported(
    format: str,
    counts: dict[str, int],
    devices: list[Device] = BOX,
    place: Callable[[Operator, int], int | None] = lambda v, i: None,
    experts: bool = False,
    objective: str = "makespan",
) -> Exported:
    """The text for a plan with so many layers on each device, in this order; ``place`` puts operators elsewhere."""
    graph = network(experts)
    cluster = Cluster(devices, LINKS)
    rows = [cluster.index[name] for name, count in counts.items() for _ in range(count)]
    device = []
    for v in graph.operators:
        layer = re.match(r"model\.layers\.(\d+)", v.name)
        begin = 0 if format == "llama.cpp" and devices[0].kind == "cpu" else rows[0]  # llama.cpp has embeddings in RAM
        at = rows[int(layer[1])] if layer else begin if v.name == "model.embed_tokens" else rows[-1]
        chosen = place(v, at)
        device.append(at if chosen is None else chosen)
    problem = Problem(graph, cluster, np.ones((len(graph), len(devices))), objective)
    plan = plan_for(problem, np.array(device))
    assert plan is not None
    return export_plan(problem, plan, format)


def last_line(text: str) -> list[str]:
    return shlex.split(text.splitlines()[-1])


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def llama_cpp_devices(words: list[str]) -> list[str]:
    """Device of each layer and of the head, as ``load_tensors`` of llama.cpp computes it, in its 32-bit arithmetic."""
    n_gpu_layers, names = int(option(words, "--n-gpu-layers")), option(words, "--device").split(",")
    shares = option(words, "--tensor-split").split(",") if "--tensor-split" in words else ["1"]
    splits = np.cumsum(np.array(shares, dtype=np.float32), dtype=np.float32)
    splits = (splits / splits[-1]).astype(np.float32)
    start, acting = max(LAYERS + 1 - n_gpu_layers, 0), min(n_gpu_layers, LAYERS + 1)
    found = []
    for il in range(LAYERS + 1):
        if il < start or il - start >= acting:
            found.append("CPU")
        else:
            found.append(names[int(np.searchsorted(splits, np.float32(il - start) / np.float32(acting), side="right"))])
    return found


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({"slow": 2, "fast": 4}, ["CUDA0"] * 2 + ["CUDA1"] * 5),
        ({"fast": 5, "slow": 1}, ["CUDA1"] * 5 + ["CUDA0"] * 2),
        ({"ram": 2, "fast": 1, "slow": 3}, ["CPU"] * 2 + ["CUDA1"] + ["CUDA0"] * 4),
        ({"fast": 6}, ["CUDA1"] * 7),
    ],
)
def test_llama_cpp_puts_every_layer_where_the_plan_has_it(counts: dict[str, int], wanted: list[str]) -> None:
    """The flags, read with the arithmetic of llama.cpp's loader, give the planned device of each layer and the head."""
    words = last_line(exported("llama.cpp", counts).text)
    assert words[:2] == ["CUDA_DEVICE_ORDER=PCI_BUS_ID", "llama-server"]  # CUDA's own order begins with the fastest
    assert llama_cpp_devices(words) == wanted
    assert (option(words, "--split-mode") == "none") == (len(counts) == 1)


def test_llama_cpp_numbers_the_devices_of_each_backend() -> None:
    """A Radeon behind a GeForce is ROCm's first device, and the GeForce after it CUDA's second."""
    mixed = [Device("a", model="rtx-3090"), Device("b", model="rx-7900-xtx"), Device("c", model="rtx-3090")]
    words = last_line(exported("llama.cpp", {"a": 2, "b": 2, "c": 2}, mixed).text)
    assert option(words, "--device") == "CUDA0,ROCm0,CUDA1"


def test_llama_cpp_runs_where_its_cpu_is() -> None:
    """The embedding is in RAM of host a, so the accelerator of host b is reached over the network."""
    away = [Device("ram", kind="cpu", host="a"), Device("gpu", model="rtx-4090", host="b")]
    words = last_line(exported("llama.cpp", {"gpu": 6}, away).text)
    assert (option(words, "--rpc"), option(words, "--device")) == ("b:50052", "RPC0")


def test_llama_cpp_keeps_experts_in_the_ram_of_one_host() -> None:
    """Experts in the RAM of two hosts can't be said: the nearest plan has them in that of one."""
    two = [*BOX[:1], Device("there", kind="cpu", host="b"), BOX[2]]
    made = exported(
        *("llama.cpp", {"fast": 6}, two),
        place=lambda v, i: (0 if ".0." in v.name.partition("layers")[2] else 1) if "experts" in v.name else None,
        experts=True,
    )
    assert made.text.startswith("# llama.cpp can say this plan only by whole layers")
    assert "there" not in made.text


def test_llama_cpp_without_an_accelerator() -> None:
    """All on the CPU: no layer is handed over."""
    words = last_line(exported("llama.cpp", {"ram": 6}).text)
    assert option(words, "--n-gpu-layers") == "0"
    assert option(words, "--device") == "none"


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        (range(6), ["--cpu-moe"]),
        (range(2), ["--n-cpu-moe", "2"]),
        ((1, 4), ["--override-tensor", r"blk\.(1|4)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"]),
    ],
)
def test_llama_cpp_keeps_experts_on_the_cpu(layers: range | tuple[int, ...], wanted: list[str]) -> None:
    """Experts of some layers on the CPU: all of them, those of the first layers, or a pattern of tensor names."""

    def place(v: Operator, at: int) -> int | None:
        return 0 if "experts" in v.name and int(v.name.split(".")[2]) in layers else None

    made = exported("llama.cpp", {"slow": 3, "fast": 3}, place=place, experts=True)
    words = last_line(made.text)
    assert words[-len(wanted) :] == wanted
    assert made.notes == ()
    if wanted[0] == "--override-tensor":
        pattern = wanted[1].rpartition("=")[0]
        names = [f"blk.{k}.ffn_{part}_exps.weight" for k in range(12) for part in ("up", "gate", "down")]
        assert {int(name.split(".")[1]) for name in names if re.search(pattern, name)} == {1, 4}
        assert not re.search(pattern, "blk.1.attn_q.weight")


def test_llama_cpp_reaches_other_hosts_by_rpc() -> None:
    """A device of another host is behind an RPC server, and what to start there is said."""
    devices = [Device("a", host="desk"), Device("b", host="attic")]
    made = exported("llama.cpp", {"a": 3, "b": 3}, devices)
    words = last_line(made.text)
    assert option(words, "--rpc") == "attic:50052"
    assert option(words, "--device") == "CUDA0,RPC0"
    started = "on attic, in a network that you trust: ggml-rpc-server --host 0.0.0.0 --port 50052 --device CUDA0"
    assert made.notes == (started,)
    assert f"# {started}\n" in made.text


def test_llama_cpp_numbers_devices_of_rpc_servers_in_the_order_of_the_servers() -> None:
    """RPC numbers go over the servers, and over the devices that each is given, not over the stages."""
    devices = [
        Device("ram", kind="cpu", host="desk"),
        Device("a0", model="rtx-3090", host="attic"),
        Device("a1", model="gtx-1080-ti", host="attic"),
        Device("far", kind="cpu", host="shed"),
    ]
    made = exported("llama.cpp", {"a1": 2, "far": 3, "a0": 1}, devices)
    words = last_line(made.text)
    assert option(words, "--rpc") == "attic:50052,shed:50052"
    assert option(words, "--device") == "RPC0,RPC2,RPC1"
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID ggml-rpc-server --host 0.0.0.0 --port 50052 --device CUDA1,CUDA0" in made.text
    assert "on shed, in a network that you trust: ggml-rpc-server" in made.text
    assert made.text.count("--device CPU\n") == 1


def test_llama_cpp_leaves_other_cpus_of_its_host_alone() -> None:
    """A second CPU of the host where the program runs is no device of it, and neither is one that stands first."""
    devices = [Device("ram", kind="cpu"), Device("ram2", kind="cpu"), Device("gpu", model="rtx-4090")]
    made = exported("llama.cpp", {"gpu": 2, "ram2": 4}, devices)
    assert made.text.startswith("# llama.cpp can say this plan only by whole layers in device order, those on its own")
    assert "ram2" not in made.text


COUNTS = {"fast": 4, "slow": 2}


@pytest.mark.parametrize("format", ["accelerate", "diffusers", "torch-pipelining"])
def test_numbers_of_unlike_gpus_are_those_of_the_bus(format: str) -> None:
    """CUDA would begin with the fastest, as the plan's numbers do not; of GPUs that are alike nothing is said."""
    alike = [Device("slow", model="rtx-4090"), Device("fast", model="rtx-4090")]
    said = [(made.text, *made.notes) for made in (exported(format, COUNTS), exported(format, COUNTS, alike))]
    assert [any("PCI_BUS_ID" in text for text in texts) for texts in said] == [True, False]


@pytest.mark.parametrize(
    ("format", "variable", "stages"),
    [
        ("vllm", "VLLM_PP_LAYER_PARTITION", "--pipeline-parallel-size"),
        ("sglang", "SGLANG_PP_LAYER_PARTITION", "--pp-size"),
    ],
)
def test_pipelines_of_servers(format: str, variable: str, stages: str) -> None:
    """Layers by rank, their number, and the devices in the order of the ranks (fast is accelerator 1 of its host)."""
    words = last_line(exported(format, COUNTS).text)
    assert f"{variable}=4,2" in words
    assert "CUDA_VISIBLE_DEVICES=1,0" in words
    assert option(words, stages) == "2"
    assert last_line(exported(format, {"slow": 2, "fast": 4}).text)[0] == "CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_servers_use_no_cpu() -> None:
    """A plan on the CPU is put on accelerators alone, and what that changes is a note and a comment."""
    made = exported("vllm", {"ram": 2, "fast": 4})
    assert made.notes[0].startswith("vLLM can say this plan only by whole layers in a row of accelerators")
    assert made.text.startswith(f"# {made.notes[0]}\n")
    partition = re.search(r"PARTITION=([\d,]+)", made.text)
    assert partition is None or sum(map(int, partition[1].split(","))) == LAYERS


def test_tensorrt_llm_reads_its_options_as_yaml() -> None:
    """The file is YAML with the fields of the LLM API."""
    assert yaml.safe_load(exported("tensorrt-llm", COUNTS).text) == {
        "pipeline_parallel_size": 2,
        "tensor_parallel_size": 1,
        "pp_partition": [4, 2],
    }


def test_torchtitan_reads_its_modules_in_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part lists the modules by the names of torchtitan's own models, and there is a stage for each rank."""
    parallelism = SimpleNamespace(pipeline_parallel_schedule="Interleaved1F1B")
    registry = SimpleNamespace(llama3_8b=lambda: SimpleNamespace(parallelism=parallelism))
    monkeypatch.setitem(sys.modules, "torchtitan.models.llama3.config_registry", registry)
    space: dict[str, Callable[[], object]] = {}
    exec(compile(exported("torchtitan", COUNTS).text, "placed", "exec"), space)
    space["placed"]()
    assert vars(parallelism) == {
        "pipeline_parallel_schedule": "1F1B",
        "pipeline_parallel_degree": 2,
        "module_fqns_per_model_part": [
            ["tok_embeddings", *(f"layers.{k}" for k in range(4))],
            ["layers.4", "layers.5", "norm", "lm_head"],
        ],
    }


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [(COUNTS, "Etttt|ttL"), ({"fast": 5, "slow": 1}, "Ettttt|tL"), ({"fast": 6}, "EttttttL")],
)
def test_megatron_layouts_expand_to_the_plan(counts: dict[str, int], wanted: str) -> None:
    """Repetitions written out and commas left away, each stage has its layers; E begins, L ends."""
    words = last_line(exported("megatron", counts).text)
    layout = re.sub(r"(\w)\*(\d+)", lambda m: m[1] * int(m[2]), option(words, "--pipeline-model-parallel-layout"))
    layout = layout.replace(",", "")
    assert layout == wanted
    assert int(option(words, "--pipeline-model-parallel-size")) == layout.count("|") + 1


def test_deepspeed_stages_have_the_planned_layers() -> None:
    """The subclass sets the bounds of its own stage, as DeepSpeed's ``_partition_layers`` does."""
    text = exported("deepspeed", COUNTS).text
    space: dict[str, object] = {}

    class PipelineModule:
        """What the subclass uses of DeepSpeed's."""

        global_rank = 0

        def __init__(self, stage: int) -> None:
            self._topo = type("Topology", (), {"get_coord": lambda _, rank: type("At", (), {"pipe": stage})()})()
            self._partition_layers()  # type: ignore[attr-defined]

        def _set_bounds(self, start: int, stop: int) -> None:
            self.bounds = (start, stop)

    body = text.replace("from deepspeed.pipe import PipelineModule\n", "")
    space["PipelineModule"] = PipelineModule
    exec(compile(body, "stages", "exec"), space)
    layers, made = space["LAYERS"], space["PlacedPipeline"]
    held = [layers[slice(*made(stage).bounds)] for stage in (0, 1)]  # type: ignore[index, operator]
    assert held[0] == ["model.embed_tokens", *(f"model.layers.{k}" for k in range(4))]
    assert held[1] == ["model.layers.4", "model.layers.5", "model.norm", "lm_head"]


def test_names_in_a_plan_file_cannot_break_out_of_what_is_written() -> None:
    """A device and an operator named with quotes and line breaks stay inside comments and strings."""
    evil = "x\"'\nimport os; os.abort()\n#"
    graph = OperatorGraph(
        [Operator(f"{evil}.0.a", weight_bytes=8), Operator(f"{evil}.1.a", weight_bytes=8)],
        [Tensor("t", 0, (1,), 8)],
        source=Source("onnx", evil),
    )
    problem = Problem(graph, Cluster([Device(evil, host=evil), Device("b", host=evil)], LINKS), np.ones((2, 2)))
    plan = plan_for(problem, np.array([0, 1]))
    assert plan is not None
    for format in ("torch-pipelining", "deepspeed", "onnxruntime", "openvino", "tensorrt-llm", "vllm", "llama.cpp"):
        text = export_plan(problem, plan, format, budget=1).text
        assert not [line for line in text.splitlines() if line.startswith("import os;")], format


@pytest.mark.parametrize("format", ["onnxruntime", "openvino", "onnx-models"])
def test_formats_of_onnx_files_refuse_other_networks(format: str) -> None:
    """The remedy is said before anything is searched."""
    with pytest.raises(InvalidInput, match="goes by the nodes of an ONNX file, and this plan was made of none; export"):
        exported(format, COUNTS)


@pytest.mark.parametrize(("format", "told"), [("llama.cpp", True), ("accelerate", True), ("vllm", False)])
def test_what_a_time_per_sample_is_worth_is_said(format: str, told: bool) -> None:
    """A program that runs one sample at a time does not reach the time per sample of a pipeline."""
    notes = exported(format, COUNTS, objective="max-load").notes
    assert any("the time per sample of a pipeline is not reached" in note for note in notes) == told
    assert not any("not reached" in note for note in exported(format, COUNTS).notes)
