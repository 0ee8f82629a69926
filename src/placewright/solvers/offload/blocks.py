"""Blocks of operators that go together along an order of the network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright.offloads import offloads_of
from placewright.problem import Problem

__all__ = ["depth_first_blocks"]


def depth_first_blocks(problem: Problem) -> list[npt.NDArray[np.int64]]:
    """Colocation units, those united that edges tie in cycles, in a depth-first topological order.

    The block that became ready last is next; of several at once the one that is read from last.
    """
    import rustworkx

    o = offloads_of(problem)
    unit_of = o.unit_of
    units = int(unit_of.max(initial=-1)) + 1
    edges = {
        (int(unit_of[t.producer]), int(unit_of[v]))
        for t in problem.graph.tensors
        for v in t.readers
        if unit_of[t.producer] != unit_of[v]
    }
    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(units))
    graph.add_edges_from_no_data(sorted(edges))
    block = np.zeros(units, dtype=np.int64)
    for b, members in enumerate(sorted(map(sorted, rustworkx.strongly_connected_components(graph)))):
        block[members] = b
    block_of = block[unit_of] if units else block
    inside = [np.flatnonzero(block_of == b) for b in range(int(block.max(initial=-1)) + 1)]
    readers = [
        [v for k in range(o.made_ptr[u], o.made_ptr[u + 1]) for v in o.reader[o.reader_ptr[k] : o.reader_ptr[k + 1]]]
        for u in range(len(block_of))
    ]
    after = [
        [b for b in dict.fromkeys(int(block_of[v]) for u in members for v in sorted(readers[u])) if b != a]
        for a, members in enumerate(inside)
    ]
    waits = [0] * len(inside)
    for b in (b for row in after for b in row):
        waits[b] += 1
    ready, order = [b for b, w in enumerate(waits) if w == 0], []
    while ready:
        b = ready.pop()
        order.append(inside[b])
        for c in after[b]:
            waits[c] -= 1
            if waits[c] == 0:
                ready.append(c)
    return order
