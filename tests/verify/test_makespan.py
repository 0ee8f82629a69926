"""The independent checker, against plans whose arithmetic is worked in comments, legal and with one rule broken."""

import math
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.plan import Plan, Schedule, Transfer
from placewright.problem import Problem, Times, Wish
from placewright.verify import verify

BOX = Link(1.0, 10.0, link_class="same-host")  # 1 s + bytes / (10 B/s)


def two_devices(**first):
    return Cluster([Device("d0", cut_overhead_s=0.5, **first), Device("d1", cut_overhead_s=0.25)], [BOX])


def diamond(**tensors):
    """a makes x for b and c, b makes y for c, c makes z, the output."""
    named = {
        "x": Tensor("x", 0, (1, 2), size_bytes=10),
        "y": Tensor("y", 1, (2,), size_bytes=20),
        "z": Tensor("z", 2, (), size_bytes=7, output=True),
    }
    return OperatorGraph([Operator("a"), Operator("b"), Operator("c")], (named | tensors).values())


def problem_of(graph=None, cluster=None, **options):
    graph = graph or diamond()
    cluster = cluster or two_devices()
    rows = [[p] * len(cluster) for p in (3.0, 4.0, 5.0)]
    return Problem(graph, cluster, options.pop("times", rows), **options)


# a and c on d0, b on d1.
# a: 3 + 0.5 (x is read elsewhere)                                 0   .. 3.5
# x to d1: 1 + 10/10 = 2                                           3.5 .. 5.5
# b: 4 + 0.25 (reads x from elsewhere) + 0.25 (y is read elsewhere) 5.5 .. 10
# y to d0: 1 + 20/10 = 3                                           10  .. 13
# c: 5 + 0.5 (reads y from elsewhere)                              13  .. 18.5
X = Transfer(0, 0, 1, 3.5, 5.5)
Y = Transfer(1, 1, 0, 10.0, 13.0)
LEGAL = Plan([0, 1, 0], Schedule([0.0, 5.5, 13.0], [3.5, 10.0, 18.5], (X, Y)), 18.5)


def changed(plan=LEGAL, *, device_of=None, value_s=None, transfers=None, **at):
    """The plan with other devices, value or transfers, and with start_s / finish_s replaced: start={2: 12.0}."""
    times = {"start": plan.schedule.start_s.copy(), "finish": plan.schedule.finish_s.copy()}
    for which, new in at.items():
        for v, seconds in new.items():
            times[which][v] = seconds
    legs = plan.schedule.transfers if transfers is None else transfers
    value = plan.value_s if value_s is None else value_s
    where = plan.device_of if device_of is None else device_of
    return Plan(where, Schedule(times["start"], times["finish"], tuple(legs)), value)


def test_a_legal_plan_has_no_violations():
    """The worked plan is legal under every contention rule."""
    for contention in ("none", "link", "port"):
        assert verify(problem_of(objective=Makespan(contention)), LEGAL) == ()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (changed(value_s=18.4), "states a value of 18.4 s, but its last operator finishes at 18.5 s"),
        (changed(value_s=math.nan), "states a value of nan s"),
        (changed(start={0: -1.0}, finish={0: 2.5}), "operator 'a' starts at -1.0 s, before 0"),
        (changed(finish={0: 3.0}), "operator 'a' takes 3.0 s on 'd0', but its time there is 3.5 s"),
        (changed(finish={1: 9.75}), "operator 'b' takes 4.25 s on 'd1', but its time there is 4.5 s"),
        (changed(finish={2: 18.0}), "operator 'c' takes 5.0 s on 'd0', but its time there is 5.5 s"),
        (changed(start={2: 12.0}, finish={2: 17.5}), "'c' starts at 12.0 s, before its input 'y' is there at 13.0 s"),
        (changed(start={1: 5.0}, finish={1: 9.5}), "'b' starts at 5.0 s, before its input 'x' is there at 5.5 s"),
        (
            changed(transfers=[replace(X, start_s=3.0, finish_s=5.0), Y]),
            "transfer of 'x' from 'd0' to 'd1' starts at 3.0 s, before it is made at 3.5 s",
        ),
        (
            changed(transfers=[replace(X, finish_s=5.25), Y]),
            "'x' from 'd0' to 'd1' takes 1.75 s, but its time is 2.0 s",
        ),
        (
            changed(transfers=[Y]),
            "tensor 'x' is read on 'd1' and made on 'd0'; that takes one transfer, the plan has 0",
        ),
        (changed(transfers=[X, X, Y]), "that takes one transfer, the plan has 2"),
        (
            changed(transfers=[X, Y, replace(Y, source=0, target=1)]),
            "'y' from 'd0' to 'd1': the tensor is made on 'd1'",
        ),
        (changed(transfers=[X, Y, Transfer(2, 0, 1, 18.5, 20.2)]), "'z' from 'd0' to 'd1': nothing on 'd1' needs it"),
        (changed(device_of=[0, 2, 0]), "operator 'b' is on device 2; there are only 0..1"),
        (changed(start={1: math.nan}), "operator 'b' runs from nan s to 10.0 s"),
        (changed(transfers=[X, replace(Y, tensor=3)]), "names a tensor outside 0..2"),
        (changed(transfers=[X, replace(Y, finish_s=math.inf)]), "transfer of 'y' has no finite times"),
        (Plan([0, 1], Schedule([0.0], [1.0, 2.0, 3.0]), 3.0), "gives devices for 2 operators, but the problem has 3"),
    ],
)
def test_each_planted_violation_is_named(plan, message):
    """One broken rule yields a line that names it."""
    assert any(message in line for line in verify(problem_of(), plan)), verify(problem_of(), plan)


