"""What a plan generated: the tokens, where the layers ran, and the times beside the predicted one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from placewright.report.terminal_parts import sentences_of, spaced, table_of, text_of
from placewright.units import format_seconds

if TYPE_CHECKING:
    from placewright.execute.generate.run import Generated
    from placewright.problem import Problem

__all__ = ["generation_report", "generation_to_json"]

MOST_NAMED = 8
"""Modules that a sentence names."""


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
    for name, modules in made.modules:
        places.add_row(text_of(name), text_of(_ranges(modules, made.layers_at)))
    return spaced([rows, places, sentences_of(_sentences(problem, made))])


def generation_to_json(
    problem: Problem, made: Generated, text: Callable[[Sequence[int]], str] | None = None
) -> dict[str, Any]:
    """Say the same as one object."""
    generation, judged = made.generation, made.judged
    predicted = judged.predicted_s
    return {
        "token_ids": [list(row) for row in generation.tokens],
        **({"texts": [text(row) for row in generation.tokens]} if text is not None else {}),
        "first_token_s": generation.first_s,
        "per_token_s": generation.per_token_s if generation.steps_s else None,
        "steps_s": list(generation.steps_s),
        "predicted_s": predicted if predicted < float("inf") else None,
        "predicted_per": _per(problem),
        "devices": {name: list(modules) for name, modules in made.modules},
        "moved": list(judged.moved),
        "violations": list(judged.violations),
        "equal_to_unsplit": made.equal,
    }


def _sentences(problem: Problem, made: Generated) -> list[str]:
    generation, judged, per = made.generation, made.judged, _per(problem)
    predicted = format_seconds(judged.predicted_s) if judged.predicted_s < float("inf") else ""
    told = [f"Reading the prompts and making the first token took {format_seconds(generation.first_s)}."]
    if generation.steps_s:
        beside = f", predicted {predicted}" if predicted and per == "token" else ""
        told.append(
            f"Each further token took {format_seconds(generation.per_token_s)} (median of {len(generation.steps_s)})"
            f"{beside}."
        )
    if predicted and per != "token":
        told.append(f"Predicted for {'a whole answer' if per == 'answer' else 'one sample as planned'}: {predicted}.")
    if judged.moved:
        named = ", ".join(judged.moved[:MOST_NAMED])
        more = "" if len(judged.moved) <= MOST_NAMED else f" and {len(judged.moved) - MOST_NAMED} more"
        told.append(
            f"The plan cuts inside {named}{more}: each of them ran whole, on the device with most of its weights; "
            "what is predicted is for what ran."
        )
    for violation in judged.violations[:3]:
        told.append(f"What ran breaks a rule of the problem: {violation}.")
    idle = [name for name, modules in made.modules if not modules]
    if idle:
        told.append(f"No whole module is on {', '.join(map(repr, idle))}: it had nothing to do.")
    if made.equal:
        told.append("The unsplit decoder generates the same tokens.")
    return told


def _per(problem: Problem) -> str:
    """Tell what a plan's value is the time of: a token, an answer, or a sample."""
    return str(getattr(problem.objective, "per", "sample"))


def _ranges(modules: Sequence[str], layers_at: str) -> str:
    """Write successive layers as a range."""
    shown: list[str] = []
    start: int | None = None
    last = -2
    for unit in [*modules, ""]:
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
