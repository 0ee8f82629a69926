"""The offload latency as a 0/1 program with times, for CP-SAT and HiGHS alike: what there is, and what it obeys.

It is the integer program of arXiv 2006.16423 for the latency, with these changes. A *slot* is a call of an accelerator:
the first W calls have slots of their own, and where more are allowed and W is less, all further calls of an accelerator
share its last slot, the *rest*, of which the program knows only what holds however it is cut into calls. A program with
a rest is a relaxation; without one it is exact.

Variables: on[k, a], unit k is on accelerator a; cpu[k]; x[v, c], operator v is in slot c; enter[t, c] and leave[t, c],
tensor t enters or leaves slot c; times: S[c] and E[c], start and end of a slot; of an operator R[v], when its call
starts, or it itself on CPUs, H[v], by when it is computed at the earliest, G[v] = H[v] + what its tensors cost on
leaving, and F[v], when they are delivered; and the latency T, the largest of all. With u the producer and r any reader
of t

    enter[t, c] >= x[r, c] - x[u, c],   leave[t, c] >= x[u, c] - x[r, c],
    E[c] >= S[c] + sum_v p[v, c] x[v, c] + sum_t (in[t, c] enter[t, c] + out[t, c] leave[t, c]),
    S[c] >= E[call before c],
    S[c] >= F[u] if enter[t, c],   F[u] >= E[c] if x[u, c]   (not for the rest),
    R[v] >= S[c] if x[v, c],   R[r] >= F[u] if r is on CPUs, or in the rest and u is not,
    H[v] >= R[v] + (in of all that v reads from outside) + p[v],
    H[r] >= G[u] + (in of t where r is and u is not) + p[r]   for all edges ("path potentials": each path pays its
    processing and its crossings, whether a call begins at its first or its last operator),
    E[c] >= G[v] if x[v, c],

memory per accelerator, and colocation by units. Every call takes at least ``least_call``, an epsilon: it forbids calls
of no time that wait for each other in a circle, and sets that a path of no time leaves and enters again. Where links
differ by the place at the other end, a cost is the sum of its steps, of which each has a variable that is 1 unless the
other end is where the cost is below that step. Alike accelerators are numbered by the first unit on them, in the order
of falling size; slots are filled from the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from placewright.offloads import offload_of, offloads_of
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.rounding import quantise_down
from placewright.solvers.offload.timed_program import Term, TimedProgram

__all__ = ["OffloadProgram", "build", "most_calls", "size_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

RANKED_UNITS = 64
"""Units whose rows say that alike accelerators are numbered by their first unit: n rows have n^2 / 2 terms."""


@dataclass(frozen=True, eq=False)
class OffloadProgram:
    """A program and how to read its solutions.

    Attributes
    ----------
    timed : TimedProgram
    scale_s : float
        Seconds in one unit of its times.
    least_call : float
        What each call takes at least, in these units.
    calls : int
        Calls with slots of their own, over all accelerators.
    exact : bool
        Whether no accelerator has a rest or lacks one.
    bounding : bool
        Whether no plan is below the optimum.
    place : dict of (int, int) to int
        x[v, c].
    slots : list of (int, int, bool)
        Accelerator, number of the call, whether it is a rest.
    started : bool
        Whether ``timed.start`` is a solution.
    """

    problem: Problem
    timed: TimedProgram
    scale_s: float
    least_call: float
    calls: int
    exact: bool
    bounding: bool
    place: dict[tuple[int, int], int]
    slots: list[tuple[int, int, bool]]
    started: bool

    @property
    def given_away(self) -> float:
        """By how much the optimum may exceed the true one in units, since calls take at least ``least_call``."""
        return self.calls * self.least_call

    def placement(self, values: Sequence[float] | Floats) -> tuple[Ints, Ints | None]:
        """(n,) devices and calls of a solution; calls ``None`` where a rest is used."""
        o = offloads_of(self.problem)
        device, call, rest = o.cpu_device.copy(), np.zeros(len(o.cpu_s), dtype=np.int32), False
        for (v, c), x in self.place.items():
            if values[x] > 0.5:
                a, call[v], is_rest = self.slots[c]
                device[v] = o.accelerator[a]
                rest |= is_rest
        return device, None if rest else call


def most_calls(problem: Problem) -> int:
    """Give a number of calls of an accelerator that no plan without empty calls exceeds."""
    o, limit = offloads_of(problem), offload_of(problem).calls
    fits = [int(np.isfinite(o.acc_s[:, a]).sum()) for a in range(len(o.accelerator))]
    most = max(fits, default=0)
    return most if limit is None else min(limit, most)


def size_of(problem: Problem) -> int:
    """Estimate the number of variables of the smallest program."""
    o = offloads_of(problem)
    slots = len(o.accelerator) * (1 if most_calls(problem) <= 1 else 2)
    return slots * (len(o.cpu_s) + 2 * len(o.producer) * (1 if o.separable else len(o.accelerator) + 1))


def build(
    problem: Problem, scale_s: float, own: int, *, whole: bool, most_s: float, start: Plan | None, rest: bool = True
) -> OffloadProgram:
    """Write the program of a problem.

    Parameters
    ----------
    problem : Problem
    scale_s : float
        Seconds in a unit.
    own : int
        W, the calls of each accelerator that have slots of their own.
    whole : bool
        Whether times are rounded down to whole units, or just divided.
    most_s : float
        Plans above this value may be left out.
    start : Plan, optional
        Where to start; a legal plan of at most ``most_s``.
    rest : bool
        Whether further calls have a slot. Without it the program only finds plans, of few calls.
    """
    return _Builder(problem, scale_s, own, whole, most_s, start, rest).made()


class _Builder:
    def __init__(
        self,
        problem: Problem,
        scale_s: float,
        own: int,
        whole: bool,
        most_s: float,
        start: Plan | None,
        rest: bool,
    ) -> None:
        self.problem, self.o, self.scale_s, self.whole, self.most_s = (
            problem,
            offloads_of(problem),
            scale_s,
            whole,
            most_s,
        )
        o, limit = self.o, offload_of(problem).calls
        self.n, self.A = o.acc_s.shape
        self.members = [np.flatnonzero(o.unit_of == k).tolist() for k in range(int(o.unit_of.max(initial=-1)) + 1)]
        self.size = np.array([o.size[m].sum() for m in self.members])
        self.order = np.lexsort((np.arange(len(self.members)), -self.size)).tolist()
        self.cpu = self.quantity(o.cpu_s)
        self.acc = self.quantity(o.acc_s)
        self.epsilon = 1.0 if whole else 1e-5
        self.least = self.epsilon if (self.acc <= self.epsilon).any() else 0.0
        self.slots: list[tuple[int, int, bool]] = []
        self.of: list[list[int]] = []
        complete = True
        for a in range(self.A):
            fits = int(np.isfinite(o.acc_s[:, a]).sum())
            many = fits if limit is None else min(limit, fits)
            complete &= many <= own
            numbers = range(min(own, many) + (rest and many > own))
            self.of.append([len(self.slots) + i for i in numbers])
            self.slots += [(a, i, i >= own) for i in numbers]
        if start is not None and start.call_of is not None and not rest and start.call_of.max(initial=0) >= own:
            start = None
        self.at = self._start(start)
        calls = sum(not rest for _, _, rest in self.slots)
        self.t = TimedProgram(0.0)
        self.made_of = OffloadProgram(
            problem,
            self.t,
            scale_s,
            self.least,
            calls,
            complete,
            complete or rest,
            {},
            self.slots,
            start is not None,
        )
        self.x = self.made_of.place

    def made(self) -> OffloadProgram:
        self._places()
        self._calls_in_order()
        self._times()
        if self.made_of.started:
            self.t.settle_times()
        least = float(np.ceil(self.most_s / self.scale_s)) + self.made_of.given_away
        self.t.most = max(least, self.t.start[self.t.peak])
        return self.made_of

    def quantity(self, seconds: npt.ArrayLike) -> Floats:
        """Give times in units; what can't be is 0 and never used."""
        finite = np.where(np.isfinite(seconds), np.minimum(seconds, 2.0 * self.most_s), 0.0)
        if self.whole:
            return quantise_down(finite, self.scale_s).astype(np.float64)
        return np.asarray(finite / self.scale_s, dtype=np.float64)

    def _start(self, plan: Plan | None) -> Ints:
        """(n,) slots of the operators in the plan to start from; -1 on CPUs."""
        at = np.full(self.n, -1, dtype=np.int32)
        if plan is None:
            return at
        o = self.o
        where = {int(i): a for a, i in enumerate(o.accelerator)}
        acc = np.array([where.get(int(i), -1) for i in plan.device_of], dtype=np.int32)
        rank = {k: r for r, k in enumerate(self.order)}
        first = [min((rank[int(k)] for k in o.unit_of[acc == a]), default=len(rank)) for a in range(self.A)]
        call_of = np.zeros(self.n, dtype=np.int32) if plan.call_of is None else plan.call_of
        renamed: dict[int, int] = {}
        for c in set(o.acc_class.tolist()):
            alike = np.flatnonzero(o.acc_class == c).tolist()
            renamed.update(zip(sorted(alike, key=lambda a: (first[a], a)), alike, strict=True))
        for a in range(self.A):
            here = np.flatnonzero(acc == a)
            slots = self.of[renamed[a]]
            for i, number in enumerate(np.unique(call_of[here]).tolist()):
                at[here[call_of[here] == number]] = slots[min(i, len(slots) - 1)]
        return at

    def _in(self, v: int, c: int) -> list[Term]:
        return [(self.x[v, c], 1.0)] if (v, c) in self.x else []

    def _not_in(self, v: int, c: int) -> list[Term]:
        return [(self.x[v, c], -1.0)] if (v, c) in self.x else []

    def _places(self) -> None:
        """Units on accelerators and operators in slots, memory, and which of alike accelerators is which."""
        t, o = self.t, self.o
        self.on: dict[tuple[int, int], int] = {}
        self.on_cpu: dict[int, int] = {}
        for k, inside in enumerate(self.members):
            v = inside[0]
            if np.isfinite(o.cpu_s[inside]).all():
                self.on_cpu[k] = t.choice(self.at[v] < 0)
            for a in range(self.A):
                if not np.isfinite(o.acc_s[inside, a]).all() or self.size[k] > o.capacity[a]:
                    continue
                here = float(self.at[v] >= 0 and self.slots[self.at[v]][0] == a)
                self.on[k, a] = t.choice(here)
                if len(self.of[a]) == 1:
                    self.x.update({(u, self.of[a][0]): self.on[k, a] for u in inside})
                    continue
                for u in inside:
                    for c in self.of[a]:
                        self.x[u, c] = t.choice(self.at[u] == c)
                    t.row([*((self.x[u, c], 1.0) for c in self.of[a]), (self.on[k, a], -1.0)], 0.0, 0.0)
            options = [self.on[k, a] for a in range(self.A) if (k, a) in self.on]
            options += [self.on_cpu[k]] if k in self.on_cpu else []
            t.row([(x, 1.0) for x in options], 1.0, 1.0)
        for a in range(self.A):
            capacity = float(o.capacity[a])
            if capacity < self.size.sum():
                unit = 1.0 if self.whole or capacity < 1e6 else capacity
                held = [(x, float(self.size[k]) / unit) for (k, b), x in self.on.items() if b == a and self.size[k] > 0]
                t.row(held, upper=capacity / unit)
        for b in range(1, self.A):
            before = [a for a in range(b) if o.acc_class[a] == o.acc_class[b]]
            if before:
                for r, k in enumerate(self.order[:RANKED_UNITS]):
                    if (k, b) in self.on:
                        earlier = [(self.on[i, before[-1]], -1.0) for i in self.order[:r] if (i, before[-1]) in self.on]
                        t.row([(self.on[k, b], 1.0), *earlier], upper=0.0)

    def _calls_in_order(self) -> None:
        """No call without one before it, and no tensor to an earlier call of its accelerator."""
        t = self.t
        for slots in self.of:
            for c, after in pairwise(slots):
                used = t.choice((self.at == c).any(), free=True)
                t.row([(used, 1.0), *(y for v in range(self.n) for y in self._not_in(v, c))], upper=0.0)
                for v in range(self.n):
                    if (v, after) in self.x:
                        t.row([(self.x[v, after], 1.0), (used, -1.0)], upper=0.0)
            for i in range(1, len(slots)):
                for u, v in self._edges():
                    late = [y for c in slots[i:] for y in self._in(u, c)]
                    early = [y for c in slots[:i] for y in self._in(v, c)]
                    if late and early:
                        t.row([*late, *early], upper=1.0)

    def _edges(self) -> Iterable[tuple[int, int]]:
        o = self.o
        return dict.fromkeys((int(o.producer[k]), int(r)) for k in range(len(o.producer)) for r in self._readers(k))

    def _readers(self, k: int) -> list[int]:
        readers: list[int] = self.o.reader[self.o.reader_ptr[k] : self.o.reader_ptr[k + 1]].tolist()
        return readers

    def _times(self) -> None:
        t, n = self.t, self.n
        self.starts, self.ends = [t.time() for _ in self.slots], [t.time() for _ in self.slots]
        self.ready = [t.time() for _ in range(n)]
        self.computed = [t.time() for _ in range(n)]
        makes = np.diff(self.o.made_ptr) > 0
        self.left = [t.time() if makes[v] else self.computed[v] for v in range(n)]
        self.delivered = [t.time() if makes[v] else -1 for v in range(n)]
        self.busy: list[list[Term]] = [[] for _ in self.slots]
        self.leaving: list[list[Term]] = [[] for _ in range(n)]
        self.entering: list[list[Term]] = [[] for _ in range(n)]
        for (v, c), x in self.x.items():
            self.busy[c].append((x, self.acc[v, self.slots[c][0]]))
        for k in range(len(self.o.producer)):
            self._tensor(k)
        for v in range(n):
            self._operator(v)
        for slots in self.of:
            for c in slots:
                rest = self.slots[c][2]
                t.rule(self.ends[c], self.starts[c], self.busy[c], 0.0 if rest else self.least)
            for c, after in pairwise(slots):
                t.rule(self.starts[after], self.ends[c])
            if slots:
                t.rule(t.peak, self.ends[slots[-1]])

    def _takes(self, v: int) -> list[Term]:
        """Give the processing time of an operator, wherever it is."""
        k = int(self.o.unit_of[v])
        on = [(self.on[k, a], self.acc[v, a]) for a in range(self.A) if (k, a) in self.on]
        return [*on, (self.on_cpu[k], self.cpu[v])] if k in self.on_cpu else on

    def _operator(self, v: int) -> None:
        t = self.t
        if self.delivered[v] >= 0:
            t.rule(self.left[v], self.computed[v], self.leaving[v])
            t.rule(self.delivered[v], self.left[v])
            t.rule(t.peak, self.delivered[v])
        else:
            t.rule(t.peak, self.computed[v])
        t.rule(self.computed[v], self.ready[v], [*self._takes(v), *self.entering[v]])
        for c, (_, _, rest) in enumerate(self.slots):
            if (v, c) in self.x:
                here = [(self.x[v, c], True)]
                t.rule(self.ends[c], self.left[v], when=here)
                t.rule(self.ready[v], self.starts[c], when=here)
                if self.delivered[v] >= 0 and not rest:
                    t.rule(self.delivered[v], self.ends[c], when=here)

    def _tensor(self, k: int) -> None:
        """Where a tensor enters and leaves, what it costs there, and who waits for it."""
        t, u, readers = self.t, int(self.o.producer[k]), self._readers(k)
        paid: dict[int, list[Term]] = {r: [] for r in readers}
        for c, (a, _, rest) in enumerate(self.slots):
            apart = [r for r in readers if (r, c) not in self.x or self.x[r, c] != self.x.get((u, c))]
            inside = [r for r in apart if (r, c) in self.x]
            if inside:
                enters = self._enter(k, u, c, inside, paid)
                if rest:
                    for r in inside:
                        when = [(self.x[r, c], True), *((x, False) for x, _ in self._in(u, c))]
                        t.rule(self.ready[r], self.delivered[u], when=when)
                else:
                    t.rule(self.starts[c], self.delivered[u], when=[(enters, True)])
            if (u, c) in self.x and apart:
                for cost, cheap in self._steps(self.o.out_to_s[k, a], a):
                    out = self._indicator([u] * len(apart), apart, c, cheap, cost)
                    if out >= 0:
                        self.busy[c].append((out, float(self.quantity(cost))))
                        self.leaving[u].append((out, float(self.quantity(cost))))
        for r in readers:
            t.rule(self.computed[r], self.left[u], [*self._takes(r), *paid[r]])
            home = int(self.o.unit_of[r])
            if home in self.on_cpu:
                t.rule(self.ready[r], self.delivered[u], when=[(self.on_cpu[home], True)])

    def _enter(self, k: int, u: int, c: int, inside: list[int], paid: dict[int, list[Term]]) -> int:
        """Add what a tensor costs on entering a slot; return the variable that says that it does."""
        t, a = self.t, self.slots[c][0]
        steps = self._steps(self.o.in_from_s[k, a], a)
        (least, _), enters = steps[0], -1
        one_each = {self.x[r, c]: self._indicator([r], [u], c, [], 0.0, needed=True) for r in inside}
        if len(one_each) == 1:
            enters = next(iter(one_each.values()))
        else:
            enters = t.choice(max(t.start[x] for x in one_each.values()), free=True)
            for x in one_each.values():
                t.row([(enters, 1.0), (x, -1.0)], 0.0)
        if np.isinf(least):
            t.row([(enters, 1.0)], upper=0.0)
            return enters
        amount = float(self.quantity(least))
        self.busy[c].append((enters, amount))
        for r in inside:
            paid[r].append((one_each[self.x[r, c]], amount))
            self.entering[r].append((one_each[self.x[r, c]], amount))
        for cost, cheap in steps[1:]:
            step = self._indicator(inside, [u] * len(inside), c, cheap, cost)
            if step >= 0:
                self.busy[c].append((step, float(self.quantity(cost))))
        return enters

    def _steps(self, costs_s: Floats, a: int) -> list[tuple[float, list[int]]]:
        """Parts of a cost by the place of the other end: seconds, and the places to which the part does not apply."""
        places = [b for b in range(self.A + 1) if b != a]
        levels = sorted({float(costs_s[b]) for b in places})
        below = [0.0, *levels[:-1]]
        return [
            (level - low if np.isfinite(level) else np.inf, [b for b in places if costs_s[b] < level])
            for level, low in zip(levels, below, strict=True)
        ]

    def _indicator(
        self, here: list[int], there: list[int], c: int, cheap: list[int], cost_s: float, *, needed: bool = False
    ) -> int:
        """Add a variable that is 1 when one of ``here`` is in the slot, its mate neither there nor at a cheap place.

        Return -1 where it costs nothing, or where its cost is infinite and the case is forbidden.
        """
        t, ram, rows = self.t, self.A, []
        if not needed and np.isfinite(cost_s) and float(self.quantity(cost_s)) <= 0.0:
            return -1
        for v, w in zip(here, there, strict=True):
            a, k = self.slots[c][0], int(self.o.unit_of[w])
            off = [(self.on[k, b], -1.0) for b in cheap if b not in (a, ram) and (k, b) in self.on]
            if ram in cheap:
                off += [(self.on_cpu[k], -1.0)] if k in self.on_cpu else []
                off += [(self.on[k, a], -1.0)] if (k, a) in self.on else []
            else:
                off += self._not_in(w, c)
            rows.append([*self._in(v, c), *off])
        if np.isinf(cost_s):
            for terms in rows:
                t.row(terms, upper=0.0)
            return -1
        value = max(0.0, *(sum(s * t.start[x] for x, s in terms) for terms in rows))
        variable = t.choice(value, free=True)
        for terms in rows:
            t.row([(variable, 1.0), *((x, -s) for x, s in terms)], 0.0)
        return variable
