"""The first operator whose result differs is found: among ranks, in one process, and in ONNX models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.capture.torch_export import capture_program, export_module  # noqa: E402
from placewright.capture.torch_program import take_apart  # noqa: E402
from placewright.evaluate import plan_for  # noqa: E402
from placewright.execute.onnx.unsplit import relative_difference  # noqa: E402
from placewright.execute.ranks.run import ARRIVED  # noqa: E402
from placewright.execute.torch.first_difference import (  # noqa: E402
    Difference,
    difference_in_process,
    first_difference,
    told,
)

from ..small_torch import branches, problem_of, random_plan  # noqa: E402


class Chain(torch.nn.Module):
    """x + 1, twice that, and the sum of both."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y + y * 2


def values(**named: float) -> dict[str, Any]:
    return {name: torch.tensor([value]) for name, value in named.items()}


def test_the_first_in_the_programs_order_is_named() -> None:
    """Of two that differ the one that the other reads, with its device and the size; small differences pass."""
    operators = take_apart(export_module(Chain(), (torch.ones(1),), {})).operators
    assert [v.node.name for v in operators] == ["add", "mul", "add_1"]
    reference = values(add=2.0, mul=4.0, add_1=6.0)
    made = {"a": values(add=2.000001, add_1=7.0), "b": {**values(mul=5.0), ARRIVED + "add": torch.tensor([2.0])}}
    assert first_difference(operators, made, reference, 1e-5) == Difference(operators[1].name, "b", 0.25)
    assert first_difference(operators, {"a": values(add=2.0)}, reference, 1e-5) is None


def test_a_tensor_that_arrives_changed_is_told_from_one_that_is_made_wrongly() -> None:
    """The maker is right; what its receiver has is twice as much."""
    operators = take_apart(export_module(Chain(), (torch.ones(1),), {})).operators
    made = {"a": values(add=2.0), "b": {ARRIVED + "add": torch.tensor([4.0]), **values(mul=8.0)}}
    found = first_difference(operators, made, values(add=2.0, mul=4.0), 1e-5)
    assert found == Difference(operators[0].name, "a", 1.0, "b")
    assert "on 'a' made is right, but differs by 1 on 'b', where it was sent" in told(found, 0.5)


def test_other_shapes_and_other_numbers_differ_without_measure() -> None:
    """There is no relative error between them."""
    operators = take_apart(export_module(Chain(), (torch.ones(1),), {})).operators
    found = first_difference(operators, {"a": {"add": torch.ones(2)}}, values(add=1.0), 1e-5)
    assert found is not None and found.error == float("inf")
    assert relative_difference(np.zeros(2), np.zeros((2, 1))) == float("inf")
    assert relative_difference(np.array([np.nan]), np.array([1.0])) == float("inf")


calls = [0]


@torch.library.custom_op("test_first_difference::drift", mutates_args=())
def drift(x: torch.Tensor) -> torch.Tensor:
    """Add how often it was called."""
    calls[0] += 1
    return x + calls[0]


@drift.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Drifts(torch.nn.Module):
    """An operator that gives another result with each call, between two that don't."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(drift(torch.exp(x)))


def test_in_one_process() -> None:
    """Called once for the whole network (1 + 1) and once for the split one (1 + 2): off by 1 of 2."""
    model, args = Drifts(), (torch.zeros(3),)
    problem = problem_of(capture_program(export_module(model, args, {})), 3, np.random.default_rng(0))
    plan = plan_for(problem, [0, 1, 2])
    assert plan is not None
    calls[0] = 0
    found = difference_in_process(model, args, {}, problem, plan, 1e-5)
    assert found is not None and (found.device, found.error) == ("d1", 0.5)
    assert "drift" in found.operator


def test_networks_that_write_to_weights_do_not_differ() -> None:
    """Whole and split run from the same state: in-place sums and a buffer that counts calls make no difference."""
    module, args, kwargs = branches()
    rng = np.random.default_rng(3)
    problem = problem_of(capture_program(export_module(module, args, kwargs)), 3, rng)
    assert difference_in_process(module, args, kwargs, problem, random_plan(problem, rng), 1e-5) is None
    assert "draws random numbers" in told(None, 0.5)
