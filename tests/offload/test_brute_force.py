"""The optimum by trying everything against the judge, and against formulas."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.evaluate import evaluate
from tests.offload.brute_force import best_plan, optimum, value_of
from tests.offload.closed_forms import forms
from tests.offload.random_problems import offload_problems

INF = float("inf")
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(("problem", "value"), [pytest.param(*form[1:], id=form[0]) for form in forms()])
def test_closed_forms(problem, value):
    """Chains on accelerators that hold few operators, and loose operators, have the optimum worked out by hand."""
    assert optimum(problem) == pytest.approx(value, rel=1e-12)


def judged_value(problem, where, calls):
    """Value by the judge, ``inf`` for what breaks a rule."""
    judged = evaluate(problem, where, call_of=calls)
    return judged.value_s if judged.feasible else INF


@settings(SETTINGS, max_examples=500)
@given(offload_problems(), st.data())
def test_the_judge_agrees_on_single_plans(problem, data):
    """A random placement with random calls has the value that plain loops give it, or breaks a rule for both."""
    n, D = len(problem.graph), len(problem.cluster)
    device = data.draw(st.lists(st.integers(0, D - 1), min_size=n, max_size=n))
    if data.draw(st.booleans()):
        device = [device[unit] for unit in problem.graph.unit_of]
    calls = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    if data.draw(st.booleans()):
        calls.sort()
    assert judged_value(problem, device, calls) == pytest.approx(value_of(problem, device, calls), rel=1e-12)


@settings(SETTINGS, max_examples=400)
@given(offload_problems(most_operators=3))
def test_the_optimum_is_the_least_that_the_judge_gives(problem):
    """Over all placements on all devices, and all numbers of calls."""
    n, D = len(problem.graph), len(problem.cluster)
    least = INF
    for where in itertools.product(range(D), repeat=n):
        busy = [v for v, i in enumerate(where) if problem.cluster.devices[i].kind != "cpu"]
        for numbers in itertools.product(range(len(busy)), repeat=len(busy)):
            calls = [0] * n
            for v, number in zip(busy, numbers, strict=True):
                calls[v] = number
            if any(calls[v] and not any(where[u] == where[v] and calls[u] == calls[v] - 1 for u in busy) for v in busy):
                continue  # numbers with gaps
            least = min(least, judged_value(problem, where, calls))
    assert least == pytest.approx(optimum(problem), rel=1e-12)


@settings(SETTINGS, max_examples=500)
@given(offload_problems())
def test_the_best_plan_has_the_optimum(problem):
    """The plan that goes with the optimum is legal for the judge and worth it."""
    value, where, calls = best_plan(problem)
    if value < INF:
        assert judged_value(problem, where, calls) == pytest.approx(value, rel=1e-12)
