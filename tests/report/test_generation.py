"""What is told of a generation."""

from __future__ import annotations

import json
from dataclasses import replace

from rich.console import Console

from placewright.cluster import Cluster, Device
from placewright.execute.generate.generation import Generation
from placewright.execute.generate.placement import Judged
from placewright.execute.generate.run import Generated
from placewright.graph import Operator, OperatorGraph
from placewright.objective import Makespan
from placewright.problem import Problem
from placewright.report import generation_report, generation_to_json

GENERATED = Generated(
    Generation(((5, 6, 7), (8,)), 0.5, (0.010, 0.030, 0.020)),
    Judged(0.025, ("m.layers.3",), ("device 'b' needs too much",)),
    "m.layers",
    (("a", ("m.embed", "m.layers.0", "m.layers.1", "m.layers.3", "head")), ("b", ("m.layers.2",)), ("c", ())),
    True,
)


def problem(objective: Makespan) -> Problem:
    return Problem(OperatorGraph([Operator("x")]), Cluster([Device("a")], []), [[1.0]], objective=objective)


def test_tokens_places_and_times_are_told() -> None:
    """Successive layers as a range; the median of 10, 30 and 20 ms beside the predicted token; what was moved."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(generation_report(problem(Makespan(per="token")), GENERATED, lambda row: "-".join(map(str, row))))
    text = captured.get()
    for said in (
        "5-6-7",
        "m.embed, m.layers.0 to 1, m.layers.3, head",
        "the first token took 500 ms.",
        "Each further token took 20 ms (median of 3), predicted 25 ms.",
        "The plan cuts inside m.layers.3: each of them ran whole",
        "breaks a rule of the problem: device 'b' needs too much.",
        "No whole module is on 'c'",
        "The unsplit decoder generates the same tokens.",
    ):
        assert said in text, text


def test_a_plan_of_a_sample_predicts_a_sample_and_one_token_has_no_further_ones() -> None:
    """And nothing is said of what did not happen."""
    alone = replace(
        GENERATED,
        generation=Generation(((5,),), 0.5, ()),
        judged=Judged(0.025),
        modules=(("a", ("m.layers.0",)),),
        equal=None,
    )
    console = Console(width=200)
    with console.capture() as captured:
        console.print(generation_report(problem(Makespan()), alone))
    text = captured.get()
    assert "Predicted for one sample as planned: 25 ms." in text
    for unsaid in ("further", "cuts", "breaks", "No whole", "unsplit"):
        assert unsaid not in text


def test_the_object_says_the_same() -> None:
    """It is JSON, also where nothing finite is predicted."""
    content = generation_to_json(problem(Makespan(per="token")), GENERATED)
    assert content["token_ids"] == [[5, 6, 7], [8]] and content["per_token_s"] == 0.020
    assert (
        content["predicted_s"] == 0.025 and content["predicted_per"] == "token" and content["moved"] == ["m.layers.3"]
    )
    never = replace(GENERATED, judged=Judged(float("inf")))
    assert (
        json.loads(json.dumps(generation_to_json(problem(Makespan()), never), allow_nan=False))["predicted_s"] is None
    )
