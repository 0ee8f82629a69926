"""Blocks in one linear order, and the best way to cut it into stages: what several published baselines end with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import numpy.typing as npt

from placewright._kernel.segment import cut
from placewright.algorithm import Budget
from placewright.loads import loads_of
from placewright.plan import Provenance
from placewright.problem import Problem
from placewright.ragged import ragged
from placewright.result import Result
from placewright.solvers.max_load.blocks import Blocks, Stage, plan_of_stages
from placewright.solvers.max_load.orders import MOST_STATES, Orders

__all__ = [
    "NEGLIGIBLE_S",
    "coarser",
    "cut_along",
    "depth_first_order",
    "last_operator",
    "too_many_states",
    "without_leaves",
]

NEGLIGIBLE_S = 1e-9
"""Operators whose times are below it take no time: a millionth of the published files' unit."""

GROWTH = 1.05, 1.25
"""First factor between two limits for the value of the cut, and the power that each further factor is of the last."""


def too_many_states(problem: Problem) -> str | None:
    """Say why a problem has too many kinds of devices for a cut of an order."""
    counts = np.bincount(loads_of(problem).device_class)
    states = int(np.prod(counts.astype(np.float64) + 1.0))
    if states > MOST_STATES:
        return f"its devices can be used in {states:,} ways, above the {MOST_STATES:,} that cutting an order can try"
    return None


def coarser(blocks: Blocks, group: npt.ArrayLike) -> Blocks:
    """Unite the blocks of each group, and the groups that lie on a cycle of order edges then."""
    import rustworkx

    given = np.unique(np.asarray(group, dtype=np.int64), return_inverse=True)[1].tolist()
    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(max(given) + 1))
    graph.add_edges_from_no_data([(given[x], given[y]) for x, y in blocks.edges if given[x] != given[y]])
    new = np.zeros(max(given) + 1, dtype=np.int32)
    # Tarjan's components come in a reverse topological order.
    components = rustworkx.strongly_connected_components(graph)
    for k, members in enumerate(reversed(components)):
        new[members] = k
    of = new[given]
    B, s = len(components), blocks.stages
    compute, banned = np.zeros((B, *s.compute.shape[1:])), np.zeros((B, s.banned.shape[1]), dtype=np.int32)
    np.add.at(compute, of, s.compute)
    np.maximum.at(banned, of, s.banned)
    rows: dict[tuple[int, int, tuple[int, ...]], npt.NDArray[np.float64]] = {}
    for u, home in enumerate(of[s.home].tolist()):
        readers = set(of[s.reader[s.reader_ptr[u] : s.reader_ptr[u + 1]]].tolist()) - {home}
        if readers:
            key = home, int(s.phase[u]), tuple(sorted(readers))
            rows[key] = rows.get(key, 0.0) + np.stack([s.send[u], s.receive[u]])
    keys = sorted(rows)
    costs = np.array([rows[k] for k in keys]).reshape(len(keys), 2, banned.shape[1])
    reader_ptr, reader = ragged([k[2] for k in keys])
    touching: list[list[int]] = [[] for _ in range(B)]
    for u, (home, _, among) in enumerate(keys):
        touching[home].append(2 * u + 1)
        for b in among:
            touching[b].append(2 * u)
    touch_ptr, touch = ragged(touching)
    stages = s._replace(
        compute=compute,
        banned=banned,
        resident=np.bincount(of, weights=s.resident, minlength=B).astype(np.float64),
        weights=np.bincount(of, weights=s.weights, minlength=B).astype(np.float64),
        home=np.array([k[0] for k in keys], dtype=np.int32),
        phase=np.array([k[1] for k in keys], dtype=np.int32),
        readers=np.diff(reader_ptr).astype(np.int32),
        reader_ptr=reader_ptr,
        reader=reader,
        touch_ptr=touch_ptr,
        touch=touch,
        send=np.ascontiguousarray(costs[:, 0]),
        receive=np.ascontiguousarray(costs[:, 1]),
    )
    total = np.where(banned == 0, compute.sum(axis=1), inf)
    edges = sorted({(int(of[x]), int(of[y])) for x, y in blocks.edges if of[x] != of[y]})
    return Blocks(of[blocks.block_of].astype(np.int32), tuple(edges), blocks.devices, stages, total)


