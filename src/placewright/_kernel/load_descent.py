"""Descent on the largest load by single moves of units."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placewright._kernel.compiling import inner, kernel
from placewright._kernel.device_load import device_load
from placewright._kernel.load_moves import LoadLimits, LoadNetwork, LoadState, reset_loads

__all__ = ["descend"]

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@inner
def _largest(
    overlap: int, busy_share: float, compute: Floats, enters: Floats, leaves: Floats, channel: Floats
) -> float:
    """Value: the largest load of a device or channel, summed over passes."""
    value = 0.0
    for p in range(compute.shape[0]):
        top = 0.0
        for i in range(compute.shape[1]):
            top = max(top, device_load(overlap, busy_share, compute[p, i], enters[p, i], leaves[p, i]))
        for k in range(channel.shape[1]):
            top = max(top, channel[p, k])
        value += top
    return value


@inner
def _copy(source: Floats, target: Floats) -> None:
    for p in range(source.shape[0]):
        for i in range(source.shape[1]):
            target[p, i] = source[p, i]


@kernel
def descend(g: LoadNetwork, limits: LoadLimits, s: LoadState, step: float, moves: int) -> tuple[float, int]:
    """Make up to ``moves`` moves, each the best of all, while one lowers the value by ``step``; value, moves made.

    Units go where ``limits.choice`` lets them. A unit is passed over when the loads without it are not below the best
    move so far: to add it somewhere lowers none. Loads are computed afresh after each move, so that no rounding builds
    up. A move costs O(messages of all units x devices^2).
    """
    device, count, compute, enters, leaves, channel = s.device, s.readers, s.compute, s.enters, s.leaves, s.channel
    work, producer, phase, made_ptr, read_ptr, read = g.compute, g.producer, g.phase, g.made_ptr, g.read_ptr, g.read
    send, receive, pair, pays, channel_of, channel_s = g.send, g.receive, g.pair, g.pays, g.channel_of, g.channel_s
    choice_ptr, choice, overlap, share = limits.choice_ptr, limits.choice, g.overlap, g.busy_share
    P, D = compute.shape
    by_pair, by_channel = len(pair) > 0, len(channel_s) > 0
    held_in, held_out, held_channel, held = enters.copy(), leaves.copy(), channel.copy(), compute.copy()
    rest_in, rest_out, rest_channel, rest = enters.copy(), leaves.copy(), channel.copy(), compute.copy()
    touching = np.empty(len(producer), dtype=np.int64)
    reset_loads(g, limits, s)
    value, made = _largest(overlap, share, compute, enters, leaves, channel), 0
    while made < moves:
        best, best_k, best_i = np.nextafter(value - step, np.inf), -1, -1
        for k in range(len(device)):
            source = device[k]
            n = 0
            for m in range(made_ptr[k], made_ptr[k + 1]):
                touching[n] = m
                n += 1
            n_made = n
            for x in range(read_ptr[k], read_ptr[k + 1]):
                touching[n] = read[x]
                n += 1
            _copy(enters, held_in)
            _copy(leaves, held_out)
            _copy(channel, held_channel)
            _copy(compute, held)
            for p in range(P):
                compute[p, source] -= work[p, k, source]
            # First (x = -1) the messages are taken away, then added again with the unit on each of its devices.
            for x in range(-1, choice_ptr[k + 1] - choice_ptr[k]):
                i = source if x < 0 else choice[choice_ptr[k] + x]
                if x >= 0 and i == source:
                    continue
                sign = -1.0 if x < 0 else 1.0
                if x >= 0:
                    device[k] = i
                    for y in range(n_made, n):
                        count[touching[y], i] += 1
                    for p in range(P):
                        compute[p, i] += work[p, k, i]
                for y in range(n):
                    m = touching[y]
                    home, p = device[producer[m]], phase[m]
                    worst = 0.0
                    for j in range(D):
                        if j == home or count[m, j] == 0:
                            continue
                        if by_pair:
                            if pays[j]:
                                enters[p, j] += sign * pair[m, home, j]
                            worst = max(worst, pair[m, home, j])
                        else:
                            enters[p, j] += sign * receive[m, j]
                            worst = send[m, home]
                        if by_channel:
                            for z in range(2):
                                if channel_of[home, j, z] >= 0:
                                    channel[p, channel_of[home, j, z]] += sign * channel_s[m, home, j]
                    if pays[home]:
                        leaves[p, home] += sign * worst
                got = _largest(overlap, share, compute, enters, leaves, channel)
                if x < 0:
                    for y in range(n_made, n):
                        count[touching[y], source] -= 1
                    if got >= best:
                        break
                    _copy(enters, rest_in)
                    _copy(leaves, rest_out)
                    _copy(channel, rest_channel)
                    _copy(compute, rest)
                    continue
                if got < best:
                    best, best_k, best_i = got, k, i
                for y in range(n_made, n):
                    count[touching[y], i] -= 1
                _copy(rest_in, enters)
                _copy(rest_out, leaves)
                _copy(rest_channel, channel)
                _copy(rest, compute)
            device[k] = source
            for y in range(n_made, n):
                count[touching[y], source] += 1
            _copy(held_in, enters)
            _copy(held_out, leaves)
            _copy(held_channel, channel)
            _copy(held, compute)
        if best_k < 0:
            break
        device[best_k] = best_i
        reset_loads(g, limits, s)
        value = _largest(overlap, share, compute, enters, leaves, channel)
        made += 1
    return value, made
