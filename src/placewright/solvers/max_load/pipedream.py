"""PipeDream's way: no stage parts what branches, then the best cut of what is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.loads import loads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.max_load.blocks import Blocks, blocks_of
from placewright.solvers.max_load.chain import (
    NEGLIGIBLE_S,
    coarser,
    cut_along,
    depth_first_order,
    too_many_states,
    without_leaves,
)

__all__ = ["PipeDream"]

MANY_READERS = 3
"""Readers of an operator that only hands on what it is given, from which on its edges make no branches."""


@dataclass(frozen=True, slots=True)
class PipeDream:
    """Contract every branching of the network, order what is left depth-first, and cut it into stages in the best way.

    PipeDream (Narayanan et al., SOSP 2019, arXiv 1806.03377, work partitioning) plans for networks that are paths of
    layers: stages, replicas of stages, and an exact dynamic program over both. Arxiv 2006.16423 makes it a baseline for
    branching networks in its evaluation of throughput: of each biconnected component of the network, backward operators
    included, what its edges leave is united; where the branches join, the next piece starts. As there, edges out of
    operators that PipeDream itself would leave out don't count: those that take no time and have no input, or one and
    at least three readers. The plan is contiguous whatever the objective asks for. With ``replicate`` stages are
    replicated, as PipeDream does.

    Where it differs from the published program: which operators are left out follows from the rule above, where the
    program has lists of ids for two networks. That for the training of BERT-24 is compared with ids after these have
    been changed, so it hits others; the rule's value is better (41.7 against 187.9 ms). Pieces that become ready
    together go by their time, least first, where the program's order comes from its hash table. PipeDream's devices are
    alike; here the cut knows classes of them, memory, overlap and passes that count apart.

    Guarantee: exact along the order of the pieces; none beyond, and where all work is in one piece it is no better than
    one device.
    Complexity: O(E) for the components, then O(pieces^2 (degree + classes x states)), states being the ways to have
    used some devices of each class.
    Source: PipeDream (Narayanan et al., SOSP 2019, arXiv 1806.03377) as a baseline of arXiv 2006.16423.
    When to use: to compare with PipeDream.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, MaxLoad, Operator, OperatorGraph, Tensor
    >>> tensors = [Tensor("x", 0, (1, 2)), Tensor("y", 1, (3,)), Tensor("z", 2, (3,))]
    >>> graph = OperatorGraph([Operator(n) for n in "abcd"], tensors)
    >>> three = Cluster([Device(f"g{i}") for i in range(3)], [Link(0.0, 8.0, link_class="same-host")])
    >>> problem = Problem(graph, three, [[1.0] * 3] * 4, MaxLoad())
    >>> PipeDream()(problem, budget=Budget(), rng=np.random.default_rng(0)).value_s  # a, b and c; then d
    3.0
    """

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach."""
        return too_many_states(problem)

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Cut the order; nothing is random. Without a plan when the budget is spent before the cut is known."""
        begun = budget.elapsed_s
        blocks = blocks_of(problem)
        blocks = without_leaves(problem, coarser(blocks, _contracted(problem, blocks)))
        time_s = _time_s(problem, blocks)
        order = depth_first_order(blocks.n_blocks, blocks.edges, lambda b: time_s[b])
        found = cut_along(problem, blocks, order, Provenance("pipedream"), budget)
        return replace(found, runtime_s=budget.elapsed_s - begun)


def _contracted(problem: Problem, blocks: Blocks) -> list[int]:
    """Group of each block: those united that the edges of one biconnected component leave."""
    import rustworkx

    edges = _edges(problem)
    quiet = _left_out(problem, edges)
    kept = [e for e in edges if e[0] not in quiet]
    graph: rustworkx.PyGraph[int, None] = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(2 * loads_of(problem).n_units))
    graph.add_edges_from_no_data(sorted({(min(e), max(e)) for e in kept}))
    component = {(min(e), max(e)): k for e, k in rustworkx.biconnected_components(graph).items()}
    group = list(range(blocks.n_blocks))

    def root(b: int) -> int:
        while group[b] != b:
            group[b] = b = group[group[b]]
        return b

    first: dict[int, int] = {}
    for x, y in kept:
        b = int(blocks.block_of[x // 2])
        group[root(b)] = root(first.setdefault(component[min(x, y), max(x, y)], b))
    return [root(b) for b in range(blocks.n_blocks)]


def _edges(problem: Problem) -> list[tuple[int, int]]:
    """Edges between forward (2u) and backward (2u + 1) halves of units, each once."""
    unit_of = problem.graph.unit_of
    half = [2 * unit + v.backward for unit, v in zip(unit_of, problem.graph.operators, strict=True)]
    ends = {(half[t.producer], half[v]) for t in problem.graph.tensors for v in t.readers}
    return sorted((x, y) for x, y in ends if x != y)


def _left_out(problem: Problem, edges: list[tuple[int, int]]) -> set[int]:
    """Halves whose outgoing edges make no branches: inputs, and operators that only hand on to many."""
    times = problem.times.processing_s
    busy = np.zeros(2 * loads_of(problem).n_units)
    halves = [2 * unit + v.backward for unit, v in zip(problem.graph.unit_of, problem.graph.operators, strict=True)]
    np.add.at(busy, halves, np.where(np.isfinite(times), times, 0.0).max(axis=1))
    entering, leaving = Counter(y for _, y in edges), Counter(x for x, _ in edges)
    return {
        x
        for x, readers in leaving.items()
        if busy[x] < NEGLIGIBLE_S and (not entering[x] or (entering[x] == 1 and readers >= MANY_READERS))
    }


def _time_s(problem: Problem, blocks: Blocks) -> npt.NDArray[np.float64]:
    """(B,) mean time over the accelerators that may run a block, or over the other devices where none may."""
    pays = loads_of(problem).pays[[members[0] for members in blocks.devices]]
    may = np.isfinite(blocks.total_s)
    here = may & pays
    here = np.where(here.any(axis=1, keepdims=True), here, may)
    count = here * blocks.stages.count
    total = (np.where(here, blocks.total_s, 0.0) * count).sum(axis=1)
    return np.asarray(total / np.maximum(1, count.sum(axis=1)))