def test_times_are_compared_up_to_the_tolerance():
    """A shift of 1e-10 of the makespan passes, one of 1e-8 does not."""
    assert verify(problem_of(), changed(value_s=18.5 * (1 + 1e-10))) == ()
    assert len(verify(problem_of(), changed(value_s=18.5 * (1 + 1e-8)))) == 1


def test_readers_on_the_producers_device_wait_for_it():
    """All on d0 without cuts: a 0..3, b 3..7, c 7..12; b earlier overlaps a and reads x too early."""
    alone = Plan([0, 0, 0], Schedule([0.0, 3.0, 7.0], [3.0, 7.0, 12.0]), 12.0)
    assert verify(problem_of(), alone) == ()
    early = verify(problem_of(), changed(alone, start={1: 2.0}, finish={1: 6.0}))
    assert early == (
        "operator 'a' and operator 'b' overlap on 'd0'",
        "operator 'b' starts at 2.0 s, before its input 'x' is made at 3.0 s",
    )


def test_an_operator_of_zero_time_sits_at_boundaries_only():
    """Zero-length operators may share an instant with a start or finish, but not lie inside another operator."""
    graph = OperatorGraph([Operator("long"), Operator("zero"), Operator("next")])
    problem = Problem(graph, Cluster([Device("d")]), [[5.0], [0.0], [2.0]])
    for instant, legal in ((0.0, True), (5.0, True), (7.0, True), (3.0, False), (6.0, False)):
        found = verify(problem, Plan([0, 0, 0], Schedule([0.0, instant, 5.0], [5.0, instant, 7.0]), 7.0))
        assert (found == ()) == legal, (instant, found)


def test_the_device_must_be_able_and_allowed():
    """Infinite times, pins and forbids (patterns, fused parts) are worked out anew from what was given."""
    rows = np.array([[3.0, 3.0], [4.0, math.inf], [5.0, 5.0]])
    assert "operator 'b' is on 'd1', which can't run it" in verify(problem_of(times=rows), LEGAL)
    assert "but b=d0 pins it elsewhere" in verify(problem_of(wishes=[Wish("b", "d0")]), LEGAL)[0]
    assert "but ?=d1 forbids it" in verify(problem_of(wishes=[Wish("?", "d1", forbid=True)]), LEGAL)[0]
    fused = OperatorGraph([Operator("a"), Operator("b", parts=("b.conv", "b.relu")), Operator("c")], diamond().tensors)
    assert "b.relu=d0 pins it" in verify(problem_of(fused, wishes=[Wish("b.relu", "d0")]), LEGAL)[0]
    assert verify(problem_of(fused, wishes=[Wish("b.relu", "d*"), Wish("c", "d1", forbid=True)]), LEGAL) == ()


def test_a_colocation_class_shares_a_device():
    """b and c must be together, the plan parts them."""
    tied = OperatorGraph(diamond().operators, diamond().tensors, [(1, 2)])
    assert verify(problem_of(tied), LEGAL) == ("operator 'b' and its colocation class of 2 are on 'd0', 'd1'",)


