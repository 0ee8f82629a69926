"""The offload part of ``placewright.verify``: agreement with the judge, and every violation is named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.cluster import Link
from placewright.evaluate import evaluate, plan_for
from placewright.plan import Plan, Schedule, Transfer
from placewright.problem import Wish
from placewright.verify import verify
from placewright.verify.offload import verify_offload
from tests.offload.brute_force import best_plan
from tests.offload.by_letters import BUS, problem_of
from tests.offload.random_problems import offload_problems

SETTINGS = settings(
    max_examples=1000,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def planned(draw):
    """A random problem with devices and calls of its operators: the best ones, or any, often wrong."""
    problem = draw(offload_problems())
    n, D = len(problem.graph), len(problem.cluster)
    if draw(st.integers(0, 2)) == 0:
        value, where, calls = best_plan(problem)
        if value < math.inf:
            return problem, where, calls
    where = draw(st.lists(st.integers(0, D - 1), min_size=n, max_size=n))
    if draw(st.integers(0, 3)):
        where = [where[unit] for unit in problem.graph.unit_of]
    calls = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return problem, where, sorted(calls) if draw(st.booleans()) else calls


@SETTINGS
@given(planned(), st.floats(-1.0, 1.0).filter(lambda x: abs(x) > 1e-6))
def test_the_checker_agrees_with_the_judge(case, error):
    """What the judge accepts with a value, the checker accepts with that value alone; what it rejects is rejected."""
    problem, where, calls = case
    judged = evaluate(problem, where, call_of=calls)
    plan = Plan(where, judged.schedule, judged.value_s, call_of=calls)
    assert (verify(problem, plan) == ()) == judged.feasible, (judged.violations, verify(problem, plan))
    if judged.feasible:
        lines = verify(problem, replace(plan, value_s=judged.value_s + error))
        assert len(lines) == 1 and "states a value" in lines[0]


@settings(SETTINGS, max_examples=400)
@given(planned(), st.data())
def test_a_schedule_that_is_moved_by_hand_is_rejected(case, data):
    """One operator that starts earlier, or ends at another time than its call, breaks a rule."""
    problem, where, calls = case
    plan = plan_for(problem, where, call_of=calls)
    if plan is None:
        return
    v, early = data.draw(st.integers(0, len(where) - 1)), data.draw(st.sampled_from([0.25, 1.0]))
    start, finish = plan.schedule.start_s.copy(), plan.schedule.finish_s.copy()
    which = data.draw(st.sampled_from(["start", "finish", "both"]))
    start[v] -= early * (which != "finish")
    finish[v] -= early * (which != "start")
    moved = replace(plan, schedule=Schedule(start, finish), value_s=float(finish.max()))
    found = verify(problem, moved)
    if which != "both":
        assert found
    else:  # earlier than the judge's earliest start
        assert found, (start, finish)


# The worked plan. a (1 s, CPU) makes x (2 s) for b (3 s) and d (4 s), b makes y (1 s) for c (5 s, CPU), c makes z (2 s)
# for d. Call 1 of g1 is b: 1 + 2 in + 3 + 1 out = 7; c 7..12; call 2 is d: 12 + 2 in x + 2 in z + 4 = 20.
TENSORS = [("abd", 2), ("bc", 1), ("cd", 2)]


def worked(calls=2, *, times=(1, 3, 5, 4), devices="cgg", **given):
    return problem_of(list(times), TENSORS, calls, devices=devices, **{"weights": (1, 2, 3, 4), "memory": 6, **given})


PLAN = plan_for(worked(), [0, 1, 0, 1])


def changed(**changes):
    return replace(PLAN, **changes)


def moved(which, v, seconds):
    """The worked plan with one start or finish moved."""
    times = {"start_s": PLAN.schedule.start_s.copy(), "finish_s": PLAN.schedule.finish_s.copy()}
    times[which][v] += seconds
    return changed(schedule=replace(PLAN.schedule, **times))


def shifted(v, seconds):
    """The worked plan with an operator that runs earlier or later."""
    start, finish = PLAN.schedule.start_s.copy(), PLAN.schedule.finish_s.copy()
    start[v] += seconds
    finish[v] += seconds
    return changed(schedule=Schedule(start, finish), value_s=float(finish.max()))


def test_the_worked_plan_is_legal():
    """Its value is the end of the second call; a plan that idles is legal too."""
    assert PLAN.call_of.tolist() == [0, 0, 0, 1] and PLAN.value_s == 20
    assert PLAN.schedule.start_s.tolist() == [0, 1, 7, 12]
    assert verify(worked(), PLAN) == ()
    assert verify(worked(), shifted(3, 1.5)) == ()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (changed(value_s=19.0), "the plan states a value of 19.0 s, but its last operator finishes at 20.0 s"),
        (changed(value_s=math.nan), "states a value of nan s"),
        (changed(call_of=None), "the plan does not say in which calls operators run"),
        (changed(call_of=[0, 1]), "the plan gives calls for 2 operators, but the problem has 4"),
        (changed(call_of=[0, 0, 0, 0]), "a path leaves call 1 of 'g1' and comes back to it"),
        (changed(call_of=[0, 1, 0, 0]), "call 1 of 'g1', call 2 of 'g1' wait for each other"),
        (changed(device_of=[0, 3, 0, 1]), "operator 'b' is on device 3; there are only 0..2"),
        (changed(device_of=[0, 1, 0]), "gives devices for 3 operators, but the problem has 4"),
        (changed(schedule=Schedule([0.0], [1.0])), "gives starts for 1 operators, but the problem has 4"),
        (changed(replicas=[(1, 2)]), "the plan replicates stages, which only max-load knows"),
        (
            changed(schedule=replace(PLAN.schedule, transfers=(Transfer(0, 0, 1, 1.0, 3.0),))),
            "the plan sends tensors on its own, but calls bring and take them",
        ),
        (moved("start_s", 2, math.nan), "operator 'c' runs from nan s to 12.0 s"),
        (shifted(0, -0.5), "operator 'a' starts at -0.5 s, before 0"),
        (moved("finish_s", 2, 0.5), "operator 'c' takes 5.5 s, but its time is 5.0 s"),
        (moved("finish_s", 1, -1.0), "call 1 of 'g1' takes 5.0 s, but in 2.0 s, computing 3.0 s and out 1.0 s are 6.0"),
        (shifted(2, -0.5), "operator 'c' starts at 6.5 s, before its input 't1' is there at 7.0 s"),
        (shifted(1, -0.5), "call 1 of 'g1' starts at 0.5 s, before its input 't0' is there at 1.0 s"),
        (shifted(3, -6.0), "call 2 of 'g1' starts at 6.0 s, before call 1 of 'g1' ends at 7.0 s"),
    ],
)
def test_each_planted_violation_of_a_plan_is_named(plan, message):
    """One broken rule yields a line that names it."""
    assert any(message in line for line in verify(worked(), plan)), verify(worked(), plan)


FAR = [BUS, Link(0.5, 1.0, between=("c0", "g1"))]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (worked(1), "'g1' makes 2 calls, but may make 1"),
        (worked(memory=5), "device 'g1' holds 6 B of weights and KV cache, but may hold 5 B"),
        (worked(tied=["ab"]), "operator 'a' and its colocation class of 2 are on 'c0', 'g1'"),
        (worked(times=(1, [3, math.inf, 3], 5, 4)), "operator 'b' is on 'g1', which can't run it"),
        (worked(wishes=[Wish("b", "g2")]), "operator 'b' is on 'g1', but b=g2 pins it elsewhere"),
        (worked(wishes=[Wish("d", "g1", forbid=True)]), "operator 'd' is on 'g1', but d=g1 forbids it"),
        (worked(links=()), "call 1 of 'g1' needs a tensor that no link brings or takes"),
        (worked(links=FAR), "call 1 of 'g1' takes 6.0 s, but in 2.5 s, computing 3.0 s and out 1.5 s are 7.0 s"),
        (worked(times=(1, 3, 5, 4.5)), "call 2 of 'g1' takes 8.0 s, but in 4.0 s, computing 4.5 s and out 0"),
    ],
)
def test_each_rule_of_a_problem_that_the_plan_breaks_is_named(problem, message):
    """The worked plan against problems that forbid it."""
    assert any(message in line for line in verify(problem, PLAN)), verify(problem, PLAN)


def test_operators_of_a_call_run_together():
    """a and b in one call of g1: both 0..3. Apart by half a second, one is named, the others are counted."""
    problem = problem_of([1, 1, 1])
    plan = plan_for(problem, [1, 1, 1])
    assert verify(problem, plan) == ()
    apart = replace(plan, schedule=Schedule([0.0, 0.5, 0.5], [3.0, 3.5, 3.5]), value_s=3.5)
    assert verify(problem, apart) == (
        "operator 'b' runs from 0.5 s to 3.5 s, but call 1 of 'g1' from 0.0 s to 3.0 s (and 1 more)",
    )


def test_calls_of_two_devices_that_wait_for_each_other():
    """a -> b and c -> d with a, d on g1 and b, c on g2 without transfers or times: only the order is impossible."""
    problem = problem_of([0] * 4, [("ab", 0), ("cd", 0)])
    plan = Plan([1, 2, 2, 1], Schedule(np.zeros(4), np.zeros(4)), 0.0, call_of=[0, 0, 0, 0])
    assert verify(problem, plan) == ("call 1 of 'g1', call 1 of 'g2' wait for each other",)
    assert verify(problem, replace(plan, call_of=[0, 0, 0, 1])) == ()


def test_memory_of_cpus_does_not_bind_and_a_class_shares_the_pool():
    """a and b are tied and on two CPUs that have no memory and no link."""
    problem = problem_of([1, 2], [("ab", 3)], devices="cc", links=(), tied=["ab"], weights=(9, 9), memory=1)
    assert verify(problem, plan_for(problem, [0, 1])) == ()


def test_other_objectives_are_not_for_this_checker():
    """That would be an error of the program."""
    with pytest.raises(TypeError, match="max-load, not offload"):
        verify_offload(replace_objective(worked()), PLAN)


def replace_objective(problem):
    return type(problem)(problem.graph, problem.cluster, problem.times, "max-load")
