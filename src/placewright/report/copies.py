"""The copies of the network in a plan for the throughput, as every report shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placewright.evaluate import Evaluation
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted, listed, percent
from placewright.report.loads import per_second
from placewright.result import Result
from placewright.units import format_seconds

__all__ = ["CopyUse", "copies_of", "explain_copies", "places_text"]

SHOWN_PLACES = 4
"""Devices of a copy that are named."""


@dataclass(frozen=True, slots=True)
class CopyUse:
    """A copy: its share of the samples, and its devices in the order of their first operator, with their numbers."""

    share: float
    places: tuple[tuple[str, int], ...]


def copies_of(problem: Problem, plan: Plan) -> list[CopyUse]:
    """List the copies of a plan, the one with the largest share first."""
    names, made = [d.name for d in problem.cluster.devices], []
    for copy in plan.copies:
        used, first, count = np.unique(copy.device_of, return_index=True, return_counts=True)
        order = np.argsort(first)
        made.append(CopyUse(copy.share, tuple((names[used[x]], int(count[x])) for x in order.tolist())))
    return made


def places_text(use: CopyUse) -> str:
    """Name the devices of a copy.

    Examples
    --------
    >>> places_text(CopyUse(1.0, (("gpu0", 5),))), places_text(CopyUse(0.5, (("gpu0", 5), ("gpu1", 2))))
    ('all on gpu0', '5 on gpu0, 2 on gpu1')
    """
    if len(use.places) == 1:
        return f"all on {use.places[0][0]}"
    shown = [f"{number:,} on {name}" for name, number in use.places[:SHOWN_PLACES]]
    more = len(use.places) - SHOWN_PLACES
    return ", ".join([*shown, *([f"and {counted(more, 'device')} more"] if more > 0 else [])])


def explain_copies(problem: Problem, result: Result, evaluation: Evaluation) -> list[str]:
    """Say how many copies there are and what they have in common; compare with whole copies and with one in parts."""
    plan = result.plan
    assert plan is not None
    sentences = []
    n, D = problem.times.processing_s.shape
    held = np.zeros((n, D), dtype=np.bool_)
    for copy in plan.copies:
        held[np.arange(n), copy.device_of] = True
    several = int((held.sum(axis=1) > 1).sum())
    whole = [use for use in copies_of(problem, plan) if len(use.places) == 1]
    if len(plan.copies) == 1:
        sentences.append("One copy of the network takes all samples.")
    elif len(whole) == len(plan.copies):
        shares = listed([f"{use.places[0][0]!r} {percent(use.share)}" for use in whole[:8]])
        sentences.append(f"Each device has the whole network and its share of the samples: {shares}.")
    else:
        sentences.append(
            f"{len(plan.copies):,} copies of the network share the samples; "
            f"{several:,} of {counted(n, 'operator')} {'is' if several == 1 else 'are'} held by several devices."
        )
    synced = max((load.sync_s for use in evaluation.devices for load in use.loads), default=0.0)
    if synced > 0.0:
        sentences.append(f"To keep their weights equal, a device needs up to {format_seconds(synced)} a sample.")
    return [*sentences, *_against(plan, result.alternatives)]


def _against(plan: Plan, alternatives: Mapping[str, float]) -> list[str]:
    words = {"data-parallel": "whole copies in the best shares", "model-parallel": "one copy in parts"}
    known = {name: alternatives[name] for name in words if alternatives.get(name, np.inf) < np.inf}
    if not known or not plan.value_s > 0.0:
        return []
    told = listed([f"{words[name]} ({name}) {per_second(value)}" for name, value in known.items()])
    best = min(known, key=lambda name: known[name])
    ratio = known[best] / plan.value_s
    if ratio > 1.0 + 1e-6:
        end = f"this plan makes {percent(ratio - 1.0)} more than {'the better' if len(known) > 1 else 'that'}"
    elif ratio < 1.0 - 1e-6:
        end = f"{best} makes {percent(1.0 / ratio - 1.0)} more than this plan"
    else:
        end = f"this plan makes as many as {best}"
    return [f"{told[0].upper() + told[1:]}: {end}."]
