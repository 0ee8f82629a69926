"""Max-load problems whose optimum is known by hand: chains of equal operators on alike devices, and a crossing."""

from __future__ import annotations

import numpy as np

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem


def chain(
    n: int, k: int, objective: MaxLoad, *, p: float = 2.0, c: float = 0.0, kind: str = "gpu", weight: int = 0
) -> Problem:
    """Chain of n forward operators of p seconds on k alike devices, a tensor between neighbours that takes c seconds.

    With a weight (in bytes; a synchronised byte takes 1 s) every operator is trained: it has a backward one in its
    class, of no time of its own, which the next one's backward operator sends a tensor of no size.
    """
    operators = [Operator(f"f{v}", weight_bytes=weight) for v in range(n)]
    tensors = [Tensor(f"x{v}", v, (v + 1,), 8) for v in range(n - 1)]
    seconds, classes = [p] * n, []
    if weight:
        operators += [Operator(f"b{v}", backward=True) for v in reversed(range(n))]
        tensors += [Tensor(f"y{v}", n + v, (n + v + 1,)) for v in range(n - 1)]
        classes = [(v, 2 * n - 1 - v) for v in range(n)]
        seconds += [0.0] * n
    rate = 8 / c if c else 1.0
    if not c:
        tensors = [Tensor(t.name, t.producer, t.readers) for t in tensors]
    cluster = Cluster([Device(f"d{i}", kind) for i in range(k)], [Link(0.0, rate, link_class="same-host")])
    return Problem(OperatorGraph(operators, tensors, classes), cluster, np.array([[s] * k for s in seconds]), objective)


def chain_value(n: int, k: int, p: float, c: float = 0.0) -> float:
    """Optimum of a chain without replicas, contiguous or not, for c below p.

    Some device has at least s = ceil(n / k) operators. The first and the last of the chain pay c, the others 2 c, since
    a device whose operators are neither a start nor an end of the chain has tensors in and out. If at most two devices
    need s operators they are the outer two, and those within have s - 1: s p + c, which is above (s - 1) p + 2 c.
    Otherwise one within has s, for an outer one with s + 1 would take (s + 1) p + c > s p + 2 c.
    """
    s = -(-n // k)
    if n == 1 or k == 1:
        return n * p
    return s * p + (c if n - (s - 1) * k <= 2 else 2 * c)


def crossing(contiguity: str) -> Problem:
    """a -> b and c -> d without transfers, 11 s each where they belong (a, d on d0; b, c on d1), 29 s elsewhere.

    With all where they belong edges go both ways between the devices, but no path comes back: convex, 22 s. For an
    order one operator has to move: to 11 + 11 + 29 = 51 s, or to 11 + 29 = 40 s a device with a, b | c, d.
    """
    graph = OperatorGraph([Operator(x) for x in "abcd"], [Tensor("x", 0, (1,)), Tensor("y", 2, (3,))])
    cluster = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    home, away = [11.0, 29.0], [29.0, 11.0]
    return Problem(graph, cluster, np.array([home, away, away, home]), MaxLoad(contiguity))  # type: ignore[arg-type]


def forms() -> list[tuple[str, Problem, float]]:
    """Name, problem and optimum of each."""
    found = [
        (f"crossing-{c}", crossing(c), 40.0 if c == "contiguous" else 22.0) for c in ("contiguous", "convex", "any")
    ]
    for n, k in [(1, 1), (1, 3), (2, 2), (4, 2), (5, 2), (5, 3), (6, 3), (7, 3), (7, 4)]:
        for contiguity in ("contiguous", "convex", "any"):
            plain = MaxLoad(contiguity)  # type: ignore[arg-type]
            for c in (0.0, 0.5, 1.5):
                found.append((f"chain-{n}-{k}-{c}-{contiguity}", chain(n, k, plain, c=c), chain_value(n, k, 2.0, c)))
        # CPUs pay nothing for transfers: ceil(n / k) p.
        found.append((f"chain-{n}-{k}-cpus", chain(n, k, MaxLoad(), c=1.5, kind="cpu"), -(-n // k) * 2.0))
        # Inference: one stage of everything on all devices does the least work, and no device is ever idle: n p / k.
        replicas = MaxLoad(replicate=True)
        found.append((f"chain-{n}-{k}-replicas", chain(n, k, replicas, c=1.5), n * 2.0 / k))
    for k in (1, 2, 3):
        # One trained operator of 2 s and 1 B on r devices: 2 / r + 2 (r - 1) / r x 1 s / period. That is 2 for any r
        # when the period is 1, and with period 4 the more the better: 2 / k + (k - 1) / (2 k).
        for period, value in ((1, 2.0), (4, 2 / k + (k - 1) / (2 * k))):
            trained = MaxLoad(replicate=True, sync_period=period)
            found.append((f"trained-1-{k}-{period}", chain(1, k, trained, weight=1), value))
    for n, k in ((4, 2), (6, 3)):
        # Without transfers n / k operators a device are n / k x 2 s without replicas: no load times devices is less.
        trained = MaxLoad(replicate=True, sync_period=1)
        found.append((f"trained-{n}-{k}", chain(n, k, trained, weight=1), n / k * 2.0))
    return found
