"""The max-load as a 0/1 program, for CP-SAT and HiGHS alike: which variables there are, and what they obey.

A *group* is what one decision places: a unit, or a block of units that contiguity keeps together. A *slot* is a place
to be filled. Without contiguity the slots are the devices. With it they are pairs (position in the chain, class of
alike devices), of which each position uses one, so that the order of unlike devices is decided too and alike ones are
never told apart; devices that contiguity does not bind are slots of their own.

Variables: x[g, s], group g is in slot s; sent[n, s] and got[n, s], net n (tensors with the same ends) leaves slot s, or
enters it; one peak T[k] a pass, whose sum is minimised. For the producer a and each reader r of a net

    sent[n, s] >= x[a, s] - x[r, s],    got[n, s] >= x[r, s] - x[a, s].

What slot s is busy with is sum_g p[g, s] x[g, s] + k sum_n (out[n, s] sent[n, s] + in[n, s] got[n, s]), k the busy
share, at most T[k]; what its links carry beside it stands in rows of its own. Where what leaves and what enters cost
the same, nets with equal ends are one net, whoever produces. Where links differ by pair, a cost is the sum of its
steps: sent_m[n, s] >= x[a, s] - x[r, s] - sum of x[r, t] over the slots t to which it costs less than step m; the same
for got_m, with the slots of a. Contiguity: y[g, l] = "g is on level l or later", and y[a, l] <= y[b, l] for each edge a
-> b; levels are positions, and, for devices that are not bound, the gaps between them. Convexity as in the integer
program of arXiv 2006.16423: z[g, s] >= x[g, s], z[b, s] <= z[a, s], z[b, s] <= 1 - x[a, s] + x[b, s] for each edge a ->
b. Channels: d[n, s, t] = "n goes from s to t", their sum over s is got[n, t], and d[n, s, t] <= x[a, s].

Alike devices without an order are numbered by the heaviest group on them: the heaviest of all is on the first, the
second heaviest on one of the first two, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from placewright.loads import loads_of, objective_of
from placewright.objective import load_rows
from placewright.problem import Problem
from placewright.rounding import quantise_down
from placewright.solvers.max_load.groups import Groups, Net, groups_of, nets_of, unreachable
from placewright.solvers.max_load.slots import Slots, canonical, slots_of

__all__ = ["Program", "build", "size_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Term = tuple[int, float]


@dataclass(eq=False)
class Program:
    """minimise the sum of ``peaks`` subject to the rows; all other variables are 0 or 1.

    Attributes
    ----------
    scale_s : float
        Seconds in one unit of the times in the rows.
    upper, start : list of float
        Of each variable: its largest value (the least is 0), and its value in the plan to start from.
    free : list of bool
        Whether the variable is 0 or 1 by itself as soon as the others are (it need not be declared integer).
    rows : list of (list of (int, float), float, float)
        Terms, least and largest value.
    peaks : tuple of int
        Variables T[k], first of all.
    started : bool
        Whether ``start`` is a solution.
    """

    scale_s: float
    started: bool
    slots: Slots
    groups: Groups
    upper: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    free: list[bool] = field(default_factory=list)
    rows: list[tuple[list[Term], float, float]] = field(default_factory=list)
    peaks: tuple[int, ...] = ()
    place: dict[tuple[int, int], int] = field(default_factory=dict)

    def variable(self, start: float, *, upper: float = 1.0, free: bool = False) -> int:
        """Add a variable."""
        self.upper.append(upper)
        self.start.append(float(start))
        self.free.append(free)
        return len(self.upper) - 1

    def row(self, terms: Iterable[Term], lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add a row; it may be empty."""
        self.rows.append((list(terms), lower, upper))

    def unit_devices(self, values: Sequence[float] | Floats) -> Ints:
        """(U,) devices of the units in a solution."""
        slot = np.zeros(len(self.groups), dtype=np.int32)
        for (g, s), x in self.place.items():
            if values[x] > 0.5:
                slot[g] = s
        return np.asarray(self.slots.devices(slot)[self.groups.of_unit], dtype=np.int32)


def size_of(problem: Problem) -> int:
    """Estimate the number of variables."""
    a = loads_of(problem)
    slots = len(slots_of(problem, groups_of(problem).bound))
    flows = len(a.producer) * slots * slots if a.n_channels else 0
    steps = 1 if a.separable else len(a.pays)
    return a.n_units * slots + 2 * len(a.producer) * slots * steps + flows


