"""Random small offload problems for tests: unlike accelerators, CPU pools, memory, classes, pins, unlike links."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Offload
from placewright.problem import Problem, Times, Wish

INF = float("inf")


@st.composite
def offload_problems(
    draw: st.DrawFn,
    most_operators: int = 6,
    most_accelerators: int = 2,
    *,
    calls: int | Literal["drawn"] | None = "drawn",
    cpus: int | None = None,
    alike: bool | None = None,
    memory: bool = True,
    classes: bool = True,
    infinite_times: bool = True,
    pins: bool = True,
    uniform_links: bool = False,
    unreachable: bool = True,
    table: bool | None = None,
) -> Problem:
    """Problems of a few operators and accelerators with times that are small whole or half, so that ties happen.

    ``calls``: the limit of the objective, ``None`` for no limit, ``"drawn"``: 1, 2 or none. ``cpus``: how many CPU
    devices, by default mostly one, now and then two or none. ``alike``: whether all accelerators are, ``None`` leaves
    it to chance. A flag that is ``False`` takes a property out. ``uniform_links``: one rule for all pairs of devices;
    ``table``: transfer times are given, not computed.
    """
    n = draw(st.sampled_from([*range(1, most_operators + 1), *[most_operators] * most_operators]))
    n_cpus = draw(st.sampled_from([0, 1, 1, 1, 1, 1, 2, 2])) if cpus is None else cpus
    A = draw(st.sampled_from([1, *range(1, most_accelerators + 1), *[most_accelerators] * 2]))
    if cpus is None and draw(st.integers(0, 15)) == 15:
        n_cpus, A = max(n_cpus, 1), 0
    D = n_cpus + A
    graph = _graph(draw, n, classes)
    held = sum(v.resident_bytes for v in graph.operators)
    devices, time_s = _devices(draw, n, n_cpus, A, alike, held if memory else 0, infinite_times)
    if draw(st.integers(0, 3)) == 0:  # CPUs are not always named first
        order = draw(st.permutations(range(D)))
        devices, time_s = [devices[i] for i in order], time_s[:, order]
    cluster = Cluster(devices, _links(draw, devices, uniform_links, unreachable))
    if not uniform_links and D > 1 and draw(st.booleans()):
        cluster = Cluster([replace(d, host=draw(st.sampled_from("AB"))) for d in devices], cluster.links)
    given = draw(st.integers(0, 2)) == 0 if table is None else table
    transfer_s = _table(draw, len(graph.tensors), D, uniform_links, unreachable) if given else None
    wishes = []
    if pins and draw(st.integers(0, 3)) == 0:
        v, i = draw(st.integers(0, n - 1)), draw(st.integers(0, D - 1))
        wishes.append(Wish(f"v{v}", devices[i].name, forbid=draw(st.booleans())))
    most = draw(st.sampled_from([1, 2, None])) if calls == "drawn" else calls
    return Problem(graph, cluster, Times(time_s, transfer_s), Offload(most), wishes)


def _graph(draw: st.DrawFn, n: int, classes: bool) -> OperatorGraph:
    """Loose graphs, chains with bypasses, and fans that close again."""
    operators = [
        Operator(f"v{v}", weight_bytes=draw(st.integers(0, 3)), kv_cache_bytes=draw(st.sampled_from([0, 0, 0, 1])))
        for v in range(n)
    ]
    most_bytes, chained = draw(st.sampled_from([1, 4, 4, 12])), draw(st.booleans())
    most_copies, most_readers = draw(st.sampled_from([(1, 1), (1, 2), (2, 3)]))
    tensors = []
    for v in range(n - 1):
        for copy in range(draw(st.sampled_from([0, 1, 1, 1, most_copies]))):
            readers = draw(st.sets(st.integers(v + 1, min(n - 1, v + 4)), min_size=1, max_size=most_readers))
            if chained and copy == 0:
                readers.add(v + 1)
            size, output = draw(st.integers(0, most_bytes)), draw(st.booleans())
            tensors.append(Tensor(f"t{v}.{copy}", v, tuple(sorted(readers)), size, output=output))
        if draw(st.integers(0, 7)) == 7:
            tensors.append(Tensor(f"t{v}.out", v, (), 3, output=True))
    together: list[tuple[int, ...]] = []
    while classes and n >= 2 and len(together) < 2 and draw(st.integers(0, 2)) == 0:
        together.append(tuple(draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=3, unique=True))))
    return OperatorGraph(operators, tensors, together)


def _devices(
    draw: st.DrawFn, n: int, n_cpus: int, A: int, alike: bool | None, held: int, infinite_times: bool
) -> tuple[list[Device], np.ndarray]:
    """CPUs, of which each has its own times and mostly no limit, and accelerators of up to A types, often faster."""
    types = draw(st.integers(1, max(A, 1))) if alike is None else 1 if alike else max(A, 1)
    limited = held > 0 and draw(st.integers(0, 2)) > 0
    slowest, fast = draw(st.sampled_from([(3, 3), (6, 2), (12, 4)]))

    def seconds(most: int) -> list[float]:
        times = [float(draw(st.integers(0, most))) for _ in range(n)]
        if infinite_times:
            times = [INF if draw(st.integers(0, 11)) == 11 else s for s in times]
        return times

    models = []
    for _ in range(types):
        limit = draw(st.integers(held // (A + 1), held)) if limited and draw(st.integers(0, 4)) else None
        reserve = draw(st.integers(0, 1)) if limit else 0
        models.append((limit, reserve, seconds(fast)))
    chosen = [draw(st.integers(0, types - 1)) if alike is not False else k for k in range(A)]
    cores = [(draw(st.sampled_from([None, None, 0])), 0, seconds(slowest)) for _ in range(n_cpus)]
    rows = [*((f"c{k}", "cpu", *cores[k]) for k in range(n_cpus))]
    rows += [(f"g{k}", draw(st.sampled_from(["gpu", "gpu", "npu"])), *models[t]) for k, t in enumerate(chosen)]
    devices = [Device(name, kind, memory_bytes=limit, reserve_bytes=kept) for name, kind, limit, kept, _ in rows]
    return devices, np.array([row[4] for row in rows]).T.reshape(n, n_cpus + A)


def _links(draw: st.DrawFn, devices: list[Device], uniform: bool, unreachable: bool) -> list[Link]:
    bandwidth, latency = st.sampled_from([1.0, 2.0, 4.0, INF]), st.sampled_from([0.0, 0.0, 0.5, 1.0])
    links = [Link(draw(latency), draw(bandwidth), link_class="same-host", channel=draw(st.sampled_from(["", "bus"])))]
    if uniform:
        return links
    links.append(Link(draw(latency), draw(bandwidth), link_class="between-hosts"))
    if unreachable and draw(st.integers(0, 5)) == 0:
        links = links[:1] if draw(st.booleans()) else links[1:]
    if len(devices) > 1 and draw(st.booleans()):
        one, other = draw(st.lists(st.sampled_from([d.name for d in devices]), min_size=2, max_size=2, unique=True))
        links.append(Link(draw(latency), draw(bandwidth), "", (one, other), "", draw(st.booleans())))
    return links


def _table(draw: st.DrawFn, T: int, D: int, uniform: bool, unreachable: bool) -> np.ndarray:
    """(T, D, D) seconds: a tensor's own time everywhere, as in the published files, or by pair of devices as well."""
    table = np.zeros((T, D, D))
    own = uniform or draw(st.booleans())
    for u in range(T):
        table[u] = draw(st.integers(0, 4))
        for i in range(D):
            for j in range(D):
                if not own and i != j:
                    table[u, i, j] = draw(st.integers(0, 3))
                if i != j and unreachable and not uniform and draw(st.integers(0, 39)) == 39:
                    table[u, i, j] = INF
    return table
