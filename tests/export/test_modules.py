"""Modules of a network, as its operators' names tell them."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.export.modules import main_stack, module_devices, units_of
from placewright.graph import Operator, OperatorGraph, Tensor


def paths(graph: OperatorGraph) -> list[str]:
    return [unit.path for unit in units_of(graph)]


def graph(*names: str, weights: int = 4, tensors: list[Tensor] | None = None) -> OperatorGraph:
    return OperatorGraph([Operator(name, weight_bytes=weights) for name in names], tensors or [])


def test_layers_are_whole_and_what_is_beside_them_is_as_large_as_it_can_be() -> None:
    """A numbered module is one unit; beside the layers stand the outermost modules that hold no layer."""
    made = graph("bert.embeddings.word", "bert.embeddings.norm", "bert.encoder.layer.0.fc", "bert.pooler.dense")
    assert paths(made) == ["bert.embeddings", "bert.encoder.layer.0", "bert.pooler"]


def test_containers_of_numbered_modules_are_no_layers() -> None:
    """Stages that hold nothing but numbered layers are taken apart; a layer with experts or sums of its own is not."""
    made = graph("e.stages.0.layers.0.conv", "e.stages.0.layers.1.conv", "e.stages.1.layers.0.conv")
    assert paths(made) == ["e.stages.0.layers.0", "e.stages.0.layers.1", "e.stages.1.layers.0"]
    assert paths(graph("h.0.mlp.experts.0", "h.0.mlp.experts.1", "h.0.attn")) == ["h.0"]


def test_operators_that_no_module_of_note_holds_go_with_their_reader() -> None:
    """A mask that the model itself computes is no module: it stands with the first operator that reads it."""
    made = OperatorGraph(
        [Operator("model.arange"), Operator("model.h.0.fc", weight_bytes=4), Operator("model.add_1", "aten.add")],
        [Tensor("mask", 0, (1,), 8), Tensor("y", 1, (2,), 8)],
    )
    assert [(u.path, u.operators) for u in units_of(made)] == [("model.h.0", (0, 1, 2))]


def test_names_of_onnx_exports_are_paths_as_well() -> None:
    """Slashes part modules as dots do."""
    assert paths(graph("/model/layers.0/mlp/MatMul", "/model/layers.1/mlp/MatMul", "/lm_head/MatMul")) == [
        "model.layers.0",
        "model.layers.1",
        "lm_head",
    ]


def test_a_fused_module_is_where_the_operator_is_that_holds_it() -> None:
    """An embedding that was fused into a layer's first operator is on that layer's device, under its own name."""
    made = OperatorGraph(
        [
            Operator("m.h.0.norm.pow", weight_bytes=8, parts=("m.embed", "m.h.0.norm.pow")),
            Operator("m.h.1.fc", weight_bytes=4, parts=("m.h.0.add_2", "m.h.1.fc")),
            Operator("head", weight_bytes=0),
        ]
    )
    assert module_devices(made, np.array([1, 0, 1], dtype=np.int32)) == {
        "m.embed": 1,
        "m.h.0": 1,
        "m.h.1": 0,
        "head": 1,
    }


@pytest.mark.parametrize(
    ("names", "stack"), [(("v.0.a", "t.0.a", "t.1.a"), "t"), (("a", "b"), "")], ids=["the longest", "none"]
)
def test_the_main_stack(names: tuple[str, ...], stack: str) -> None:
    """The stack with the most layers is the one that runtimes split."""
    assert main_stack(units_of(graph(*names))) == stack
