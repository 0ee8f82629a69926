"""The bound by classes of devices against trying everything, and where it is exact by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import placewright as pw
from placewright.algorithm import Budget
from placewright.bounds.throughput import servers_stages
from placewright.bounds.throughput.servers import servers
from placewright.bounds.throughput.servers_stages import stages_of

from .server_problems import best_by_trying, server_problems


def bound(problem: pw.Problem) -> float:
    result = servers(problem, budget=Budget(), rng=np.random.default_rng(0))
    return float("inf") if result.infeasible else result.lower_bound_s


@given(server_problems(most_operators=3, most_devices=3))
@settings(max_examples=60, deadline=None)
def test_no_plan_is_below_the_bound(problem: pw.Problem) -> None:
    """What trying everything finds (holdings, placements, shares) is never better."""
    assert bound(problem) <= best_by_trying(problem) * (1 + 1e-9)


def chain(weights: list[int], times: list[float], memory: int | None, count: int, **options: object) -> pw.Problem:
    """Operators one after the other, 8-byte tensors, devices of one kind and links of 16 B/s."""
    n = len(weights)
    graph = pw.OperatorGraph(
        [pw.Operator(f"v{k}", weight_bytes=w) for k, w in enumerate(weights)],
        [pw.Tensor(f"t{k}", k, (k + 1,), 8) for k in range(n - 1)],
    )
    devices = [pw.Device(f"d{i}", memory_bytes=memory) for i in range(count)]
    cluster = pw.Cluster(devices, [pw.Link(0.0, 16.0, link_class="same-host")])
    return pw.Problem(graph, cluster, np.tile(np.array(times)[:, None], (1, count)), pw.Throughput(**options))


def test_memory_makes_stages_and_stages_make_transfers() -> None:
    """Four operators of 1 s and a byte each; two fit a device: two stages, one tensor sent and received.

    (4 x 1 + 2 x 8 / 16) / 6 devices = 5 / 6.
    """
    assert bound(chain([1] * 4, [1.0] * 4, 2, 6)) == pytest.approx(5 / 6)
    assert bound(chain([1] * 4, [1.0] * 4, None, 6)) == pytest.approx(4 / 6)
    assert bound(chain([1] * 4, [1.0] * 4, 2, 6, overlap="full")) == pytest.approx(4 / 6)


def test_contiguity_that_the_argument_needs_is_asked_for() -> None:
    """For plans that need not be contiguous nothing is claimed."""
    assert bound(chain([1] * 4, [1.0] * 4, 2, 6, contiguity="any")) == 0.0


def test_states_are_counted_by_class_not_by_device() -> None:
    """From 4 to 1,024 devices the stages stay the same, and so does the bound in device-seconds."""
    few, many = (chain([1] * 8, [1.0] * 8, 3, count) for count in (4, 1024))
    tables = [stages_of(problem, Budget()).table for problem in (few, many)]
    assert tables[0].load.shape == tables[1].load.shape
    assert bound(few) * 4 == pytest.approx(bound(many) * 1024)


def test_synchronisation_is_counted() -> None:
    """One operator of 1 s and 8 bytes on 2 devices, 4 B/s: alone 1 s; halved it takes 1/2 and 2 (1/2) 8 / 4 / 8 = 1/4.

    The second way to price it finds nearly that.
    """
    graph = pw.OperatorGraph([pw.Operator("v", weight_bytes=8), pw.Operator("b", backward=True)], [], [(0, 1)])
    cluster = pw.Cluster([pw.Device("a"), pw.Device("b")], [pw.Link(0.0, 4.0, link_class="same-host")])
    found = bound(pw.Problem(graph, cluster, [[0.5, 0.5], [0.5, 0.5]], pw.Throughput(sync_period=8)))
    assert 0.7 < found <= 0.75


def test_nothing_is_claimed_when_stages_are_too_many_or_not_all_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators on a device of one class have three stages: with room for two, or a cancelled budget, no bound."""
    problem, budget = chain([1, 1], [1.0, 1.0], None, 1), Budget()
    budget.cancelled.set()
    assert servers(problem, budget=budget, rng=np.random.default_rng(0)).lower_bound_s == 0.0
    monkeypatch.setattr(servers_stages, "MOST_LOADS", 2)
    assert bound(problem) == 0.0
    monkeypatch.setattr(servers_stages, "MOST_LOADS", 3)
    assert bound(problem) == pytest.approx(2.0)
