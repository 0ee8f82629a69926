"""From a plan of a language model to the device of each of its layers, by the names of the operators alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placewright.errors import InvalidInput
from placewright.evaluate import evaluate
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.execute.decoder_units import Unit

__all__ = ["DecoderPlacement", "decoder_placement"]

_LAYER = re.compile(r"^(?P<list>(?:[A-Za-z_]\w*\.)*?[A-Za-z_]\w*)\.(?P<index>\d+)(?:\.|$)")
"""Modules of a list: ``model.layers.3.self_attn.q_proj``, ``transformer.h.0``."""


@dataclass(frozen=True)
class DecoderPlacement:
    """Where each layer of a decoder runs, as a whole.

    Attributes
    ----------
    layers_at : str
        Path of the list of layers: ``model.layers``.
    layers : tuple of int
        Device of each layer.
    others : tuple of (str, int, int)
        Of every operator outside the layers: its name, its device, the bytes of its weights.
    split : tuple of int
        Layers that the plan places on several devices. Each of them runs on the one that has most of its weights.
    predicted_s : float
        Value of the placement that is run, by the objective of the plan; the plan's own where no layer is split.
    violations : tuple of str
        Rules of the problem that it breaks, which a plan without split layers never does.
    """

    layers_at: str
    layers: tuple[int, ...]
    others: tuple[tuple[str, int, int], ...]
    split: tuple[int, ...]
    predicted_s: float
    violations: tuple[str, ...] = ()

    def places(self, units: Sequence[Unit]) -> dict[str, int]:
        """Device of each unit of the module that was planned.

        What stands before the layers goes with the table of tokens; a unit that the plan doesn't name goes with the
        layer that it stands next to.

        Raises
        ------
        InvalidInput
            If the module has other layers than the plan.
        """
        count = sum(unit.layer is not None for unit in units)
        if count != len(self.layers):
            raise InvalidInput(
                f"the plan has {len(self.layers)} layers in {self.layers_at!r} and the model {count}; plan this model"
            )
        start = self._device_of(units[0].path, self.layers[0])
        return {
            unit.path: self.layers[unit.layer]
            if unit.layer is not None
            else start
            if unit.before
            else self._device_of(unit.path, self.layers[-1])
            for unit in units
        }

    def _device_of(self, module: str, otherwise: int) -> int:
        """Device of a module outside the layers: of most of its weights, then of most of its operators."""
        votes: Counter[int] = Counter()
        for name, device, size in self.others:
            if name == module or name.startswith(f"{module}."):
                votes[device] += (size << 20) + 1
        return _most(votes) if votes else otherwise


def decoder_placement(problem: Problem, plan: Plan) -> DecoderPlacement:
    """Find the layers of a decoder in a plan.

    A layer that the plan cuts runs whole on the device that has most of its weights (of equals, most of its time, then
    the first), since its KV cache is held there; what is then predicted is judged anew.

    Raises
    ------
    InvalidInput
        If the operators' names show no list of layers, or the plan has copies or replicas.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor, evaluate
    >>> names = ["embed", "layers.0.attn", "layers.0.mlp", "layers.1.attn", "layers.1.mlp", "head"]
    >>> chain = [Tensor(f"x{k}", k, (k + 1,), size_bytes=8) for k in range(5)]
    >>> graph = OperatorGraph([Operator(n, weight_bytes=2 + n.endswith("mlp")) for n in names], chain)
    >>> pair = Cluster([Device("a"), Device("b")], [Link(0.0, 8.0, link_class="same-host")])
    >>> problem = Problem(graph, pair, [[1.0, 1.0]] * 6)
    >>> at = [0, 0, 1, 1, 1, 0]
    >>> found = decoder_placement(problem, Plan(at, evaluate(problem, at).schedule, 8.0))
    >>> found.layers, found.split, found.predicted_s  # layer 0 goes to b, where its mlp is: a transfer each way
    ((1, 1), (0,), 8.0)
    """
    if len(plan.copies) > 1 or plan.replicas:
        raise InvalidInput("the plan has copies of the network or of stages side by side; plan without to generate")
    operators = problem.graph.operators
    layers_at = _list_of_layers(name for v in operators for name in v.part_names)
    layer_of = [_layer(v.part_names, layers_at) for v in operators]
    count = max((k for k in layer_of if k is not None), default=-1) + 1
    absent = sorted(set(range(count)) - {k for k in layer_of if k is not None})
    if absent:
        raise InvalidInput(f"the plan has layer {count - 1} of {layers_at!r} but not layer {absent[0]}; plan it whole")
    votes = [Counter[int]() for _ in range(count)]
    time = problem.times.processing_s
    for v, (operator, k) in enumerate(zip(operators, layer_of, strict=True)):
        if k is not None:
            i = int(plan.device_of[v])
            votes[k][i] += (operator.weight_bytes << 40) + (int(min(time[v, i], 1e3) * 1e9) << 1) + 1
    layers = tuple(_most(row) for row in votes)
    split = tuple(k for k, row in enumerate(votes) if len(row) > 1)
    others = tuple(
        (name, int(plan.device_of[v]), operator.weight_bytes)
        for v, (operator, k) in enumerate(zip(operators, layer_of, strict=True))
        if k is None
        for name in operator.part_names
    )
    if not split:
        return DecoderPlacement(layers_at, layers, others, (), plan.value_s)
    moved = np.array([plan.device_of[v] if k is None else layers[k] for v, k in enumerate(layer_of)], dtype=np.int32)
    judged = evaluate(problem, moved)
    return DecoderPlacement(layers_at, layers, others, split, judged.value_s, tuple(judged.violations))


def _list_of_layers(names: Iterable[str]) -> str:
    """Path that most operators stand under with a number after it: the outermost list, since layers hold lists too."""
    found: Counter[str] = Counter()
    for name in names:
        match = _LAYER.match(name)
        if match:
            found[match["list"]] += 1
    if not found:
        raise InvalidInput(
            "no operator of the plan is named after a layer (as 'model.layers.0.mlp'), so its layers can't be told "
            "apart; plan a transformers decoder from a module or a configuration"
        )
    return min(found, key=lambda path: (-found[path], path))


def _layer(names: tuple[str, ...], layers_at: str) -> int | None:
    """Layer that an operator belongs to: of its parts, the first that is in one."""
    for name in names:
        match = _LAYER.match(name)
        if match and match["list"] == layers_at:
            return int(match["index"])
    return None


def _most(votes: Counter[int]) -> int:
    return min(votes, key=lambda i: (-votes[i], i))
