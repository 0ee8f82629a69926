"""What people ask of a language model's plan: how long steps take, how many tokens a second, how long a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placewright.evaluate import Evaluation, evaluate, longest_contexts
from placewright.language.posed import PosedModel
from placewright.objective import Makespan
from placewright.plan import Plan, Schedule
from placewright.problem import Problem
from placewright.units import format_bytes, format_seconds

__all__ = ["explain_steps", "longest_context", "step_seconds"]

CLOSE = 1e-6
"""Relative difference below which two times are told as one."""


def step_seconds(problem: Problem, steps: Sequence[Problem], plan: Plan) -> tuple[float, ...]:
    """Seconds of one step of each phase, judged with a plan's placement and its order of operators and transfers."""
    whole, order = problem.graph, plan.schedule
    found = []
    for step in steps:
        at = [whole.index[v.name] for v in step.graph.operators]
        row = {t.name: u for u, t in enumerate(step.graph.tensors)}
        moved = [(whole.tensors[x.tensor].name, x) for x in order.transfers]
        legs = tuple(replace(x, tensor=row[name]) for name, x in moved if name in row)
        kept = Schedule(order.start_s[at], order.finish_s[at], legs)
        found.append(evaluate(step, plan.device_of[at], schedule=kept).value_s)
    return tuple(found)


def longest_context(posed: PosedModel, plan: Plan, evaluation: Evaluation) -> tuple[int, str]:
    """Find how many tokens of a sequence the cache could hold with this placement, and the device that is full then.

    Returns
    -------
    int
        At most 2^31, or what the positions of the model reach.
    str
        Empty where memory does not limit it.
    """
    best, full = posed.model.longest or 2**31, ""
    for i, tokens in longest_contexts(posed.problem, plan, evaluation).items():
        if tokens is not None and tokens < best:
            best, full = tokens, evaluation.devices[i].name
    return best, full


def explain_steps(posed: PosedModel, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Answer with numbers: times of prefill and decode, tokens a second, what the cache holds and could hold."""
    batch, said = posed.asked.batch, []
    if isinstance(posed.problem.objective, Makespan):
        times = step_seconds(posed.problem, posed.steps, plan)
        took = {phase.name: seconds for phase, seconds in zip(posed.phases, times, strict=True)}
        if len(posed.phases) > 1:
            count = posed.phases[-1].times
            total = took["prefill"] + count * took["decode"]
            said.append(
                f"Reading the prompt takes {format_seconds(took['prefill'])}, and each of {count} tokens after it "
                f"{format_seconds(took['decode'])} on average: {format_seconds(total)} together."
            )
            if abs(total - plan.value_s) > CLOSE * total:
                said.append(
                    f"The value of the plan, {format_seconds(plan.value_s)}, adds the steps up operator by operator, "
                    "which is a lower bound of that where operators run side by side."
                )
        if "decode" in took:
            said.append(_rates(took["decode"], batch))
        if len(posed.phases) == 1 and posed.phases[0].name == "prefill":
            tokens = posed.asked.prompt or 0
            said.append(f"That is {batch * tokens / took['prefill']:.4g} tokens/s read.")
    else:
        said.append(_steady(posed, plan.value_s))
    cache = sum(use.kv_cache_bytes for use in evaluation.devices)
    if cache:
        reach, full = longest_context(posed, plan, evaluation)
        where = f"then {full} is full" if full else "which is all that the model's positions reach"
        said.append(
            f"The KV cache takes {format_bytes(cache)} for {batch * posed.asked.in_flight} x "
            f"{posed.asked.room(posed.model):,} tokens; with this placement it could have room for {reach:,} a "
            f"sequence, {where}."
        )
    return said


def _rates(seconds: float, batch: int) -> str:
    rate = f"{1 / seconds:.4g} tokens/s" if seconds else "no time"
    if batch == 1 or not seconds:
        return f"A token takes {format_seconds(seconds)}: {rate}."
    return (
        f"A token takes {format_seconds(seconds)}: {rate} for each of {batch} sequences, {batch / seconds:.4g} in all."
    )


def _steady(posed: PosedModel, value_s: float) -> str:
    batch, phases = posed.asked.batch, posed.phases
    if len(phases) == 1 and phases[0].name == "decode":
        return (
            f"In steady state {batch / value_s:.4g} tokens/s are generated in all, {posed.asked.in_flight} batches of "
            f"{batch} being under way; each waits for its own tokens, so one sequence alone is no faster for it."
        )
    done = "answers" if len(phases) > 1 else "prompts"
    return f"In steady state {batch / value_s:.4g} {done}/s are done."
