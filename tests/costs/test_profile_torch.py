"""Operators taken out of an exported torch program make the calls that the program makes."""

import math
from typing import Any

import pytest
import torch

from placewright.capture.torch_export import capture_program, export_module
from placewright.coarsen import fuse
from placewright.costs.profile_torch import TorchNetwork
from placewright.costs.tasks import Input, OnnxValues, TorchUnit
from placewright.costs.torch_bench import TorchBench, _Pool, compiled, made_up
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph


class Net(torch.nn.Module):
    """A look-up, a linear layer, attention, a split with getitem nodes, a view, and keyword and dtype arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.project = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = self.project(x).split(8, dim=-1)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.norm(x + y).to(torch.float64)
        return torch.softmax(y.transpose(0, 1), dim=-1, dtype=torch.float32)


@pytest.fixture(scope="module")
def module() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def network(module: Net) -> TorchNetwork:
    program = export_module(module, (torch.zeros(2, 5, dtype=torch.int64),))
    return TorchNetwork(program, capture_program(program))


@pytest.fixture(scope="module")
def bench() -> TorchBench:
    return TorchBench(1)


def test_all_calls_together_compute_the_module(module: Net, network: TorchNetwork) -> None:
    """With the module's own weights in place of made-up ones, the calls return what the module returns."""
    task = network.whole()
    assert isinstance(task, TorchUnit)
    tokens = torch.tensor([[1, 2, 3, 4, 5], [10, 9, 8, 7, 6]])
    weights = {w.node: w.tensor for w in network.program.weights.values()}
    values: list[Any] = [weights.get(i.name, tokens) for i in task.inputs]
    with torch.inference_mode():
        torch.testing.assert_close(compiled(task)(*values), module(tokens))


@pytest.mark.parametrize("fused", [False, True])
def test_every_operator_runs_alone_on_made_up_tensors(network: TorchNetwork, bench: TorchBench, fused: bool) -> None:
    """Each unit, of single and of fused operators, runs five times or more on tensors of the captured shapes."""
    net = network
    if fused:
        program = export_module(Net().eval(), (torch.zeros(2, 5, dtype=torch.int64),))
        net = TorchNetwork(program, fuse(capture_program(program)))
        assert len(net.graph) < len(network.graph)
    for v in range(len(net.graph)):
        answer = bench.answer(net.unit(v))
        assert answer.runs >= 5 and math.isfinite(answer.seconds) and answer.seconds >= 0


def test_indices_stay_inside_their_table_and_weights_are_told_from_activations(network: TorchNetwork) -> None:
    """The look-up's tokens are below the table's 11 rows; the table is a weight, the tokens are fresh."""
    lookup = next(k for k, v in enumerate(network.graph.operators) if v.kind == "aten.embedding")
    task = network.unit(lookup)
    assert isinstance(task, TorchUnit)
    by_dtype = {i.dtype: i for i in task.inputs}
    assert (by_dtype["int64"].below, by_dtype["int64"].warm) == (11, True)
    assert (by_dtype["float32"].shape, by_dtype["float32"].warm) == ((11, 8), False)


def test_made_up_tensors_have_the_strides_that_were_captured() -> None:
    """A transposed, an expanded, a bfloat16 and an empty tensor come out as asked for."""

    def made(given: Input) -> torch.Tensor:
        return made_up(given, torch.Generator())

    transposed = made(Input("t", "float32", (2, 3), strides=(1, 2)))
    expanded = made(Input("e", "int64", (4, 3), below=2, strides=(0, 1)))
    assert transposed.stride() == (1, 2)
    assert expanded.stride() == (0, 1) and bool((expanded[0] == expanded[3]).all())
    assert made(Input("b", "bfloat16", (2,), strides=(1,))).dtype == torch.bfloat16
    assert made(Input("z", "float32", (0, 3), strides=(3, 1))).numel() == 0


def test_tasks_of_another_back_end_and_graphs_of_another_model_are_refused(
    network: TorchNetwork, bench: TorchBench
) -> None:
    """Neither is taken for something else."""
    with pytest.raises(TypeError, match="no task for torch"):
        bench.answer(OnnxValues((), b""))
    program = export_module(torch.nn.ReLU(), (torch.zeros(2),))
    with pytest.raises(InvalidInput, match=r"'stranger'.*captured from"):
        TorchNetwork(program, OperatorGraph([Operator("stranger")]))


def test_each_run_finds_its_weights_at_another_place_of_a_pool() -> None:
    """1024 floats hold eight tensors of 100, each 128 behind the one before it; the ninth is where the first was."""
    pool = _Pool(4096, torch.Generator())
    given = Input("w", "float32", (10, 10), strides=(10, 1))
    placed = [pool.place(given) for _ in range(9)]
    assert [t.storage_offset() for t in placed] == [*range(0, 1024 - 100, 128), 0]
    assert pool.takes(given) and not pool.takes(Input("w", "float32", (513,), strides=(1,)))
    assert not pool.takes(Input("w", "int8", (4,), strides=(1,)))
    assert pool.place(Input("w", "bfloat16", (4,), strides=(1,))).dtype == torch.bfloat16
