"""Random small max-load problems for tests: alike and unlike devices, CPUs, memory, classes, both passes, channels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem, Times, Wish

INF = float("inf")


@st.composite
def max_load_problems(
    draw: st.DrawFn,
    most_operators: int = 7,
    most_devices: int = 3,
    *,
    contiguity: str | None = None,
    contiguous_cpus: bool | None = None,
    training: str | None = None,
    overlap: str | None = None,
    replicate: bool | None = None,
    backward: bool | None = None,
    alike: bool | None = None,
    cpus: bool = True,
    memory: bool = True,
    classes: bool = True,
    infinite_times: bool = True,
    pins: bool = True,
    uniform_links: bool = False,
    channels: bool = True,
    unreachable: bool = True,
    table: bool | None = None,
) -> Problem:
    """Problems of a few operators and devices with times that are small whole numbers or halves, so that ties happen.

    ``None`` leaves an option of the objective, or a property of the problem, to chance; a flag that is ``False`` takes
    it out. ``backward``: operators of the backward pass; ``alike``: all accelerators are; ``uniform_links``: one rule
    for all pairs of devices, so that a tensor's transfer time depends on nothing else; ``table``: transfer times are
    given, not computed.
    """
    n, D = (draw(st.sampled_from([*range(1, most + 1), *[most] * most])) for most in (most_operators, most_devices))
    graph = _graph(draw, n, backward, classes)
    held = sum(v.resident_bytes for v in graph.operators)
    devices, time_s = _devices(draw, n, D, alike, cpus, held if memory else 0, infinite_times)
    cluster = Cluster(devices, _links(draw, D, uniform_links, channels, unreachable))
    if not uniform_links and D > 1 and draw(st.booleans()):
        cluster = Cluster([replace(d, host=draw(st.sampled_from("AB"))) for d in devices], cluster.links)
    transfer_s = _table(draw, len(graph.tensors), D, uniform_links, unreachable) if _or_draw(draw, table, 3) else None
    wishes = []
    if pins and draw(st.integers(0, 3)) == 0:
        v, i = draw(st.integers(0, n - 1)), draw(st.integers(0, D - 1))
        wishes.append(Wish(f"v{v}", f"d{i}", forbid=draw(st.booleans())))
    # Over no link, or over one of infinite bandwidth beside a table, replicas need a bandwidth of their own.
    endless = transfer_s is not None and any(link.bandwidth_bytes_per_s == INF for link in cluster.links)
    endless |= bool(((cluster.rule_of < 0) & ~np.eye(D, dtype=bool)).any())
    objective = MaxLoad(
        contiguity or draw(st.sampled_from(["contiguous", "convex", "any"])),  # type: ignore[arg-type]
        _or_draw(draw, contiguous_cpus),
        training or draw(st.sampled_from(["sum", "separate"])),  # type: ignore[arg-type]
        overlap or draw(st.sampled_from(["none", "none", "transfers", "full"])),  # type: ignore[arg-type]
        _or_draw(draw, replicate),
        draw(st.sampled_from([1, 2, 8])),
        2.0 if endless else draw(st.sampled_from([None, 2.0])),
    )
    if objective.overlap != "none":
        objective = replace(objective, busy_share=draw(st.sampled_from([0.0, 0.3, 0.3, 1.0])))
    return Problem(graph, cluster, Times(time_s, transfer_s), objective, wishes)


def _or_draw(draw: st.DrawFn, given: bool | None, one_in: int = 2) -> bool:
    return draw(st.integers(0, one_in - 1)) == one_in - 1 if given is None else given


def _graph(draw: st.DrawFn, n: int, backward: bool | None, classes: bool) -> OperatorGraph:
    """Forward operators, then backward ones: each with a forward mate in its class, with one of its pass, or alone."""
    n_backward = draw(st.integers(0 if backward is None else 1, n // 2)) if backward is not False and n > 1 else 0
    n_forward = n - n_backward
    operators = [
        Operator(
            f"v{v}",
            weight_bytes=draw(st.integers(0, 3)),
            kv_cache_bytes=draw(st.sampled_from([0, 0, 0, 1])),
            backward=v >= n_forward,
        )
        for v in range(n)
    ]
    tensors = []
    most_bytes = draw(st.sampled_from([1, 4, 4, 12]))
    most_copies, most_readers = draw(st.sampled_from([(1, 1), (1, 2), (2, 3)]))
    for v in range(n - 1):
        for copy in range(draw(st.sampled_from([0, 1, 1, most_copies]))):
            readers = draw(st.sets(st.integers(v + 1, min(n - 1, v + 4)), min_size=1, max_size=most_readers))
            size, output = draw(st.integers(0, most_bytes)), draw(st.booleans())
            tensors.append(Tensor(f"t{v}.{copy}", v, tuple(sorted(readers)), size, output=output))
    together = []
    if classes:
        for v in range(n_forward, n):
            mate = draw(st.integers(-2, n_forward - 1))
            if mate >= 0:
                together.append((mate, v))
            elif mate == -2 and v > n_forward:
                together.append((v - 1, v))
        if n >= 3 and draw(st.integers(0, 2)) == 0:
            together.append(tuple(draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=3, unique=True))))
    return OperatorGraph(operators, tensors, together)


def _devices(
    draw: st.DrawFn, n: int, D: int, alike: bool | None, cpus: bool, held: int, infinite_times: bool
) -> tuple[list[Device], np.ndarray]:
    """Devices of up to D types; those of one type have the same kind, memory and times."""
    most_types = draw(st.integers(1, D)) if alike is None else 1 if alike else D
    n_cpus = draw(st.integers(0, D // 2)) if cpus else 0
    limited, types = held > 0 and draw(st.booleans()), []
    slowest = draw(st.sampled_from([3, 6, 12]))
    # Now and then every operator has a type that suits it far better, so that the best placement jumps to and fro.
    suits = draw(st.lists(st.integers(0, most_types), min_size=n, max_size=n)) if draw(st.integers(0, 2)) == 0 else []
    for k in range(most_types + 1):
        kind = "cpu" if k == most_types else "gpu"
        limit = draw(st.integers(held // D, held)) if limited and (kind == "gpu" or draw(st.booleans())) else None
        seconds = [float(draw(st.integers(0, slowest))) for _ in range(n)]
        if suits:
            seconds = [1.0 + s % 3 + 10 * (suits[v] != k) for v, s in enumerate(seconds)]
        if infinite_times and most_types > 1:
            seconds = [INF if draw(st.integers(0, 11)) == 11 else s for s in seconds]
        types.append((kind, limit, seconds))
    chosen = [draw(st.integers(0, most_types - 1)) if alike is not False else k for k in range(D - n_cpus)]
    chosen += [most_types] * n_cpus
    devices = [Device(f"d{i}", types[k][0], memory_bytes=types[k][1]) for i, k in enumerate(chosen)]
    return devices, np.array([types[k][2] for k in chosen]).T.reshape(n, D)


def _links(draw: st.DrawFn, D: int, uniform: bool, channels: bool, unreachable: bool) -> list[Link]:
    bandwidth, latency = st.sampled_from([1.0, 2.0, 4.0, INF]), st.sampled_from([0.0, 0.0, 0.5, 1.0])

    def channel(name: str) -> str:
        return name if channels and draw(st.integers(0, 2)) == 0 else ""

    links = [Link(draw(latency), draw(bandwidth), link_class="same-host", channel=channel("bus"))]
    if uniform:
        return links
    links.append(Link(draw(latency), draw(bandwidth), link_class="between-hosts", channel=channel("nic")))
    if unreachable and draw(st.integers(0, 5)) == 0:
        links = links[:1] if draw(st.booleans()) else links[1:]
    if D > 1 and draw(st.booleans()):
        pair = draw(st.lists(st.integers(0, D - 1), min_size=2, max_size=2, unique=True))
        between = (f"d{pair[0]}", f"d{pair[1]}")
        links.append(Link(draw(latency), draw(bandwidth), "", between, channel("wire"), draw(st.booleans())))
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
