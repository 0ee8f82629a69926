"""The max-load part of ``placewright.verify``: agreement with the judge, and every violation is named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.plan import Plan, Schedule
from placewright.problem import Problem, Times, Wish
from placewright.verify import verify
from tests.max_load.by_letters import problem_of
from tests.max_load.random_problems import max_load_problems

SETTINGS = settings(
    max_examples=600,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def placed(draw, together=True):
    """A random problem, devices of its operators (units parted when not ``together``) and replicas, often wrong."""
    problem = draw(max_load_problems(most_devices=4))
    unit_of, D = problem.graph.unit_of, len(problem.cluster)
    device = st.integers(0, D - 1)
    replicas = []
    if D > 1 and draw(st.booleans()):
        replicas = [sorted(draw(st.lists(device, min_size=2, max_size=D, unique=True)))]
        if draw(st.integers(0, 9)) == 9:
            replicas.append(draw(st.lists(device, min_size=1, max_size=2)))
    copies = {i for stage in replicas for i in stage[1:]}
    if draw(st.booleans()):
        device = st.sampled_from([i for i in range(D) if i not in copies] or [0])
    if together:
        of_unit = draw(st.lists(device, min_size=max(unit_of) + 1, max_size=max(unit_of) + 1))
        where = [of_unit[k] for k in unit_of]
    else:
        where = draw(st.lists(device, min_size=len(unit_of), max_size=len(unit_of)))
    return problem, where, tuple(tuple(stage) for stage in replicas)


@SETTINGS
@given(placed(), st.floats(-1.0, 1.0).filter(lambda x: abs(x) > 1e-6))
def test_the_checker_agrees_with_the_judge(case, error):
    """What the judge accepts with a value, the checker accepts with that value alone; what it rejects is rejected."""
    problem, where, replicas = case
    judged = evaluate(problem, where, replicas=replicas)
    plan = Plan(where, judged.schedule, judged.value_s, replicas=replicas)
    assert (verify(problem, plan) == ()) == judged.feasible, (judged.violations, verify(problem, plan))
    if judged.feasible:
        lines = verify(problem, Plan(where, judged.schedule, judged.value_s + error, replicas=replicas))
        assert len(lines) == 1 and "states a value" in lines[0]


@settings(SETTINGS, max_examples=200)
@given(placed(together=False))
def test_the_checker_agrees_with_the_judge_where_units_are_parted(case):
    """The same for placements that don't keep colocation classes together, which both reject."""
    problem, where, replicas = case
    judged = evaluate(problem, where, replicas=replicas)
    plan = Plan(where, judged.schedule, judged.value_s, replicas=replicas)
    assert (verify(problem, plan) == ()) == judged.feasible, (judged.violations, verify(problem, plan))


# The worked plan. A training step: a (2 s) makes x for b (3 s), b makes z for backward b' (4 s), which makes y for a'
# (1 s); a, a' are tied and so are b, b'. Transfers take 1 s a tensor. a, a' on g0 and its copy g1; b, b' on g2.
#   g0, g1 each: (2 + 1 compute + 1 out x + 1 in y) / 2 = 2.5, and 2 * 1/2 * 4 B / 8 B/s = 0.5 of sync: 3
#   g2: 3 + 4 + 1 + 1 = 9
# One sample alone: a 0..2, x 2..3, b 3..6, b' 6..10, y 10..11, a' 11..12.
TRAINING = MaxLoad(replicate=True)


