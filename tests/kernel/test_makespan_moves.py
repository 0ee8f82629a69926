"""A schedule that is timed only where a change reaches is the schedule that is timed in full, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest

import placewright as pw
from placewright._kernel.changes import begin, put_unit, reorder, shift, turn
from placewright._kernel.makespan_search import KINDS, activations_on, kept_cost, search_schedules, search_state
from placewright._kernel.memory import peak_activations
from placewright._kernel.path import tails
from placewright._kernel.schedule import Network, decode, workspace
from placewright._kernel.standing import Standing, retime, revert, standing
from placewright._kernel.standing_kept import commit, rebuild
from placewright.arrays import Arrays, arrays_of
from placewright.solvers.makespan.start import limits_of

KEPT = ("start", "finish", "span", "tail", "away_in", "away_out", "readers_on", "present", "resident", "ended", "ahead")


def random_problem(rng: np.random.Generator, contention: str, most: int = 90) -> pw.Problem:
    """Graphs with near and far readers, unlike devices, cuts, classes, channels and memory; times exact in binary."""
    n, D = int(rng.integers(3, most)), int(rng.integers(2, 5))
    tensors = []
    for v in range(n - 1):
        for copy in range(int(rng.integers(0, 3))):
            reach = min(n, v + 1 + int(rng.choice([5, 20, n])))
            readers = {int(x) for x in rng.integers(v + 1, reach, int(rng.integers(1, 4)))}
            tensors.append(pw.Tensor(f"t{v}.{copy}", v, tuple(sorted(readers)), int(rng.integers(0, 64))))
    operators = [pw.Operator(f"v{v}", weight_bytes=int(rng.integers(0, 100))) for v in range(n)]
    classes = [sorted({int(x) for x in rng.integers(0, n, 3)})] if rng.random() < 0.5 else []
    graph = pw.OperatorGraph(operators, tensors, [k for k in classes if len(k) > 1])
    total = sum(v.weight_bytes for v in operators)
    devices = [
        pw.Device(f"d{i}", memory_bytes=int(rng.choice([total, 9**9])), cut_overhead_s=float(rng.choice([0, 0.25])))
        for i in range(D)
    ]
    channel = "bus" if rng.random() < 0.4 else ""
    link = pw.Link(float(rng.choice([0.0, 0.25, 1.0])), 64.0, link_class="same-host", channel=channel)
    objective = pw.Makespan(contention)  # type: ignore[arg-type]
    return pw.Problem(graph, pw.Cluster(devices, [link]), rng.integers(0, 16, (n, D)) / 8, objective)


def in_full(a: Arrays, c: Standing) -> tuple[float, Standing]:
    """Time the placement, order and sending of a standing schedule afresh."""
    other = standing(a.network, c.device, c.order, c.eager)
    return rebuild(a.network, other, a.unit_of, a.resident), other


def window_of(g: Network, c: Standing, v: int) -> tuple[int, int]:
    """Positions that an operator may take."""
    read = g.read[g.read_ptr[v] : g.read_ptr[v + 1]]
    readers = g.reader[g.reader_ptr[g.made_ptr[v]] : g.reader_ptr[g.made_ptr[v + 1]]]
    low = max((int(c.position[g.producer[u]]) + 1 for u in read), default=0)
    return low, min((int(c.position[x]) - 1 for x in readers), default=len(c.order) - 1)


class Change:
    """A random change that can be taken back."""

    def __init__(self, a: Arrays, c: Standing, rng: np.random.Generator, mixed: bool) -> None:
        self.a, self.c = a, c
        self.came_from: list[tuple[int, int]] = []
        self.shifted: tuple[int, int] | None = None
        self.turned: int | None = None
        self.old: npt.NDArray[np.int32] | None = None
        g, n = a.network, len(c.order)
        begin(c)
        kind = int(rng.integers(0, 5))
        first = int(rng.integers(0, n))
        if kind < 2:
            count, j = (1 if kind == 0 else int(rng.integers(1, 12))), int(rng.integers(0, g.processing.shape[1]))
            for v in c.order[first : first + count].tolist():
                k = int(a.unit_of[v])
                self.came_from.append((k, int(c.device[v])))
                put_unit(g, c, a.member_ptr, a.member, a.resident, k, j)
        elif kind == 2:
            low, high = window_of(g, c, int(c.order[first]))
            self.shifted = first, int(rng.integers(low, high + 1))
            shift(c, *self.shifted)
        elif kind == 3 and mixed and len(g.producer):
            self.turned = int(rng.integers(0, len(g.producer)))
            turn(g, c, self.turned)
        elif kind == 4:
            self.first, self.old = first, c.order[first : first + 8].copy()
            reorder(c, first, np.sort(self.old))  # operators are numbered topologically

    def take_back(self) -> None:
        """Undo it, the last step first."""
        g, a, c = self.a.network, self.a, self.c
        begin(c)
        if self.shifted is not None:
            shift(c, self.shifted[1], self.shifted[0])
        if self.turned is not None:
            turn(g, c, self.turned)
        if self.old is not None:
            reorder(c, self.first, self.old)
        for k, i in reversed(self.came_from):
            put_unit(g, c, a.member_ptr, a.member, a.resident, k, i)


@pytest.mark.parametrize("contention", ["none", "link", "port"])
@pytest.mark.parametrize("sending", ["asked", "made", "mixed"])
def test_timing_where_a_change_reaches_is_timing_in_full(contention: str, sending: str) -> None:
    """Moves of units, of operators in the order, of windows, of sending; kept and taken back; with limits and without.

    Makespan, times, tails and counts are equal to the bit; where all tensors are sent alike, ``decode`` agrees too.
    """
    rng = np.random.default_rng([ord(contention[0]), ord(sending[1])])
    kept = rejected = 0
    for _ in range(25):
        a = arrays_of(random_problem(rng, contention))
        g = a.network
        n, T = len(a.unit_of), len(g.producer)
        eager = np.full(T, sending == "made") if sending != "mixed" else rng.random(T) < 0.5
        device = rng.integers(0, g.processing.shape[1], n).astype(np.int32)
        device = device[a.member[a.member_ptr[:-1]]][a.unit_of]
        c = standing(g, device, np.arange(n, dtype=np.int32), eager)
        value = rebuild(g, c, a.unit_of, a.resident)
        low = tails(g)[1].min(axis=1)
        for _ in range(30):
            change = Change(a, c, rng, sending == "mixed")
            if c.reach[1] < 0:
                continue
            limit = np.inf if rng.random() < 0.4 else value * float(rng.uniform(0.9, 1.1))
            found = retime(g, c, limit, low)
            full, fresh = in_full(a, c)
            if sending != "mixed":
                assert decode(g, c.order, c.device, sending == "asked", np.zeros(n), np.inf, workspace(g)) == full
            assert found == (full if full <= limit else np.inf)
            if np.isfinite(found) and rng.random() < 0.7:
                commit(g, c)
                value, kept = full, kept + 1
            else:
                revert(c)
                change.take_back()
                fresh, rejected = in_full(a, c)[1], rejected + 1
            for name in KEPT:
                assert np.array_equal(getattr(c, name), getattr(fresh, name)), name
    assert kept > 100
    assert rejected > 100


def test_tails_are_the_longest_ways_to_the_end() -> None:
    """Finish plus tail is never above the makespan, reaches it on a critical way, and one operator has no tail at all.

    Two operators of 1 s on one device, then 1 s of transfer and 2 s on the other: 2 + 1 + 2; the tail of the first is
    1 + 1 + 2, of the second 1 + 2.
    """
    graph = pw.OperatorGraph([pw.Operator(k) for k in "abc"], [pw.Tensor("x", 1, (2,), 64)])
    pair = pw.Cluster([pw.Device("p"), pw.Device("q")], [pw.Link(0.0, 64.0, link_class="same-host")])
    a = arrays_of(pw.Problem(graph, pair, [[1.0, 2.0]] * 3))
    c = standing(a.network, np.array([0, 0, 1], dtype=np.int32), np.arange(3, dtype=np.int32), np.zeros(1, dtype=bool))
    assert rebuild(a.network, c, a.unit_of, a.resident) == 5.0
    assert c.tail.tolist() == [4.0, 3.0, 0.0]


@pytest.mark.parametrize("contention", ["none", "link", "port"])
def test_after_a_search_everything_is_as_timed_afresh(contention: str) -> None:
    """Also peaks of live tensors are those of the full computation, and the best placement has the best value."""
    rng = np.random.default_rng(5)
    moves = 0.0
    for _ in range(12):
        a = arrays_of(random_problem(rng, contention))
        g, limits, n = a.network, limits_of(a), len(a.unit_of)
        c = standing(g, np.zeros(n, dtype=np.int32), np.arange(n, dtype=np.int32), rng.random(len(g.producer)) < 0.5)
        rebuild(g, c, a.unit_of, a.resident)
        s = search_state(g, c, len(a.resident))
        kept_cost(g, limits, c, s)
        before = float(s.value[1])
        everyone, low = np.arange(n, dtype=np.int32), tails(g)[1].min(axis=1)
        heat = 0.02 * float(c.ended.max())
        search_schedules(g, limits, c, s, np.ones(len(KINDS)), everyone, low, 0.0, heat, heat, 600, rng)
        moves += s.tried.sum()
        full, fresh = in_full(a, c)
        assert s.value[0] == full
        for name in KEPT:
            assert np.array_equal(getattr(c, name), getattr(fresh, name)), name
        w = workspace(g)
        w.start[:], w.finish[:], w.sent[:], w.arrival[:] = c.start, c.finish, c.sent, c.arrival
        peaks = peak_activations(g, c.device, a.output, w)
        for i in range(len(peaks)):
            assert activations_on(g, c, a.output, i, s.events) == peaks[i]
        assert s.value[1] <= before
        if np.isfinite(s.value[1]):
            best = standing(g, s.best_device, s.best_order, s.best_eager)
            assert rebuild(g, best, a.unit_of, a.resident) == s.value[1]
            assert (best.resident <= a.capacity).all()
    assert moves > 1_000


PROGRAM = """
import json
import numpy as np
import placewright as pw
from placewright._kernel.schedule import compiled
from placewright.algorithm import Budget
from placewright.solvers.makespan.large_neighbourhood import LargeNeighbourhood

