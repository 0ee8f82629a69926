"""What people ask of a pipeline's plan: how long text, steps and decoding take, and how many pictures come out."""

from __future__ import annotations

from placewright.diffusion.posed import PosedPipeline
from placewright.language.answers import CLOSE, step_seconds
from placewright.objective import Makespan
from placewright.plan import Plan
from placewright.units import format_seconds

__all__ = ["explain_pictures"]

CROSSING = 0.01
"""Part of a picture's time above which what travels between the sections is told."""

WORDS = {"encode": "Encoding the text takes {0}", "step": "each of {1} steps {0}", "decode": "decoding {0}"}


def explain_pictures(posed: PosedPipeline, plan: Plan) -> list[str]:
    """Answer with numbers: times of encoding, steps and decoding, and pictures a minute."""
    batch = posed.asked.batch
    pictures = "a picture" if batch == 1 else f"{batch} pictures"
    if not isinstance(posed.problem.objective, Makespan):
        rate = 60 * batch / plan.value_s if plan.value_s else float("inf")
        return [
            f"In steady state {rate:.4g} pictures/min are made in all, devices working on different ones at a time; "
            "one picture alone is no faster for it."
        ]
    once, *more = step_seconds(posed.problem, posed.steps, plan)
    total = once + sum(p.times * s for p, s in zip(posed.phases[1:], more, strict=True))
    each = step_seconds(posed.problem, [problem for _, problem in posed.told], plan)
    said = [WORDS[p.name].format(format_seconds(s), p.times) for (p, _), s in zip(posed.told, each, strict=True)]
    if not said[0].startswith("Encoding"):
        said[0] = said[0][0].upper() + said[0][1:].replace("steps", "steps takes", 1)
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])}, and {said[-1]}"
    sections = sum(p.times * s for (p, _), s in zip(posed.told, each, strict=True))
    between = ", with what travels between them" if total - sections > CROSSING * total else ""
    told = [f"{listed}: {format_seconds(total)} for {pictures}{between}, {60 * batch / total:.3g} a minute."]
    if abs(total - plan.value_s) > CLOSE * total:
        told.append(
            f"The value of the plan, {format_seconds(plan.value_s)}, adds the steps up operator by operator, which is "
            "a lower bound of that where operators run side by side."
        )
    return told
