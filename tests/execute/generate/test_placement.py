"""From a plan of operators to devices of whole layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem, Tensor
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate
from placewright.execute.generate.placement import DecoderPlacement, Judged, decoder_placement, judged_units
from placewright.plan import Copy, Plan


@dataclass(frozen=True)
class Unit:
    """What the placement reads of a unit."""

    path: str
    layer: int | None = None
    before: bool = False
    reads_tokens: bool = False
    inside: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[tuple[str, None], ...]:
        return tuple((path, None) for path in self.inside or (self.path,))


@dataclass(frozen=True)
class Halves:
    first: Unit
    second: Unit


def halves(unit: Unit) -> Halves:
    return Halves(
        Unit(f"{unit.path}.attn", unit.layer, inside=(f"{unit.path}.norm", f"{unit.path}.attn")),
        Unit(f"{unit.path}.mlp", unit.layer),
    )


UNITS: list[Any] = [
    Unit("m.embed", before=True, reads_tokens=True),
    Unit("m.position", before=True),
    *(Unit(f"m.layers.{k}", k) for k in range(3)),
    Unit("m.norm"),
    Unit("head"),
]


def problem_of(*operators: Operator, memory_bytes: int = 1000) -> Problem:
    """A chain of operators on two devices, each a second on either; a tensor takes a second."""
    chain = [Tensor(f"x{k}", k, (k + 1,), size_bytes=8) for k in range(len(operators) - 1)]
    devices = [Device("a", memory_bytes=memory_bytes), Device("b", memory_bytes=memory_bytes)]
    cluster = Cluster(devices, [Link(0.0, 8.0, link_class="same-host")])
    return Problem(OperatorGraph(operators, chain), cluster, [[1.0, 1.0]] * len(operators))


def planned(problem: Problem, at: list[int]) -> Plan:
    judged = evaluate(problem, at)
    return Plan(at, judged.schedule, judged.value_s)


def operators(*weights: int) -> list[Operator]:
    """A table, three layers of two operators each with these weights, a norm, a head."""
    inner = [f"m.layers.{k // 2}.{'mlp.0' if k % 2 else 'attn'}" for k in range(6)]
    return [
        Operator("m.embed", weight_bytes=10),
        *(Operator(name, weight_bytes=w) for name, w in zip(inner, weights, strict=True)),
        Operator("m.norm", weight_bytes=1),
        Operator("head", weight_bytes=10),
    ]


def placed(found: DecoderPlacement, halves_of: Any = lambda unit: None) -> dict[str, int]:
    """Devices of the units, of halves where the plan cuts a layer and the layer can be cut."""
    parts = found.divided(UNITS, halves_of)
    units: Any = [u for p in parts for u in ((p.first, p.second) if isinstance(p, Halves) else (p,))]
    return found.places(units)


def modules(places: dict[str, int]) -> dict[str, int]:
    """What runs as a whole: of these first halves the attention has the operators."""
    return {path: i for path, i in places.items() if path != "m.position"}


def test_layers_that_the_plan_keeps_whole_stay_where_they_are() -> None:
    """Layers 0 and 2 on a, 1 on b; what is predicted is what was planned: 9 s of work and two transfers."""
    problem = problem_of(*operators(1, 1, 1, 1, 1, 1))
    plan = planned(problem, [0, 0, 0, 1, 1, 0, 0, 0, 0])
    found = decoder_placement(problem, plan)
    assert (found.layers_at, found.layers) == ("m.layers", 3)
    places = placed(found, halves)
    assert places == {
        "m.embed": 0,
        "m.position": 0,
        "m.layers.0": 0,
        "m.layers.1": 1,
        "m.layers.2": 0,
        "m.norm": 0,
        "head": 0,
    }
    assert judged_units(problem, plan, modules(places)) == Judged(11.0)


def test_a_layer_that_is_cut_between_its_halves_runs_as_planned() -> None:
    """Layers 0 and 2 are cut and run so: 9 s of work and four transfers, nothing is moved."""
    problem = problem_of(*operators(1, 5, 1, 1, 3, 3))
    plan = planned(problem, [0, 0, 1, 0, 0, 0, 1, 0, 0])
    places = placed(decoder_placement(problem, plan), halves)
    assert {path: i for path, i in places.items() if "layers" in path} == {
        "m.layers.0.attn": 0,
        "m.layers.0.mlp": 1,
        "m.layers.1": 0,
        "m.layers.2.attn": 0,
        "m.layers.2.mlp": 1,
    }
    assert judged_units(problem, plan, modules(places)) == Judged(13.0)


def test_a_layer_that_can_not_be_cut_goes_where_most_of_its_weights_are_and_is_judged_anew() -> None:
    """Layer 0: 1 B on a, 5 B on b; layer 2: 3 B each, so the first. Then 9 s of work and two transfers, not four."""
    problem = problem_of(*operators(1, 5, 1, 1, 3, 3))
    plan = planned(problem, [0, 0, 1, 0, 0, 0, 1, 0, 0])
    places = placed(decoder_placement(problem, plan))
    assert [places[f"m.layers.{k}"] for k in range(3)] == [1, 0, 0]
    assert judged_units(problem, plan, modules(places)) == Judged(11.0, ("m.layers.0", "m.layers.2"))


def test_rules_that_the_whole_layers_break_are_told() -> None:
    """Cut, b holds 55 B and two tensors of 8 B: 71 B. Whole it holds 60 B of weights, so 76 B, and there are 75 B."""
    problem = problem_of(*operators(5, 55, 1, 1, 1, 1), memory_bytes=75)
    plan = planned(problem, [0, 0, 1, 0, 0, 0, 0, 0, 0])
    judged = judged_units(problem, plan, modules(placed(decoder_placement(problem, plan))))
    assert judged.moved == ("m.layers.0",)
    assert len(judged.violations) == 1 and "'b' needs 76 B" in judged.violations[0]


def test_what_shows_no_layers_or_is_another_model_is_refused() -> None:
    """No numbered modules; a layer that is absent; another number of layers; copies side by side."""
    plain = problem_of(Operator("a"), Operator("b"))
    with pytest.raises(InvalidInput, match="no operator of the plan is named after a layer"):
        decoder_placement(plain, planned(plain, [0, 0]))
    gap = problem_of(Operator("m.layers.0.x"), Operator("m.layers.2.x"))
    with pytest.raises(InvalidInput, match=r"has layer 2 of 'm\.layers' but not layer 1"):
        decoder_placement(gap, planned(gap, [0, 0]))
    whole = problem_of(*operators(1, 1, 1, 1, 1, 1))
    found = decoder_placement(whole, planned(whole, [0] * 9))
    with pytest.raises(InvalidInput, match=r"has 3 layers in 'm\.layers' and the model 2 in 'm\.layers'"):
        found.divided(UNITS[:4], halves)
    other: list[Any] = [Unit(f"transformer.h.{k}", k) for k in range(3)]
    with pytest.raises(InvalidInput, match=r"and the model 3 in 'transformer\.h'; plan this model"):
        found.divided(other, halves)
    plan = planned(whole, [0] * 9)
    twice = Plan(plan.device_of, plan.schedule, 1.0, copies=(Copy(plan.device_of, 0.5), Copy(plan.device_of, 0.5)))
    with pytest.raises(InvalidInput, match="copies of the network"):
        decoder_placement(whole, twice)


def test_lists_inside_layers_are_not_taken_for_the_layers() -> None:
    """Experts are numbered too, but the outermost list holds them all."""
    names = [f"m.layers.{k}.experts.{e}.w" for k in range(2) for e in range(3)]
    problem = problem_of(*(Operator(name, weight_bytes=1) for name in names))
    found = decoder_placement(problem, planned(problem, [0, 0, 0, 1, 1, 1]))
    assert (found.layers_at, found.layers, found.devices(["m.layers.1"])) == ("m.layers", 2, [1])