def test_a_missing_link_and_a_given_table():
    """Without a link the devices are unreachable; a table of transfer times overrides the links."""
    apart = Cluster(two_devices().devices)
    found = verify(problem_of(cluster=apart), LEGAL)
    assert found[0] == "transfer of 'x' from 'd0' to 'd1': there is no link between them"
    table = np.full((3, 2, 2), 2.0)
    table[1] = 3.0
    assert verify(problem_of(cluster=apart, times=Times([[p] * 2 for p in (3.0, 4.0, 5.0)], table)), LEGAL) == ()
    table[0, 0, 1] = math.inf
    found = verify(problem_of(cluster=apart, times=Times([[p] * 2 for p in (3.0, 4.0, 5.0)], table)), LEGAL)
    assert found == ("transfer of 'x' from 'd0' to 'd1': there is no link between them",)


def test_the_rule_of_a_pair_overrides_its_class_and_one_way_is_one_way():
    """x takes 2 s by the one-way pair, y takes 3 s by the class: the slow class before and the fast pair don't hold."""
    slow = Link(9.0, 1.0, link_class="same-host")
    one_way = Link(1.0, 10.0, between=("d0", "d1"), one_way=True)
    links = [slow, Link(5.0, 5.0, between=("d0", "d1"), one_way=True), one_way, BOX]
    assert verify(problem_of(cluster=Cluster(two_devices().devices, links)), LEGAL) == ()


# Four independent transfers. Devices s0 s1 (host A), t0 t1 (host B); every transfer takes 1 s, every operator 1 s.
# Operators: m0 on s0 makes u, m1 on s1 makes w, at 1; readers are one for each tensor and target.
def crossing(contention, legs, links, size=10):
    """A plan with the given (tensor, target, start) legs; u comes from s0, w from s1; each target has one reader."""
    devices = [Device("s0", host="A"), Device("s1", host="A"), Device("t0", host="B"), Device("t1", host="B")]
    operators, tensors, where, starts = [Operator("m0"), Operator("m1")], [], [0, 1], [0.0, 0.0]
    readers = {0: [], 1: []}
    for tensor, target, _ in legs:
        readers[tensor].append(len(operators))
        operators.append(Operator(f"r{len(operators)}"))
        where.append(target)
        starts.append(10.0 + len(operators))
    for u, name in enumerate("uw"):
        tensors.append(Tensor(name, u, tuple(readers[u]), size_bytes=size))
    problem = Problem(
        OperatorGraph(operators, tensors), Cluster(devices, links), np.ones((len(operators), 4)), Makespan(contention)
    )
    duration = size / 10
    sent = tuple(Transfer(u, u, target, start, start + duration) for u, target, start in legs)
    return problem, Plan(where, Schedule(starts, np.add(starts, 1.0), sent), max(starts) + 1.0)


PLAIN = (Link(0.0, 10.0, link_class="between-hosts"),)


def overlaps(contention, legs, links=PLAIN, size=10):
    return [line.split(" overlap on ")[1] for line in verify(*crossing(contention, legs, links, size))]


def test_link_contention_keeps_two_transfers_on_one_link_apart():
    """s0 makes two tensors for t0: under link they may not overlap, without contention they may, touching is fine."""
    operators = [Operator("m0"), Operator("m1"), Operator("r")]
    tensors = [Tensor("u", 0, (2,), size_bytes=10), Tensor("w", 1, (2,), size_bytes=10)]
    cluster = Cluster([Device("s0"), Device("t0")], [Link(0.0, 10.0, link_class="same-host")])

    def found(contention, second):
        legs = (Transfer(0, 0, 1, 2.0, 3.0), Transfer(1, 0, 1, second, second + 1.0))
        plan = Plan([0, 0, 1], Schedule([0.0, 1.0, 9.0], [1.0, 2.0, 10.0], legs), 10.0)
        return verify(Problem(OperatorGraph(operators, tensors), cluster, np.ones((3, 2)), Makespan(contention)), plan)

    assert found("none", 2.5) == ()
    assert found("link", 3.0) == ()
    assert found("link", 2.5) == (
        "transfer of 'u' from 's0' to 't0' and transfer of 'w' from 's0' to 't0' overlap on the link from 's0' to 't0'",
    )
    assert len(found("port", 2.5)) == 2  # out of s0, and into t0


def test_port_contention_counts_both_ends():
    """Different links: two transfers out of one device, or into one device, exclude each other under port only."""
    out_of_one, into_one, disjoint = [(0, 2, 2.0), (0, 3, 2.5)], [(0, 2, 2.0), (1, 2, 2.5)], [(0, 2, 2.0), (1, 3, 2.5)]
    for legs in (out_of_one, into_one, disjoint):
        assert overlaps("none", legs) == overlaps("link", legs) == []
    assert overlaps("port", out_of_one) == ["the port out of 's0'"]
    assert overlaps("port", into_one) == ["the port into 't0'"]
    assert overlaps("port", disjoint) == []
    assert overlaps("port", [(0, 2, 2.0), (0, 3, 3.0)]) == []


