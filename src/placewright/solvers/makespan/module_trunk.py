"""What of a network is cut into modules: all of it, or the greater part, from which little leads past its cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placewright._kernel.path import heads
from placewright.arrays import arrays_of
from placewright.bounds.makespan.span import Reach, members_of
from placewright.bounds.makespan.span_path import longest_path
from placewright.evaluate import plan_for
from placewright.graph import OperatorGraph
from placewright.plan import Plan
from placewright.problem import Problem, Times
from placewright.solvers.makespan.modules import modules_of

__all__ = ["Trunk", "completed", "last_sink", "loose_trunks", "trunk_of", "without_rest"]

SHARES = (0.0, 0.01, 0.1)
"""Of the time of all operators: what may be left out for the sake of more cuts."""


@dataclass(frozen=True, eq=False)
class Trunk:
    """A part of a problem whose least makespan is at most that of the whole.

    Attributes
    ----------
    problem : Problem
    kept : tuple of int
        Its operators in the whole problem, ascending.
    whole : bool
        Whether nothing is left out.
    """

    problem: Problem
    kept: tuple[int, ...]
    whole: bool


def trunk_of(problem: Problem) -> Trunk:
    """Everything where an operator lies on every path; else what the last sink depends on, if that has a cut.

    What is left out there reads from the trunk and nothing in the trunk reads from it.
    """
    everything = tuple(range(len(problem.graph)))
    if len(modules_of(problem.graph)) > 1:
        return Trunk(problem, everything, True)
    kept = last_sink(problem)
    return Trunk(without_rest(problem, kept), kept, len(kept) == len(everything))


def loose_trunks(problem: Problem) -> Iterator[Trunk]:
    """Leave out what leads past the operators of a longest path, more and more of it.

    An operator c of that path separates all others in time once those that are neither above nor below it are gone:
    all above end before c starts, all below start after c has ended. Tensors may still lead past c. They are left out
    as well, which is what makes c lie on every path of the rest: let v be kept and above c, and no cut between them;
    then so is all that a path from v to c passes, since it lies below v and above c, and no tensor of that path leads
    past a cut. Operators and tensors that are gone only take constraints away, so the least makespan of the rest is a
    lower bound; that of the whole may be larger, by what the rest would have to wait for them.

    Yields those that have more cuts than the one before, from none of the operators left out to a tenth of the time.
    """
    graph = problem.graph
    n = len(graph)
    reach = Reach.of(problem)
    least = np.where(problem.allowed, problem.times.processing_s, np.inf).min(axis=1)
    if not np.isfinite(least).all():
        return
    beside = {v: (1 << n) - 1 & ~(reach.above[v] | reach.below[v] | 1 << v) for v in longest_path(problem)}
    weight = {v: float(least[list(members_of(past))].sum()) for v, past in beside.items()}
    most = len(modules_of(graph))
    for share in SHARES:
        gone, spent, cuts = 0, 0.0, list[int]()
        for v in sorted(beside, key=lambda v: (weight[v], v)):
            more = float(least[list(members_of(beside[v] & ~gone))].sum())
            if spent + more <= share * float(least.sum()):
                gone, spent = gone | beside[v], spent + more
                cuts.append(v)
        if len(cuts) + 1 > most:
            most = len(cuts) + 1
            kept = tuple(members_of((1 << n) - 1 & ~gone))
            yield Trunk(without_rest(problem, kept, sorted(cuts)), kept, False)


def last_sink(problem: Problem) -> tuple[int, ...]:
    """Operators that the sink which can end last depends on, and itself, ascending; all when there is one sink.

    A schedule without the others is a schedule of these: their least makespan is a lower bound. A side output, which
    nothing reads, would otherwise leap over every operator behind its own. O(n + E D^2).
    """
    graph = problem.graph
    sinks = [v for v in range(len(graph)) if not graph.successors[v]]
    if len(sinks) == 1:
        return tuple(range(len(graph)))
    end = heads(arrays_of(problem).network)[1].min(axis=1)
    above, todo = set[int](), [max(sinks, key=lambda v: (end[v], v))]
    while todo:
        v = todo.pop()
        if v not in above:
            above.add(v)
            todo += graph.predecessors[v]
    return tuple(sorted(above))


def without_rest(problem: Problem, kept: Sequence[int], cuts: Sequence[int] = ()) -> Problem:
    """Make the problem of some operators, the others, what they read, and what leads past a cut taken away."""
    graph = problem.graph
    if len(kept) == len(graph) and not cuts:
        return problem
    local = {v: k for k, v in enumerate(kept)}
    # A tensor's way ends with the first cut behind its producer.
    end = [next((c for c in cuts if c > v), len(graph)) for v in range(len(graph))]
    tensors = [u for u, t in enumerate(graph.tensors) if t.producer in local]
    rows = list(kept)
    sub = OperatorGraph(
        [graph.operators[v] for v in kept],
        [
            replace(
                t,
                producer=local[t.producer],
                readers=tuple(local[v] for v in t.readers if v in local and v <= end[t.producer]),
            )
            for t in (graph.tensors[u] for u in tensors)
        ],
        [[local[v] for v in members if v in local] for members in graph.colocation],
        graph.name,
    )
    transfer = None if problem.times.transfer_s is None else problem.times.transfer_s[tensors]
    on = np.where(problem.allowed, problem.times.processing_s, np.inf)[rows]
    times = Times(on, transfer, problem.times.source, problem.cut_s[rows])
    return Problem(sub, problem.cluster, times, problem.objective)


def completed(problem: Problem, trunk: Trunk, plan: Plan | None) -> Plan | None:
    """Place what is not in the trunk: with what reads it, with what it reads, or on one device, whichever is best.

    Members of a class go where one of them is.
    """
    if plan is None or trunk.whole:
        return plan
    graph, n = problem.graph, len(problem.graph)
    rows = list(trunk.kept)
    given = np.full(n, -1, dtype=np.int32)
    given[rows] = plan.device_of
    at = np.full(n, np.inf)
    at[rows] = plan.schedule.start_s
    for v in range(n - 1, -1, -1):  # what is left out comes as late as its readers let it
        if given[v] < 0:
            at[v] = min((at[w] for w in graph.successors[v]), default=np.inf)
    for v in range(n):
        at[v] = max([at[v], *(at[u] for u in graph.predecessors[v])])
    order = np.lexsort((np.arange(n), at)).astype(np.int32)
    for members in graph.colocation:
        homes = [int(given[v]) for v in members if given[v] >= 0]
        given[list(members)] = homes[0] if homes else -1
    best: Plan | None = None
    for target in range(-2, len(problem.cluster)):
        device = given.copy()
        missing = np.flatnonzero(device < 0).tolist()
        for v in reversed(missing) if target == -2 else missing:
            if device[v] >= 0:
                continue
            near = graph.successors[v] if target == -2 else graph.predecessors[v]
            wanted = target if target >= 0 else next((int(device[w]) for w in near if device[w] >= 0), -1)
            here = wanted if wanted >= 0 and problem.allowed[v, wanted] else int(problem.allowed[v].argmax())
            device[v] = here
            for members in graph.colocation:
                if v in members:
                    device[list(members)] = here
        made = plan_for(problem, device, order=order, provenance=plan.provenance)
        if made is not None and (best is None or made.value_s < best.value_s):
            best = made
        if not missing:
            break
    return best
