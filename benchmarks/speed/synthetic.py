"""Synthetic networks of any size, and a cluster of 64 unlike devices to place them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

import placewright as pw

__all__ = ["FAMILIES", "problem_of", "repeated"]

Rng = np.random.Generator
Wiring = list[tuple[int, list[int]]]
"""One a tensor: the operator that makes it and those that read it."""

KINDS = ("conv", "linear", "attention", "norm", "add", "activation")
SPEED = {"a": 1.0, "b": 0.55, "c": 0.3, "d": 0.12}
"""Of the four models of devices, relative to the fastest."""
HOSTS, PER_HOST = 8, 8
MB = 10**6


def layered(n: int, rng: Rng) -> Wiring:
    """As many layers as a layer has operators; each reads one to three of the two layers before."""
    layer = np.sort(rng.integers(0, max(1, round(n**0.5)), n))
    begin = np.searchsorted(layer, layer - 2)
    end = np.searchsorted(layer, layer)
    readers: list[list[int]] = [[] for _ in range(n)]
    for v in range(n):
        if end[v] > 0:
            for u in sorted(set(rng.integers(begin[v], end[v], rng.integers(1, 4)).tolist())):
                readers[u].append(v)
    return [(u, row) for u, row in enumerate(readers) if row]


BLOCK = ((), (0,), (0,), (0,), (1, 2), (4,), (5, 3), (6,), (7,), (8,), (8,), (9, 10), (11,), (12,))
"""What each operator of a transformer's block reads of the block; the first and the eighth read what came before it."""


