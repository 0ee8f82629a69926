"""What a plan generated: the tokens, where the layers ran, and the times beside the predicted one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from placewright.report.terminal_parts import sentences_of, table_of, text_of
from placewright.units import format_seconds

if TYPE_CHECKING:
    from placewright.execute.generation_run import Generated
    from placewright.problem import Problem

__all__ = ["generation_report", "generation_to_json"]

MOST_SPLIT = 8
"""Layers that a sentence names."""


def generation_report(
    problem: Problem, made: Generated, text: Callable[[Sequence[int]], str] | None = None
) -> RenderableType:
    """Show each prompt's tokens, or their text, the modules of each device, and the times."""
    rows = table_of("generated")
    rows.add_column("prompt", justify="right")
    rows.add_column("tokens", justify="right")
    rows.add_column("text" if text is not None else "token ids", overflow="fold")
    for k, tokens in enumerate(made.generation.tokens):
        shown = text(tokens) if text is not None else " ".join(map(str, tokens))
        rows.add_row(Text(str(k)), Text(str(len(tokens))), text_of(shown))
    places = table_of("devices")
    places.add_column("device")
    places.add_column("modules", overflow="fold")
    for name, units in made.units:
        places.add_row(text_of(name), text_of(_ranges(units, made.placement.layers_at)))
    return Group(rows, places, sentences_of(_sentences(problem, made)))


def generation_to_json(
    problem: Problem, made: Generated, text: Callable[[Sequence[int]], str] | None = None
) -> dict[str, Any]:
    """Say the same as one object."""
    generation, placement = made.generation, made.placement
    predicted = placement.predicted_s
    return {
        "token_ids": [list(row) for row in generation.tokens],
        **({"texts": [text(row) for row in generation.tokens]} if text is not None else {}),
        "first_token_s": generation.first_s,
        "per_token_s": generation.per_token_s if generation.steps_s else None,
        "steps_s": list(generation.steps_s),
        "predicted_s": predicted if predicted < float("inf") else None,
        "objective": problem.objective.name,
        "devices": {name: list(units) for name, units in made.units},
        "split_layers": list(placement.split),
        "violations": list(placement.violations),
        "equal_to_unsplit": made.equal,
    }


def _sentences(problem: Problem, made: Generated) -> list[str]:
    generation, placement = made.generation, made.placement
    told = [f"Reading the prompts and making the first token took {format_seconds(generation.first_s)}."]
    if generation.steps_s:
        told.append(
            f"Each further token took {format_seconds(generation.per_token_s)} (median of {len(generation.steps_s)})."
        )
    if placement.predicted_s < float("inf"):
        what = "one sample as planned" if problem.objective.name == "makespan" else problem.objective.name
        told.append(f"Predicted ({what}): {format_seconds(placement.predicted_s)}.")
    if placement.split:
        named = ", ".join(map(str, placement.split[:MOST_SPLIT]))
        more = "" if len(placement.split) <= MOST_SPLIT else f" and {len(placement.split) - MOST_SPLIT} more"
        told.append(
            f"The plan cuts inside the layers {named}{more}; each ran whole on the device that has most of its weights."
        )
    for violation in placement.violations[:3]:
        told.append(f"What ran breaks a rule of the problem: {violation}.")
    idle = [name for name, units in made.units if not units]
    if idle:
        told.append(f"No whole layer is on {', '.join(map(repr, idle))}: it had nothing to do.")
    if made.equal:
        told.append("The unsplit decoder generates the same tokens.")
    return told


def _ranges(units: Sequence[str], layers_at: str) -> str:
    """Write successive layers as a range."""
    shown: list[str] = []
    start: int | None = None
    last = -2
    for unit in [*units, ""]:
        number = unit.removeprefix(f"{layers_at}.")
        k = int(number) if number != unit and number.isdigit() else None
        if start is not None and k != last + 1:
            shown.append(f"{layers_at}.{start}" + (f" to {last}" if last > start else ""))
            start = None
        if k is None:
            shown.extend([unit] if unit else [])
        else:
            start, last = (k if start is None else start), k
    return ", ".join(shown) or "-"
