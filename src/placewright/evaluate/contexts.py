"""Up to how many tokens of a sequence the devices of a plan have room for in their KV caches."""

from __future__ import annotations

import numpy as np

from placewright.evaluate.evaluation import Evaluation
from placewright.graph import Operator
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["longest_contexts"]

MOST_TOKENS = 2**40


def longest_contexts(problem: Problem, plan: Plan, evaluation: Evaluation) -> dict[int, int | None]:
    """Tokens of a sequence that each device with a growing cache has room for; ``None``: no limit.

    The largest t with other memory + sum of ceil(bits a token x min(t, window) / 8) <= limit, exactly, by bisection:
    the sum never falls as t grows. Other memory (weights, live tensors) is that of the plan. What copies of the
    network, or replicas of a stage, hold on a device counts there, once.
    """
    growing = np.array([k for k, v in enumerate(problem.graph.operators) if v.caches], dtype=np.intp)
    held = np.zeros((len(evaluation.devices), len(growing)), dtype=bool)
    for copy in plan.copies or (plan,):
        held[copy.device_of[growing], np.arange(len(growing))] = True
    for stage in plan.replicas:
        held[list(stage)] = held[list(stage)].any(axis=0)
    reach: dict[int, int | None] = {}
    for i, use in enumerate(evaluation.devices):
        cached = [problem.graph.operators[k] for k in growing[held[i]]]
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
