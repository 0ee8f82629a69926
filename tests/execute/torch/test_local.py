from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from placewright.capture.torch_export import capture_program, export_module
from placewright.capture.torch_program import take_apart
from placewright.cluster import Cluster, Device, Link
from placewright.coarsen import duplicate, duplicated_parts
from placewright.errors import InvalidInput
from placewright.execute.torch.local import relative_error, run_torch_local
from placewright.execute.torch.split import levels
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.plan import Plan, Schedule
from placewright.problem import Problem

from ..small_torch import NETWORKS, Network, branches, problem_of, random_plan


def _alone(graph: OperatorGraph, device_of: list[int], devices: int = 2) -> tuple[Problem, Plan]:
    cluster = Cluster([Device(f"d{i}") for i in range(devices)], [Link(1e-5, 1e9, link_class="same-host")])
    n = len(graph)
    return Problem(graph, cluster, np.ones((n, devices))), Plan(
        np.array(device_of), Schedule(np.zeros(n), np.zeros(n)), 0.0
    )


def _contracted(graph: OperatorGraph, size: int) -> OperatorGraph:
    """Every run of operators in topological order as one, with ``parts``; a coarse graph made without ``coarsen``."""
    at = [k // size for k in range(len(graph))]
    groups = [graph.operators[k : k + size] for k in range(0, len(graph), size)]
    tensors = []
    for t in graph.tensors:
        readers = sorted({at[v] for v in t.readers} - {at[t.producer]})
        if readers:
            tensors.append(Tensor(t.name, at[t.producer], tuple(readers), t.size_bytes))
    return OperatorGraph(
        [Operator(f"group {k}", parts=tuple(v.name for v in g)) for k, g in enumerate(groups)],
        tensors,
        [{at[v] for v in c} for c in graph.colocation],
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_random_placements_give_the_outputs_of_the_eager_module(name: str) -> None:
    """Any placement that obeys colocation and wishes runs and returns what the module itself returns."""
    torch.manual_seed(0)
    module, args, kwargs = NETWORKS[name]()
    program = export_module(module, args, kwargs)
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(module(*args, **kwargs))
    graph = capture_program(program)
    rng = np.random.default_rng(7)
    for devices in (3,) if name == "tiny_t5" else (2, 4):
        if name == "branches":  # the call above moved its counter on; each run starts from the module's state
            module.calls.zero_()
        problem = problem_of(graph, devices, rng)
        run = run_torch_local(program, args, problem, random_plan(problem, rng), kwargs=kwargs)
        assert run.max_relative_error <= 1e-5
        assert relative_error(run.outputs, expected) <= 1e-5
        assert len({(s.level, s.device) for s in run.submodules}) == len(run.submodules) > 1
        arrivals = [(tensor, target) for tensor, _, target in run.transfers]
        assert arrivals and len(set(arrivals)) == len(arrivals)


@pytest.mark.parametrize("name", ["branches", "tiny_gpt2"])
def test_a_coarse_graph_runs_by_the_names_of_its_parts(name: str) -> None:
    """Operators that stand for several of the capture's run as those."""
    torch.manual_seed(1)
    module, args, kwargs = NETWORKS[name]()
    program = export_module(module, args, kwargs)
    rng = np.random.default_rng(3)
    for size in (3, 5):
        problem = problem_of(_contracted(capture_program(program), size), 3, rng)
        run = run_torch_local(program, args, problem, random_plan(problem, rng), kwargs=kwargs)
        assert run.max_relative_error <= 1e-5


class Biased(torch.nn.Module):
    """Layers that add one table of positions, looked up in a weight, and multiply by one mask, made of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = torch.nn.Embedding(2, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(40))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        bias, mask = self.positions(ids).tanh(), (ids > 0).to(x.dtype).unsqueeze(-1)
        for layer in self.layers:
            x = torch.relu(layer(x) + bias) * mask
        return x


def _biased() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    return Biased().eval(), (torch.randn(3, 5, 8), torch.randint(0, 2, (3, 5))), {}


@pytest.mark.parametrize("network", [NETWORKS["tiny_bert"], _biased])
def test_what_stands_in_several_operators_runs_on_each_device(network: Callable[[], Network]) -> None:
    """Masks and position tables that are computed wherever they are read never travel, and the outputs are right."""
    torch.manual_seed(1)
    module, args, kwargs = network()
    program = export_module(module, args, kwargs)
    graph = capture_program(program)
    rng = np.random.default_rng(3)
    single = problem_of(graph, 2, rng)
    heavy = np.array([v.kind.split(".")[1] in ("linear", "layer_norm", "matmul", "relu") for v in graph.operators])
    times = np.where(heavy[:, None], 1.0, 1e-6)
    problem = duplicate(Problem(graph, single.cluster, np.broadcast_to(times, (len(graph), 2))), 1e-5)
    copied = set(duplicated_parts(problem.graph))
    assert len(copied) >= 4
    tensors = {t.name for t in graph.tensors if graph.operators[t.producer].name in copied}
    for _ in range(3):
        plan = random_plan(problem, rng)
        run = run_torch_local(program, args, problem, plan, kwargs=kwargs)
        assert run.max_relative_error <= 1e-5
        placed = zip(plan.device_of.tolist(), problem.graph.operators, strict=True)
        wanted = {(i, name) for i, v in placed for name in v.parts if name in copied}
        ran_on = [(part.device, name) for part in run.submodules for name in part.operators if name in copied]
        assert sorted(ran_on) == sorted(wanted)
        assert run.transfers and not tensors & {tensor for tensor, _, _ in run.transfers}


def test_a_chain_over_two_devices_is_two_parts_and_one_transfer() -> None:
    """Weights lie only in the part whose operators read them, and the one tensor between the devices travels once."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    args = (torch.randn(3, 4),)
    program = export_module(module, args)
    problem, plan = _alone(capture_program(program), [0, 0, 1])
    run = run_torch_local(module, args, problem, plan)
    assert [(s.device, s.level, s.operators) for s in run.submodules] == [(0, 0, ("0", "1")), (1, 1, ("2",))]
    assert run.transfers == (("relu", "d0", "d1"),)
    sizes = [sorted(tuple(b.shape) for b in s.module.buffers()) for s in run.submodules]
    assert sizes == [[(4,), (4, 4)], [(2,), (2, 4)]]


def test_a_tensor_with_several_readers_on_a_device_travels_there_once() -> None:
    """Transfers are per device, not per reader."""

    class Fan(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            return y.sin() + y.cos() * y.tanh()

    args = (torch.randn(5),)
    program = export_module(Fan(), args)
    graph = capture_program(program)
    problem, plan = _alone(graph, [0, 1, 1, 1, 1, 1])
    assert graph.operators[0].kind == "aten.exp"
    assert run_torch_local(program, args, problem, plan).transfers == (("exp", "d0", "d1"),)


def test_levels_rise_at_each_change_of_device_along_a_path() -> None:
    """The longest path's number of changes, by hand: 0 -> 1 -> 0 -> 1 gives 0, 1, 2, 3."""
    module = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(4)])
    program = take_apart(export_module(module, (torch.randn(3),)))
    assert levels(program, [(0,), (1,), (0,), (1,)]) == [{0: 0}, {1: 1}, {0: 2}, {1: 3}]
    assert levels(program, [(1,), (1,), (0,), (0,)]) == [{1: 0}, {1: 0}, {0: 1}, {0: 1}]


def test_neither_inputs_nor_written_weights_change() -> None:
    """A run of the split leaves the caller's inputs and the module's buffers as they were."""

    class Writes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1.0)
            self.count.add_(x.sum())
            return x * self.count

    module, x = Writes(), torch.ones(2)
    program = export_module(module, (x.clone(),))
    graph = capture_program(program)
    problem, plan = _alone(graph, [0] * len(graph))
    run = run_torch_local(program, (x,), problem, plan)
    assert run.max_relative_error == 0.0
    assert x.tolist() == [1.0, 1.0]
    assert run.outputs[0].tolist() == [8.0, 8.0]  # (1 + 1) * (2 + 2)
    assert len(run_torch_local(program, (x,), problem, plan, runs=3).runs_s) == 3