def blocks(n: int, rng: Rng) -> Wiring:
    """Eight towers of transformer blocks, joined after every 24 blocks; a mask is read by all attentions."""
    readers: list[list[int]] = [[] for _ in range(n)]
    towers = min(8, max(1, n // 200))
    tail = [0] * towers
    v, depth = 1, 0
    while v < n:
        for tower in range(towers):
            before = tail[tower]
            for k, reads in enumerate(BLOCK):
                if v + k >= n:
                    break
                for r in (*(v + x for x in reads), *((before,) if k in (0, 7) else ()), *((0,) if k == 4 else ())):
                    if v + k not in readers[r]:
                        readers[r].append(v + k)
            tail[tower] = min(n - 1, v + len(BLOCK) - 1)
            v += len(BLOCK)
        depth += 1
        if depth % 24 == 0 and v < n:
            for before in sorted(set(tail)):
                readers[before].append(v)
            tail = [v] * towers
            v += 1
    return [(u, sorted(row)) for u, row in enumerate(readers) if row]


def wired(n: int, rng: Rng) -> Wiring:
    """Stages of 32 operators, each wired as a small world (Watts and Strogatz), three quarters of its edges rewired."""
    readers: list[set[int]] = [set() for _ in range(n)]
    size = 32
    for first in range(0, n, size):
        stage = range(first, min(n, first + size))
        for a in stage:
            for step in (1, 2):
                b = first + (a - first + step) % len(stage)
                if rng.random() < 0.75:
                    b = int(rng.integers(stage.start, stage.stop))
                if a != b:
                    readers[min(a, b)].add(max(a, b))
        fed = {b for a in stage for b in readers[a]}
        for b in stage:
            if first and b not in fed:
                readers[int(rng.integers(first - size, first))].add(b)
    return [(u, sorted(row)) for u, row in enumerate(readers) if row]


FAMILIES: Mapping[str, Callable[[int, Rng], Wiring]] = {"layered": layered, "blocks": blocks, "wired": wired}
"""Name -> wiring of n operators."""


def cluster_of() -> pw.Cluster:
    """Make eight hosts of eight devices, two of each of four models; 12 GB/s in a host, 3 GB/s and a NIC between."""
    models = [model for model in SPEED for _ in range(PER_HOST // len(SPEED))]
    devices = [
        pw.Device(f"h{host}.{model}{k}", model=model, host=f"h{host}", memory_bytes=16 * 10**9)
        for host in range(HOSTS)
        for k, model in enumerate(models)
    ]
    links = [
        pw.Link(10e-6, 12e9, link_class="same-host"),
        pw.Link(50e-6, 3e9, link_class="between-hosts", channel="nic"),
    ]
    return pw.Cluster(devices, links)


def problem_of(family: str, n: int, seed: int = 0) -> pw.Problem:
    """Make a problem whose weights take 40 % of the memory of 64 devices, with tensors of 10 KB to 10 MB."""
    rng = np.random.default_rng([seed, n])
    cluster = cluster_of()
    kind = rng.integers(0, len(KINDS), n)
    weight = _weights(rng.exponential(1.0, n) * (kind < 2), cluster)
    operators = [pw.Operator(f"op{v}.{KINDS[kind[v]]}", KINDS[kind[v]], weight_bytes=weight[v]) for v in range(n)]
    wiring = FAMILIES[family](n, rng)
    sizes = np.exp(rng.uniform(np.log(10**4), np.log(10 * MB), len(wiring))).astype(np.int64)
    tensors = [pw.Tensor(f"t{u}", u, tuple(row), int(sizes[k])) for k, (u, row) in enumerate(wiring)]
    graph = pw.OperatorGraph(operators, tensors, name=f"{family}-{n}")
    work_s = rng.exponential(1.0, n) * np.array([4e-3, 3e-3, 2e-3, 2e-4, 1e-4, 1e-4])[kind] + 5e-6
    return pw.Problem(graph, cluster, _times(work_s, kind, cluster, rng))


def repeated(network: pw.Problem, n: int, seed: int = 0) -> pw.Problem:
    """Put copies of a captured network on the 64 devices, ``n`` operators in all: eight chains of copies side by side.

    A copy's inputs wait for the outputs of the one before it in its chain. Times are those of the network's first
    device, scaled to each device's speed; weights are scaled to 40 % of the memory.
    """
    rng = np.random.default_rng([seed, n])
    cluster, given = cluster_of(), network.graph
    one = len(given)
    copies = max(1, n // one)
    sources = [v for v in range(one) if not given.inputs_of[v]]
    sinks = [v for v in range(one) if not given.successors[v]]
    operators, tensors = [], []
    weight = _weights(np.tile([float(v.weight_bytes) for v in given.operators], copies), cluster)
    chains = min(8, copies)
    for c in range(copies):
        base = c * one
        operators += [
            replace(v, name=f"{c}.{v.name}", weight_bytes=weight[base + k]) for k, v in enumerate(given.operators)
        ]
        for t in given.tensors:
            readers = tuple(base + v for v in t.readers)
            tensors.append(replace(t, name=f"{c}.{t.name}", producer=base + t.producer, readers=readers, output=False))
        if c + chains < copies:
            after = tuple(base + chains * one + v for v in sources)
            tensors += [pw.Tensor(f"{c}.end{v}", base + v, after, 10**4) for v in sinks]
    graph = pw.OperatorGraph(operators, tensors, name=f"{given.name}-{copies}-times")
    seconds = np.where(np.isfinite(network.times.processing_s), network.times.processing_s, np.inf).min(axis=1)
    kinds = sorted({v.kind for v in given.operators})
    kind = np.tile([kinds.index(v.kind) % len(KINDS) for v in given.operators], copies)
    return pw.Problem(graph, cluster, _times(np.tile(seconds, copies), kind, cluster, rng))


def _weights(share: npt.NDArray[np.float64], cluster: pw.Cluster) -> list[int]:
    room = 0.4 * float(cluster.capacity_bytes.sum())
    return [int(w) for w in np.minimum(share / max(float(share.sum()), 1e-9) * room, 4e9)]


def _times(
    work_s: npt.NDArray[np.float64], kind: npt.NDArray[np.int64], cluster: pw.Cluster, rng: Rng
) -> npt.NDArray[np.float64]:
    """(n, 64) seconds: each model of devices is better at some kinds of operators than its speed says."""
    liking = rng.uniform(0.6, 1.6, (len(KINDS), len(SPEED)))
    model = [list(SPEED).index(d.model) for d in cluster.devices]
    speed = np.array([SPEED[d.model] for d in cluster.devices])
    times: npt.NDArray[np.float64] = work_s[:, None] / speed * liking[kind][:, model]
    return times
