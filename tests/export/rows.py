"""Random networks of modules in a row, and every split of a row, as an oracle for the splits that exporters make."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan, MaxLoad
from placewright.problem import Problem, Times

WEIGHT = 10**6


@st.composite
def rows(draw: st.DrawFn, chain: bool, objective: str | None = None, most_layers: int = 4) -> Problem:
    """Layers of one or two operators between an embedding and a head; with ``chain`` one tensor goes to the next."""
    layers = draw(st.integers(1, most_layers))
    D = draw(st.integers(1, 3))
    names = ["embed"]
    for k in range(layers):
        names += [f"h.{k}.fc"] + ([f"h.{k}.add"] if draw(st.booleans()) else [])
    names.append("head")
    n = len(names)
    eighth = st.integers(0, 40).map(lambda k: k / 8)
    tensors = []
    for u in range(n - 1):
        readers = {u + 1} if chain else {u + 1} | draw(st.sets(st.integers(u + 1, n - 1), max_size=2))
        tensors.append(Tensor(f"t{u}", u, tuple(sorted(readers)), draw(st.integers(0, 64))))
    weights = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    graph = OperatorGraph(
        [Operator(name, weight_bytes=w * WEIGHT) for name, w in zip(names, weights, strict=True)],
        tensors,
        [[0, n - 1]] if draw(st.integers(0, 3)) == 0 else [],
    )
    limits = [draw(st.integers(1, max(1, sum(weights)))) * WEIGHT + WEIGHT // 2 for _ in range(D)]
    bound = draw(st.booleans())
    devices = [
        Device(
            f"d{i}",
            kind=draw(st.sampled_from(["gpu", "gpu", "cpu"])),
            memory_bytes=limits[i] if bound else None,
            cut_overhead_s=draw(st.sampled_from([0.0, 0.25])),
        )
        for i in range(D)
    ]
    links = [Link(draw(eighth), draw(st.sampled_from([16.0, 64.0])), link_class="same-host")]
    if D > 1 and draw(st.booleans()):
        links.append(Link(draw(eighth), 32.0, between=("d0", "d1"), one_way=draw(st.booleans())))
    same = draw(st.booleans())
    times = np.array([[draw(eighth) for _ in range(D)] for _ in range(n)])
    if same and D > 1:
        times[:, 1] = times[:, 0]
    if draw(st.integers(0, 3)) == 0:
        times[draw(st.integers(0, n - 1)), draw(st.integers(0, D - 1))] = np.inf
    chosen = objective or draw(st.sampled_from(["makespan", "max-load"]))
    overlap = draw(st.sampled_from(["none", "transfers", "full"]))
    posed = (
        Makespan(draw(st.sampled_from(["none", "link", "port"]))) if chosen == "makespan" else MaxLoad(overlap=overlap)
    )
    return Problem(graph, Cluster(devices, links), Times(times), posed)


def best_row(problem: Problem, groups: list[list[int]], cpus: str = "anywhere") -> float:
    """Least value of all splits of a row among devices that each take one block or none; ``inf`` where none fits."""
    devices = [i for i, d in enumerate(problem.cluster.devices) if cpus != "nowhere" or d.kind != "cpu"]
    best = float("inf")
    for used in range(1, min(len(devices), len(groups)) + 1):
        for order in permutations(devices, used):
            if cpus == "first" and any(problem.cluster.devices[i].kind == "cpu" for i in order[1:]):
                continue
            for cuts in combinations(range(1, len(groups)), used - 1):
                ends = (0, *cuts, len(groups))
                device = np.zeros(len(problem.graph), dtype=np.int32)
                for i, low, high in zip(order, ends, ends[1:], strict=False):
                    device[[v for row in groups[low:high] for v in row]] = i
                plan = plan_for(problem, device)
                best = min(best, float("inf") if plan is None else plan.value_s)
    return best
