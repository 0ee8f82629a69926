"""Copies of a network side by side: the judge, the checker, the solvers and the bounds against brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from placewright import (
    Cluster,
    Copy,
    Device,
    InvalidInput,
    Link,
    Operator,
    OperatorGraph,
    Problem,
    Result,
    Tensor,
    Throughput,
    Times,
    evaluate,
    read_plan,
    solve,
    verify,
    write_plan,
    write_problem,
)
from placewright.algorithm import Budget
from placewright.bounds import BOUNDS
from placewright.cli import main
from placewright.evaluate import judge, plan_for
from placewright.execute import run_plan
from placewright.io.partitioning_split import split_to_json
from placewright.solvers import SOLVERS
from tests.throughput.brute_force import optimum, value_of_copies
from tests.throughput.random_problems import throughput_problems

NAMES = ("data-parallel", "model-parallel", "copies", "copies-exact")
FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def two_devices(objective: Throughput | str = "throughput", *, backward: bool = False) -> Problem:
    """Operators a, b of 1 s on 'fast' and 2 s on 'slow', a tensor of 0.5 s between them, 4 B of weights each."""
    operators = [Operator("a", weight_bytes=4), Operator("b", weight_bytes=4)]
    if backward:
        operators.append(Operator("b'", backward=True))
    graph = OperatorGraph(operators, [Tensor("x", 0, (1,), 50)])
    pair = Cluster([Device("fast"), Device("slow")], [Link(0.0, 100.0, link_class="same-host")])
    return Problem(graph, pair, [[1.0, 2.0]] * len(operators), objective)


@settings(FEW, max_examples=40)
@given(throughput_problems(4, 2))
def test_solvers_and_bounds_agree_with_brute_force(problem: Problem) -> None:
    """No plan is below the optimum of all placements and holdings, no bound above; the exact solver meets it."""
    best = optimum(problem)
    for bound in ("fractional-load", "fractional-cuts"):
        found = BOUNDS["throughput"][bound](problem, budget=Budget(iterations=50), rng=np.random.default_rng(0))
        assert found.lower_bound_s <= best * (1 + 1e-9)
    for name in NAMES:
        result = SOLVERS["throughput"][name].algorithm(
            problem, budget=Budget(iterations=50), rng=np.random.default_rng(0)
        )
        assert result.lower_bound_s <= best * (1 + 1e-9) or result.infeasible
        if result.plan is not None:
            assert verify(problem, result.plan) == ()
            assert result.value_s >= best * (1 - 1e-9)
            assert result.value_s == pytest.approx(value_of_copies(problem, result.plan.copies), rel=1e-9)
        if name == "copies-exact":
            assert result.value_s == pytest.approx(best, rel=1e-6)


@FEW
@given(throughput_problems(5, 2, contiguity="any", memory=False, backward=False, unreachable=False))
def test_copies_are_proved_optimal_on_two_devices(problem: Problem) -> None:
    """Without contiguity, memory and training, cutting the divided copies loses nothing: plan and bound meet."""
    result = SOLVERS["throughput"]["copies"].algorithm(
        problem, budget=Budget(iterations=50), rng=np.random.default_rng(0)
    )
    assume(result.plan is not None)
    assert result.lower_bound_s == pytest.approx(result.value_s, rel=1e-6, abs=1e-9)


@FEW
@given(throughput_problems(5, 3), st.data())
def test_judge_and_checker_agree_with_brute_force(problem: Problem, data: st.DataObject) -> None:
    """Random copies have the value of the test's own sums, and the checker lets through what the judge does."""
    unit_of, D = problem.graph.unit_of, len(problem.cluster)
    places = st.lists(st.integers(0, D - 1), min_size=max(unit_of) + 1, max_size=max(unit_of) + 1)
    drawn = data.draw(st.lists(places, min_size=1, max_size=3))
    copies = [Copy([p[u] for u in unit_of], 1.0 + k) for k, p in enumerate(drawn)]
    plan = plan_for(problem, copies[0].device_of, copies=copies)
    if plan is not None:
        assert verify(problem, plan) == ()
        assert plan.value_s == pytest.approx(value_of_copies(problem, plan.copies), rel=1e-9)


