"""How long devices need for what must run between the least head and the least tail, when operators may be divided."""

from __future__ import annotations

import numpy as np

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.schedule import Network
from placewright._kernel.span_search import Floats, Ints, SpanScratch, time_of

__all__ = ["least_energy", "overfull"]

HALVINGS = 30
"""Steps of the bisection: its error is some 1e-9 of the time."""

ROUNDS = 80
"""Most rounds in which weights of the devices are looked for that prove one time too short."""


@kernel
def least_energy(g: Network, w: SpanScratch) -> float:
    """Bound the makespan of every schedule: the largest time that is found too short, or the longest path.

    A time T is too short when the operators don't fit even divided: v may be on i only where head + time + tail is
    at most T, and i is free for at most T less its least head and least tail. For weights a[i] >= 0 of the devices, T
    is too short if the sum over v of the least a[i] p[v, i] is above the sum over i of a[i] (T - head - tail); longer
    times are searched by bisection, as whatever proves T too short proves it for less. O(n D) a round.
    """
    n, D = g.processing.shape
    device: Ints = np.full(n, -1, dtype=np.int32)
    low = time_of(g, device, w)
    if low == np.inf:
        return np.inf
    high = low
    for v in range(n):
        high += g.processing[v].min()
    scaled, weight = np.zeros((n, D)), np.zeros(D)
    for _ in range(HALVINGS):
        if high - low <= 1e-9 * high:
            break
        middle = 0.5 * (low + high)
        if overfull(g, w, middle, scaled, weight):
            low = middle
        else:
            high = middle
    return low


@inner
def overfull(g: Network, w: SpanScratch, limit: float, scaled: Floats, weight: Floats) -> bool:
    """Say whether weights are found that prove ``limit`` too short; ``scaled`` and ``weight`` are scratch."""
    n, D = g.processing.shape
    for i in range(D):
        head, rest = np.inf, np.inf
        for v in range(n):
            if w.done[v, i] + w.tail[v, i] <= limit:
                head, rest = min(head, w.ready[v, i]), min(rest, w.after[v, i])
        room = limit - head - rest
        for v in range(n):
            if w.done[v, i] + w.tail[v, i] > limit:
                scaled[v, i] = np.inf
            elif g.processing[v, i] <= 0.0:
                scaled[v, i] = 0.0
            else:
                scaled[v, i] = g.processing[v, i] / room if room > 0.0 else np.inf
    weight[:] = 1.0 / D
    load = np.zeros(D)
    for k in range(ROUNDS):
        load[:] = 0.0
        total = 0.0
        for v in range(n):
            least, at = np.inf, -1
            for i in range(D):
                if weight[i] * scaled[v, i] < least:
                    least, at = weight[i] * scaled[v, i], i
            if at < 0:
                return True
            total += least
            load[at] += scaled[v, at]
        if total > 1.0 + 1e-9:
            return True
        most = load.max()
        if most <= 1.0:
            return False
        pace, all_ = 0.5 / np.sqrt(k + 1.0), 0.0
        for i in range(D):
            weight[i] *= np.exp(pace * load[i] / most)
            all_ += weight[i]
        for i in range(D):
            weight[i] /= all_
    return False
