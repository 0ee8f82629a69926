"""Published list schedulers and placers of the makespan: hand examples, legality, and no value below the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright._kernel.clusters import depth_first_order, sequential_partition
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.problem import Problem, Wish
from placewright.result import Result
from placewright.solvers.makespan import MAKESPAN_SOLVERS
from placewright.solvers.makespan.getf import groups, speeds
from placewright.solvers.makespan.m_sct import SmallCommunicationTimes
from placewright.verify import verify
from tests.brute_force import optimum
from tests.random_problems import problems

SOLVERS = ("heft", "etf", "m-topo", "m-etf", "m-sct", "getf", "celeritas")

KB = 1000

MANY = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def run(problem: Problem, solver: str) -> Result:
    """Run a solver with no clock."""
    return MAKESPAN_SOLVERS[solver].algorithm(problem, budget=Budget(iterations=1), rng=np.random.default_rng(0))


def network(times: list[list[float]], edges: str, seconds: float = 1.0, **more: object) -> Problem:
    """Operators a, b, c... with an edge for each pair of letters, each tensor taking ``seconds`` between devices.

    Weights and memory count KB, and tensors have 8 bytes, for which memory has room.
    """
    D = len(times[0])
    names = "abcdefgh"[: len(times)]
    readers: dict[str, list[int]] = {}
    for edge in edges.split():
        readers.setdefault(edge[0], []).append(names.index(edge[1]))
    weights = more.pop("weights", [0] * len(times))
    operators = [Operator(name, weight_bytes=w * KB) for name, w in zip(names, weights, strict=True)]  # type: ignore
    tensors = [Tensor(f"t{v}", names.index(v), tuple(sorted(row)), 8) for v, row in readers.items()]
    memory = more.pop("memory", None)
    cluster = Cluster(
        [Device(f"d{i}", memory_bytes=memory * KB + KB // 2 if memory else None) for i in range(D)],  # type: ignore
        [Link(0.0, 8.0 / seconds, link_class="same-host")] if D > 1 else [],
    )
    graph = OperatorGraph(operators, tensors, more.pop("colocation", ()))  # type: ignore[arg-type]
    return Problem(graph, cluster, times, Makespan("none"), **more)  # type: ignore[arg-type]


@MANY
@given(problems(most_operators=6))
def test_plans_are_legal_repeatable_and_never_below_the_optimum(problem: Problem) -> None:
    """Brute force and the independent checker agree with every plan, whatever the contention, pins, classes, memory."""
    best = optimum(problem)
    for solver in SOLVERS:
        result = run(problem, solver)
        assert result.lower_bound_s == 0.0 and result.solver == solver
        if result.plan is not None:
            assert verify(problem, result.plan) == ()
            assert result.value_s >= best * (1 - 1e-9)
            again = run(problem, solver).require_plan()
            assert again.device_of.tobytes() == result.plan.device_of.tobytes() and again.value_s == result.value_s


def test_m_topo_balances_memory_and_places_classes_whole() -> None:
    """Weights 3, 1, 2, 2, 4: the cap is 12 // 2 + 4 = 10, and the first four have 8, so that e alone is left over."""
    problem = network([[1.0, 1.0]] * 5, "ab bc cd de", weights=[3, 1, 2, 2, 4])
    assert run(problem, "m-topo").require_plan().device_of.tolist() == [0, 0, 0, 0, 1]
    # Units: {a, e} of 7, then 1, 2 and 2; the largest is 7, the cap 12 // 2 + 7 = 13: all on the first device.
    tied = network([[1.0, 1.0]] * 5, "ab bc cd de", weights=[3, 1, 2, 2, 4], colocation=[(0, 4)])
    assert run(tied, "m-topo").require_plan().device_of.tolist() == [0, 0, 0, 0, 0]


def test_m_topo_goes_on_filling_behind_a_pinned_operator() -> None:
    """b may run on the second device alone; a and c still fill the first, d is one too many for the cap of 2 + 1."""
    problem = network([[1.0, 1.0]] * 4, "ab bc cd", weights=[1, 1, 1, 1], wishes=[Wish("b", "d1")])
    assert run(problem, "m-topo").require_plan().device_of.tolist() == [0, 1, 0, 0]
    tight = network([[1.0, 1.0]] * 4, "ab bc cd", weights=[1, 1, 1, 1], wishes=[Wish("b", "d1")], memory=2)
    assert run(tight, "m-topo").require_plan().device_of.tolist() == [0, 1, 0, 1]