def test_a_plan_for_another_model_is_refused() -> None:
    """Operators that the model doesn't have are named in one line."""
    module, args, _ = branches()
    program = export_module(module, args)
    graph = capture_program(program)
    other = OperatorGraph([replace(v, name=v.name + "x") for v in graph.operators], graph.tensors, graph.colocation)
    problem, plan = _alone(other, [0] * len(other))
    with pytest.raises(InvalidInput, match=r"the plan places no operator .*plan the same model") as caught:
        run_torch_local(program, args, problem, plan)
    assert "\n" not in str(caught.value)


def test_weights_on_meta_are_refused() -> None:
    """A network without values can be planned but not run, and the error says what to load."""
    with torch.device("meta"):
        module = torch.nn.Linear(3, 3)
        program = export_module(module, (torch.zeros(1, 3),))
    problem, plan = _alone(capture_program(program), [0])
    with pytest.raises(InvalidInput, match=r"'weight' is on the meta device .*load_state_dict"):
        run_torch_local(program, (torch.zeros(1, 3),), problem, plan)


def test_a_network_exported_on_meta_runs_with_real_weights() -> None:
    """What names the meta device in the program runs on the plan's device."""

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + torch.arange(4, device=x.device)) * torch.ones(x.shape[0], 1, device=x.device)

    with torch.device("meta"):
        program = export_module(Positions(), (torch.zeros(2, 4),))
    real = Positions()
    program._state_dict = dict(real.named_parameters())
    graph = capture_program(program)
    problem, plan = _alone(graph, [k % 2 for k in range(len(graph))])
    x = torch.randn(2, 4)
    run = run_torch_local(program, (x,), problem, plan)
    with torch.no_grad():
        assert relative_error(run.outputs, [real(x)]) <= 1e-5


def test_relative_error_is_relative_to_the_largest_magnitude() -> None:
    """|1000.1 - 1000| / 1000, and inf where only one of the two is finite."""
    a, b = torch.tensor([1000.0, 1.0]), torch.tensor([1000.0, 1.1])
    assert relative_error([a], [b]) == pytest.approx(1e-4, rel=1e-3)
    assert relative_error([torch.tensor([float("nan")])], [torch.tensor([1.0])]) == float("inf")
    assert relative_error([torch.tensor([float("inf")])], [torch.tensor([float("inf")])]) == 0.0
    assert relative_error([torch.zeros(2)], [torch.zeros(2)]) == 0.0


def test_splitting_a_colocation_class_changes_the_outputs_and_is_noticed() -> None:
    """What colocation is for: a write on a copy is lost, and the comparison with the whole network shows it."""
    torch.manual_seed(0)
    module, args, _ = branches()
    program = export_module(module, args)
    graph = capture_program(program)
    members = max(graph.colocation, key=len)
    writer = next(v for v in members if graph.operators[v].kind == "aten.add_")
    problem, plan = _alone(graph, [int(k == writer) for k in range(len(graph))])
    assert run_torch_local(program, args, problem, plan).max_relative_error > 1e-3