def step(objective=TRAINING, memory=4, times=(2.0, 3.0, 4.0, 1.0), wishes=(), devices=None, links=None, seconds=None):
    graph = OperatorGraph(
        [
            Operator("a", weight_bytes=4),
            Operator("b", kv_cache_bytes=3),
            Operator("b'", backward=True),
            Operator("a'", backward=True),
        ],
        [Tensor("x", 0, (1,), 8), Tensor("z", 1, (2,), 8), Tensor("y", 2, (3,), 8)],
        [(0, 3), (1, 2)],
    )
    devices = devices or [Device(f"g{i}", memory_bytes=memory) for i in range(3)]
    cluster = Cluster(devices, links or [Link(0.0, 8.0, link_class="same-host")])
    rows = [list(row) if isinstance(row, tuple) else [row] * 3 for row in times]
    transfers = None if seconds is None else np.full((3, 3, 3), seconds)
    return Problem(graph, cluster, Times(np.array(rows), transfers), objective, wishes)


STEP = plan_for(step(), [0, 2, 2, 0], replicas=[(0, 1)])


def changed(**changes):
    return replace(STEP, **changes)


def moved(which, v, seconds):
    """The worked plan with one start or finish moved."""
    times = {"start_s": STEP.schedule.start_s.copy(), "finish_s": STEP.schedule.finish_s.copy()}
    times[which][v] += seconds
    return changed(schedule=replace(STEP.schedule, **times))


def test_the_worked_plan_is_legal():
    """Its value is the load of g2, 9 s, and its schedule that of one sample alone."""
    assert STEP.value_s == 9.0
    assert STEP.schedule.start_s.tolist() == [0.0, 3.0, 6.0, 11.0]
    assert verify(step(), STEP) == ()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (changed(value_s=8.0), "states a value of 8.0 s, but its largest load is 9.0 s"),
        (changed(value_s=math.nan), "states a value of nan s"),
        (changed(value_s=math.inf), "states a value of inf s"),
        (changed(replicas=[(0, 3)]), "the stage (0, 3) is on a device outside 0..2"),
        (changed(replicas=[(1, 0)]), "the stage (1, 0) does not name two or more devices, ascending"),
        (changed(replicas=[(0,)]), "the stage (0,) does not name two or more devices, ascending"),
        (changed(replicas=[(0, 1), (1, 2)]), "the stage (1, 2) has a device that another stage has too"),
        (changed(replicas=[(0, 2)]), "operator 'b' is on 'g2', a replica of 'g0'; name that one"),
        (changed(device_of=[0, 2, 2, 2]), "operator 'a' and its colocation class of 2 are on 'g0', 'g2'"),
        (changed(device_of=[0, 3, 3, 0]), "operator 'b' is on device 3; there are only 0..2"),
        (changed(device_of=[0, 2]), "gives devices for 2 operators, but the problem has 4"),
        (changed(schedule=Schedule([0.0], [1.0])), "gives starts for 1 operators, but the problem has 4"),
        (changed(schedule=replace(STEP.schedule, transfers=())), "that takes one transfer, the plan has 0"),
        (moved("finish_s", 1, 0.5), "operator 'b' takes 3.5 s on 'g2', but its time there is 3.0 s"),
        (moved("start_s", 3, -2.0), "operator \"a'\" starts at 9.0 s, before its input 'y' is there at 11.0 s"),
        (moved("start_s", 2, math.nan), 'operator "b\'" runs from nan s to 10.0 s'),
    ],
)
def test_each_planted_violation_of_a_plan_is_named(plan, message):
    """One broken rule yields a line that names it."""
    assert any(message in line for line in verify(step(), plan)), verify(step(), plan)


def test_weights_are_synchronised_once_when_the_passes_count_apart():
    """g2's forward load of 3 + 1 and its backward load of 4 + 1 are the worst: 9 as before. Slow links: the sync is.

    With 1 B/s of synchronisation and 1 s a transfer, g0 pays 2 * 1/2 * 4 B / 1 B/s = 4 s, once: forward (2 + 1) / 2,
    backward (1 + 1) / 2 + 4 = 5. So forward 4 (g2) and backward 5 (both): 9; at 0.5 B/s backward 1 + 8: 4 + 9 = 13.
    """
    for rate, value in ((None, 9.0), (1.0, 9.0), (0.5, 13.0)):
        problem = step(MaxLoad(training="separate", replicate=True, sync_bandwidth_bytes_per_s=rate))
        plan = plan_for(problem, [0, 2, 2, 0], replicas=[(0, 1)])
        assert plan.value_s == value
        assert verify(problem, plan) == ()
        assert verify(problem, replace(plan, value_s=value + 1)) != ()