def test_shares_in_proportion_to_speeds() -> None:
    """Whole copies on devices of 2 s and 4 s: 1 / (1/2 + 1/4) = 4/3 s a sample, two thirds on the fast one."""
    found = SOLVERS["throughput"]["data-parallel"].algorithm(
        two_devices(), budget=Budget(), rng=np.random.default_rng(0)
    )
    assert found.value_s == pytest.approx(4 / 3)
    assert [copy.share for copy in found.require_plan().copies] == pytest.approx([2 / 3, 1 / 3])


def test_synchronisation_is_paid_by_each_holder() -> None:
    """Both devices hold 8 B: 2 (2 - 1) / 2 x 8 B / (100 B/s) / 4 samples = 0.02 s on top of half of 3 s, or of 6 s."""
    problem = two_devices(Throughput(sync_period=4), backward=True)
    judged = evaluate(problem, [0, 0, 0], copies=[Copy([0, 0, 0], 0.5), Copy([1, 1, 1], 0.5)])
    assert [use.loads[0].sync_s for use in judged.devices] == pytest.approx([0.02, 0.02])
    assert judged.value_s == pytest.approx(3.02)


def test_memory_counts_an_operator_once_a_device() -> None:
    """Copies (0, 0) and (0, 1) hold a and b on device 0, 8 B, and b on device 1, 4 B, whatever their shares."""
    judged = evaluate(two_devices(), [0, 0], copies=[Copy([0, 0], 0.5), Copy([0, 1], 0.5)])
    assert [use.weight_bytes for use in judged.devices] == [8, 4]


def test_one_copy_is_the_max_load() -> None:
    """A plan with one copy is worth what its pipeline is."""
    problem = two_devices()
    alone = Problem(problem.graph, problem.cluster, problem.times, "max-load")
    assert evaluate(problem, [0, 1]).value_s == evaluate(alone, [0, 1]).value_s == 2.5


def test_the_checker_finds_what_is_wrong() -> None:
    """Shares that don't sum to 1, a wrong value, and a first copy that is not the placement are told."""
    problem = two_devices()
    plan = plan_for(problem, [0, 0], copies=[Copy([0, 0], 2), Copy([1, 1], 1)])
    assert plan is not None and verify(problem, plan) == ()
    half = replace(plan, copies=(plan.copies[0],))
    assert "the shares sum to" in verify(problem, half)[0]
    assert "largest load" in verify(problem, replace(plan, value_s=1.0))[0]
    assert verify(problem, replace(plan, copies=plan.copies[::-1])) == (
        "the plan's placement is not that of its first copy",
    )


def test_plan_files_keep_copies(tmp_path: Path) -> None:
    """A plan that was written and read has the same copies and value; a copy on no device is refused."""
    problem = two_devices()
    result = solve(problem, budget=5)
    plan = result.require_plan()
    write_plan(tmp_path / "plan.json", problem, result, judge(problem, plan))
    read = read_plan(tmp_path / "plan.json")
    assert [(c.share, c.device_of.tolist()) for c in read.plan.copies] == [
        (c.share, c.device_of.tolist()) for c in plan.copies
    ]
    assert verify(read.problem, read.plan) == ()
    content = json.loads((tmp_path / "plan.json").read_text())
    content["copies"][1]["placement"]["a"] = "slew"
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInput, match="there is no device 'slew'"):
        read_plan(tmp_path / "plan.json")


def test_several_copies_are_neither_run_nor_exported(tmp_path: Path) -> None:
    """What knows one placement refuses several in a line that says what to do instead."""
    problem = two_devices()
    plan = plan_for(problem, [0, 0], copies=[Copy([0, 0], 2), Copy([1, 1], 1)])
    assert plan is not None
    with pytest.raises(InvalidInput, match="2 copies of the network"):
        run_plan(problem, plan, folder=tmp_path)
    with pytest.raises(InvalidInput, match="2 copies of the network"):
        split_to_json(problem, plan, judge(problem, plan))


def test_other_objectives_know_no_copies() -> None:
    """Copies under another objective break a rule."""
    problem = two_devices()
    other = Problem(problem.graph, problem.cluster, problem.times, "makespan")
    assert "copies of the network" in evaluate(other, [0, 0], copies=[Copy([0, 0], 1.0)]).violations[0]


