"""The configuration bound against brute force, its sets and upper bounds against all sets, and published values."""

from __future__ import annotations

from math import inf

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.algorithm import Budget
from placewright.bounds.max_load.configuration import Configuration
from placewright.problem import Problem
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems

MANY = settings(
    max_examples=1000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def bound_of(problem: Problem, upper_s: float = inf, iterations: int = 60) -> float:
    """Bound from seed 0."""
    algorithm = Configuration(upper_s=lambda: upper_s)
    return algorithm(problem, budget=Budget(iterations=iterations), rng=np.random.default_rng(0)).lower_bound_s


@MANY
@given(max_load_problems(), st.sampled_from([inf, 3.0, 1.5, 1.1, 1.0]))
def test_the_bound_is_not_above_the_optimum(problem: Problem, factor: float) -> None:
    """Whatever the options, and whatever upper bound it is told, as long as that is one."""
    best = optimum(problem)
    assert bound_of(problem, best * factor) <= best