FAR = [Link(0.0, 8.0, link_class="same-host"), Link(0.0, 4.0, between=("g1", "g2"))]
LATE = [Link(0.0, 8.0, link_class="same-host"), Link(0.5, 8.0, between=("g2", "g1"), one_way=True)]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (step(MaxLoad()), "the plan replicates stages, but the objective does not allow replicas"),
        (step(memory=3), "device 'g0' holds 4 B of weights and KV cache, but may hold 3 B"),
        (step(memory=3), "device 'g1' holds 4 B of weights and KV cache, but may hold 3 B"),
        (step(memory=2), "device 'g2' holds 3 B of weights and KV cache, but may hold 2 B"),
        (step(times=((2.0, 2.5, 2.0), 3.0, 4.0, 1.0)), "replicated on 'g0' and 'g1', which are unlike"),
        (step(devices=[Device(f"g{i}", memory_bytes=9, reserve_bytes=6) for i in range(3)]), "but may hold 3 B"),
        (step(links=LATE), "replicated on 'g0' and 'g1', which are unlike"),
        (step(links=FAR, seconds=1.0), "replicated on 'g0' and 'g1', which are unlike"),
        (step(links=FAR), "replicated on 'g0' and 'g1', which are unlike"),
        (step(wishes=[Wish("b", "g1", forbid=True)]), "replicated on 'g0' and 'g1', which are unlike"),
        (step(devices=[Device("g0"), Device("g1", kind="cpu"), Device("g2")]), "'g0' and 'g1', which are unlike"),
        (step(devices=[Device("g0"), Device("g1", memory_bytes=9), Device("g2")]), "'g0' and 'g1', which are unlike"),
        (step(wishes=[Wish("a*", "g1")]), "operator 'a' is on 'g0', but a*=g1 pins it elsewhere"),
        (step(times=(2.0, 3.0, (4.0, 4.0, math.inf), 1.0)), "operator \"b'\" is on 'g2', which can't run it"),
        (
            step(replace(TRAINING, sync_bandwidth_bytes_per_s=8.0), links=FAR[1:]),
            "transfer of 'x' from 'g0' to 'g2': there is no link between them",
        ),
    ],
)
def test_each_rule_of_a_problem_that_the_plan_breaks_is_named(problem, message):
    """The worked plan against problems that forbid it."""
    assert any(message in line for line in verify(problem, STEP)), verify(problem, STEP)


def chain_on(where, contiguity, kinds=("gpu", "gpu"), **options):
    """Lines for three forward operators in a chain, 1 s each without transfers, on two devices."""
    graph = OperatorGraph([Operator(c) for c in "abc"], [Tensor("x", 0, (1,)), Tensor("y", 1, (2,))])
    cluster = Cluster([Device(f"d{i}", kind) for i, kind in enumerate(kinds)], [Link(0.0, 1.0, link_class="same-host")])
    problem = Problem(graph, cluster, np.ones((3, 2)), MaxLoad(contiguity, **options))
    return verify(problem, plan_for(replace_any(problem), where))


def replace_any(problem):
    """The problem with any placement allowed, so that the judge makes a plan of it."""
    return Problem(problem.graph, problem.cluster, problem.times, replace(problem.objective, contiguity="any"))