FAVOURITE = network([[1.0, 1.0], [4.0, 4.0], [1.0, 1.0], [6.0, 6.0]], "ab ac cd", seconds=3.0)
"""a (1 s) is read by b (4 s) and c (1 s), and c by d (6 s); each transfer takes 3 s; two alike devices."""


def test_a_favourite_child_stays_on_the_device_where_earliest_time_first_lets_another_operator_in() -> None:
    """With m-etf b follows a, as it stands first, c starts elsewhere at 1 + 3, d ends at 5 + 6 = 11; m-sct ends at 8.

    The path a, c, d takes 8 s without transfers: the least w is 8, with y = 0 on it, so that c is a's favourite and d
    is c's. The device of a is reserved: c runs from 1 to 2, d to 8. b is urgent at 1 + 3 = 4, and runs to 8 elsewhere.
    """
    assert SmallCommunicationTimes().favourites(FAVOURITE, Budget()).tolist() == [2, -1, 3, -1]
    assert run(FAVOURITE, "m-etf").value_s == 11.0
    better = run(FAVOURITE, "m-sct").require_plan()
    assert better.value_s == 8.0 == optimum(FAVOURITE)
    assert better.device_of[0] == better.device_of[2] == better.device_of[3] != better.device_of[1]


def test_without_time_for_the_linear_program_the_group_has_most_speed_and_no_child_is_a_favourite() -> None:
    """m-sct is then m-etf; getf takes the fast device for both operators, as its speed 1 is above 4 times 0.2."""
    spent, rng = Budget(0.0), np.random.default_rng(0)
    assert MAKESPAN_SOLVERS["m-sct"].algorithm(FAVOURITE, budget=spent, rng=rng).value_s == 11.0
    problem = network([[1.0] + [5.0] * 4] * 2, "")
    assert MAKESPAN_SOLVERS["getf"].algorithm(problem, budget=spent, rng=rng).value_s == 2.0


def test_earliest_time_first_prefers_the_longer_way_down_where_m_etf_takes_the_first_operator() -> None:
    """In the same network etf lets c follow a, as 1 + 3 + 6 s are below it."""
    assert run(FAVOURITE, "etf").value_s == 8.0


def test_devices_fall_into_groups_of_speed() -> None:
    """Factors below 2 make a group; of four devices one slower than a quarter of the fastest is left out."""
    assert groups(np.array([1.0, 0.6, 0.3, 0.2])).tolist() == [1, 1, 0, -1]
    # Times 2 and 8, then 1 and 1: the geometric mean of 1/4 and 1 is 1/2.
    assert speeds(network([[2.0, 8.0], [1.0, 1.0]], "")).tolist() == pytest.approx([1.0, 0.5])


def test_many_slow_devices_outweigh_a_fast_one() -> None:
    """A chain of 12 s leaves no time on the fast device, so the program has d, which nothing reads, in the slow group.

    Of the groups from there up the eight slow devices have speed 8 x 0.25 = 2, the fast one 1: d runs on a slow one.
    The chain has to lie in the fast group whole: any part on a slow device lengthens it beyond 12.
    """
    problem = network([[4.0] + [16.0] * 8] * 3 + [[1.0] + [4.0] * 8], "ab bc", seconds=0.1)
    plan = run(problem, "getf").require_plan()
    assert plan.device_of[:3].tolist() == [0, 0, 0] and plan.device_of[3] > 0 and plan.value_s == 12.0


def test_a_depth_first_order_follows_the_longest_way_down() -> None:
    """a makes b and c ready; c has 1 + 3 + 6 s below it, so c and d come before b."""
    assert depth_first_order(arrays_of(FAVOURITE).network, np.array([9.0, 4.0, 8.0, 6.0])).tolist() == [0, 2, 3, 1]


