"""Device maps and split specs are loaded by accelerate, transformers, diffusers and torch, and compute the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from placewright.capture import capture  # noqa: E402
from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.evaluate import plan_for  # noqa: E402
from placewright.export import export_plan  # noqa: E402
from placewright.export.modules import units_of  # noqa: E402
from placewright.graph import OperatorGraph  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.problem import Problem  # noqa: E402
from placewright.solve import solve  # noqa: E402
from tests.export import tiny_networks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")

BOX = Cluster(
    [Device("a", memory_bytes=2**30), Device("b", memory_bytes=2**31), Device("ram", kind="cpu")],
    [Link(1e-5, 1e9, link_class="same-host")],
)


def halves(graph: OperatorGraph) -> tuple[Problem, Plan]:
    """The first half of the modules on one accelerator, the rest on the other; what is tied on the first."""
    device = np.zeros(len(graph), dtype=np.int32)
    units = units_of(graph)
    for unit in units[len(units) // 2 :]:
        device[list(unit.operators)] = 1
    for members in graph.colocation:
        device[list(members)] = 0
    problem = Problem(graph, BOX, np.ones((len(graph), 3)))
    plan = plan_for(problem, device)
    assert plan is not None
    return problem, plan


def exported(name: str, format: str) -> str:
    problem, plan = halves(capture(f"py:tests.export.tiny_networks:{name}"))
    made = export_plan(problem, plan, format)
    assert made.notes == ()
    return made.text


@pytest.mark.parametrize(("name", "result"), [("llama", "logits"), ("gpt2", "logits"), ("unet", "sample")])
def test_device_maps_are_complete_and_loaded(name: str, result: str, tmp_path: Path) -> None:
    """accelerate accepts the map, and a network loaded by it, half from memory and half from disk, computes the same.

    The numbers of the two accelerators are put to ``cpu`` and ``disk`` first, as there is no accelerator here: dispatch
    and hooks are the same. gpt2 has a tied head, unet is loaded by diffusers.
    """
    from accelerate.utils import check_device_map

    if name == "unet":
        pytest.importorskip("diffusers")
    made: dict[str, Any] = json.loads(exported(name, "diffusers" if name == "unet" else "accelerate"))
    found = made["model"] if name == "unet" else made["device_map"]
    module, example = getattr(tiny_networks, name)()
    check_device_map(module, found)
    assert set(found.values()) == {0, 1}
    if name != "unet":
        assert made["max_memory"] == {"0": 2**30, "1": 2**31}

    module.save_pretrained(tmp_path / "saved")
    words = {0: "cpu", 1: "disk"}
    loaded = type(module).from_pretrained(
        tmp_path / "saved",
        device_map={path: words[device] for path, device in found.items()},
        offload_folder=tmp_path / "offload",
    )
    assert {p.device.type for p in loaded.parameters()} == {"cpu", "meta"}  # disk: on meta until it is run
    with torch.no_grad():
        wanted, got = (getattr(m(**example), result) for m in (module, loaded))
    assert torch.allclose(wanted, got, atol=1e-5)


def test_a_pipeline_of_torch_is_cut_where_the_plan_says() -> None:
    """The script's own function cuts the network in two stages that hold the planned layers, and computes the same."""
    script: dict[str, Any] = {"__name__": "script"}
    text = exported("llama", "torch-pipelining")
    exec(compile(text, "script", "exec"), script)
    assert script["NETWORK"] == "tests.export.tiny_networks:llama"
    assert script["DEVICES"] == ["cuda:0", "cuda:1"]
    module, example = tiny_networks.llama()
    split: Callable[..., Any] = script["split"]
    pipe = split(module, example)
    assert pipe.num_stages == 2
    held = [{n.split(".")[2] for n, _ in pipe.get_stage_module(k).named_parameters() if "layers" in n} for k in (0, 1)]
    assert held == [{"0", "1", "2"}, {"3"}]  # six modules, the embedding fused into the first layer
    with torch.no_grad():
        wanted = module(**example).logits
        got = pipe(**example)
    got = got[0] if isinstance(got, tuple) else got
    assert torch.allclose(wanted, getattr(got, "logits", got), atol=1e-5)


def test_a_tied_head_is_charged_to_both_ends_of_a_pipeline() -> None:
    """GPT-2's head has the embedding's weights, 64 x 16 numbers of 4 bytes: a pipeline holds these 4 KiB twice.

    The operator that has them is fused with others, whose weights are counted along.
    """
    graph = capture("py:tests.export.tiny_networks:gpt2")
    limit = int(0.8 * sum(v.weight_bytes for v in graph.operators))  # no device holds all of it
    cluster = Cluster([Device("a", memory_bytes=limit), Device("b", memory_bytes=limit)], BOX.links)
    problem = Problem(graph, cluster, np.ones((len(graph), 2)))
    plan = solve(problem, budget=2).require_plan()
    made = export_plan(problem, plan, "megatron")
    assert "--pipeline-model-parallel-size 2 " in made.text
    (note,) = [note for note in made.notes if note.startswith("weights that head and embedding share are held by both")]
    assert 4.0 <= float(note.split()[-3]) < 5.0
    assert note.endswith("KiB more")