def without_leaves(problem: Problem, blocks: Blocks) -> Blocks:
    """Merge blocks that take no time into the only neighbour that order edges give them, until there is none.

    The published shrinking: of blocks whose forward operators nothing in the backward pass reads from. One that may not
    run wherever its neighbour may is left alone.
    """
    a, B = loads_of(problem), blocks.n_blocks
    of_operator = blocks.block_of[a.unit_of]
    idle = blocks.stages.compute.max(axis=2).sum(axis=1) < NEGLIGIBLE_S
    backward = [v.backward for v in problem.graph.operators]
    for t in problem.graph.tensors:
        if not backward[t.producer] and any(backward[v] for v in t.readers):
            idle[of_operator[t.producer]] = False
    near: list[set[int]] = [set() for _ in range(B)]
    for x, y in blocks.edges:
        near[x].add(y)
        near[y].add(x)
    group, allowed = list(range(B)), blocks.stages.banned == 0
    todo = list(range(B))[::-1]
    while todo:
        x = todo.pop()
        if not idle[x] or len(near[x]) != 1 or group[x] != x:
            continue
        (y,) = near[x]
        if (allowed[x] | ~allowed[y]).all():
            group[x] = y
            near[x].clear()
            near[y].remove(x)
            todo.append(y)
    for x in range(B):
        while group[x] != group[group[x]]:
            group[x] = group[group[x]]
    return coarser(blocks, group)


def last_operator(problem: Problem, blocks: Blocks) -> npt.NDArray[np.int64]:
    """(B,) greatest index of an operator of each block."""
    of_operator = blocks.block_of[loads_of(problem).unit_of]
    last = np.full(blocks.n_blocks, -1, dtype=np.int64)
    np.maximum.at(last, of_operator, np.arange(len(of_operator)))
    return last


def depth_first_order(
    n_blocks: int, edges: Iterable[tuple[int, int]], key: Callable[[int], object] = lambda b: b
) -> list[int]:
    """Topological order that always goes on with what became ready last; of several at once with the least key.

    Examples
    --------
    >>> depth_first_order(5, [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)])
    [0, 1, 2, 3, 4]
    >>> depth_first_order(5, [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)], lambda b: -b)
    [0, 2, 3, 1, 4]
    """
    after: list[list[int]] = [[] for _ in range(n_blocks)]
    waits = [0] * n_blocks
    for x, y in edges:
        after[x].append(y)
        waits[y] += 1
    ready = sorted((b for b in range(n_blocks) if not waits[b]), key=key, reverse=True)  # type: ignore[arg-type]
    order = []
    while ready:
        b = ready.pop()
        order.append(b)
        for y in sorted(after[b], key=key, reverse=True):  # type: ignore[arg-type]
            waits[y] -= 1
            if not waits[y]:
                ready.append(y)
    return order


def cut_along(problem: Problem, blocks: Blocks, order: Sequence[int], provenance: Provenance, budget: Budget) -> Result:
    """Cut one order into stages in the best way.

    The cut is made under limits that grow until there is one below: pairs of cuts with more work in between than the
    limit are not looked at, and the budget is looked at between limits.
    """
    made = Orders(blocks, np.random.default_rng(0))
    s, t = made.stages, made.table
    sequence = np.array(order, dtype=np.int32)
    least = np.where(np.isfinite(blocks.total_s), blocks.total_s, inf).min(axis=1)
    most = float(s.compute.sum() + sum(np.where(np.isfinite(x), x, 0.0).sum() for x in (s.send, s.receive)))
    limit, step = GROWTH[0] * float(least.sum()) / max(1, int(s.count.sum())), GROWTH[0]
    value, state, rank = inf, -1, 0
    while not budget.spent:
        limit = limit if 0.0 < limit <= most else inf
        value, state, rank = cut(s, t, sequence, limit)
        if value < inf or limit == inf:
            break
        limit, step = limit * step, step ** GROWTH[1]
    stages: list[Stage] = []
    j = len(sequence) if value < inf else 0
    while j > 0:
        i, before, c, copies = (int(x) for x in t.source[j, state, rank])
        stages.append((sequence[i:j].tolist(), c, copies))
        j, rank, state = i, before, state - copies * int(s.stride[c])
    if not stages:
        return Result(solver=provenance.solver)
    shown = {**provenance.parameters, "blocks": blocks.n_blocks, "stages": len(stages)}
    plan = plan_of_stages(problem, blocks, stages[::-1], replace(provenance, parameters=shown))
    return Result(plan, solver=provenance.solver)
