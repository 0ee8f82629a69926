"""What an operator holds counts alike in every solver, bound, judge and checker, whatever it is called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device
from placewright.evaluate import evaluate
from placewright.graph import RESIDENT_PARTS, Operator, OperatorGraph
from placewright.io import problem_hash, read_problem, write_problem
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.verify import verify
from tests.max_load.random_problems import max_load_problems
from tests.offload.random_problems import offload_problems
from tests.random_problems import problems


def dealt(problem: Problem, rng: np.random.Generator) -> Problem:
    """The same problem, of which each operator's bytes are dealt out anew among the parts."""
    graph = problem.graph

    def split(v: Operator) -> Operator:
        cuts = np.sort(rng.integers(0, v.resident_bytes + 1, len(RESIDENT_PARTS) - 1)).tolist()
        sizes = np.diff([0, *cuts, v.resident_bytes]).tolist()
        return replace(v, **dict(zip(RESIDENT_PARTS, sizes, strict=True)))

    operators = [split(v) for v in graph.operators]
    made = OperatorGraph(operators, graph.tensors, graph.colocation, graph.name)
    return Problem(made, problem.cluster, problem.times, problem.objective, problem.wishes)


@given(
    st.one_of(problems(), max_load_problems(replicate=False), offload_problems()),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_every_placement_is_judged_alike(problem: Problem, seed: int) -> None:
    """Value, memory and violations don't depend on which part the bytes are in, for the judge as for the checker."""
    rng = np.random.default_rng(seed)
    other = dealt(problem, rng)
    for _ in range(4):
        device = rng.integers(0, len(problem.cluster), len(problem.graph))
        one, two = evaluate(problem, device), evaluate(other, device)
        assert one.value_s == two.value_s and len(one.violations) == len(two.violations)
        assert [u.memory_bytes for u in one.devices] == [u.memory_bytes for u in two.devices]
        assert sum(sum(u.memory_parts.values()) for u in two.devices) == sum(u.memory_bytes for u in one.devices)
        found = [verify(p, Plan(device, one.schedule, one.value_s)) for p in (problem, other)]
        assert len(found[0]) == len(found[1])


@pytest.mark.parametrize("family", [problems, max_load_problems, offload_problems])
def test_every_problem_is_solved_alike(family) -> None:
    """Status, value and lower bound of ``auto`` are the same."""

    @given(family(most_operators=5), st.integers(0, 2**32))
    @settings(max_examples=6, deadline=None)
    def check(problem: Problem, seed: int) -> None:
        if any(v.backward for v in problem.graph.operators):  # weights, not other parts, are synchronised
            return
        found = [
            pw.solve(p, budget=Budget(iterations=20)) for p in (problem, dealt(problem, np.random.default_rng(seed)))
        ]
        one, two = ((r.status, r.value_s, r.lower_bound_s) for r in found)
        assert one == two

    check()


def test_too_much_is_told_part_by_part() -> None:
    """The judge lists the parts that are there, the checker names what training keeps."""
    held = Operator("a", weight_bytes=4, gradient_bytes=4, optimizer_bytes=8, saved_bytes=2)
    problem = Problem(OperatorGraph([held]), Cluster([Device("gpu", memory_bytes=16)]), [[1.0]])
    judged = evaluate(problem, [0])
    assert judged.violations == (
        "device 'gpu' needs 18 B (weights 4 B, gradients 4 B, optimiser 8 B, saved 2 B) and has 16 B; "
        "place less on it or raise its memory",
    )
    (line,) = verify(problem, Plan([0], judged.schedule, judged.value_s))
    assert "(18 B of them weights, KV cache and what training keeps)" in line


def test_parts_are_kept_in_problem_files(tmp_path) -> None:
    """They are read back as they were, and make another problem."""
    held = Operator("a", weight_bytes=4, gradient_bytes=4, optimizer_bytes=8, saved_bytes=2)
    cluster = Cluster([Device("gpu")])
    problem, plain = (Problem(OperatorGraph([v]), cluster, [[1.0]]) for v in (held, Operator("a", weight_bytes=4)))
    write_problem(tmp_path / "p.json", problem)
    assert read_problem(tmp_path / "p.json").graph.operators == (held,)
    assert problem_hash(problem) != problem_hash(plain)
