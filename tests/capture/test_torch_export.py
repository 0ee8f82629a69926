"""Capture of PyTorch programs: names, work, weights, what is folded and what must stay together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from placewright.capture.torch_export import capture_module, capture_program, capture_py, export_module
from placewright.capture.torch_program import take_apart
from placewright.capture.torch_spec import load_py
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph


def _kinds(graph: OperatorGraph) -> list[str]:
    return [v.kind.removeprefix("aten.") for v in graph.operators]


def _operator(graph: OperatorGraph, kind: str) -> Operator:
    found = [v for v in graph.operators if v.kind == f"aten.{kind}"]
    assert len(found) == 1, _kinds(graph)
    return found[0]


def _meta(module_of: Any, *shapes: tuple[int, ...]) -> OperatorGraph:
    with torch.device("meta"):
        return capture_module(module_of().eval(), tuple(torch.zeros(s) for s in shapes))


class _Calls(nn.Module):
    """A module whose forward is a function of the test."""

    def __init__(self, forward: Any, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self._forward = forward

    def forward(self, *args: torch.Tensor) -> Any:
        return self._forward(self, *args)


def test_operators_stay_whole_and_bear_their_modules_path() -> None:
    """A module with one operator of note gives it its path; others add the node's name. Nothing is decomposed."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.Linear(8, 24)
            self.norm = nn.LayerNorm(8)
            self.act = nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.attention(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return self.act(self.norm(x + y)).exp() * x.sin()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Block(), Block()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[1](self.layers[0](x))

    graph = _meta(Net, (2, 5, 8))
    named = {v.name: v.kind for v in graph.operators}
    assert named["layers.0.attention"] == named["layers.1.attention"] == "aten.linear"
    assert named["layers.0.norm"] == "aten.layer_norm" and named["layers.1.act"] == "aten.gelu"
    assert named["layers.0.scaled_dot_product_attention"] == "aten.scaled_dot_product_attention"
    assert named["layers.1.exp_1"] == "aten.exp"
    assert _meta(Net, (2, 5, 8)) == graph  # deterministic
    by_name = {v.name: v.signature for v in graph.operators}
    assert by_name["layers.0.attention"] == by_name["layers.1.attention"]
    assert by_name["layers.0.attention"] != by_name["layers.0.norm"]


def test_flops_of_products_follow_closed_forms() -> None:
    """2mnk for linear, 2 * outputs * window for a convolution, 4 b h s s d for attention, none for look-ups."""
    linear = _operator(_meta(lambda: nn.Linear(32, 16), (4, 7, 32)), "linear")
    assert linear.flops == 2 * 4 * 7 * 32 * 16
    assert linear.weight_bytes == 4 * (32 * 16 + 16)
    assert linear.traffic_bytes == 4 * (4 * 7 * 32 + 32 * 16 + 16 + 4 * 7 * 16)
    conv = _operator(_meta(lambda: nn.Conv2d(3, 8, 5, stride=2, padding=2), (2, 3, 12, 12)), "conv2d")
    assert conv.flops == 2 * (2 * 8 * 6 * 6) * (3 * 5 * 5)
    attention = _Calls(lambda m, q: nn.functional.scaled_dot_product_attention(q, q, q))
    assert (
        _operator(_meta(lambda: attention, (2, 3, 10, 4)), "scaled_dot_product_attention").flops == 4 * 2 * 3 * 100 * 4
    )
    with torch.device("meta"):
        table = capture_module(nn.Embedding(1000, 16), (torch.zeros(2, 5, dtype=torch.int64),)).operators[0]
    assert (table.flops, table.weight_bytes) == (0, 4 * 1000 * 16)
    assert table.traffic_bytes == 8 * 10 + 4 * 10 * 16 * 2  # indices, rows read, rows written


class _Experts(nn.Module):
    """Rows in groups, a matrix for each group."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 8, 16, dtype=torch.bfloat16))

    def forward(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(rows, self.weight, offs=ends)


def test_every_row_of_a_grouped_product_meets_one_matrix() -> None:
    """2 x 10 rows x 8 x 16 however they are grouped; all three matrices are read."""
    with torch.device("meta"):
        inputs = torch.empty(10, 8, dtype=torch.bfloat16), torch.empty(3, dtype=torch.int32)
        product = capture_module(_Experts(), inputs).operators[0]
    assert product.flops == 2 * 10 * 8 * 16
    assert product.traffic_bytes == 2 * (10 * 8 + 3 * 8 * 16 + 10 * 16) + 4 * 3


def test_a_small_llama_has_its_parameters_and_two_flops_for_each_of_them_and_token() -> None:
    """Weights equal sum(numel) and FLOPs 2 * products * tokens + attention: a whole network's closed form."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        use_cache=False,
        dtype="bfloat16",
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
        tokens = torch.zeros(2, 33, dtype=torch.int64)
    graph = capture_module(model, (), {"input_ids": tokens})
    parameters = sum(p.numel() for p in model.parameters())
    constants = 2 * 2 * 33 * 16 * 2 + 4 * 8  # cosines and sines in bf16 ... folded, next to nothing
    weights = sum(v.weight_bytes for v in graph.operators)
    assert 2 * parameters <= weights <= 2 * parameters + 40 * constants
    products = sum(v.flops for v in graph.operators if v.kind == "aten.linear")
    in_products = parameters - 300 * 64 - (2 * 3 + 1) * 64  # without the embedding table and the norms
    assert products == 2 * in_products * 2 * 33
    attention = sum(v.flops for v in graph.operators if v.kind == "aten.scaled_dot_product_attention")
    assert attention == 3 * 4 * 2 * 4 * 33 * 33 * 16
    assert {v.dtype for v in graph.operators if v.kind == "aten.linear"} == {"bf16"}


def test_tied_parameters_form_a_class_and_count_once() -> None:
    """An embedding whose table is also the head's weight: one class of both readers, bytes at the first."""

    def tied() -> nn.Module:
        table, head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
        head.weight = table.weight
        return nn.Sequential(table, nn.ReLU(), head)

    with torch.device("meta"):
        graph = capture_module(tied(), (torch.zeros(3, dtype=torch.int64),))
    assert _kinds(graph) == ["embedding", "relu", "linear"]
    assert graph.colocation == ((0, 2),)
    assert [v.weight_bytes for v in graph.operators] == [4 * 50 * 8, 0, 0]


def test_slices_of_one_parameter_tie_their_readers_through_folded_views() -> None:
    """Views of a weight are no operators; who reads them reads the weight."""
    fused = _Calls(lambda m, x: (x @ m.w[:8].t(), x @ m.w.t()[:, 8:]), w=nn.Parameter(torch.zeros(16, 8)))
    graph = capture_module(fused, (torch.zeros(2, 8),))
    assert _kinds(graph) == ["matmul", "matmul"]
    assert graph.colocation == ((0, 1),)
    assert [v.weight_bytes for v in graph.operators] == [4 * 16 * 8, 0]


def test_constant_subgraphs_are_folded_and_their_bytes_shared_out() -> None:
    """arange, comparisons and an in-place fill of constants vanish; what comes from a parameter stays."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(6)[None, :] <= torch.arange(6)[:, None]
        table = torch.zeros(6, 6)
        table.masked_fill_(mask, -1.0)
        again = torch.zeros(6, 6) + torch.arange(6)
        return (x + table).exp() * table + m.scale.exp() + (torch.zeros(6, 6) + torch.arange(6)) - again

    graph = capture_module(_Calls(forward, scale=nn.Parameter(torch.ones(6))), (torch.zeros(6, 6),))
    assert _kinds(graph) == ["add", "exp", "mul", "exp", "add", "add", "sub"]
    # 144 B of table in two shares, 24 B of scale, 144 B that are computed twice and held once, in two shares
    assert [v.weight_bytes for v in graph.operators] == [72, 0, 72, 24, 0, 72, 72]
    assert graph.colocation == ()


def test_a_constant_that_is_read_between_writes_is_not_folded() -> None:
    """Folding would show the reader the later value, so all of it stays, together and in order."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(3)
        y = x + table
        table.add_(1.0)
        return y * table

    graph = capture_module(_Calls(forward), (torch.zeros(3),))
    assert _kinds(graph) == ["zeros", "add", "add_", "mul"]
    assert graph.colocation == ((0, 1, 2, 3),)


def test_views_cost_nothing_and_a_reshape_that_copies_does() -> None:
    """Whether storage is shared decides, not the operator's name."""

    def forward(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp()
        return y.reshape(8, 3), y.t().reshape(8, 3)

    graph = capture_module(_Calls(forward), (torch.zeros(4, 6),))
    traffic = {v.name: v.traffic_bytes for v in graph.operators}
    assert traffic == {"exp": 192, "reshape": 0, "t": 0, "reshape_1": 192}
    assert len({v.signature for v in graph.operators if v.kind == "aten.reshape"}) == 2
    assert graph.colocation == ()


def test_an_in_place_write_ties_all_that_touch_the_storage_and_keeps_their_order() -> None:
    """Maker, earlier reader, view, writer and later reader of one storage: one class, in order."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        before = y.sin()
        y[0].add_(before.sum())
        return y.cos() + before

    graph = capture_module(_Calls(forward), (torch.zeros(2, 3),))
    names = ["exp", "sin", "select", "sum", "add_", "cos", "add"]
    assert _kinds(graph) == names
    at = {name: k for k, name in enumerate(names)}
    assert graph.colocation == (tuple(at[n] for n in ("exp", "sin", "select", "add_", "cos")),)
    assert at["sin"] in graph.predecessors[at["add_"]]  # reads the value before the write
    assert at["add_"] in graph.predecessors[at["cos"]]  # reads the value after it


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of run_decompositions itself
def test_buffers_that_change_tie_their_readers() -> None:
    """A cache that a step writes and reads: writer and readers share a device, in training and in functional form."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.cache.index_copy_(0, torch.tensor([1]), x.exp())
        return x.sin() @ m.cache.t()

    def twice(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.cache.sum() + forward(m, x)

    module = _Calls(forward, cache=torch.zeros(4, 8))
    program = export_module(module, (torch.zeros(1, 8),))
    graph = capture_program(program)
    assert _kinds(graph) == ["exp", "index_copy_", "sin", "t", "matmul"]
    assert graph.colocation == ((1, 3, 4),)
    assert sum(v.weight_bytes for v in graph.operators) == 4 * 4 * 8 + 8  # the cache once, and the index
    twice_read = export_module(_Calls(twice, cache=torch.zeros(4, 8)), (torch.zeros(1, 8),))
    functional = capture_program(twice_read.run_decompositions({}))
    assert "aten.index_copy" in [v.kind for v in functional.operators]
    write = next(k for k, v in enumerate(functional.operators) if v.kind == "aten.index_copy")
    read = next(k for k, v in enumerate(functional.operators) if v.kind == "aten.sum")
    assert [{read, write} <= set(c) for c in functional.colocation] == [True]


def test_gradient_and_autocast_wrappers_vanish() -> None:
    """no_grad and a disabled autocast change nothing in inference; an enabled one can't be captured."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.exp()
        with torch.autocast("cpu", enabled=False):
            return y @ y

    program = torch.export.export(_Calls(forward), (torch.zeros(3, 3, requires_grad=True),), strict=False)
    assert "wrap_with_set_grad_enabled" in str(program.graph)
    assert _kinds(capture_program(program)) == ["exp", "matmul"]

    def cast(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    with pytest.raises(InvalidInput, match="autocast"):
        capture_program(torch.export.export(_Calls(cast), (torch.zeros(3, 3),), strict=False))


def test_symbolic_sizes_take_their_example_value() -> None:
    """A program with a dynamic batch is costed for the batch that it was exported with."""
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(nn.Linear(4, 3), (torch.zeros(5, 4),), dynamic_shapes=({0: batch},), strict=False)
    graph = capture_program(program)
    assert graph.operators[0].flops == 2 * 5 * 4 * 3
    assert graph.tensors[0].shape == (5, 3)


def test_results_of_one_operator_are_several_tensors_of_it() -> None:
    """A split's pieces are tensors named after their getitem nodes; assertions and dead code are dropped."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x.sin()
        a, b = x.exp().split(2)
        return a.to(torch.float64) * b

    graph = capture_module(_Calls(forward), (torch.zeros(4, 2),))
    assert _kinds(graph) == ["exp", "split", "to", "mul"]
    assert [(t.name, t.producer, t.size_bytes) for t in graph.tensors if t.producer == 1] == [
        ("getitem", 1, 16),
        ("getitem_1", 1, 16),
    ]
    assert [t.output for t in graph.tensors] == [False, False, False, False, True]
    assert graph.tensors[-1].dtype == "fp64"


def test_an_expanded_tensor_moves_once() -> None:
    """A transfer sends the content of an expanded tensor, not its copies."""
    graph = capture_module(_Calls(lambda m, x: x.exp().expand(100, 4) * 2), (torch.zeros(1, 4),))
    assert {t.name: t.size_bytes for t in graph.tensors} == {"exp": 16, "expand": 16, "mul": 1600}


@pytest.mark.parametrize("name", ["branches", "bert"])
def test_aliases_agree_with_the_storages_of_a_real_run(name: str) -> None:
    """Oracle: interpret the program with real tensors and compare which values share memory."""
    torch.manual_seed(0)
    if name == "branches":
        module: nn.Module = _Calls(
            lambda m, x: (x.t().contiguous(), x.contiguous().view(-1).split(3), (x * 2).relu_()[0].flatten(), x[:, 0])
        )
        inputs: tuple[Any, ...] = (torch.randn(3, 4),)
        kwargs: dict[str, Any] = {}
    else:
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(
            vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
        module, inputs, kwargs = transformers.BertModel(config).eval(), (), {"input_ids": torch.zeros(1, 3).long()}
    program = export_module(module, inputs, kwargs)
    parts = take_apart(program)
    storage: dict[str, int] = {}
    alive = []

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            alive.append(result)
            if isinstance(result, torch.Tensor):
                storage[n.name] = result.untyped_storage().data_ptr()
            return result

    values = {**program.state_dict, **program.constants}
    flat = iter(torch.utils._pytree.tree_leaves((inputs, kwargs)))
    specs = program.graph_signature.input_specs
    with torch.no_grad():
        Recorder(program.graph_module).run(*[values[str(s.target)] if s.target else next(flat) for s in specs])
    numbers = {n.name: k for n, k in parts.aliases.storage_of.items() if n.name in storage}
    pairs = sorted(numbers)
    for a in pairs:
        for b in pairs:
            assert (storage[a] == storage[b]) == (numbers[a] == numbers[b]), (a, b)


def test_a_branch_on_data_ends_in_one_line_with_a_remedy() -> None:
    """What can't be exported names the cause and what to try."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.sum() > 0 else x

    with pytest.raises(InvalidInput, match=r"can't be exported.*torch\._check") as caught:
        capture_module(_Calls(forward), (torch.ones(3),))
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="example inputs fit"):
        capture_module(nn.Linear(3, 3), ())
    with pytest.raises(InvalidInput, match="nothing to place"):
        capture_module(_Calls(lambda m, x: x), (torch.ones(3),))


PY = """
import torch
def good(): return torch.nn.Linear(3, 2), (torch.zeros(1, 3),)
def named(): return torch.nn.Linear(3, 2), {"input": torch.zeros(1, 3)}
def both(): return torch.nn.Linear(3, 2), ((), {"input": torch.zeros(1, 3)})
def bad(): raise RuntimeError("no\\nsuch weights")
def odd(): return 3
"""


def test_py_specs_name_functions_that_return_module_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is on the path; each way to give inputs works; each mistake ends in one line."""
    (tmp_path / "nets_of_this_test.py").write_text(PY)
    (tmp_path / "broken_of_this_test.py").write_text("import a_module_that_is_missing")
    monkeypatch.chdir(tmp_path)
    for function in ("good", "named", "both"):
        graph = capture_py(f"nets_of_this_test:{function}")
        assert [v.flops for v in graph.operators] == [12]
        assert graph.source is not None
        assert (graph.source.format, graph.source.location) == ("py", f"nets_of_this_test:{function}")
    mistakes = {
        "nets_of_this_test": "package.module:function",
        "no_such_module_here:f": "no module 'no_such_module_here'; run from the folder",
        "broken_of_this_test:f": "no module 'a_module_that_is_missing'; install it",
        "nets_of_this_test:absent": "no function 'absent'; check the name",
        "nets_of_this_test:goods": "no function 'goods'; did you mean 'good'",
        "nets_of_this_test:bad": "raised RuntimeError: no; run it",
        "nets_of_this_test:odd": "returned int, not",
    }
    for spec, message in mistakes.items():
        with pytest.raises(InvalidInput, match=message) as caught:
            load_py(spec)
        assert "\n" not in str(caught.value)
