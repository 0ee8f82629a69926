"""The latency that the judge gives to calls, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.bounds.feasibility import why_infeasible
from placewright.cluster import Link
from placewright.evaluate import calls_of, evaluate, fewest_calls, plan_for
from placewright.problem import Wish
from tests.offload.by_letters import BUS, problem_of


def judged(problem, where, calls=None):
    """Value, starts, finishes of a plan that breaks no rule."""
    found = evaluate(problem, where, call_of=calls)
    assert found.violations == (), found.violations
    return found.value_s, found.schedule.start_s.tolist(), found.schedule.finish_s.tolist()


def test_a_call_pays_each_tensor_once():
    """a (CPU, 1 s) makes 2 s for b and c (3 s, 4 s) in one call; b's 1 s is read by c inside and d, e outside.

    The call starts at 1 and takes 2 + 3 + 4 + 1 (out, once for d and e) = 10 s; d and e (CPU, 5 and 6 s) start at 11.
    """
    problem = problem_of([1, 3, 4, 5, 6], [("abc", 2), ("bcde", 1)])
    value, start, finish = judged(problem, [0, 1, 1, 0, 0])
    assert (value, start, finish) == (17, [0, 1, 1, 11, 11], [1, 11, 11, 16, 17])
    load = evaluate(problem, [0, 1, 1, 0, 0]).devices[1].loads[0]
    assert (load.in_s, load.compute_s, load.out_s, load.sync_s, load.load_s) == (2, 7, 1, 0, 10)
    # Two tensors of one producer count apart.
    assert judged(problem_of([1, 3, 4], [("abc", 1), ("abc", 1)]), [0, 1, 1])[0] == 10


def test_cpus_are_a_pool_of_any_width():
    """Eight operators of 2 s that nothing joins take 2 s on one CPU and 16 s in a call."""
    assert judged(problem_of([2] * 8), [0] * 8)[0] == 2
    assert judged(problem_of([2] * 8), [1] * 8)[0] == 16
    # Between CPUs tensors cost nothing, even where no link joins them; memory of CPUs does not bind.
    problem = problem_of([2, 3], [("ab", 9)], devices="cc", links=(), weights=(5, 5), memory=1)
    assert judged(problem, [0, 1])[0] == 5


def test_a_call_starts_when_all_inputs_are_there_and_delivers_at_its_end():
    """a (1 s) and b (7 s) on the CPU, then c and d (1 s each) in a call that waits for b: 7..9; e (2 s) reads c."""
    problem = problem_of([1, 7, 1, 1, 2], [("ac", 0), ("bd", 0), ("ce", 0)])
    assert judged(problem, [0, 0, 1, 1, 0]) == (11, [0, 0, 7, 7, 9], [1, 7, 9, 9, 11])
    # In calls of their own, c does not wait: its call is 1..2, e is done at 4, and d's call is 7..8.
    assert judged(problem, [0, 0, 1, 1, 0], [0, 0, 0, 1, 0])[0] == 8
    # The other order: c's call comes after d's: 8..9, and e at 9..11.
    assert judged(problem, [0, 0, 1, 1, 0], [0, 0, 1, 0, 0])[0] == 11


def test_what_passes_between_two_calls_of_a_device_goes_through_ram():
    """a, c on g1 with b on the CPU: out 2 + in 3 at either call, and a -> c (4 s) out and in as well.

    Call 1: 1 + 2 + 4 = 7; b: 7..8; call 2: 3 + 4 + 1 = 8: 16.
    """
    problem = problem_of([1, 1, 1], [("ab", 2), ("ac", 4), ("bc", 3)])
    assert fewest_calls(problem, [1, 0, 1]).tolist() == [0, 0, 1]
    assert judged(problem, [1, 0, 1])[0] == 16
    with_calls = plan_for(problem, [1, 0, 1])
    assert with_calls.call_of.tolist() == [0, 0, 1]


def test_without_cpus_ram_is_as_near_as_the_nearest_accelerator():
    """g0 to g1 and back takes 2 s a byte, to g2 1 s. a and b in two calls of g0: 1 + 1 out, 1 in + 1. In one: 2."""
    links = [Link(0.0, 0.5, between=("g0", "g1")), Link(0.0, 1.0, between=("g0", "g2"))]
    problem = problem_of([1, 1], [("ab", 1)], devices="ggg", links=links)
    assert judged(problem, [0, 0], [0, 1])[0] == 4
    assert judged(problem, [0, 0], [0, 0])[0] == 2
    assert judged(problem, [0, 1])[0] == 1 + 2 + 2 + 1
    assert judged(problem_of([1, 1], [("ab", 1)], devices="g", links=()), [0, 0], [0, 1])[0] == 2


def test_where_links_differ_a_tensor_leaves_in_the_longest_of_its_times():
    """a's byte goes to the CPU in 1 s and to g2 in 3 s: out 3; g2 takes 3 to bring it in: 1 + 3 + 3 + 1 = 8."""
    problem = problem_of([1, 1, 1], [("abc", 1)], links=[BUS, Link(2.0, 1.0, between=("g1", "g2"))])
    assert judged(problem, [1, 0, 2]) == (8, [0, 4, 4], [4, 5, 8])
    table = np.ones((1, 3, 3))
    table[0, 1, 2], table[0, 2, 1] = 5, 9
    assert judged(problem_of([1, 1, 1], [("abc", 1)], links=(), table=table), [1, 0, 2])[0] == 1 + 5 + 5 + 1


