"""What each device holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placewright.evaluate import Evaluation
from placewright.objective import Throughput
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.report.listing import counted, listed, percent
from placewright.units import format_bytes

__all__ = ["holdings"]

COMPONENTS = frozenset(("text_encoder", "text_encoder_2", "text_encoder_3", "unet", "transformer", "vae"))
"""Names of the networks of a diffusion pipeline."""

MOST_DEVICES = 16
"""So many devices are told of one by one."""


def holdings(problem: Problem, plan: Plan, evaluation: Evaluation) -> list[str]:
    """Say how many operators each used device has, from which to which, and what its memory is taken by.

    Of a pipeline of several networks it is said how much of each network a device has.
    """
    said = []
    networks = _networks(problem)
    used = [i for i, use in enumerate(evaluation.devices) if use.operators]
    for i in used[:MOST_DEVICES]:
        use = evaluation.devices[i]
        sentence = f"{use.name!r} holds {counted(use.operators, 'operator')}"
        rows = np.flatnonzero(plan.device_of == i)
        if networks and len(rows):
            sentence += f", {_of_networks(networks, rows)}"
        elif len(rows) > 1 and not isinstance(problem.objective, Throughput):
            first, last = (problem.graph.operators[int(v)].name for v in (rows[0], rows[-1]))
            within = "" if rows[-1] - rows[0] + 1 == len(rows) else ", not all between them"
            sentence += f" from {first!r} to {last!r}{within}"
        elif len(rows) == 1:
            sentence += f", {problem.graph.operators[int(rows[0])].name!r}"
        sentence += f": {use.memory_listing}"
        if use.limit_bytes:
            share = percent(use.memory_bytes / use.limit_bytes)
            sentence += f"; that is {share} of {format_bytes(use.limit_bytes)}"
        said.append(sentence + ".")
    if len(used) > MOST_DEVICES:
        more = len(used) - MOST_DEVICES
        said.append(f"{counted(more, 'more device')} {'holds' if more == 1 else 'hold'} the rest.")
    return said


def _networks(problem: Problem) -> list[str]:
    """Network of each operator in a diffusion pipeline, by how its name begins; empty for anything else."""
    first = [v.name.partition(".")[0] for v in problem.graph.operators]
    return first if len(set(first)) > 1 and set(first) <= COMPONENTS else []


def _of_networks(networks: Sequence[str], rows: npt.NDArray[np.intp]) -> str:
    """List the networks that operators are of, and how many they are of each where it is not all."""
    whole, here = Counter(networks), Counter(networks[int(v)] for v in rows)
    return listed(
        [
            f"all of {name!r}" if here[name] == whole[name] else f"{here[name]} of the {whole[name]} of {name!r}"
            for name in here
        ]
    )