def build(
    problem: Problem,
    scale_s: float,
    *,
    whole: bool,
    incumbent: npt.ArrayLike | None = None,
    cutoff_s: float = np.inf,
) -> Program:
    """Write the program of a problem.

    Parameters
    ----------
    problem : Problem
    scale_s : float
        Seconds in a unit.
    whole : bool
        Whether times are rounded down to whole units, or just divided.
    incumbent : (U,) array of int, optional
        Devices of the units to start from.
    cutoff_s : float
        Placements above this value may be left out.
    """
    return _Builder(problem, scale_s, whole, incumbent, cutoff_s).made()


class _Builder:
    def __init__(
        self,
        problem: Problem,
        scale_s: float,
        whole: bool,
        incumbent: npt.ArrayLike | None,
        cutoff_s: float,
    ) -> None:
        self.problem, self.scale_s, self.whole = problem, scale_s, whole
        self.objective, self.a, self.cutoff_s = objective_of(problem), loads_of(problem), cutoff_s
        self.groups = groups_of(problem)
        self.slots = slots_of(problem, self.groups.bound)
        self.at = canonical(self.slots, self.groups, incumbent)
        self.program = Program(scale_s, self.at is not None, self.slots, self.groups)
        self.x = self.program.place

    def made(self) -> Program:
        program, passes = self.program, len(self.groups.compute_s)
        peaks = tuple(program.variable(0.0, upper=np.inf, free=True) for _ in range(passes))
        program.peaks = peaks
        self._places()
        self._levels()
        self._convexity()
        self._memory()
        self._links()
        self._loads()
        if program.started:
            self._start_peaks()
        return program

    def quantity(self, seconds: npt.ArrayLike) -> Floats:
        """Give times in units. What alone is too much may as well be less, which keeps numbers small."""
        seconds = np.minimum(seconds, 2.0 * self.cutoff_s)
        if self.whole:
            return quantise_down(seconds, self.scale_s).astype(np.float64)
        return np.asarray(seconds, dtype=np.float64) / self.scale_s

    def _is(self, g: int, s: int) -> float:
        return float(self.at is not None and self.at.slot[g] == s)

    def _terms(self, g: int, slots: Iterable[int], factor: float = 1.0) -> list[Term]:
        return [(self.x[g, s], factor) for s in slots if (g, s) in self.x]

    def _places(self) -> None:
        total = self.groups.compute_s.sum(axis=0)
        allowed = np.isfinite(total) & (total <= self.cutoff_s * (1.0 + 1e-9))
        if not self.slots.ordered:
            allowed &= self.slots.symmetry(self.groups)
        for g in range(len(self.groups)):
            for s, slot in enumerate(self.slots.slots):
                if allowed[g, slot.device]:
                    # On a level x follows from y, which is what HiGHS is to branch on.
                    levelled = self.slots.ordered and self.slots.levels[s] >= 0
                    self.x[g, s] = self.program.variable(self._is(g, s), free=levelled)
            self.program.row(self._terms(g, range(len(self.slots))), 1.0, 1.0)

    def _levels(self) -> None:
        """Tie slots to levels, and levels to edges."""
        program, slots = self.program, self.slots
        if not slots.ordered:
            return
        n_levels, level_of = slots.n_levels, slots.levels
        used = {}
        if slots.n_kinds > 1:
            positions = range(slots.n_positions)
            for p in positions:
                for c, s in slots.at_position(p):
                    used[s] = program.variable(float(self.at is not None and self.at.kind[p] == c))
                program.row([(used[s], 1.0) for _, s in slots.at_position(p)], 1.0, 1.0)
            for c, size in slots.kinds:
                program.row([(used[s], 1.0) for p in positions for k, s in slots.at_position(p) if k == c], size, size)
        y: dict[tuple[int, int], int] = {}
        for g in range(len(self.groups)):
            at = -1 if self.at is None else self.at.level[g]
            for level in range(1, n_levels):
                y[g, level] = program.variable(float(at >= level))
                if level > 1:
                    program.row([(y[g, level - 1], 1.0), (y[g, level], -1.0)], 0.0)
            for level in range(n_levels):
                here = [(y[g, level], -1.0)] if level else []
                here += [(y[g, level + 1], 1.0)] if level + 1 < n_levels else []
                # x on this level = y[level] - y[level + 1], with y[0] = 1
                lower = 1.0 if level == 0 else 0.0
                inside = [s for s in range(len(slots)) if level_of[s] == level]
                if inside:
                    program.row([*self._terms(g, inside), *here], lower, lower)
            if slots.gaps:
                free = [s for s in range(len(slots)) if level_of[s] < 0]
                terms = self._terms(g, free)
                constant = 0.0
                for level in range(0, n_levels, 2):
                    if level:
                        terms.append((y[g, level], -1.0))
                    else:
                        constant = 1.0
                    if level + 1 < n_levels:
                        terms.append((y[g, level + 1], 1.0))
                program.row(terms, constant, constant)
            for s, w in used.items():
                program.row([*self._terms(g, [s]), (w, -1.0)], upper=0.0)
        for a, b in self.groups.edges:
            for level in range(1, n_levels):
                program.row([(y[a, level], 1.0), (y[b, level], -1.0)], upper=0.0)

    def _convexity(self) -> None:
        if self.objective.contiguity != "convex":
            return
        program = self.program
        for s, slot in enumerate(self.slots.slots):
            if not self.groups.bound[slot.device]:
                continue
            # Groups from which the slot can still be reached in the start.
            reaches = np.array([self._is(g, s) for g in range(len(self.groups))])
            for _ in range(len(self.groups)):
                before = reaches.copy()
                for a, b in self.groups.edges:
                    reaches[a] = max(reaches[a], reaches[b])
                if np.array_equal(before, reaches):
                    break
            z = [program.variable(reaches[g]) for g in range(len(self.groups))]
            for g in range(len(self.groups)):
                program.row([(z[g], 1.0), *self._terms(g, [s], -1.0)], 0.0)
            for a, b in self.groups.edges:
                program.row([(z[b], 1.0), (z[a], -1.0)], upper=0.0)
                program.row([(z[b], 1.0), *self._terms(a, [s]), *self._terms(b, [s], -1.0)], upper=1.0)

    def _memory(self) -> None:
        for s, slot in enumerate(self.slots.slots):
            capacity = float(self.a.capacity[slot.device])
            if capacity < self.groups.resident.sum():
                # Fractions of a device's memory, where bytes would be too large for a solver with tolerances.
                unit = 1.0 if self.whole or capacity < 1e6 else capacity
                held = [(x, self.groups.resident[g] / unit) for (g, t), x in self.x.items() if t == s]
                self.program.row([(x, m) for x, m in held if m > 0], upper=capacity / unit)

    def _links(self) -> None:
        slots = self.slots
        seen = set()
        for producer, readers, missing in unreachable(self.problem, self.groups):
            for s in range(len(slots)):
                bad = [t for t in range(len(slots)) if slots.possible(s, t) and missing[slots.pair(s, t)]]
                for r in readers:
                    if bad and (producer, r, s, tuple(bad)) not in seen:
                        seen.add((producer, r, s, tuple(bad)))
                        self.program.row([*self._terms(producer, [s]), *self._terms(r, bad)], upper=1.0)

    def _loads(self) -> None:
        """Nets, and the rows of the peaks."""
        program, passes = self.program, len(self.groups.compute_s)
        busy, leave, enter = ([[list[Term]() for _ in range(len(self.slots))] for _ in range(passes)] for _ in range(3))
        compute = self.quantity(np.where(np.isfinite(self.groups.compute_s), self.groups.compute_s, 0.0))
        for (g, s), x in self.x.items():
            for k in range(passes):
                busy[k][s].append((x, compute[k, g, self.slots.slots[s].device]))
        channels = [[list[Term]() for _ in range(self.a.n_channels)] for _ in range(passes)]
        for net in nets_of(self.problem, self.groups):
            for s in range(len(self.slots)):
                self._costs(net, s, leave[net.phase][s], enter[net.phase][s])
            if net.channel_s is not None:
                self._flows(net, channels[net.phase])
        for k, peak in enumerate(program.peaks):
            for b, o, i in zip(busy[k], leave[k], enter[k], strict=True):
                for of_b, of_i, of_o in load_rows(self.objective):
                    terms = [*self._part(b, of_b), *self._part(o, of_o), *self._part(i, of_i)]
                    program.row([*terms, (peak, -1.0)], upper=0.0)
            for terms in channels[k]:
                program.row([*[t for t in terms if t[1] > 0], (peak, -1.0)], upper=0.0)

    def _part(self, terms: Sequence[Term], factor: float) -> list[Term]:
        """Take a part of each term, in whole units again (rounded down), and leave out what is nothing."""
        if not factor:
            return []
        if factor != 1.0:
            terms = [(x, float(quantise_down(factor * c, 1.0)) if self.whole else factor * c) for x, c in terms]
        return [(x, c) for x, c in terms if c > 0]

    def _costs(self, net: Net, s: int, leave: list[Term], enter: list[Term]) -> None:
        """Add what a net costs slot s: variables that are 1 when it leaves or enters."""
        device, a = self.slots.slots[s].device, net.producer
        if not self.a.pays[device]:
            return
        if net.pair_s is not None:
            self._steps(net, s, leave, enter)
            return
        out, into = float(self.quantity(net.leaves_s[device])), float(self.quantity(net.enters_s[device]))
        ends = [self._is(r, s) for r in net.readers]
        mine = self._is(a, s)
        if net.symmetric and len(net.readers) == 1:
            if out > 0:
                cut = self.program.variable(float(mine != ends[0]), free=True)
                leave.append((cut, out))
                self._above(cut, self._terms(a, [s]), self._terms(net.readers[0], [s]))
                self._above(cut, self._terms(net.readers[0], [s]), self._terms(a, [s]))
            return
        if out > 0 and (a, s) in self.x:
            sent = self.program.variable(max(0.0, max(mine - r for r in ends)), free=True)
            leave.append((sent, out))
            for r in net.readers:
                self._above(sent, self._terms(a, [s]), self._terms(r, [s]))
        if into > 0:
            got = self.program.variable(max(0.0, max(r - mine for r in ends)), free=True)
            enter.append((got, into))
            for r in net.readers:
                self._above(got, self._terms(r, [s]), self._terms(a, [s]))

    def _above(self, variable: int, plus: Sequence[Term], minus: Sequence[Term]) -> None:
        """State that a variable is at least the sum of plus less that of minus."""
        if plus:
            self.program.row([(variable, 1.0), *[(x, -c) for x, c in plus], *minus], 0.0)

    def _steps(self, net: Net, s: int, leave: list[Term], enter: list[Term]) -> None:
        """Costs that depend on the other end, one variable a step."""
        assert net.pair_s is not None
        slots, a = self.slots, net.producer
        others = [t for t in range(len(slots)) if slots.possible(s, t)]
        for out, bucket in ((True, leave), (False, enter)):
            times = {}
            for t in others:
                seconds = net.pair_s[slots.pair(s, t) if out else slots.pair(t, s)]
                if np.isfinite(seconds):
                    times[t] = float(self.quantity(seconds))
            below = 0.0
            for step in sorted({c for c in times.values() if c > 0}):
                cheap = [s, *[t for t, c in times.items() if c < step]]
                start = 0.0
                for r in net.readers:
                    here, there = (a, r) if out else (r, a)
                    start = max(start, self._is(here, s) - sum(self._is(there, t) for t in cheap))
                variable = self.program.variable(start, free=True)
                bucket.append((variable, step - below))
                below = step
                for r in net.readers:
                    here, there = (a, r) if out else (r, a)
                    self._above(variable, self._terms(here, [s]), self._terms(there, cheap))

    def _flows(self, net: Net, channels: list[list[Term]]) -> None:
        """Add what a net costs channels: who sends to whom."""
        assert net.channel_s is not None
        program, slots, a = self.program, self.slots, net.producer
        for t in range(len(slots)):
            here = [s for s in range(len(slots)) if slots.possible(s, t) and (a, s) in self.x]
            flows = {}
            arrives = max(self._is(r, t) for r in net.readers)
            for s in here:
                pair = slots.pair(s, t)
                loaded = [int(c) for c in self.a.channel_of[pair] if c >= 0]
                cost = self.quantity(net.channel_s[pair]) if np.isfinite(net.channel_s[pair]) else 0.0
                flows[s] = program.variable(self._is(a, s) * arrives, free=True)
                program.row([(flows[s], 1.0), (self.x[a, s], -1.0)], upper=0.0)
                for c in loaded:
                    channels[c].append((flows[s], float(cost)))
            for r in net.readers:
                if (r, t) in self.x:
                    terms = [(f, 1.0) for f in flows.values()]
                    program.row([*terms, (self.x[r, t], -1.0), *self._terms(a, [t])], 0.0)

    def _start_peaks(self) -> None:
        start = np.array(self.program.start)
        for peak in self.program.peaks:
            value = 0.0
            for terms, _, upper in self.program.rows:
                if terms and terms[-1] == (peak, -1.0) and upper == 0.0:
                    value = max(value, sum(c * start[x] for x, c in terms[:-1]))
            self.program.start[peak] = value