def test_the_fewest_calls_are_how_often_paths_come_back():
    """a -> b -> c -> d -> e alternating between g1 and the CPU: calls 0, 1, 2. Over g2 the same. A fan is one call."""
    chain = [("ab", 0), ("bc", 0), ("cd", 0), ("de", 0)]
    assert fewest_calls(problem_of([1] * 5, chain), [1, 0, 1, 0, 1]).tolist() == [0, 0, 1, 0, 2]
    assert fewest_calls(problem_of([1] * 5, chain), [1, 2, 2, 1, 1]).tolist() == [0, 0, 0, 1, 1]
    # Two accelerators that each need two calls: a b | c d e with a, c on g1 and b, d on g2.
    assert fewest_calls(problem_of([1] * 5, chain), [1, 2, 1, 2, 1]).tolist() == [0, 0, 1, 1, 2]
    assert fewest_calls(problem_of([1] * 3, [("abc", 0)]), [0, 1, 1]).tolist() == [0, 0, 0]


def broken(problem, where, calls=None):
    """The rules that a plan breaks."""
    return evaluate(problem, where, call_of=calls).violations


CHAIN = [("ab", 1), ("bc", 1)]


@pytest.mark.parametrize(
    ("problem", "where", "calls", "message"),
    [
        (problem_of([1] * 3, CHAIN), [1, 0, 1], [0, 0, 0], "calls of 'g1' wait for each other: a path leaves one"),
        (problem_of([1] * 3, CHAIN), [1, 0, 1], [1, 0, 0], "calls of 'g1' wait for each other"),
        (problem_of([1] * 4, [("ab", 0), ("cd", 0)]), [1, 2, 2, 1], [0] * 4, "calls of 'g1', 'g2' wait for each"),
        (problem_of([1] * 3, CHAIN, calls=1), [1, 0, 1], None, "device 'g1' makes 2 calls, and 1 are allowed"),
        (problem_of([1, 1], weights=(2, 3), memory=4), [1, 1], None, "device 'g1' needs 5 B and has 4 B"),
        (problem_of([1, 1], tied=["ab"]), [0, 1], None, "operators 'a', 'b' must share an accelerator or all be"),
        (problem_of([1, 1], tied=["ab"]), [2, 1], None, "operators 'a', 'b' must share an accelerator or all be"),
        (problem_of([[1, np.inf, 1]]), [1], None, "operator 'a' may not run on 'g1'"),
        (problem_of([1], wishes=[Wish("a", "g2")]), [1], None, "operator 'a' may not run on 'g1'"),
        (problem_of([1, 1], [("ab", 1)], links=()), [0, 1], None, "a call of 'g1' needs a tensor that no link brings"),
        (problem_of([1, 1], [("ab", 1)], links=()), [1, 0], None, "a call of 'g1' needs a tensor that no link brings"),
    ],
)
def test_each_rule(problem, where, calls, message):
    """What breaks a rule is named; without it nothing else is."""
    found = broken(problem, where, calls)
    assert len(found) == 1 and message in found[0], found


def test_a_class_shares_the_pool_and_not_one_cpu():
    """a runs on c0 alone and b on c1 alone: tied, they are on the pool; in an accelerator they need one call or two."""
    inf = float("inf")
    problem = problem_of([[1, inf, 4], [inf, 1, 4]], tied=["ab"], devices="ccg")
    assert problem.allowed.tolist() == [[True, False, True], [False, True, True]]
    assert judged(problem, [0, 1])[0] == 1 and judged(problem, [2, 2], [1, 0])[0] == 8
    assert broken(problem, [0, 2]) and broken(problem, [1, 1])
    # One that no CPU can run keeps the other off the pool too.
    assert not problem_of([[1, inf, 4], [inf, inf, 4]], tied=["ab"], devices="ccg").allowed[:, :2].any()


def test_replicas_are_refused():
    """Only max-load knows them."""
    assert "replicates stages" in evaluate(problem_of([1]), [1], replicas=[(1, 2)]).violations[0]


def test_plans_number_their_calls_without_gaps():
    """Calls 7 and 3 of a device are its second and first; CPUs have none."""
    problem = problem_of([1] * 4, [("ab", 1)])
    plan = plan_for(problem, [1, 0, 1, 2], call_of=[7, 5, 3, 2])
    assert plan.call_of.tolist() == [1, 0, 0, 0]
    calls = calls_of(problem, plan, evaluate(problem, plan.device_of, call_of=plan.call_of))
    assert [(c.device, c.number, c.operators, c.start_s, c.finish_s) for c in calls] == [
        (1, 0, (2,), 0, 1),
        (1, 1, (0,), 1, 3),
        (2, 0, (3,), 0, 1),
    ]


def test_why_there_is_no_plan():
    """Memory of CPUs is no reason; that of accelerators is, where no CPU may run the operator."""
    assert why_infeasible(problem_of([1, 1], weights=(9, 9), memory=1)) == ""
    inf = float("inf")
    found = why_infeasible(problem_of([[inf, 1, 1]], weights=(9,), memory=1))
    assert found.startswith("operator 'a' needs 9 B and the largest device that may run it, 'g1', has 1 B")
    assert why_infeasible(problem_of([[1, inf], [inf, 1]], tied=["ab"], devices="cc")) == ""
    assert "may run on no device" in why_infeasible(problem_of([[1, inf], [inf, 1]], tied=["ab"], devices="cg"))
