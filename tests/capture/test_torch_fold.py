"""Folding: what follows from parameters alone becomes weights of its readers, and a plan still names and runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.capture.torch_export import capture_module, capture_program, export_module  # noqa: E402
from placewright.capture.torch_program import take_apart  # noqa: E402
from placewright.coarsen import fuse  # noqa: E402
from placewright.evaluate import judge  # noqa: E402
from placewright.execute.torch.local import run_torch_local  # noqa: E402
from placewright.graph import OperatorGraph  # noqa: E402
from placewright.io import read_plan, write_plan  # noqa: E402
from placewright.solve import solve  # noqa: E402
from tests.execute.small_torch import problem_of, random_plan, tiny_t5  # noqa: E402


class Doubled(torch.nn.Module):
    """A product with twice a matrix: the doubling needs no input."""

    def __init__(self, rows: int = 8, columns: int = 16) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(rows, columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.w * 2.0)


class Positions(torch.nn.Module):
    """Layers that each widen one table anew and add it, as T5's do."""

    def __init__(self, layers: int, size: int, inner: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, size))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(inner, inner) for _ in range(layers))
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) + self.table.expand(self.size, self.size).contiguous().mean()
        return x


def _named(graph: OperatorGraph) -> set[str]:
    return {name for v in graph.operators for name in v.source_names}


def test_a_weight_that_is_computed_from_another_takes_its_place() -> None:
    """8 x 16 x 4 = 512 B of w are no longer held, 512 B of 2 w are; the product does the work that it did."""
    before = capture_module(Doubled().eval(), (torch.zeros(4, 8),))
    after = capture_module(Doubled().eval(), (torch.zeros(4, 8),), fold=True)
    assert [(v.name, v.weight_bytes) for v in before.operators] == [("mul", 512), ("matmul", 0)]
    assert [(v.name, v.weight_bytes, v.folded) for v in after.operators] == [("matmul", 512, ("mul",))]
    assert after.operators[0].flops == before.operators[1].flops
    assert [(t.name, t.readers) for t in after.tensors] == [("matmul", ())]