def test_clusters_cut_the_fewest_bytes() -> None:
    """A chain of tensors of 1, 5 and 1 bytes, at most two operators each: the two around the 5 bytes are kept together.

    Cutting in the middle, {a, b} {c, d}, would cut 5; {a} {b, c} {d} cuts 1 + 1.
    """
    graph = OperatorGraph(
        [Operator(v) for v in "abcd"], [Tensor("x", 0, (1,), 1), Tensor("y", 1, (2,), 5), Tensor("z", 2, (3,), 1)]
    )
    g = arrays_of(Problem(graph, Cluster([Device("d")]), [[1.0]] * 4)).network
    order, one, none = np.arange(4, dtype=np.int32), np.ones(4), np.zeros(4)
    assert sequential_partition(g, order, one, none, 9.0, 9.0, 2).tolist() == [0, 1, 3, 4]
    # The same by seconds, and by bytes; without a limit that binds, one cluster; a limit below 1 s leaves single ones.
    assert sequential_partition(g, order, one, none, 2.0, 9.0, 9).tolist() == [0, 1, 3, 4]
    assert sequential_partition(g, order, none, one, 9.0, 2.0, 9).tolist() == [0, 1, 3, 4]
    assert sequential_partition(g, order, one, none, 9.0, 9.0, 9).tolist() == [0, 4]
    assert sequential_partition(g, order, one, none, 0.5, 9.0, 9).tolist() == [0, 1, 2, 3, 4]


def test_a_cluster_that_no_device_holds_is_taken_apart() -> None:
    """Weights of 3 on devices of 4 bytes: whatever the clusters, each operator has a device of its own."""
    problem = network([[1.0, 1.0, 1.0]] * 3, "ab bc", weights=[3, 3, 3], memory=4)
    assert sorted(run(problem, "celeritas").require_plan().device_of.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("solver", ["heft", "etf", "m-etf", "m-sct", "getf", "celeritas"])
def test_where_live_tensors_do_not_fit_memory_is_kept_free_for_them(solver: str) -> None:
    """Weights of 5, 5 and 4 fill the fast device's 14 bytes; tensors of 2 bytes need room there, so c moves."""
    graph = OperatorGraph(
        [Operator(v, weight_bytes=w) for v, w in zip("abc", (5, 5, 4), strict=True)],
        [Tensor("x", 0, (1,), 2), Tensor("y", 1, (2,), 2)],
    )
    cluster = Cluster([Device("fast", memory_bytes=14), Device("slow")], [Link(0.0, 8.0, link_class="same-host")])
    problem = Problem(graph, cluster, [[1.0, 1.5]] * 3, Makespan("none"))
    plan = run(problem, solver).require_plan()
    assert verify(problem, plan) == () and set(plan.device_of.tolist()) != {0}


def test_problems_too_large_for_a_linear_program_are_refused_with_the_reason() -> None:
    """20,001 reads for m-sct; getf counts reads and operators times devices."""
    n = 20_002
    graph = OperatorGraph([Operator(f"v{k}") for k in range(n)], [Tensor("x", 0, tuple(range(1, n)), 8)])
    cluster = Cluster([Device(f"d{i}") for i in range(11)])
    problem = Problem(graph, cluster, np.ones((n, 11)))
    assert "20,001 reads" in (MAKESPAN_SOLVERS["m-sct"].supports(problem) or "")
    assert "440,033 entries" in (MAKESPAN_SOLVERS["getf"].supports(problem) or "")


@MANY
@given(problem=problems(most_operators=6))
def test_list_search_is_legal_repeatable_and_never_worse_than_its_start(problem: Problem) -> None:
    """Thirty tries from nothing, and from the plan of m-topo."""
    start = run(problem, "m-topo")
    algorithm = MAKESPAN_SOLVERS["list-search"].algorithm
    for given_plan in (None, start.plan):
        found, again = (
            algorithm(problem, budget=Budget(iterations=30), rng=np.random.default_rng(1), incumbent=given_plan)
            for _ in range(2)
        )
        assert found.value_s == again.value_s and found.lower_bound_s == 0.0
        if found.plan is not None:
            assert verify(problem, found.plan) == ()
            assert found.value_s >= optimum(problem) * (1 - 1e-9)
        if given_plan is not None:
            assert found.value_s <= given_plan.value_s


def test_list_search_leaves_devices_out() -> None:
    """Two chains that HEFT spreads, as each first operator finishes first on a device of its own, but that then meet.

    a and b (1 s each) go to two devices, c (1 s) reads both: 1 + 10 s of transfer + 1 = 12. On one device all take 3 s,
    which the search finds when it leaves the other device out.
    """
    problem = network([[1.0, 1.0]] * 3, "ac bc", seconds=10.0)
    assert run(problem, "heft").value_s == 12.0
    found = MAKESPAN_SOLVERS["list-search"].algorithm(
        problem, budget=Budget(iterations=12), rng=np.random.default_rng(0)
    )
    assert found.value_s == 3.0 and len(found.require_plan().devices_used) == 1