def test_auto_proves_a_mixture() -> None:
    """On the pair of devices 4/3 s is optimal: no placement has a smaller load at prices 2/3 and 1/3."""
    result: Result = solve(two_devices(), budget=5)
    assert result.value_s == pytest.approx(4 / 3) and result.status.value == "optimal"


def test_a_table_of_times_says_nothing_of_synchronisation() -> None:
    """In training, beside a table of transfer times, links without a bandwidth would synchronise for nothing."""
    trained = two_devices(backward=True)
    endless = Cluster(trained.cluster.devices, [Link(0.0, float("inf"), link_class="same-host")])
    times = Times(trained.times.processing_s, np.zeros((1, 2, 2)))
    with pytest.raises(InvalidInput, match="--sync-bandwidth"):
        Problem(trained.graph, endless, times, Throughput())
    Problem(trained.graph, endless, times, Throughput(sync_bandwidth_bytes_per_s=1e9))


def test_the_command_line_plans_for_throughput(tmp_path: Path) -> None:
    """A problem file is planned, shown and verified; flags of max-load alone are refused."""
    problem = two_devices()
    write_problem(tmp_path / "p.json", problem)
    out = str(tmp_path / "plan.json")
    commands = (
        ["plan", str(tmp_path / "p.json"), "--budget", "5s", "-o", out],
        ["show", out, "--report", str(tmp_path / "r.html"), "--trace", str(tmp_path / "t.json")],
        ["verify", out, out],
        ["evaluate", out, out],
    )
    for command in commands:
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == 0, command
    assert "Copies of the network" in (tmp_path / "r.html").read_text()
    with pytest.raises(SystemExit) as end:
        main(["plan", str(tmp_path / "p.json"), "--objective", "throughput", "--replicate"])
    assert end.value.code == 2


@pytest.mark.parametrize("seconds", [10**7, 10**10])
@pytest.mark.parametrize("trains", [False, True])
def test_a_placement_that_takes_forever_does_not_blur_the_others(seconds: int, trains: bool) -> None:
    """Exact also where the tensor from a to b takes 1e7 and 1e10 times as long as an operator."""
    # c runs on d1 alone, for 1 s; a and b, 1 s each anywhere, stay together. With a share s of the samples on d1:
    # max(1 + 2 s, 2 (1 - s)) is 1.5 at s = 1/4. Both hold a and b then: 2 x 1/2 x 1e10 / 1e14 s each in training.
    operators = [Operator(v, weight_bytes=10**10, backward=trains and v == "b") for v in "abc"]
    graph = OperatorGraph(operators, [Tensor("x", 0, (1,), seconds)])
    pair = Cluster([Device("d0", memory_bytes=2 * 10**10), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    times = [[1.0, 1.0], [1.0, 1.0], [np.inf, 1.0]]
    problem = Problem(graph, pair, times, Throughput("any", sync_bandwidth_bytes_per_s=1e14))
    result = SOLVERS["throughput"]["copies-exact"].algorithm(problem, budget=Budget(), rng=np.random.default_rng(0))
    best = 1.5 + 2e-4 * trains
    assert result.value_s == pytest.approx(best, rel=1e-9)
    assert best * (1 - 1e-6) <= result.lower_bound_s <= best * (1 + 1e-12)


def test_a_byte_too_many_is_too_many() -> None:
    """Exact where memory lacks one byte in 1e11, which the solver does not see."""
    # a takes 4 s and b 1 s on each of three devices; both don't fit one, by a byte. b on one device, a on two: 4 / 2 =
    # 2 s, and b has 1 s. To hold b on a second device would put a on one only.
    operators = [Operator("a", weight_bytes=5 * 10**10), Operator("b", weight_bytes=5 * 10**10)]
    three = Cluster(
        [Device(f"d{i}", memory_bytes=10**11 - 1) for i in range(3)], [Link(0.0, 1.0, link_class="same-host")]
    )
    problem = Problem(OperatorGraph(operators), three, [[4.0] * 3, [1.0] * 3], Throughput("any"))
    result = SOLVERS["throughput"]["copies-exact"].algorithm(problem, budget=Budget(), rng=np.random.default_rng(0))
    assert result.value_s == pytest.approx(2.0, rel=1e-9)
    assert 2.0 * (1 - 1e-6) <= result.lower_bound_s <= 2.0
