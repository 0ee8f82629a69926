"""Teams of servers: legal, never below what trying everything finds, and best where that is known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import placewright as pw
from placewright.algorithm import Budget
from placewright.bounds.throughput.servers import servers as bound_of
from placewright.solvers.throughput.servers import ServerTeams
from placewright.solvers.throughput.servers_line import line_of
from placewright.solvers.throughput.servers_pipeline import Pipeline
from placewright.solvers.throughput.servers_teams import Team, chosen, kinds_of, teams_of
from placewright.verify import verify

from .server_problems import best_by_trying, server_problems


def solved(problem: pw.Problem, **options: object) -> pw.Result:
    return ServerTeams(**options)(problem, budget=Budget(), rng=np.random.default_rng(0))


def bound(problem: pw.Problem) -> float:
    return bound_of(problem, budget=Budget(), rng=np.random.default_rng(0)).lower_bound_s


def network(weights: list[int], size: int = 8, *, training: bool = False) -> pw.OperatorGraph:
    """Operators one after the other; in training each with a backward one, which sends a gradient of the same size."""
    n = len(weights)
    operators = [pw.Operator(f"v{k}", weight_bytes=w) for k, w in enumerate(weights)]
    tensors = [pw.Tensor(f"t{k}", k, (k + 1,), size) for k in range(n - 1)]
    if not training:
        return pw.OperatorGraph(operators, tensors)
    operators += [pw.Operator(f"b{k}", backward=True) for k in range(n - 1, -1, -1)]
    tensors += [pw.Tensor(f"g{k}", 2 * n - 1 - (k + 1), (2 * n - 1 - k,), size) for k in range(n - 1)]
    return pw.OperatorGraph(operators, tensors, [(k, 2 * n - 1 - k) for k in range(n)])


def cluster(hosts: int, per_host: int, memory: int | None, channel: str = "") -> pw.Cluster:
    devices = [pw.Device(f"h{h}.{k}", host=f"h{h}", memory_bytes=memory) for h in range(hosts) for k in range(per_host)]
    links = [
        pw.Link(0.0, 64.0, link_class="same-host"),
        pw.Link(0.0, 8.0, link_class="between-hosts", channel=channel),
    ]
    return pw.Cluster(devices, links)


@given(server_problems(most_operators=3, most_devices=3))
@settings(max_examples=50, deadline=None)
def test_plans_are_legal_and_not_below_the_best(problem: pw.Problem) -> None:
    """Every plan passes the checker, is no better than trying everything and no worse than the bound."""
    plan = solved(problem).plan
    if plan is not None:
        assert verify(problem, plan) == ()
        assert plan.value_s >= best_by_trying(problem) * (1 - 1e-9)


@pytest.mark.filterwarnings("error")
def test_a_tensor_that_cannot_travel_stays_and_the_others_go() -> None:
    """Only the position that it crosses is barred: not the whole way between two devices."""
    table = np.zeros((2, 2, 2))
    table[0, [0, 1], [1, 0]] = np.inf
    table[1, [0, 1], [1, 0]] = 1.0
    two = pw.Cluster([pw.Device(f"d{i}", memory_bytes=2) for i in range(2)])
    problem = pw.Problem(network([1, 1, 1]), two, pw.Times(np.ones((3, 2)), table), pw.Throughput())
    plan = solved(problem).plan  # both devices are full, so one copy: v0 and v1 take 2 s, and v1's tensor leaves in 1 s
    assert plan is not None
    assert (plan.value_s, plan.device_of.tolist()) == (3.0, [0, 0, 1])


@pytest.mark.filterwarnings("error")
def test_cpus_without_a_link_do_not_pass_samples_on() -> None:
    """CPUs pay nothing for transfers, but where there is no way there is none: all stays on the one that holds it."""
    two = pw.Cluster([pw.Device("large", "cpu", memory_bytes=2), pw.Device("small", "cpu", memory_bytes=1)])
    problem = pw.Problem(network([1, 1]), two, [[1.0, 1.0]] * 2, pw.Throughput())
    plan = solved(problem).plan
    assert plan is not None
    assert (plan.value_s, plan.device_of.tolist()) == (2.0, [0, 0])


def test_many_equal_servers_reach_the_bound() -> None:
    """1,024 devices, eight to a host, a network of eight equal operators of which two fit a device: four stages.

    Four operators of 1 s in the middle send and receive 8 bytes at 64 B/s on either side: (8 + 6 x 8 / 64) / 1,024, as
    the first and last stage pay half. Their cuts can't be moved, so a middle stage decides: (2 + 2 x 8 / 64) / 256.
    """
    problem = pw.Problem(network([1] * 8), cluster(128, 8, 2), np.ones((8, 1024)), pw.Throughput())
    plan = solved(problem).require_plan()
    assert plan.devices_used == tuple(range(1024)) and verify(problem, plan) == ()
    assert plan.value_s == pytest.approx((2 + 2 * 8 / 64) / 256)
    assert bound(problem) == pytest.approx((8 + 6 * 8 / 64) / 1024)


def test_copies_that_differ_in_their_cuts_even_out_the_loads() -> None:
    """Three operators of 1 s on two devices that hold two each: cut here for one half, there for the other, 1.5 + sent.

    A stage of 1 or 2 s plus 0.125 s of sending: mixed in equal parts (1.5 + 0.125), where one cut takes 2.125 s.
    """
    problem = pw.Problem(network([1] * 3), cluster(1, 2, 2), np.ones((3, 2)), pw.Throughput())
    assert solved(problem).value_s == pytest.approx(1.625)
    assert solved(problem, most_copies=1).value_s == pytest.approx(2.125)


def test_servers_of_two_kinds_that_only_hold_the_network_together() -> None:
    """Two hosts of one device each, with 2 and 1 bytes: the three operators fit but one way."""
    devices = [pw.Device("large", host="a", memory_bytes=2), pw.Device("small", host="b", memory_bytes=1)]
    links = [pw.Link(0.0, 8.0, link_class="between-hosts")]
    problem = pw.Problem(network([1] * 3), pw.Cluster(devices, links), np.ones((3, 2)), pw.Throughput())
    plan = solved(problem).require_plan()
    assert plan.value_s == pytest.approx(3.0)  # two operators and a tensor of 8 bytes at 8 B/s
    assert len(plan.copies) == 1


def test_a_port_that_the_devices_of_a_server_share_counts() -> None:
    """Two hosts of two devices, networks across hosts: 8 bytes at 8 B/s take 1 s of each port, more than computing."""
    small = np.full((4, 4), 0.25)
    free, shared = (
        pw.Problem(network([1] * 4), cluster(2, 2, 1, channel), small, pw.Throughput()) for channel in ("", "nic")
    )
    for problem in (free, shared):
        plan = solved(problem).require_plan()
        assert verify(problem, plan) == ()
        assert plan.value_s == pytest.approx(0.25 + 0.125 + 1.0)


def test_dear_synchronisation_makes_pipelines_deeper() -> None:
    """Eight operators on eight devices that hold all: copies when synchronisation is seldom, stages when it is not."""
    seldom, often = (
        pw.Problem(
            network([8] * 8, size=1, training=True),
            cluster(1, 8, None),
            np.ones((16, 8)),
            pw.Throughput(sync_period=period),
        )
        for period in (10_000, 1)
    )
    assert len(solved(seldom).require_plan().copies) == 8
    plan = solved(often).require_plan()
    assert len(plan.copies) == 1 and len(plan.devices_used) == 8
    assert verify(often, plan) == ()


def test_the_best_numbers_of_teams_are_found() -> None:
    """Five servers; two of them make 5, three make 9: one of each is 14, and better than two pairs at 10."""
    pair, triple = (Team((n,), (((0, 0, 0),),)) for n in (2, 3))
    assert chosen([pair, triple], [5.0, 9.0], [5]) == [1, 1]
    assert chosen([pair, triple], [5.0, 0.0], [5]) == [2, 0]
    assert chosen([pair, triple], [0.0, 0.0], [5]) == [0, 0]


def test_states_do_not_grow_with_the_number_of_servers() -> None:
    """However many servers there are, no more than 80 teams are tried."""
    counts = []
    for hosts in (9, 32, 128):
        problem = pw.Problem(network([1] * 8), cluster(hosts, 8, 1), np.ones((8, 8 * hosts)), pw.Throughput())
        kinds = kinds_of(problem)
        assert [len(kind) for kind in kinds] == [hosts]
        counts.append(len(list(teams_of(line_of(problem), kinds))))
    assert max(counts) <= 80


def test_teams_of_one_kind_come_before_those_of_two_and_none_takes_more_than_there_is() -> None:
    """Twelve servers of twelve kinds: a budget that ends early has seen every server by itself, and all together."""
    problem = pw.Problem(
        network([1] * 8),
        pw.Cluster(
            [pw.Device(f"h{h}", host=f"h{h}", memory_bytes=2 + h) for h in range(12)],
            [pw.Link(0.0, 8.0, link_class="between-hosts")],
        ),
        np.ones((8, 12)),
        pw.Throughput(),
    )
    kinds = kinds_of(problem)
    taken = [team.takes for team in teams_of(line_of(problem), kinds)]
    assert {len(kind) for kind in kinds} == {1} == {max(takes) for takes in taken}
    assert [sum(takes) for takes in taken] == [*[1] * 12, 12, *[2] * (len(taken) - 13)]


def test_cuts_are_the_best_ones() -> None:
    """Against all ways to cut six operators of random times into three stages on unlike devices."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        problem = pw.Problem(network([1] * 6), cluster(3, 1, 4), rng.uniform(0.5, 2.0, (6, 3)), pw.Throughput())
        line = line_of(problem)
        rate, cuts = Pipeline(line, (0, 1, 2)).cut(np.zeros(7))
        values = []
        for a in range(1, 6):
            for b in range(a + 1, 6):
                judged = pw.evaluate(problem, line.placed([0, a, b, 6], (0, 1, 2)))
                values += [judged.value_s] if judged.feasible else []
        assert 1.0 / rate <= min(values) * (1 + 1e-9)  # stages may be empty too
        assert pw.evaluate(problem, line.placed(cuts, (0, 1, 2))).value_s <= 1.0 / rate * (1 + 1e-9)


def test_the_same_plan_every_time_and_one_when_it_is_cut_short() -> None:
    """Placements and shares are equal in two runs; a cancelled run returns what it was given."""
    problem = pw.Problem(network([1] * 5), cluster(4, 2, 2), np.ones((5, 8)), pw.Throughput())
    first, second = (solved(problem).require_plan() for _ in range(2))
    assert [(c.device_of.tolist(), c.share) for c in first.copies] == [
        (c.device_of.tolist(), c.share) for c in second.copies
    ]
    budget = Budget()
    budget.cancelled.set()
    stopped = ServerTeams()(problem, budget=budget, rng=np.random.default_rng(0), incumbent=first)
    assert stopped.plan is first
