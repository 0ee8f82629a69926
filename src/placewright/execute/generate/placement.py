"""From a plan of a language model to the device of each of its layers, by the names of the operators alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placewright.errors import InvalidInput
from placewright.evaluate import evaluate
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.execute.generate.halves import Halves
    from placewright.execute.generate.units import Unit

__all__ = ["DecoderPlacement", "Judged", "decoder_placement", "judged_units"]

_LAYER = re.compile(r"^(?P<list>(?:[A-Za-z_]\w*\.)*?[A-Za-z_]\w*)\.(?P<index>\d+)(?:\.|$)")
"""Modules of a list: ``model.layers.3.self_attn.q_proj``, ``transformer.h.0``."""


@dataclass(frozen=True)
class DecoderPlacement:
    """Where the operators of a decoder run, by name.

    Attributes
    ----------
    layers_at : str
        Path of the list of layers: ``model.layers``.
    layers : int
        How many there are.
    operators : tuple of (str, int, int, float)
        Name, device, bytes of weights and seconds of each.
    """

    layers_at: str
    layers: int
    operators: tuple[tuple[str, int, int, float], ...]

    def devices(self, paths: Iterable[str]) -> list[int]:
        """Devices of the operators of some modules: that with most of their weights first, then most of their time."""
        votes: dict[int, tuple[int, float]] = {}
        wanted = tuple(paths)
        below = tuple(f"{path}." for path in wanted)
        for name, device, size, seconds in self.operators:
            if name in wanted or name.startswith(below):
                bytes_, time = votes.get(device, (0, 0.0))
                votes[device] = bytes_ + size, time + seconds
        return sorted(votes, key=lambda i: (-votes[i][0], -votes[i][1], i))

    def divided(self, units: Sequence[Unit], halves_of: Callable[[Unit], Halves | None]) -> list[Unit | Halves]:
        """Cut the layers of which the plan places the two halves on different devices.

        Raises
        ------
        InvalidInput
            If the module has other layers than the plan.
        """
        layers = [unit.path for unit in units if unit.layer is not None]
        if layers != [f"{self.layers_at}.{k}" for k in range(self.layers)]:
            raise InvalidInput(
                f"the plan has {self.layers} layers in {self.layers_at!r} and the model {len(layers)} in "
                f"{layers[0].rpartition('.')[0]!r}; plan this model"
            )
        made: list[Unit | Halves] = []
        for unit in units:
            cut = len(self.devices([unit.path])) > 1 and unit.layer is not None
            halves = halves_of(unit) if cut else None
            apart = halves is not None and self._place(halves.first, -1) != self._place(halves.second, -1)
            made.append(halves if halves is not None and apart else unit)
        return made

    def places(self, units: Sequence[Unit]) -> dict[str, int]:
        """Device of each unit.

        What stands before the layers goes with the table of tokens; a unit of which the plan names no operator goes
        with the one before it.
        """
        found: dict[str, int] = {}
        last = self.devices([unit.path for unit in units if unit.layer is not None][:1] or [""])[:1] or [0]
        for unit in units:
            if not unit.before or unit.reads_tokens:
                last = [self._place(unit, last[0])]
            found[unit.path] = last[0]
        return found

    def _place(self, unit: Unit, otherwise: int) -> int:
        return (self.devices([path for path, _ in unit.members]) or [otherwise])[0]


@dataclass(frozen=True)
class Judged:
    """What the judge says of the units' placement.

    Attributes
    ----------
    predicted_s : float
        Its value, by the objective of the plan; the plan's own where every operator is where it was placed.
    moved : tuple of str
        Modules in which an operator is not.
    violations : tuple of str
        Rules of the problem that are broken then.
    """

    predicted_s: float
    moved: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()


def decoder_placement(problem: Problem, plan: Plan) -> DecoderPlacement:
    """Find the layers of a decoder in a plan.

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
    >>> found.layers_at, found.layers, found.devices(["layers.0"]), found.devices(["layers.1"])
    ('layers', 2, [1, 0], [1])
    """
    if len(plan.copies) > 1 or plan.replicas:
        raise InvalidInput("the plan has copies of the network or of stages side by side; plan without to generate")
    operators = problem.graph.operators
    layers_at = _list_of_layers(name for v in operators for name in v.part_names)
    matches = (_LAYER.match(name) for v in operators for name in v.part_names)
    there = {int(m["index"]) for m in matches if m is not None and m["list"] == layers_at}
    absent = sorted(set(range(max(there) + 1)) - there)
    if absent:
        raise InvalidInput(f"the plan has layer {max(there)} of {layers_at!r} but not layer {absent[0]}; plan it whole")
    rows = []
    for v, operator in enumerate(operators):
        i = int(plan.device_of[v])
        share = len(operator.part_names)
        seconds = float(problem.times.processing_s[v, i])
        rows += [(name, i, operator.weight_bytes // share, seconds / share) for name in operator.part_names]
    return DecoderPlacement(layers_at, max(there) + 1, tuple(rows))


def judged_units(problem: Problem, plan: Plan, places: Mapping[str, int]) -> Judged:
    """Judge what runs: a plan in which the operators of each module are on the module's device.

    Parameters
    ----------
    problem, plan
    places : mapping of str to int
        Device of each module that runs as a whole, by path.
    """
    moved: dict[str, None] = {}
    at = np.array(plan.device_of, dtype=np.int32)
    latest: dict[str, int] = {}
    for v, operator in enumerate(problem.graph.operators):
        for name in operator.part_names:
            layer = _LAYER.match(name)
            module = next((p for p in _above(name) if p in places), None)
            if module is not None:
                here = places[module]
            elif layer is not None and layer[0] in latest:
                module, here = name, latest[layer[0]]  # a sum of the layer's own: where what it adds was computed
            else:
                continue
            if layer is not None:
                latest[layer[0]] = here
            if here != at[v]:
                moved[module] = None
            at[v] = here
            break
    if not moved:
        return Judged(plan.value_s)
    judged = evaluate(problem, at)
    return Judged(judged.value_s, tuple(moved), tuple(judged.violations))


def _above(name: str) -> Iterable[str]:
    """Name a module and those around it, innermost first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


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
