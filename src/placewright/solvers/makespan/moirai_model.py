"""Moirai's mixed-integer program (arXiv 2312.04025, and its released program), in units of time.

Columns: x[k, i], whether unit k is on device i; the start S[v] of operator v; for each *leg* q, a tensor's way to its
reader or to one device, a start S[q] and w[q, i, j], whether it goes from i to j; d, one for each two tasks that must
not overlap, whether the first comes first; the makespan. With the finish C = S + the time that x or w picks:

    sum over i of x[k, i] = 1
    sum over k of bytes[k] x[k, i] <= memory[i]
    S[q] >= C[maker of q],   S[reader of q] >= C[q]
    S[v] >= C[u] - M d - M (2 - x[v, i] - x[u, i])      S[u] >= C[v] - M (1 - d) - M (2 - x[v, i] - x[u, i])
    w[q, i, j] >= x[maker, i] + x[reader, j] - 1        i != j
    S[q] >= C[r] - M d - M (2 - a[q, e] - a[r, e])      S[r] >= C[q] - M (1 - d) - M (2 - a[q, e] - a[r, e])
    makespan >= C[v]

for each device i and each e that one transfer at a time may use: a port, link or channel; a[q, e] is the sum of the
w[q, i, j] that use it, which says for ports what the published rows say with x. Pairs that precedence orders have no d.

What the published program has not: a tensor with several readers has a leg for each device, which its readers there
wait for (with one reader an edge, as published, the leg is the edge's); units, devices and links that are ruled out;
costs of cuts; contention other than ``port``. What is written otherwise: one d a pair in place of two; M is no constant
of 100,000, but the time between the latest end of one task and the earliest start of the other, under the incumbent's
value as the horizon; two rows that w obeys (a leg leaves i if its maker is there and its reader is not, and the other
way round), the rows *makespan >= C[v] + what must follow*, and the load of each device strengthen the relaxation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.path import heads, tails
from placewright.arrays import Arrays, arrays_of
from placewright.problem import Problem
from placewright.rounding import RELATIVE_SLACK
from placewright.solvers.makespan.moirai_program import Leg, MoiraiProgram, Task, Terms

__all__ = ["build", "rows_of"]

WIDER = 1.0 + 1e-9
"""By this the horizon is longer than the incumbent, so that it stays a solution."""

Floats = npt.NDArray[np.float64]


def rows_of(problem: Problem) -> int:
    """Return at least as many as the program has rows that keep tasks apart."""
    n, D, T = len(problem.graph), len(problem.cluster), 0
    for t in problem.graph.tensors:
        T += len(t.readers) if len(t.readers) < 2 else D
    resources = arrays_of(problem).network.n_resources
    return n * n * D + T * T * min(resources, 2 * D)


def build(problem: Problem, horizon_s: float, units: float) -> MoiraiProgram:
    """Make the program of all schedules of at most ``horizon_s`` seconds, which count ``units``."""
    a = arrays_of(problem)
    program = MoiraiProgram(problem, max(horizon_s, 1e-300) / units)
    most = units * WIDER
    g = a.network
    p = np.minimum(np.where(np.isfinite(g.processing), g.processing, 0.0) / program.scale_s, 2.0 * most)
    (ready, done), (tail, after) = heads(g), tails(g)
    less = (1.0 - RELATIVE_SLACK) / program.scale_s
    for row in a.allowed:
        program.x.append({int(i): program.choice() for i in np.flatnonzero(row)})
        program.rows.append(([(c, 1.0) for c in program.x[-1].values()], 1.0, 1.0))
    _memory(program, a)
    cut = np.minimum(g.cut / program.scale_s, 2.0 * most)
    for v, k in enumerate(a.unit_of.tolist()):
        here = list(program.x[k])
        low = min(most, float(ready[v, here].min()) * less)
        # Within the horizon its processing and all that must follow take place.
        high = most - min(most, float(after[v, here].min()) * less)
        begins_by = most - min(most, float((g.processing + tail)[v, here].min()) * less)
        time = [(program.x[k][i], float(p[v, i])) for i in here if p[v, i] > 0.0]
        program.operators.append(Task(program.moment(low, begins_by), time, low, high))
    if g.cut.any():
        _cuts(program, a, cut)
    program.peak = program.moment(0.0, most)
    for v, k in enumerate(a.unit_of.tolist()):
        task = program.operators[v]
        follows = [(c, -min(float(after[v, i]) * less, 2.0 * most)) for i, c in program.x[k].items() if after[v, i] > 0]
        row = [(program.peak, 1.0), (task.start, -1.0), *((c, -s) for c, s in task.time), *follows]
        program.at_least(row, 0.0)
    for i in range(len(problem.cluster)):
        _load(program, a, p, ready * less, tail * less, i)
    _legs(program, a, done * less, most)
    _apart(program, a)
    return program


def _memory(program: MoiraiProgram, a: Arrays) -> None:
    for i in np.flatnonzero(np.isfinite(a.capacity)).tolist():
        held = [(row[i], float(a.resident[k])) for k, row in enumerate(program.x) if i in row and a.resident[k] > 0]
        if sum(size for _, size in held) > a.capacity[i]:
            # In shares of the capacity: the solver's tolerance is absolute, and bytes are many.
            unit = max(1.0, float(a.capacity[i]))
            program.rows.append(([(c, size / unit) for c, size in held], -np.inf, float(a.capacity[i]) / unit))


def _cuts(program: MoiraiProgram, a: Arrays, cut: Floats) -> None:
    """Add to the time of an operator what it loses where it reads from, and is read, elsewhere."""
    graph = program.problem.graph
    for v, k in enumerate(a.unit_of.tolist()):
        if not cut[v].any():
            continue
        for others in (graph.predecessors[v], graph.successors[v]):
            crossing: list[tuple[Terms, float]] = []
            for m in sorted({int(a.unit_of[u]) for u in others} - {k}):
                for i, here in program.x[k].items():
                    crossing.append(([(here, 1.0), *([(program.x[m][i], -1.0)] if i in program.x[m] else [])], 0.0))
            if not crossing:
                continue
            elsewhere = program.largest_of(crossing)
            for i, here in program.x[k].items():
                if cut[v, i] > 0.0:
                    both = program.largest_of([([(here, 1.0), (elsewhere, 1.0)], -1.0)])
                    program.operators[v].time.append((both, float(cut[v, i])))


def _load(program: MoiraiProgram, a: Arrays, p: Floats, ready: Floats, tail: Floats, i: int) -> None:
    """Put the processing on a device between the earliest start and the shortest rest of what may run there."""
    here = [v for v, k in enumerate(a.unit_of.tolist()) if i in program.x[k]]
    if not here:
        return
    first, last = (min(float(s[v, list(program.x[a.unit_of[v]])].min()) for v in here) for s in (ready, tail))
    if not np.isfinite(first + last):
        return
    row = [(program.x[a.unit_of[v]][i], -float(p[v, i])) for v in here if p[v, i] > 0]
    program.at_least([(program.peak, 1.0), *row], first + last)


def _legs(program: MoiraiProgram, a: Arrays, done: Floats, most: float) -> None:
    """Precedence along every tensor: through a leg where it may cross."""
    problem, operators = program.problem, program.operators
    for u, tensor in enumerate(problem.graph.tensors):
        maker = operators[tensor.producer]
        k = int(a.unit_of[tensor.producer])
        apart = [v for v in tensor.readers if a.unit_of[v] != k]
        low = min(most, float(done[tensor.producer, list(program.x[k])].min()))
        lone = len({int(a.unit_of[v]) for v in apart}) == 1
        for v in tensor.readers:
            if v not in apart or not lone:
                program.after(operators[v], maker)
        if not apart:
            continue
        for j in [-1] if lone else range(len(problem.cluster)):
            readers = [v for v in apart if j < 0 or j in program.x[a.unit_of[v]]]
            if not readers:
                continue
            high = max(low, max(program.high[operators[v].start] for v in readers))
            leg = Leg(program.moment(low, high), [], low, high, u, j, readers, {})
            if not _ways(program, a, leg, k, most):
                continue
            program.legs.append(leg)
            program.after(leg, maker)
            for v in readers:
                if j < 0:
                    program.after(operators[v], leg)
                else:
                    much = max(0.0, high - program.low[operators[v].start])
                    program.after(operators[v], leg, (program.x[a.unit_of[v]][j], -much), constant=-much)


def _ways(program: MoiraiProgram, a: Arrays, leg: Leg, k: int, most: float) -> bool:
    """Give a leg its ways and times; False where it never crosses."""
    problem, g = program.problem, a.network
    home = program.x[k]
    units = sorted({int(a.unit_of[v]) for v in leg.readers})
    need: dict[int, int] = dict(program.x[units[0]])
    if leg.target >= 0:
        literals = [program.x[m][leg.target] for m in units]
        one = literals[0] if len(literals) == 1 else program.largest_of([([(c, 1.0)], 0.0) for c in literals])
        need = {leg.target: one}
    ways: dict[tuple[int, int], int] = {}
    for i, here in home.items():
        for j, there in need.items():
            if i == j:
                continue
            seconds = problem.transfer_s(leg.tensor, i, j)
            if not np.isfinite(seconds):
                program.rows.append(([(here, 1.0), (there, 1.0)], -np.inf, 1.0))
                continue
            ways[i, j] = way = program.largest_of([([(here, 1.0), (there, 1.0)], -1.0)])
            if seconds > 0.0:
                leg.time.append((way, min(seconds / program.scale_s, 2.0 * most)))
                for e in sorted({int(r) for r in g.resources[i, j] if r >= 0}):
                    leg.uses.setdefault(e, []).append(way)
    for j, there in need.items():
        into = [(way, 1.0) for (_, t), way in ways.items() if t == j]
        program.at_least([*into, (there, -1.0), *([(home[j], 1.0)] if j in home else [])], 0.0)
    if leg.target < 0:
        for i, here in home.items():
            out = [(way, 1.0) for (s, _), way in ways.items() if s == i]
            program.at_least([*out, (here, -1.0), *([(need[i], 1.0)] if i in need else [])], 0.0)
    return bool(ways)


def _apart(program: MoiraiProgram, a: Arrays) -> None:
    """Keep operators on one device, and legs on one port, link or channel, from overlapping."""
    n = len(program.operators)
    reach = _reach(program.problem)
    for v in range(n):
        k = int(a.unit_of[v])
        for u in range(v + 1, n):
            m = int(a.unit_of[u])
            common = [i for i in program.x[k] if i in program.x[m]]
            if reach[v, u] or not common:
                continue
            both = [[(program.x[k][i], 1.0), (program.x[m][i], 1.0)] for i in common] if k != m else [[]]
            _either(program, program.operators[v], program.operators[u], both, k == m)
    makers = [program.problem.graph.tensors[q.tensor].producer for q in program.legs]
    for b, r in enumerate(program.legs):
        for c, q in enumerate(program.legs[:b]):
            shared = [e for e in q.uses if e in r.uses]
            if not shared or all(reach[v, makers[b]] for v in q.readers) or all(reach[v, makers[c]] for v in r.readers):
                continue
            _either(program, q, r, [[(w, 1.0) for w in (*q.uses[e], *r.uses[e])] for e in shared], False)


def _either(program: MoiraiProgram, first: Task, second: Task, both: list[Terms], always: bool) -> None:
    """Let one of two tasks end before the other starts where, of some pair of terms, both hold."""
    d = program.choice()
    program.pairs.append((d, first, second))
    for later, earlier, is_one in ((first, second, False), (second, first, True)):
        much = max(0.0, earlier.high - later.low)
        if much == 0.0:
            continue
        order = (d, -much) if is_one else (d, much)
        for terms in both:
            # later >= end of earlier - much (d or 1 - d) - much (2 - both)
            constant = -much * ((1.0 if is_one else 0.0) + (0.0 if always else 2.0))
            program.after(later, earlier, order, *((k, -much * c) for k, c in terms), constant=constant)


def _reach(problem: Problem) -> npt.NDArray[np.bool_]:
    """(n, n) whether a path leads from row to column; True on the diagonal."""
    n = len(problem.graph)
    reach = np.eye(n, dtype=np.bool_)
    for v in range(n - 1, -1, -1):
        for x in problem.graph.successors[v]:
            reach[v] |= reach[x]
    return reach