def test_zero_length_transfers_occupy_nothing():
    """A transfer of no bytes over a link of no latency may lie inside another one's time."""
    assert overlaps("port", [(0, 2, 2.0), (0, 3, 2.0)], size=0) == []


def test_transfers_on_one_channel_exclude_each_other():
    """A channel between hosts is one at either end (a NIC a host); on a pair it has exactly its name."""
    nic = (Link(0.0, 10.0, link_class="between-hosts", channel="nic"),)
    disjoint = [(0, 2, 2.0), (1, 3, 2.5)]
    assert overlaps("none", disjoint, nic) == []
    assert overlaps("link", disjoint, nic) == ["the channel 'nic@A'", "the channel 'nic@B'"]
    assert overlaps("port", disjoint, nic) == ["the channel 'nic@A'", "the channel 'nic@B'"]
    pairs = (
        Link(0.0, 10.0, between=("s0", "t0"), channel="cable"),
        Link(0.0, 10.0, between=("t1", "s1"), channel="cable"),
    )
    assert overlaps("link", disjoint, pairs) == ["the channel 'cable'"]
    assert overlaps("link", disjoint, (pairs[0], replace(pairs[1], channel="other"))) == []
    joined = (*nic, replace(pairs[0], channel="nic@B"))
    assert overlaps("link", disjoint, joined) == ["the channel 'nic@B'"]


def test_a_channel_of_a_same_host_class_is_one_a_host():
    """Two transfers inside host A share its switch; one in A and one in B don't."""
    devices = [Device("a0", host="A"), Device("a1", host="A"), Device("b0", host="B"), Device("b1", host="B")]
    cluster = Cluster(devices, [Link(0.0, 10.0, link_class="same-host", channel="pcie")])
    graph = OperatorGraph(
        [Operator(name) for name in ("m0", "m1", "r0", "r1")],
        [Tensor("u", 0, (2,), size_bytes=10), Tensor("w", 1, (3,), size_bytes=10)],
    )
    problem = Problem(graph, cluster, np.ones((4, 4)))

    def found(second):
        legs = (Transfer(0, 0, 1, 1.0, 2.0), Transfer(1, second, second ^ 1, 1.5, 2.5))
        where = [0, second, 1, second ^ 1]
        return verify(problem, Plan(where, Schedule([0.0, 0.0, 5.0, 6.0], [1.0, 1.0, 6.0, 7.0], legs), 7.0))

    assert [line.split(" overlap on ")[1] for line in found(1)] == ["the channel 'pcie@A'"]
    assert found(2) == ()


# Memory on d0 in the worked plan, with 100 B of weights for a and 50 B of KV cache for c (150 B resident):
# x (10 B): 0 (a starts) .. 18.5 (c, a reader on d0, finishes);  z (7 B): 13 .. end (output);
# y (20 B): 10 (its transfer starts) .. 18.5. Peak from 13 on: 150 + 10 + 20 + 7 = 187.
# d1: x 3.5 (transfer starts) .. 10 (b finishes), y 5.5 .. 13 (its transfer finishes): 30 from 5.5 to 10.
@pytest.mark.parametrize(("device", "peak", "at", "resident"), [("d0", 187, 13.0, 150), ("d1", 30, 5.5, 0)])
def test_memory_counts_weights_cache_and_live_tensors(device, peak, at, resident):
    """The worked peak fits, one byte less does not; a reserve counts like missing memory."""
    graph = OperatorGraph(
        [Operator("a", weight_bytes=100), Operator("b"), Operator("c", kv_cache_bytes=50)], diamond().tensors
    )

    def found(memory, reserve=0):
        limits = {"memory_bytes": memory, "reserve_bytes": reserve}
        devices = [replace(d, **limits) if d.name == device else d for d in two_devices().devices]
        return verify(problem_of(graph, Cluster(devices, [BOX])), LEGAL)

    assert found(peak) == ()
    line = (
        f"device {device!r} holds {peak} B at {at} s ({resident} B of them weights and KV cache), "
        f"but may hold {peak - 1} B"
    )
    assert found(peak - 1) == (line,)
    assert found(peak + 4, 5) == (line,)


