"""A placement of a file is judged as it is: a plan, or a value and the rule that it breaks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import read_partitioning, read_split
from placewright.objective import MaxLoad
from placewright.problem import Problem, Times
from placewright.result import Result
from placewright.solve import solve
from placewright.solvers.entry import Entry
from placewright.solvers.expert import Expert
from tests.workloads import reference, workload

CHAIN = OperatorGraph(
    [Operator(name, weight_bytes=10) for name in "abc"], [Tensor("x", 0, (1,), 1), Tensor("y", 1, (2,), 1)]
)


def judged(problem: Problem, *device_of: int) -> Result:
    return Expert(device_of)(problem, budget=Budget(), rng=np.random.default_rng(0))


def chain(devices: int, memory: int = 100) -> Problem:
    """Operators of 1, 2 and 4 s, transfers of 0.5 s."""
    cluster = Cluster(
        [Device(f"g{k}", memory_bytes=memory) for k in range(devices)], [Link(0.5, math.inf, link_class="same-host")]
    )
    return Problem(CHAIN, cluster, np.array([[1.0], [2.0], [4.0]]) * np.ones(devices), MaxLoad())


def test_a_legal_placement_is_a_plan() -> None:
    """1 + 2 + 0.5 s; 0.5 + 4 s."""
    found = judged(chain(2), 0, 0, 1)
    assert found.value_s == 4.5 and not found.rejected and found.plan is not None
    assert found.plan.device_of.tolist() == [0, 0, 1] and found.plan.provenance.solver == "expert"


@pytest.mark.parametrize(
    ("problem", "device_of", "value_s", "rule"),
    [
        (chain(2, 15), (0, 0, 1), 4.5, "device 'g0' needs 20 B"),
        (chain(2), (0, 1, 0), 6.0, "the placement is not contiguous"),  # 1 + 4 + in 0.5 + out 0.5
        (chain(2), (0, 1, 2), 4.5, "it uses 3 accelerators, and there are 2"),
        (chain(1), (0, 1, 1), 6.5, "it uses 2 accelerators, and there are 1"),  # linked as its class says
    ],
)
def test_one_that_breaks_a_rule_is_no_plan(
    problem: Problem, device_of: tuple[int, ...], value_s: float, rule: str
) -> None:
    """Its value is told all the same, with further copies of the last accelerator where it uses more."""
    found = judged(problem, *device_of)
    assert found.plan is None and found.rejected_s == value_s and found.rejected.startswith(rule)
    # What the bounds say beside it does not hide it.
    assert Result(lower_bound_s=1.0).merge(found).rejected == found.rejected
    assert found.merge(Result(rejected_s=99.0, rejected="worse")).rejected == found.rejected


def test_transfer_tables_grow_with_the_copies() -> None:
    """Times that a file gives: the third accelerator is linked as the second; 4 + 0.25 in, 2 + 0.25 + 0.25."""
    table = np.zeros((2, 2, 2))
    table[:, 0, 1] = table[:, 1, 0] = 0.25
    cluster = Cluster([Device("g0"), Device("g1")], [Link(0.0, math.inf, link_class="same-host")])
    problem = Problem(CHAIN, cluster, Times(np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]), table), MaxLoad())
    assert judged(problem, 0, 1, 2).rejected_s == 4.25


def test_what_it_can_not_judge() -> None:
    """Without a placement, with one of another length, and accelerators where there are none."""
    with pytest.raises(InvalidInput, match=r"it needs a placement; give its file with --expert SPLIT\.json"):
        solve(chain(2), solver="expert", budget=1)
    assert Expert((0, 1)).supports(chain(2)) == "the placement is for 2 operators, and there are 3"
    cpu = Problem(CHAIN, Cluster([Device("c", kind="cpu")]), np.ones((3, 1)), MaxLoad())
    assert Expert((0, 0, 1)).supports(cpu) == "the placement uses accelerators, and there are none"
    assert Expert((0, 0, 1)).supports(chain(2)) is None


def test_solve_takes_solvers_that_it_is_given() -> None:
    """In place of the registered one of that name; the bounds are merged in."""
    placement = Expert((0, 0, 1))
    given = {"expert": Entry(placement, False, "", placement.supports, starts_afresh=True)}
    found = solve(chain(2), solver="expert", budget=1, given=given)
    assert found.value_s == 4.5 and found.solver == "expert"


@pytest.mark.parametrize(("file", "value_ms"), reference("published-expert") or [("dnn-partitioning/none", 0.0)])
def test_published_splits_have_their_published_values(file: str, value_ms: float) -> None:
    """What the published program computes for its experts' splits, to the digits that it prints."""
    name = file.rpartition("layer_")[2].removesuffix(".json")
    problem = read_partitioning(workload(file))
    try:
        path = workload(f"dnn-partitioning/expert/{name}_expert.json")
    except pytest.skip.Exception:
        path = workload(f"dnn-partitioning/expert/{name.replace('training', 'inference')}_expert.json")
    found = judged(problem, *read_split(path, problem).device_of.tolist())
    assert found.value_s * 1e3 == pytest.approx(value_ms, rel=1e-5)
