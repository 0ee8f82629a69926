"""Whether the KV cache fits, and up to which context, in sentences."""

from __future__ import annotations

from placewright.evaluate import Evaluation, longest_contexts
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import listed
from placewright.units import format_bytes

__all__ = ["context_room"]


def context_room(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say how much the cache takes, and how far the memory of each device that holds some of it reaches."""
    total = sum(use.kv_cache_bytes for use in evaluation.devices)
    if not total:
        return []
    asked = max((c.tokens for v in problem.graph.operators for c in v.caches), default=0)
    if not asked:
        return [f"The KV cache takes {format_bytes(total)}; the file does not say how it grows with the context."]
    fits = evaluation.feasible
    verdict = "It fits" if fits else "The plan breaks a rule"
    said = [f"{verdict}: {format_bytes(total)} in all, with room for {asked:,} tokens of each sequence."]
    cluster, reach = problem.cluster.devices, longest_contexts(problem, plan, evaluation)
    free = [repr(cluster[i].name) for i, tokens in reach.items() if tokens is None]
    bound = sorted((tokens, i) for i, tokens in reach.items() if tokens is not None)
    if bound:
        tokens, i = bound[0]
        said.append(f"With this placement memory reaches {tokens:,} tokens, then {cluster[i].name!r} is full.")
        if len(bound) > 1:
            each = listed([f"{cluster[i].name!r} {tokens:,}" for tokens, i in bound])
            said.append(f"By itself each device has room for: {each} tokens.")
    if free:
        said.append(f"On {listed(free)} memory sets no limit.")
    return said
