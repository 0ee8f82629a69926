"""Exported words are read by the code of the programs that they are for: each stage has the layers that the plan has.

None of these programs is a dependency of ours; what is not installed is skipped. docs/exporters.md has the releases
that were tried.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.export.test_command_lines import LAYERS, exported, last_line, option

DIVIDED = [{"fast": 4, "slow": 2}, {"slow": 5, "fast": 1}, {"fast": 6}]
"""Layers of each device, in the order of the ranks."""


def ranges(counts: dict[str, int]) -> list[range]:
    """Layers of each rank."""
    return [range(low, high) for low, high in pairwise([0, *accumulate(counts.values())])]


def function_of(package: str, path: str, name: str) -> Callable[..., Any]:
    """Take one function out of a file of an installed package, the rest of which needs GPUs to be imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    tree = ast.parse((Path(found.origin).parent / path).read_text())
    body: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    space: dict[str, Any] = {"os": os, "Tuple": tuple}
    exec(compile(ast.Module(body, []), path, "exec"), space)
    return space[name]  # type: ignore[no-any-return]


def set_variables(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment that a command line begins with."""
    for word in words:
        if not (found := re.fullmatch(r"(\w+)=(.*)", word)):
            return
        monkeypatch.setenv(found[1], found[2])


@pytest.mark.parametrize("counts", DIVIDED)
def test_vllm_gives_each_rank_the_layers_of_the_plan(counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """``get_pp_indices`` says which layers a rank builds."""
    utils = pytest.importorskip("vllm.distributed.utils", reason="vLLM is not installed", exc_type=ImportError)
    words = last_line(exported("vllm", counts).text)
    set_variables(words, monkeypatch)
    size = int(option(words, "--pipeline-parallel-size"))
    found = [range(*utils.get_pp_indices(LAYERS, rank, size)) for rank in range(size)]
    assert found == ranges(counts)


@pytest.mark.parametrize("counts", DIVIDED)
def test_sglang_gives_each_rank_the_layers_of_the_plan(counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """``get_pp_indices`` says which layers a rank builds."""
    indices = function_of("sglang", "srt/distributed/utils.py", "get_pp_indices")
    words = last_line(exported("sglang", counts).text)
    set_variables(words, monkeypatch)
    size = int(option(words, "--pp-size"))
    assert [range(*indices(LAYERS, rank, size)) for rank in range(size)] == ranges(counts)


@pytest.mark.parametrize("counts", DIVIDED)
@pytest.mark.filterwarnings("ignore")
def test_megatron_gives_each_rank_the_layers_of_the_plan(counts: dict[str, int]) -> None:
    """Megatron's own parser takes the layout, with embedding and loss at the ends, and says which layers are where."""
    name = "megatron.core.transformer.pipeline_parallel_layer_layout"
    layouts = pytest.importorskip(name, reason="Megatron is not installed", exc_type=ImportError)
    words = last_line(exported("megatron", counts).text)
    size = int(option(words, "--pipeline-model-parallel-size"))
    layout = layouts.PipelineParallelLayerLayout(option(words, "--pipeline-model-parallel-layout"), size)
    layout.validate_layer_layout(num_layers=LAYERS, mtp_num_layers=0)
    found = []
    for rank in range(size):
        low = sum(kind.name == "decoder" for stage in layout.layout[:rank] for kind in stage[0])
        found.append(range(low, low + sum(kind.name == "decoder" for kind in layout.layout[rank][0])))
    assert found == ranges(counts)


@pytest.mark.parametrize("counts", DIVIDED)
@pytest.mark.filterwarnings("ignore")
def test_deepspeed_builds_the_layers_of_the_plan(counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """``PipelineModule`` builds on each rank the modules that the plan has there; processes are feigned by torch."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed", exc_type=ImportError)
    import deepspeed
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setenv("LOCAL_RANK", "0")
    space: dict[str, Any] = {}
    exec(compile(exported("deepspeed", counts).text, "stages", "exec"), space)
    held = []
    for rank in range(len(counts)):
        torch.distributed.init_process_group("fake", rank=rank, world_size=len(counts), store=FakeStore())
        try:
            deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False, verbose=False)
            modules = [torch.nn.Linear(1, 1) for _ in space["LAYERS"]]
            made = space["PlacedPipeline"](modules, num_stages=len(counts))
            numbers = sorted(int(name) for name, _ in made.named_children() if name.isdigit())
            held.append([space["LAYERS"][k] for k in numbers])
        finally:
            torch.distributed.destroy_process_group()
            deepspeed.comm.comm.cdb = None
    wanted = [[f"model.layers.{k}" for k in row] for row in ranges(counts)]
    wanted[0].insert(0, "model.embed_tokens")
    wanted[-1] += ["model.norm", "lm_head"]
    assert held == wanted


@pytest.mark.parametrize("counts", DIVIDED)
@pytest.mark.filterwarnings("ignore")
def test_torchtitan_cuts_its_llama_where_the_plan_does(
    counts: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration manager takes the file, and its Llama of six layers is cut into the modules of the plan."""
    name = "torchtitan.models.llama3.config_registry"
    pytest.importorskip(name, reason="torchtitan is not installed", exc_type=ImportError)
    import torch
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed.pipeline_parallel import _split_module

    text = exported("torchtitan", counts).text.replace("llama3_8b as network", "llama3_debugmodel as network")
    (tmp_path / "placed.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    words = shlex.split(next(line for line in text.splitlines() if "torchrun" in line))
    read: Callable[[], tuple[Any, list[str]]] = ConfigManager()._load_config  # type: ignore[attr-defined]
    config, _ = read(words[words.index("--module") :])
    sys.modules.pop("placed")
    assert config.parallelism.pipeline_parallel_degree == len(counts)
    with torch.device("meta"):
        whole: ModuleType = config.model_spec.model.build()
    held = []
    for part in config.parallelism.module_fqns_per_model_part:
        stage = _split_module(whole, part)
        children = {name for name, child in stage.named_children() if child is not None and name != "layers"}
        held.append((children, [int(k) for k in stage.layers]))
    assert [layers for _, layers in held] == [list(row) for row in ranges(counts)]
    ends = [set[str]() for _ in counts]
    ends[0] |= {"tok_embeddings"}
    ends[-1] |= {"norm", "lm_head"}
    assert [children for children, _ in held] == ends
