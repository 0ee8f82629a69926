"""Whether the KV cache fits, and up to how many tokens of a sequence each device has room for."""

from __future__ import annotations

import numpy as np

from placewright.evaluate import Evaluation
from placewright.graph import Operator
from placewright.objective import Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import listed
from placewright.units import format_bytes

__all__ = ["context_room", "longest_contexts"]

MOST_TOKENS = 2**40


def longest_contexts(problem: Problem, plan: Plan, evaluation: Evaluation) -> dict[int, int | None]:
    """Tokens of a sequence that each device with a growing cache has room for; ``None``: no limit.

    The largest t with other memory + sum of ceil(bits a token x min(t, window) / 8) <= limit, exactly, by bisection:
    the sum never falls as t grows. Other memory (weights, live tensors) is that of the plan.
    """
    copies = plan.copies if isinstance(problem.objective, Throughput) and plan.copies else (plan,)
    reach: dict[int, int | None] = {}
    for i, use in enumerate(evaluation.devices):
        rows = {int(v) for copy in copies for v in np.flatnonzero(copy.device_of == i)}
        cached = [v for k in sorted(rows) if (v := problem.graph.operators[k]).caches]
        if not cached:
            continue
        room = None if use.limit_bytes is None else use.limit_bytes - (use.memory_bytes - use.kv_cache_bytes)
        room = None if room is None else room - (use.kv_cache_bytes - sum(v.kv_cache_bytes for v in cached))
        reach[i] = None if room is None else _largest(cached, room)
    return reach


def _largest(cached: list[Operator], room: int) -> int | None:
    def held(tokens: int) -> int:
        return sum(v.kv_cache_bytes_at(tokens) for v in cached)

    if held(MOST_TOKENS) <= room:
        return None
    low, high = 0, MOST_TOKENS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held(middle) <= room else (low, middle)
    return low


def context_room(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say how much the cache takes, and how far the memory of each device that holds some of it reaches."""
    total = sum(v.kv_cache_bytes for v in problem.graph.operators)
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