def test_a_weight_that_is_read_for_itself_too_is_held_beside_what_is_computed_from_it() -> None:
    """w is read by a product, 2 w by another: 512 B each."""

    class Both(Doubled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.w + x @ (self.w * 2.0)

    graph = capture_module(Both().eval(), (torch.zeros(4, 8),), fold=True)
    assert [(v.name, v.weight_bytes, v.folded) for v in graph.operators] == [
        ("matmul", 512, ()),
        ("matmul_1", 512, ("mul",)),
        ("add", 0, ()),
    ]


def test_equal_results_are_held_once_and_shared_out() -> None:
    """Three layers widen the same table to 64 x 64 x 4 = 16,384 B: that once, and not three times, is held."""
    module = Positions(3, 64, 256).eval()
    before = capture_module(module, (torch.zeros(2, 256),))
    after = capture_module(module, (torch.zeros(2, 256),), fold=True)
    assert {v.kind for v in after.operators} == {"aten.linear", "aten.add"}
    # Folded up to the mean: one number of 4 B for three sums, not even the table of 64 x 4 B that it is made of.
    weights = sum(v.weight_bytes for v in before.operators)
    assert sum(v.weight_bytes for v in after.operators) == weights - 64 * 4 + 4
    assert _named(after) == {v.name for v in before.operators}


def test_what_holds_too_much_more_than_its_weights_is_computed_for_every_sample() -> None:
    """A row of 1,024 x 4 B widened to 4 MiB is more than 64 KiB and 5 % of all weights; 16 KiB, as of 64, are not."""

    class Widened(torch.nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.row = torch.nn.Parameter(torch.randn(1, size))
            self.size = size

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.row.expand(self.size, self.size).contiguous()

    for size, kinds in ((1024, ["aten.contiguous", "aten.add"]), (64, ["aten.add"])):
        graph = capture_module(Widened(size).eval(), (torch.zeros(size, size),), fold=True)
        assert [v.kind for v in graph.operators] == kinds


def test_what_changes_or_is_drawn_is_not_folded() -> None:
    """Parameters that a run writes to, random numbers, training, and whatever an input reaches."""

    class Written(Doubled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            product = x @ (self.w * 2.0)
            self.w.add_(1.0)
            return product

    class Drawn(Doubled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.bernoulli(self.w.sigmoid())

    class Scaled(Doubled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.w * x.mean())

    for module in (Written(), Drawn(), Scaled()):
        kept = capture_module(module.eval(), (torch.zeros(4, 8),))
        made = capture_module(module.eval(), (torch.zeros(4, 8),), fold=True)
        # A sigmoid of w is folded, what is drawn from it is not.
        assert [v.name for v in made.operators] == [v.name for v in kept.operators if v.kind != "aten.sigmoid"]
    assert len(capture_module(Doubled().train(), (torch.zeros(4, 8),), fold=True)) == 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_step_of_training_is_not_folded() -> None:
    """Forward and backward in one program: twice the parameter would be another number after each step."""
    experimental = pytest.importorskip("torch.export.experimental")
    if not hasattr(experimental, "_export_forward_backward"):
        pytest.skip("this torch exports no backward pass")

    class Loss(Doubled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).sum()

    program = experimental._export_forward_backward(export_module(Loss().eval(), (torch.zeros(4, 8),)))
    assert "mul" in capture_program(program).index
    assert capture_program(program, fold=True) == capture_program(program)


def test_t5_keeps_no_table_of_positions_in_its_graph() -> None:
    """Operators keep their names and order; those that are gone are listed, and all of them need no input."""
    pytest.importorskip("transformers")
    module, args, kwargs = tiny_t5()
    program = export_module(module, args, kwargs)
    before, after = capture_program(program), capture_program(program, fold=True)
    gone = [v.name for v in before.operators if v.name not in after.index]
    assert [v.name for v in before.operators if v.name in after.index] == [v.name for v in after.operators]
    assert gone and set(gone) == {name for v in after.operators for name in v.folded}
    parts = take_apart(program)
    reached = set(parts.inputs)
    for node in parts.graph.nodes:
        if any(n.name in reached for n in node.all_input_nodes):
            reached.add(node.name)
    needless = {v.name for v in parts.operators if v.node.name not in reached}
    assert needless == set(gone)
    # Each layer's attention, of two in the encoder and two in the decoder, holds a mask made of a table.
    assert sum(bool(v.folded) for v in after.operators) == 4
    assert _named(fuse(after)) == _named(before)


def test_a_folded_plan_runs_with_equal_outputs() -> None:
    """The tables are computed once, where they are read; none of them runs, and none travels."""
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    module, args, kwargs = tiny_t5()
    program = export_module(module, args, kwargs)
    graph = fuse(capture_program(program, fold=True))
    gone = {name for v in graph.operators for name in v.folded}
    rng = np.random.default_rng(2)
    problem = problem_of(graph, 3, rng)
    for _ in range(3):
        run = run_torch_local(program, args, problem, random_plan(problem, rng), kwargs=kwargs, runs=2)
        assert run.max_relative_error <= 1e-5
        assert not gone & {name for part in run.submodules for name in part.operators}


def test_a_plan_file_says_where_what_is_folded_is_held(tmp_path: Path) -> None:
    """The placement lists every operator of the source, folded ones on each device that reads their results."""
    module = Positions(2, 64, 256).eval()
    graph = capture_module(module, (torch.zeros(2, 256),), fold=True)
    problem = problem_of(graph, 2, np.random.default_rng(0))
    result = solve(problem, solver="heft", budget=0.0)
    path = tmp_path / "plan.json"
    write_plan(path, problem, result, judge(problem, result.require_plan()), seed=0)
    file = read_plan(path)
    assert file.problem.graph == graph
    placement = json.loads(path.read_text())["placement"]
    assert placement.keys() == _named(graph)
    for name in (name for v in graph.operators for name in v.folded):
        holders = {int(i) for v, i in zip(graph.operators, file.plan.device_of, strict=True) if name in v.folded}
        given = placement[name]
        assert ([given] if isinstance(given, str) else sorted(given)) == [f"d{i}" for i in sorted(holders)]
