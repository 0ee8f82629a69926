"""The loads that the judge gives, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.cluster import Link
from placewright.evaluate import evaluate
from placewright.problem import Problem
from tests.max_load.by_letters import BUS, problem_of
from tests.max_load.closed_forms import crossing


def loads(problem, where, replicas=()):
    """Seconds of each device, all passes together; and the value."""
    judged = evaluate(problem, where, replicas=replicas)
    assert judged.violations == (), judged.violations
    return [use.load_s for use in judged.devices], judged.value_s


def test_a_tensor_enters_a_device_once_and_leaves_once():
    """a (1 s) on g0 sends 2 s to b, c (3 s, 4 s) on g1 and to d (5 s) on g2: 1 + 2; 3 + 4 + 2; 5 + 2."""
    problem = problem_of([1, 3, 4, 5], [("abcd", 2)])
    assert loads(problem, [0, 1, 1, 2]) == ([3, 9, 7], 9)
    # Two tensors of 1 s each to the same readers cost the same as one of 2 s.
    assert loads(problem_of([1, 3, 4, 5], [("abcd", 1), ("abcd", 1)]), [0, 1, 1, 2]) == ([3, 9, 7], 9)
    use = evaluate(problem, [0, 1, 1, 2]).devices[1].loads[0]
    assert (use.compute_s, use.in_s, use.out_s, use.sync_s, use.load_s) == (7, 2, 0, 0, 9)


def test_where_links_differ_a_tensor_leaves_in_the_longest_of_its_times():
    """2 B to g1 take 2 s, to g2 by its own link of latency 1 s 1 + 2 / 0.5 = 5 s: g0 sends for 5 s."""
    links = [BUS, Link(1.0, 0.5, between=("g0", "g2"))]
    assert loads(problem_of([1, 1, 1], [("abc", 2)], links=links), [0, 1, 2]) == ([6, 3, 6], 6)
    table = np.full((1, 3, 3), 2.0)
    table[0, 0, 2] = 5.0
    assert loads(problem_of([1, 1, 1], [("abc", 9)], links=(), table=table), [0, 1, 2]) == ([6, 3, 6], 6)


def test_cpus_pay_nothing_for_transfers():
    """a (1 s) on g0, b (3 s) on c1, c (2 s) on g2 in a chain with 4 s each: 1 + 4 out; 3; 2 + 4 in."""
    assert loads(problem_of([1, 3, 2], [("ab", 4), ("bc", 4)], devices="gcg"), [0, 1, 2]) == ([5, 3, 6], 6)


def test_what_can_not_travel_has_no_value():
    """No link joins g0 and c1: the placement breaks a rule, also where neither would pay."""
    for devices in ("gc", "cc"):
        judged = evaluate(problem_of([1, 1], [("ab", 1)], devices=devices, links=()), [0, 1])
        assert judged.violations


# A training step: forward a (3 s) -> b (1 s), backward c (5 s) -> d (1 s); a, d on g0 and b, c on g1. x from a to b
# takes 2 s, y from c to d 3 s. a also makes z (1 s) for c: of the forward pass, though a backward operator reads it.
#   g0: forward 3 + 2 + 1 = 6, backward 1 + 3 = 4;  g1: forward 1 + 2 + 1 = 4, backward 5 + 3 = 8.
STEP = {
    "seconds": [3, 1, 5, 1],
    "tensors": [("ab", 2), ("ac", 1), ("cd", 3)],
    "backward": "cd",
    "tied": ("ad", "bc"),
    "devices": "gg",
}


def test_training_counts_both_passes_together_or_apart():
    """Together 10 and 12: 12. Apart the worst forward load 6 and the worst backward load 8: 14."""
    where = [0, 1, 1, 0]
    assert loads(problem_of(**STEP), where) == ([10, 12], 12)
    apart = problem_of(**STEP, options={"training": "separate"})
    assert loads(apart, where) == ([10, 12], 14)
    assert [[load.load_s for load in use.loads] for use in evaluate(apart, where).devices] == [[6, 4], [4, 8]]
    # A network without backward operators has one pass: the same value either way.
    for training in ("sum", "separate"):
        assert loads(problem_of([3, 1], [("ab", 2)], {"training": training}), [0, 1]) == ([5, 3, 0], 5)


@pytest.mark.parametrize(
    ("overlap", "training", "of_devices", "value"),
    [
        # g0: 4 s of computing, 3 s in, 3 s out. g1: 6 s of computing, 3 s in, 3 s out.
        ("none", "sum", [10, 12], 12),
        ("transfers", "sum", [6, 6], 6),  # max(4, 3 + 3), max(6, 3 + 3): both passes are added first
        ("full", "sum", [4, 6], 6),
        # Forward g0 3, out 3; g1 1, in 3. Backward g0 1, in 3; g1 5, out 3.
        ("transfers", "separate", [3 + 3, 3 + 5], 3 + 5),
        ("full", "separate", [3 + 3, 3 + 5], 3 + 5),
    ],
)
def test_transfers_overlap_computing(overlap, training, of_devices, value):
    """The three ways to count what happens at the same time, on the training step above."""
    problem = problem_of(**STEP, options={"overlap": overlap, "training": training})
    assert loads(problem, [0, 1, 1, 0]) == (of_devices, value)


def test_in_and_out_overlap_each_other_under_full_alone():
    """b (1 s) reads 3 s and sends 2 s: 1 + 3 + 2; max(1, 5); max(1, 3, 2)."""
    for overlap, value in (("none", 6), ("transfers", 5), ("full", 3)):
        problem = problem_of([1, 1, 1], [("ab", 3), ("bc", 2)], {"overlap": overlap})
        assert loads(problem, [0, 1, 2])[0][1] == value


@pytest.mark.parametrize(
    ("overlap", "share", "value"),
    [
        ("transfers", 0.0, 5),
        ("transfers", 0.3, 5),  # 1 + 0.3 x 5 = 2.5 s on the device, 5 s on the links
        ("transfers", 0.9, 5.5),  # 1 + 0.9 x 5
        ("transfers", 1.0, 6),  # as without overlap
        ("full", 0.3, 3),  # 2.5 s on the device, 3 s in beside 2 s out
        ("full", 0.5, 3.5),  # 1 + 0.5 x 5
        ("full", 1.0, 6),
    ],
)
def test_a_device_is_busy_for_a_share_of_its_transfers(overlap, share, value):
    """b (1 s) reads 3 s and sends 2 s."""
    problem = problem_of([1, 1, 1], [("ab", 3), ("bc", 2)], {"overlap": overlap, "busy_share": share})
    assert loads(problem, [0, 1, 2])[0][1] == pytest.approx(value)


def test_replicas_share_a_load():
    """b (7 s, 1 s in, 1 s out) on g1, g2, g3 is 9 / 3 = 3 s on each; its neighbours pay for transfers as before."""
    problem = problem_of([1, 7, 1], [("ab", 1), ("bc", 1)], {"replicate": True}, devices="ggggg")
    assert loads(problem, [0, 1, 4], [(1, 2, 3)]) == ([2, 3, 3, 3, 2], 3)
    assert [use.operators for use in evaluate(problem, [0, 1, 4], replicas=[(1, 2, 3)]).devices] == [1, 1, 1, 1, 1]
    full = replace_objective(problem, overlap="full")
    assert loads(full, [0, 1, 4], [(1, 2, 3)]) == ([1, 7 / 3, 7 / 3, 7 / 3, 1], 7 / 3)


@pytest.mark.parametrize(
    ("options", "sync"),
    [
        ({}, 16 / 4),  # 2 (3 - 1) / 3 x 12 B = 16 B, over the links' 4 B/s
        ({"sync_period": 8}, 16 / 4 / 8),
        ({"sync_bandwidth_bytes_per_s": 32.0}, 16 / 32),
        ({"sync_bandwidth_bytes_per_s": 32.0, "overlap": "full"}, 16 / 32),
    ],
)
def test_replicas_synchronise_their_weights_in_training(options, sync):
    """a (4 s) and backward b (5 s), 12 B of weights together, on three devices: 9 / 3 = 3 s and a synchronisation."""
    links = [Link(0.0, 4.0, link_class="same-host")]
    problem = problem_of(
        [4, 5], options={"replicate": True, **options}, backward="b", tied=["ab"], weights=(10, 2), links=links
    )
    assert loads(problem, [0, 0], [(0, 1, 2)]) == ([3 + sync] * 3, 3 + sync)
    apart = replace_objective(problem, training="separate")
    assert loads(apart, [0, 0], [(0, 1, 2)])[1] == pytest.approx(4 / 3 + 5 / 3 + sync)
    inference = problem_of([4, 5], options={"replicate": True, **options}, tied=["ab"], weights=(10, 2), links=links)
    assert loads(inference, [0, 0], [(0, 1, 2)]) == ([3.0] * 3, 3.0)


def replace_objective(problem, **options):
    return Problem(problem.graph, problem.cluster, problem.times, replace(problem.objective, **options))


@pytest.mark.parametrize(
    ("where", "replicas", "message"),
    [
        ([0, 1], [(0, 2)], "the replicas 'g0', 'g2' are unlike"),
        ([0, 1], [(0, 1)], "operators are placed on a copy in 'g0', 'g1'"),
        ([0, 0], [(1, 0)], "not two or more different devices"),
        ([0, 0], [(0, 1), (1, 2)], "not two or more different devices, each in one stage"),
        ([0, 0], [(0, 7)], "names device 7; there are only 0..2"),
    ],
)
def test_illegal_replicas_are_named(where, replicas, message):
    """g2 is slower than g0 and g1."""
    problem = problem_of([[1, 1, 2], [1, 1, 1]], options={"replicate": True})
    assert any(message in line for line in evaluate(problem, where, replicas=replicas).violations)


def test_replicas_need_leave():
    """Without the option they break a rule."""
    assert "does not allow" in evaluate(problem_of([1]), [0], replicas=[(0, 1)]).violations[0]


def test_a_shared_channel_counts_as_a_device():
    """a on g0 sends 2 s to g1 and to g2: each of the three pays 2 s, the bus carries it twice; CPUs load it as well."""
    shared = [Link(0.0, 1.0, link_class="same-host", channel="pcie")]
    for devices, of_devices in (("ggg", [2, 2, 2]), ("ccc", [0, 0, 0])):
        problem = problem_of([0, 0, 0], [("abc", 2)], links=shared, devices=devices)
        assert loads(problem, [0, 1, 2]) == (of_devices, 4)
        assert [(use.name, use.load_s) for use in evaluate(problem, [0, 1, 2]).channels] == [("pcie@local", (4,))]
    # By pass: x forward 2 + 2, y back 3: apart 4 + 3, together 7.
    for training, per_pass in (("sum", (7,)), ("separate", (4, 3))):
        options = {"training": training, "contiguity": "any"}
        problem = problem_of([0] * 4, [("abc", 2), ("cd", 3)], options, links=shared, backward="cd")
        judged = evaluate(problem, [0, 1, 2, 0])
        assert (judged.channels[0].load_s, judged.value_s) == (per_pass, 7)


def test_contiguous_is_stronger_than_convex():
    """a -> b and c -> d with a, d on one device and b, c on the other, 11 s each: edges cross, no path comes back."""
    for contiguity in ("contiguous", "convex", "any"):
        judged = evaluate(crossing(contiguity), [0, 1, 1, 0])
        assert judged.value_s == 22
        assert judged.feasible == (contiguity != "contiguous")


def contiguous(where, tensors, **given):
    """Whether a placement of operators of 1 s is contiguous, and whether it is convex."""
    n = len(where)
    options = given.pop("options", {})
    problems = [problem_of([1] * n, tensors, {"contiguity": c, **options}, **given) for c in ("contiguous", "convex")]
    return tuple(evaluate(problem, where).feasible for problem in problems)


def test_a_path_that_comes_back_is_neither_contiguous_nor_convex():
    """a -> b -> c with a, c on g0; a -> b -> c -> d over three devices and back."""
    assert contiguous([0, 0, 1], [("ab", 0), ("bc", 0)]) == (True, True)
    assert contiguous([1, 0, 0], [("ab", 0), ("bc", 0)]) == (True, True)
    assert contiguous([0, 1, 0], [("ab", 0), ("bc", 0)]) == (False, False)
    assert contiguous([0, 1, 2, 0], [("ab", 0), ("bc", 0), ("cd", 0)]) == (False, False)


def test_cpus_are_bound_unless_they_are_free():
    """a, c on the CPU and b on the GPU: bound as any device; free, each counts as a device. A GPU stays bound."""
    chain, free = [("ab", 0), ("bc", 0)], {"contiguous_cpus": False}
    assert contiguous([0, 1, 0], chain, devices="cg") == (False, False)
    assert contiguous([0, 1, 0], chain, devices="cg", options=free) == (True, True)
    assert contiguous([0, 1, 0], chain, devices="gc", options=free) == (False, False)


def test_units_on_a_cycle_share_a_device():
    """a and c are tied with b between: b lies with them, on free CPUs as well."""
    chain = [("ab", 0), ("bc", 0)]
    for devices, options in (("gg", {}), ("cc", {}), ("cc", {"contiguous_cpus": False})):
        assert contiguous([0, 0, 0], chain, tied=["ac"], devices=devices, options=options) == (True, True)
        assert contiguous([0, 1, 0], chain, tied=["ac"], devices=devices, options=options) == (False, False)


def test_contiguity_binds_backward_operators_that_have_no_forward_one():
    """Backward b -> c -> d; b is tied to the forward a. c, d stand alone: their edges count turned round: d, c, a."""
    back = [("bc", 0), ("cd", 0)]
    assert contiguous([0, 0, 1, 1], back, backward="bcd", tied=["ab"]) == (True, True)
    assert contiguous([0, 0, 1, 0], back, backward="bcd", tied=["ab"]) == (False, False)
    # A forward edge from a to what is tied to d: a before d, and d before a by the mirrored edges: all share a device.
    tied, edges = ["ac", "bf"], [("ab", 0), ("de", 0), ("ef", 0)]  # forward a -> b; backward c (of a), d, e, f (of b)
    assert contiguous([0, 1, 0, 1, 1, 1], edges, backward="cdef", tied=tied) == (True, True)
    edges.append(("cd", 0))  # now f, e, d, c: b before a
    assert contiguous([0, 1, 0, 1, 1, 1], edges, backward="cdef", tied=tied) == (False, False)
    assert contiguous([0, 0, 0, 0, 0, 0], edges, backward="cdef", tied=tied) == (True, True)


def test_backward_operators_with_a_forward_one_are_free():
    """c and d are tied to forward e and f, which no edge joins: nothing orders the devices."""
    back = [("cd", 0)]
    assert contiguous([0, 1, 0, 1], back, backward="cd", tied=["ac", "bd"]) == (True, True)
    # A tensor that goes from the forward pass to the backward one orders nothing: a -> b, and b -> c of a's unit.
    assert contiguous([0, 1, 0], [("ab", 0), ("bc", 0)], backward="c", tied=["ac"]) == (True, True)
    forward = [("ab", 0), ("cd", 0)]  # a -> b forward and (of a) c -> d (of b) backward: the forward edge alone counts
    assert contiguous([0, 1, 0, 1], forward, backward="cd", tied=["ac", "bd"]) == (True, True)
