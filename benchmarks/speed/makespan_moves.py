"""How many moves a second: every candidate scheduled in full against timing only what a move reaches, side by side.

Both anneal the same layered random graphs from the same placement at the mean of the temperatures of a cycle, with the
same kinds of moves; they take turns, so that a busy machine slows both. Run as
``python -m benchmarks.speed.makespan_moves [DEVICES [SIZE ...]]``.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import placewright as pw
from placewright._kernel.anneal import State, anneal, cost_of
from placewright._kernel.makespan_search import KINDS, kept_cost, search_schedules, search_state
from placewright._kernel.path import tails
from placewright._kernel.schedule import workspace
from placewright._kernel.standing import standing
from placewright._kernel.standing_kept import rebuild
from placewright._kernel.warm import warm_up
from placewright.arrays import arrays_of
from placewright.solvers.makespan.start import limits_of

WIDTH = 8
SECONDS = 3.0
TURNS = 6
TEMPERATURE = 0.03
"""Relative to the mean time of an operator."""
SHARED_MOVES = {"order": 0.3, "unit": 0.25, "neighbour": 0.2, "block": 0.25}


def layered(n: int, devices: int, seed: int = 0) -> pw.Problem:
    """Random graph in layers of 8 operators that read from the two layers above, on unlike devices."""
    rng = np.random.default_rng(seed)
    readers: list[set[int]] = [set() for _ in range(n)]
    for v in range(WIDTH, n):
        layer = v // WIDTH * WIDTH
        for x in rng.integers(max(0, layer - 2 * WIDTH), layer, 2):
            readers[int(x)].add(v)
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{v}") for v in range(n)],
        [pw.Tensor(f"t{v}", v, tuple(sorted(r)), 1_000_000) for v, r in enumerate(readers) if r],
    )
    cluster = pw.Cluster([pw.Device(f"d{i}") for i in range(devices)], [pw.Link(1e-5, 1e10, link_class="same-host")])
    base = rng.uniform(1e-4, 1e-3, (n, 1)) * rng.uniform(0.5, 2.0, (1, devices))
    return pw.Problem(graph, cluster, base * rng.uniform(0.8, 1.25, (n, devices)))


def measure(problem: pw.Problem) -> tuple[float, float]:
    """Count moves a second, in full and where they reach."""
    a = arrays_of(problem)
    g, n, limits = a.network, len(problem.graph), limits_of(a)
    low = tails(g)[1].min(axis=1)
    order = np.arange(n, dtype=np.int32)
    device = np.random.default_rng(1).integers(0, len(problem.cluster), n).astype(np.int32)
    c = standing(g, device, order, np.zeros(len(g.producer), dtype=np.bool_))
    rebuild(g, c, a.unit_of, a.resident)
    s = search_state(g, c, len(a.resident))
    kept_cost(g, limits, c, s)
    weights = np.array([SHARED_MOVES.get(kind, 0.0) for kind in KINDS])
    critical = np.flatnonzero(c.finish + c.tail >= c.ended.max() * (1.0 - 1e-9)).astype(np.int32)
    w = workspace(g)
    state = State(device.copy(), order.copy(), order.copy(), device.copy(), order.copy(), np.full(2, np.inf))
    state.value[:] = cost_of(g, limits, state.device, state.order, True, low, np.inf, w)[0]
    heat = float(c.span.mean()) * TEMPERATURE
    rngs = np.random.default_rng(2), np.random.default_rng(2)
    count = max(20, min(2_000, 2_000_000 // n))
    done, spent = [0, 0], [0.0, 0.0]
    # What both have in common is a schedule that is no longer random.
    search_schedules(g, limits, c, s, weights, critical, low, 0.0, heat, heat, 20 * min(n, 5_000), rngs[1])
    state.device[:], state.order[:], state.position[:] = c.device, c.order, c.position
    state.value[0] = cost_of(g, limits, state.device, state.order, True, low, np.inf, w)[0]
    for turn in range(2 * TURNS):
        begun = time.perf_counter()
        while time.perf_counter() - begun < SECONDS / TURNS:
            if turn % 2:
                search_schedules(g, limits, c, s, weights, critical, low, 0.0, heat, heat, count, rngs[1])
            else:
                anneal(g, limits, state, heat, heat, count, True, low, w, rngs[0])
            done[turn % 2] += count
        spent[turn % 2] += time.perf_counter() - begun
    return done[0] / spent[0], done[1] / spent[1]


def main() -> None:
    """Print a row a size."""
    devices = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    sizes = [int(n) for n in sys.argv[2:]] or [100, 1_000, 10_000, 100_000]
    warm_up("makespan")
    print("| operators | devices | in full, moves/s | where they reach, moves/s | ratio |")
    print("|---|---|---|---|---|")
    for n in sizes:
        full, reached = measure(layered(n, devices))
        print(f"| {n:,} | {devices} | {full:,.0f} | {reached:,.0f} | {reached / full:.1f} |", flush=True)


if __name__ == "__main__":
    main()