rng = np.random.default_rng(7)
n = 12
graph = pw.OperatorGraph(
    [pw.Operator(f"v{k}", weight_bytes=int(rng.integers(1, 50))) for k in range(n)],
    [pw.Tensor(f"t{k}", k, tuple(sorted({k + 1, int(rng.integers(k + 1, n))})), 40) for k in range(n - 1)],
)
cluster = pw.Cluster(
    [pw.Device(f"d{i}", memory_bytes=700, cut_overhead_s=0.1) for i in range(3)],
    [pw.Link(0.1, 100.0, link_class="same-host", channel="bus")],
)
problem = pw.Problem(graph, cluster, rng.uniform(0.1, 2.0, (n, 3)), pw.Makespan("port"))
search = LargeNeighbourhood(cycles=2, windows=False)
plan = search(problem, budget=Budget(iterations=300), rng=np.random.default_rng(1)).require_plan()
print(json.dumps([compiled(), plan.value_s, plan.device_of.tolist(), plan.schedule.start_s.tolist()]))
"""


def _run(disable: str) -> list[object]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disable}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    shown: list[object] = json.loads(done.stdout)
    return shown


def test_without_the_compiler_the_search_finds_the_same_plan_to_the_bit() -> None:
    """``NUMBA_DISABLE_JIT=1`` runs the same source as Python: value, placement and start times are equal."""
    fast, slow = _run("0"), _run("1")
    assert [fast[0], slow[0]] == [True, False]
    assert fast[1:] == slow[1:]
