"""Splits of rows that no recurrence is exact for: the best of all where all are judged, and by the search alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Device, Link
from placewright.export import row_search
from placewright.export.row_search import best_row
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan, MaxLoad
from placewright.problem import Problem, Times
from tests.export.rows import best_row as best_of_all

CASES = range(24)


def crossing(seed: int, devices: int = 3, layers: int = 6) -> tuple[Problem, list[list[int]]]:
    """Layers of one to three operators, tensors that are read some layers later, unlike devices and links."""
    rng = np.random.default_rng(seed)
    rows: list[list[int]] = []
    for _ in range(layers):
        begin = rows[-1][-1] + 1 if rows else 0
        rows.append(list(range(begin, begin + int(rng.integers(1, 4)))))
    n = rows[-1][-1] + 1
    tensors = []
    for u in range(n - 1):
        readers = {u + 1, *(int(v) for v in rng.integers(u + 1, min(n, u + 8), int(rng.integers(0, 3))))}
        tensors.append(Tensor(f"t{u}", u, tuple(sorted(readers)), int(rng.integers(1, 100))))
    weights = rng.integers(1, 4, n)
    graph = OperatorGraph([Operator(f"v{k}", weight_bytes=int(w) * 1000) for k, w in enumerate(weights)], tensors)
    room = [int(weights.sum() * rng.uniform(0.4, 0.8)) * 1000 + 600 for _ in range(devices)]
    links = [Link(float(rng.uniform(0, 1)), 100.0, link_class="same-host")]
    for a, b in combinations(range(devices), 2):
        if rng.random() < 0.4:
            links.append(Link(float(rng.uniform(0, 2)), 50.0, between=(f"d{a}", f"d{b}")))
    times = rng.uniform(0.1, 2.0, (n, 1)) * rng.uniform(0.5, 2.0, devices) * rng.uniform(0.7, 1.4, (n, devices))
    cluster = Cluster([Device(f"d{i}", memory_bytes=room[i]) for i in range(devices)], links)
    return Problem(graph, cluster, Times(times), Makespan() if seed % 3 else MaxLoad()), rows


def found(problem: Problem, rows: list[list[int]], iterations: int | None = None) -> tuple[float, bool]:
    """The value that is found, and whether it is said to be the best."""
    clock = Budget(float("inf"), iterations=iterations)
    plan, proved = best_row(problem, rows, range(len(problem.cluster)), (), clock, np.random.default_rng(0))
    return float("inf") if plan is None else plan.value_s, proved


@pytest.mark.parametrize("seed", CASES)
def test_where_all_splits_are_judged_the_best_is_found(seed: int) -> None:
    """3 x 1 + 6 x 5 + 6 x 10 = 93 splits of six layers among three devices, against every one of them.

    It is a proof under max-load, where a placement has one value; a makespan depends on the order of operators too.
    """
    problem, rows = crossing(seed)
    value, proved = found(problem, rows)
    assert value == pytest.approx(best_of_all(problem, rows))
    assert proved == isinstance(problem.objective, MaxLoad)


def test_the_search_alone_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without judging all, none of 24 rows is worse than the best; what is said to be it is where links are alike."""
    monkeypatch.setattr(row_search, "MOST_SPLITS", 0)
    worse, proofs = 0, 0
    for seed in CASES:
        problem, rows = crossing(seed)
        (value, proved), best = found(problem, rows), best_of_all(problem, rows)
        assert value >= best * (1 - 1e-9)
        worse += value > best * (1 + 1e-9)
        proofs += proved
    assert worse == 0
    assert proofs == 4


def test_nothing_is_proved_where_the_budget_ends_first() -> None:
    """Ten splits of 93 are judged, and all of them."""
    problem, rows = crossing(0)
    assert [found(problem, rows, iterations=most)[1] for most in (10, 94)] == [False, True]


def test_a_device_that_may_only_stand_first_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all splits among three devices those are judged in which it has the first block or none."""
    seen: list[list[int]] = []
    plain: Callable[..., object] = row_search.placed

    def noted(problem: Problem, groups: list[list[int]], at: list[int]) -> object:
        seen.append(list(at))
        return plain(problem, groups, at)

    monkeypatch.setattr(row_search, "placed", noted)
    problem, rows = crossing(4)
    best_row(problem, rows, range(3), (0,), Budget(float("inf")), np.random.default_rng(0))
    assert any(at[0] == 0 for at in seen)
    assert all(0 not in at[at.count(0) :] for at in seen)