def test_contiguity_is_worked_out_from_the_edges():
    """a, c on d0 and b on d1 is a circle of devices, and a path that leaves d0 and comes back; a, b | c is neither."""
    assert chain_on([0, 0, 1], "contiguous") == chain_on([0, 0, 1], "convex") == chain_on([0, 1, 0], "any") == ()
    circle = ("no order of the devices has all edges forward; among 'd0', 'd1' they go in a circle",)
    assert chain_on([0, 1, 0], "contiguous") == circle
    assert chain_on([0, 1, 0], "convex") == ("a path of operators leaves 'd0' and comes back to it",)
    # d0 a CPU that is not bound: a and c count as two devices. The other way round d0 is still left and come back to.
    assert chain_on([0, 1, 0], "contiguous", ("cpu", "gpu"), contiguous_cpus=False) == ()
    assert chain_on([0, 1, 0], "convex", ("cpu", "gpu"), contiguous_cpus=False) == ()
    assert chain_on([0, 1, 0], "contiguous", ("cpu", "gpu")) == circle
    assert len(chain_on([0, 1, 0], "contiguous", ("gpu", "cpu"), contiguous_cpus=False)) == 1


@pytest.mark.parametrize("contiguity", ["contiguous", "convex"])
def test_units_on_a_cycle_share_a_device(contiguity):
    """a and c are tied with b between them: b goes where they go, also on CPUs that contiguity does not bind."""
    graph = OperatorGraph([Operator(c) for c in "abc"], [Tensor("x", 0, (1,)), Tensor("y", 1, (2,))], [(0, 2)])
    cluster = Cluster([Device("c0", "cpu"), Device("c1", "cpu")], [Link(0.0, 1.0, link_class="same-host")])
    problem = Problem(graph, cluster, np.ones((3, 2)), MaxLoad(contiguity, contiguous_cpus=False))
    parted = plan_for(replace_any(problem), [0, 1, 0])
    assert verify(problem, parted) == ("the units of 'a', 'b' reach each other but don't share a device",)
    assert evaluate(problem, [0, 1, 0]).violations
    assert verify(problem, plan_for(problem, [1, 1, 1])) == ()


BACK = [("bc", 0), ("cd", 0)]
MIRRORED = [("ab", 0), ("de", 0), ("ef", 0), ("cd", 0)]


@pytest.mark.parametrize(
    ("where", "tensors", "backward", "tied", "legal"),
    [
        # Backward b -> c -> d, b of the forward a: c, d have no forward operator, their edges count as d -> c -> a.
        ([0, 0, 1, 1], BACK, "bcd", ["ab"], True),
        ([0, 0, 1, 0], BACK, "bcd", ["ab"], False),
        # Forward a -> b, backward c (of a) -> d -> e -> f (of b), mirrored to b -> e -> d -> a: a circle.
        ([0, 1, 0, 1, 1, 1], MIRRORED[:3], "cdef", ["ac", "bf"], True),
        ([0, 1, 0, 1, 1, 1], MIRRORED, "cdef", ["ac", "bf"], False),
        ([1, 1, 1, 1, 1, 1], MIRRORED, "cdef", ["ac", "bf"], True),
        # Edges between passes, and backward edges where both ends have a forward operator, order nothing.
        ([0, 1, 0], [("ab", 0), ("bc", 0)], "c", ["ac"], True),
        ([0, 1, 0, 1], [("ab", 0), ("cd", 0)], "cd", ["ad", "bc"], True),
        ([0, 1, 0, 1], [("ab", 0), ("cd", 0)], "cd", ["ac", "bd"], True),
    ],
)
@pytest.mark.parametrize("contiguity", ["contiguous", "convex"])
def test_backward_operators_are_bound_where_they_have_no_forward_one(contiguity, where, tensors, backward, tied, legal):
    """Contiguity is about the forward pass, and about what is backward alone, turned round."""
    where = [where["abcdef".index(next((t[0] for t in tied if x in t), x))] for x in "abcdef"[: len(where)]]
    problem = problem_of([1] * len(where), tensors, {"contiguity": contiguity}, backward=backward, tied=tied)
    plan = plan_for(replace_any(problem), where)
    assert (verify(problem, plan) == ()) == legal