def test_memory_is_free_again_at_the_instant_of_the_last_use():
    """Chain on one device: u (10 B, 0..2) dies as w's reader ends; w (10 B, 1..3); v (10 B, 2..3) is born at 2.

    At most two live at once: 20 B suffice. An output stays: then three live from 2 on.
    """

    def found(output, memory):
        graph = OperatorGraph(
            [Operator("a"), Operator("b"), Operator("c")],
            [
                Tensor("u", 0, (1,), size_bytes=10, output=output),
                Tensor("w", 1, (2,), size_bytes=10),
                Tensor("v", 2, (), size_bytes=10),
            ],
        )
        problem = Problem(graph, Cluster([Device("d", memory_bytes=memory)]), np.ones((3, 1)))
        return verify(problem, Plan([0, 0, 0], Schedule([0.0, 1.0, 2.0], [1.0, 2.0, 3.0]), 3.0))

    assert found(False, 20) == ()
    assert len(found(False, 19)) == 1
    assert len(found(True, 29)) == 1
    assert found(True, 30) == ()


def test_weights_alone_can_be_too_much():
    """No tensor is needed for a device to be over its limit."""
    problem = Problem(OperatorGraph([Operator("a", weight_bytes=5)]), Cluster([Device("d", memory_bytes=4)]), [[1.0]])
    assert "holds 5 B at 0.0 s" in verify(problem, Plan([0], Schedule([0.0], [1.0]), 1.0))[0]


@st.composite
def serial_plans(draw):
    """A random problem, and the plan that does one thing at a time: legal under every rule."""
    n, D = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    seconds = st.integers(0, 9).map(float)
    tensors = []
    for u in range(n):
        readers = tuple(v for v in range(u + 1, n) if draw(st.booleans()))
        tensors.append(Tensor(f"t{u}", u, readers, draw(st.integers(0, 9)), output=draw(st.booleans())))
    devices = [Device(f"d{i}", host=f"h{draw(st.integers(0, 1))}", cut_overhead_s=draw(seconds)) for i in range(D)]
    links = [Link(draw(seconds), 1.0, link_class=c, channel="ch") for c in ("same-host", "between-hosts")]
    p = [[draw(seconds) for _ in range(D)] for _ in range(n)]
    contention = draw(st.sampled_from(["none", "link", "port"]))
    problem = Problem(
        OperatorGraph(map(Operator, map(str, range(n))), tensors), Cluster(devices, links), p, Makespan(contention)
    )
    where = [draw(st.integers(0, D - 1)) for _ in range(n)]
    now, start, finish, legs = 0.0, [], [], []
    for v in range(n):
        outward = sorted({where[r] for r in tensors[v].readers} - {where[v]})
        inward = any(where[u] != where[v] and v in tensors[u].readers for u in range(v))
        start.append(now)
        now += p[v][where[v]] + devices[where[v]].cut_overhead_s * (inward + bool(outward))
        finish.append(now)
        for target in outward:
            link = links[devices[target].host != devices[where[v]].host]
            legs.append(Transfer(v, where[v], target, now, now + link.latency_s + tensors[v].size_bytes))
            now = legs[-1].finish_s
    return problem, Plan(where, Schedule(start, finish, tuple(legs)), finish[-1])


@settings(max_examples=150, deadline=None)
@given(serial_plans(), st.data())
def test_serial_plans_are_legal_until_something_is_changed(case, data):
    """What does one thing at a time is legal; a longer operator, a lost or doubled transfer or another value is not."""
    problem, plan = case
    assert verify(problem, plan) == ()
    v = data.draw(st.integers(0, len(problem.graph) - 1))
    assert verify(problem, changed(plan, finish={v: plan.schedule.finish_s[v] + 0.5}))
    assert verify(problem, changed(plan, value_s=plan.value_s + 0.5))
    legs = plan.schedule.transfers
    for k in range(len(legs)):
        assert verify(problem, changed(plan, transfers=legs[:k] + legs[k + 1 :]))
        assert verify(problem, changed(plan, transfers=(*legs, legs[k])))


@settings(max_examples=80, deadline=None)
@given(serial_plans(), st.data())
def test_the_checker_and_the_judge_agree(case, data):
    """Random placements under random memory limits: the judge finds a rule broken exactly when the checker does."""
    problem, plan = case
    limit = st.none() | st.integers(0, 25)
    devices = [replace(d, memory_bytes=data.draw(limit)) for d in problem.cluster.devices]
    limited = Problem(problem.graph, Cluster(devices, problem.cluster.links), problem.times, problem.objective)
    for schedule in (None, plan.schedule):
        judged = evaluate(limited, plan.device_of, schedule=schedule)
        found = verify(limited, Plan(plan.device_of, judged.schedule, judged.value_s))
        assert (found == ()) == judged.feasible, (found, judged.violations)
