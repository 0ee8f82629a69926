"""The ways that samples take through the devices of a plan, and which sample takes which."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placewright.errors import InvalidInput
from placewright.execute.pipeline.orders import Step
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.capture.torch_program import TorchProgram
    from placewright.execute.ranks.segments import Segment

__all__ = ["Route", "dealt_to", "merged_places", "plans_of", "route_of"]

MOST_ROUTES = 256
"""Ways through replicated stages that are made; their number is the least common multiple of those of replicas."""


@dataclass(frozen=True, eq=False)
class Route:
    """One placement of the whole network, as its samples pass it.

    Attributes
    ----------
    plan : Plan
        Without copies and replicas.
    share : float
        Of the samples; those of all routes sum to 1.
    places : tuple of tuple of int
        Devices of each operator of the program.
    segments : dict of int to list of Segment
        Of each device.
    steps : tuple of Step
        In an order in which they can run.
    where : tuple of int
        Of each step the number of its segment among those of its device.
    """

    plan: Plan
    share: float
    places: tuple[tuple[int, ...], ...]
    segments: Mapping[int, Sequence[Segment]]
    steps: tuple[Step, ...]
    where: tuple[int, ...]

    @property
    def messages(self) -> int:
        """How many tensors travel for a sample."""
        return sum(len(s.awaits) for row in self.segments.values() for s in row)


def plans_of(plan: Plan) -> list[tuple[Plan, float]]:
    """Placements of a plan with one device for each operator, and their shares.

    Copies of the network are placements as they are. Where stages are replicated, the m-th of all samples goes to
    replica m mod r of a stage on r devices, so there are as many placements, of equal shares, as the least common
    multiple of the numbers of replicas.

    Raises
    ------
    InvalidInput
        If that multiple is larger than 256.
    """
    if plan.copies:
        return [(replace(plan, device_of=c.device_of, copies=(), replicas=()), c.share) for c in plan.copies]
    if not plan.replicas:
        return [(plan, 1.0)]
    count = math.lcm(*(len(stage) for stage in plan.replicas))
    if count > MOST_ROUTES:
        raise InvalidInput(
            f"stages with {', '.join(str(len(s)) for s in plan.replicas)} replicas make {count} ways through them, "
            f"more than {MOST_ROUTES}; plan without --replicate, or for --objective throughput"
        )
    found = []
    for m in range(count):
        device_of = plan.device_of.copy()
        for stage in plan.replicas:
            device_of[plan.device_of == stage[0]] = stage[m % len(stage)]
        found.append((replace(plan, device_of=device_of, replicas=()), 1.0 / count))
    return found


def dealt_to(shares: Sequence[float], count: int) -> list[int]:
    """Route of each sample: the one that is furthest behind its share, of several the first.

    After every sample each route has had its share of the samples up to less than one for each other route.

    Examples
    --------
    >>> dealt_to([0.5, 0.25, 0.25], 8)
    [0, 1, 2, 0, 0, 1, 2, 0]
    """
    had = [0] * len(shares)
    dealt = []
    for m in range(1, count + 1):
        k = max(range(len(shares)), key=lambda r: (shares[r] * m - had[r], -r))
        had[k] += 1
        dealt.append(k)
    return dealt


def route_of(
    program: TorchProgram, places: Sequence[Sequence[int]], problem: Problem, plan: Plan, share: float
) -> Route:
    """Cut a network by one placement, and list what each device does with a sample.

    Raises
    ------
    InvalidInput
        If something would have to travel that can't.
    """
    from placewright.execute.ranks.segments import segments_of

    segments = segments_of(program, places, problem, plan)
    seconds, lasting = _seconds(problem, plan), _lasting(program)
    sender = {m.tag: (i, k) for i, row in segments.items() for k, s in enumerate(row) for m in s.sends}
    number: dict[tuple[int, int], int] = {}
    steps: list[Step] = []
    at = dict.fromkeys(segments, 0)
    while len(number) < sum(len(row) for row in segments.values()):
        for i, row in segments.items():
            while at[i] < len(row) and all(sender[m.tag] in number for m in row[at[i]].awaits):
                k = at[i]
                after = {number[i, k - 1]: 0.0} if k else {}
                for m in row[k].awaits:
                    made, wire_bytes = number[sender[m.tag]], math.prod(m.sent_shape) * m.dtype.itemsize
                    after[made] = max(after.get(made, 0.0), problem.cluster.transfer_s(wire_bytes, m.source, i))
                busy = sum(seconds[v.name, i] for v in row[k].operators)
                touched = (lasting.get(v.name, ()) for v in row[k].operators)
                number[i, k] = len(steps)
                steps.append(Step(i, busy, after, tuple(sorted({s for row_ in touched for s in row_}))))
                at[i] += 1
    where = tuple(k for _, k in number)
    return Route(plan, share, tuple(tuple(row) for row in places), segments, tuple(steps), where)


def merged_places(routes: Sequence[Route]) -> list[tuple[int, ...]]:
    """Of each operator of the program all devices that run it in some route."""
    return [
        tuple(sorted({i for devices in rows for i in devices}))
        for rows in zip(*(r.places for r in routes), strict=True)
    ]


def _seconds(problem: Problem, plan: Plan) -> dict[tuple[str, int], float]:
    """Planned seconds of each operator of the program: its part of the operator that it was planned in."""
    found: dict[tuple[str, int], float] = {}
    for k, v in enumerate(problem.graph.operators):
        i = int(plan.device_of[k])
        for part in v.part_names:
            found[part, i] = float(problem.times.processing_s[k, i]) / len(v.part_names)
    return found


def _lasting(program: TorchProgram) -> dict[str, list[int]]:
    """Of operators the storages of weights that they make, read or write, where some operator writes to them."""
    kept = {program.aliases.storage_of[n] for n in program.graph.nodes if n.name in program.weights}
    found: dict[str, list[int]] = {}
    names = {v.node: v.name for v in program.operators}
    for storage, nodes in program.aliases.accesses(names).items():
        if storage in kept and any(storage in program.aliases.writes.get(n, ()) for n in nodes):
            for node in nodes:
                found.setdefault(names[node], []).append(storage)
    return found
