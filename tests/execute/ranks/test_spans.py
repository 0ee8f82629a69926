"""What ranks saw of a run, put on one clock: worked by hand, then compared with what a trace and a table make of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from placewright.cluster import Cluster, Device, Link
from placewright.execute.ranks import clocks as rank_clocks
from placewright.execute.ranks.run import Outcome, Step
from placewright.execute.ranks.segments import Message, Segment
from placewright.execute.ranks.spans import merged, seen
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.measurement import Measurement, Span
from placewright.plan import Plan, Schedule, Transfer
from placewright.prediction_errors import prediction_errors
from placewright.problem import Problem
from placewright.report import trace

NAMES = {0: "d0", 1: "d1"}


def operator(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name)


def spans() -> tuple[Span, ...]:
    """d0 computes a, b (1 s and 3 s, then a rest of 4 s), and sends x; d1, with a clock 100 s ahead, waits and runs c.

    d0: 10 to 18 computing, of which a takes a quarter; packing 18 to 19, sent at 18.5. d1: waits from 112 to 121, by
    its clock, unpacks until 122, computes until 125. On d0's clock from its start at 10 the transfer is 8.5 to 11.
    """
    x = Message("x", 7, 0, 1, (1,), torch.float32)
    first = Segment((operator("a"), operator("b")), (), (x,))  # type: ignore[arg-type]
    second = Segment((operator("c"),), (x,), ())  # type: ignore[arg-type]
    sender = Outcome({}, 10.0, 19.0, (Step((), 10.0, (10.0, 11.0, 14.0), 18.0, ((18.0, 18.5, 19.0),)),))
    receiver = Outcome({}, 112.0, 125.0, (Step(((112.0, 121.0),), 122.0, (122.0, 125.0), 125.0, ()),))
    rows = [seen([first], sender, NAMES, 0), seen([second], receiver, NAMES, 1)]
    return merged(rows, (0.0, 100.0), NAMES)


def test_spans_of_two_clocks() -> None:
    """Times from d0's start; rests are spread over the operators; the transfer goes from sending to arrival."""
    found = {(s.device, s.kind, s.name): (s.start_s, s.finish_s) for s in spans()}
    assert found == {
        ("d0", "compute", "a"): (0.0, 2.0),
        ("d0", "compute", "b"): (2.0, 8.0),
        ("d0", "handover", "x"): (8.0, 9.0),
        ("d0", "transfer", "x"): (8.5, 11.0),
        ("d1", "wait", "x"): (2.0, 11.0),
        ("d1", "handover", "x"): (11.0, 12.0),
        ("d1", "compute", "c"): (12.0, 15.0),
    }


def test_the_path_through_them() -> None:
    """a, b, half a second of packing, the transfer, unpacking, c: 2 + 6 + 0.5 + 2.5 + 1 + 3 = 15 s."""
    graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 1, (2,), 8)])
    problem = Problem(
        graph, Cluster([Device("d0"), Device("d1")], [Link(1.0, 1e12, link_class="same-host")]), [[1.0, 9.0]] * 3
    )
    schedule = Schedule([0.0, 1.0, 3.0], [1.0, 2.0, 12.0], (Transfer(0, 0, 1, 2.0, 3.0),))
    plan = Plan([0, 0, 1], schedule, 12.0)
    measured = Measurement("plan", (15.0,), 12.0, spans())
    found = prediction_errors(problem, plan, measured)
    assert found is not None
    assert [(p.kind, p.measured_s, p.predicted_s) for p in found.path] == [
        ("compute", 2.0, 1.0), ("compute", 6.0, 1.0), ("handover", 0.5, 0.0), ("transfer", 2.5, 1.0),
        ("handover", 1.0, 0.0), ("compute", 3.0, 9.0),
    ]  # fmt: skip
    events = [e for e in trace(problem, plan, [measured])["traceEvents"] if e["pid"] > 2]
    arrow = [(e["ph"], e["pid"], e["ts"]) for e in events if e["ph"] in "sf"]
    assert arrow == [("s", 3, 9.75e6), ("f", 4, 13.5e6)]  # from the transfer's middle to that of c


def test_a_message_that_was_there_is_marked() -> None:
    """Nobody knows when it came: its end is when it was found."""
    x = Message("x", 7, 0, 1, (1,), torch.float32)
    first = Segment((operator("a"),), (), (x,))  # type: ignore[arg-type]
    second = Segment((operator("c"),), (x,), ())  # type: ignore[arg-type]
    sender = Outcome({}, 0.0, 1.0, (Step((), 0.0, (0.0, 1.0), 1.0, ((1.0, 1.0, 1.0),)),))
    receiver = Outcome({}, 0.0, 6.0, (Step(((5.0, 5.00001),), 5.5, (5.5, 6.0), 6.0, ()),))
    rows = [seen([first], sender, NAMES, 0), seen([second], receiver, NAMES, 1)]
    (transfer,) = [s for s in merged(rows, (0.0, 0.0), NAMES) if s.kind == "transfer"]
    assert transfer.found and (transfer.start_s, transfer.finish_s) == (1.0, 5.00001)


class Ranks:
    """Two ranks on different kernels in one thread: what rank 0 sends is answered by a clock that is ahead."""

    def __init__(self, ahead_s: float, there_s: float, back_s: float) -> None:
        self.now, self.ahead_s, self.there_s, self.back_s, self.answer = 50.0, ahead_s, there_s, back_s, 0.0

    def monotonic(self) -> float:
        return self.now

    def get_rank(self) -> int:
        return 0

    def get_world_size(self) -> int:
        return 2

    def all_gather_object(self, into: list[object], own: object) -> None:
        into[:] = [own, "another kernel"]

    def broadcast_object_list(self, shared: list[object], src: int) -> None:
        assert src == 0

    def send(self, tensor: torch.Tensor, rank: int) -> None:
        self.now += self.there_s
        self.answer = self.now + self.ahead_s

    def recv(self, tensor: torch.Tensor, rank: int) -> None:
        self.now += self.back_s
        self.back_s *= 1.5  # the first answer is the fastest
        tensor[0] = self.answer


def test_clocks_of_two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 s ahead, 3 ms there and 1 ms back: half a round trip is 2 ms, and the estimate is off by 1 ms of them."""
    ranks = Ranks(1000.0, 0.003, 0.001)
    monkeypatch.setattr(rank_clocks, "dist", ranks)
    monkeypatch.setattr(rank_clocks, "time", ranks)
    found = rank_clocks.compare_clocks()
    assert found.error_s == pytest.approx(0.002)
    assert found.ahead_s == pytest.approx((0.0, 1000.001))
    assert abs(found.ahead_s[1] - 1000.0) <= found.error_s
