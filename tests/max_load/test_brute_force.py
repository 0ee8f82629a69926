"""The optimum by trying everything against the judge, and against formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.evaluate import evaluate
from tests.max_load.brute_force import alike, optimum, value_of
from tests.max_load.closed_forms import forms
from tests.max_load.random_problems import max_load_problems

INF = float("inf")
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize(("problem", "value"), [pytest.param(*form[1:], id=form[0]) for form in forms()])
def test_closed_forms(problem, value):
    """Chains of equal operators on alike devices, and crossing edges, have the optimum that was worked out by hand."""
    assert optimum(problem) == pytest.approx(value, rel=1e-12)


def judged_value(problem, where, replicas=()):
    """Value by the judge, ``inf`` for what breaks a rule."""
    judged = evaluate(problem, where, replicas=replicas)
    return judged.value_s if judged.feasible else INF


@settings(SETTINGS, max_examples=500)
@given(max_load_problems(most_devices=4), st.data())
def test_the_judge_agrees_on_single_placements(problem, data):
    """One random placement of a random problem, now and then with replicas, has the value that plain loops give it."""
    unit_of, D = problem.graph.unit_of, len(problem.cluster)
    replicas = []
    if problem.objective.replicate and D > 1:
        stage = data.draw(st.sets(st.integers(0, D - 1), min_size=1))
        stage = sorted(j for j in stage if alike(problem, min(stage), j))
        replicas = [stage] if len(stage) > 1 else []
    leads = [i for i in range(D) if not any(i in stage[1:] for stage in replicas)]
    devices = data.draw(st.lists(st.sampled_from(leads), min_size=max(unit_of) + 1, max_size=max(unit_of) + 1))
    where = [devices[k] for k in unit_of]
    assert judged_value(problem, where, replicas) == pytest.approx(value_of(problem, where, replicas), rel=1e-12)


@settings(SETTINGS, max_examples=400)
@given(max_load_problems(most_operators=4))
def test_the_optimum_is_the_least_that_the_judge_gives(problem):
    """Over all placements of the units and all partitions of the devices into stages, those of unlike devices too."""
    unit_of, D = problem.graph.unit_of, len(problem.cluster)
    least = INF
    for stage_of in itertools.product(range(D), repeat=D if problem.objective.replicate else 0):
        # A partition: each device names the first one of its stage.
        if any(stage_of[i] != i for i in stage_of) or any(i < lead for i, lead in enumerate(stage_of)):
            continue
        stages = [[i for i in range(D) if stage_of[i] == lead] for lead in sorted(set(stage_of))]
        replicas = [stage for stage in stages if len(stage) > 1]
        if replicas:
            leads = sorted(set(stage_of))
            least = min(least, least_value(problem, unit_of, leads, replicas))
    assert min(least, least_value(problem, unit_of, range(D), [])) == pytest.approx(optimum(problem), rel=1e-12)


def least_value(problem, unit_of, leads, replicas):
    placements = itertools.product(leads, repeat=max(unit_of) + 1)
    return min(judged_value(problem, np.array(p)[list(unit_of)], replicas) for p in placements)
