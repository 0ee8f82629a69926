"""The bound from priced modules: never above brute force, equal to a closed form, and it sees links and memory."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from placewright._kernel.load_vectors import cheapest
from placewright.algorithm import Budget
from placewright.bounds.max_load.fractional_load import fractional_load
from placewright.bounds.max_load.module_network import module_network
from placewright.bounds.max_load.module_order import narrow_order, reach
from placewright.bounds.max_load.module_prices import even_prices, priced
from placewright.bounds.max_load.modules import PricedModules
from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import MaxLoad
from placewright.problem import Problem
from tests.max_load.brute_force import optimum
from tests.max_load.module_chains import module_chain
from tests.max_load.random_problems import max_load_problems

SOME = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def bound(problem: Problem, rounds: int = 20) -> float:
    """Bound of so many prices."""
    return PricedModules()(problem, budget=Budget(iterations=rounds), rng=np.random.default_rng(0)).lower_bound_s


@SOME
@given(max_load_problems(replicate=False))
def test_the_bound_is_not_above_the_optimum(problem: Problem) -> None:
    """Whatever the options of the objective, links, channels, memory, classes and wishes."""
    assert bound(problem) <= optimum(problem)


def test_any_prices_give_a_bound_and_the_cheapest_placement() -> None:
    """At random prices: the minimum of the table is the price of the placement found, and below the optimum."""
    rng = np.random.default_rng(0)
    for k in range(30):
        share = 0.3 if k % 6 > 3 else 0.0
        objective = MaxLoad("any", overlap=("none", "transfers", "full")[k % 3], busy_share=share)  # type: ignore[arg-type]
        problem = module_chain(rng, objective, most=7, memory=k % 2 == 0, unlike_links=True, channels=k % 5 == 0)
        network = module_network(problem)
        price, s = rng.random(network.prices), network.steps
        loads = network.prices - (len(s.capacity) if s.memory else 0)
        price[:loads] /= price[:loads].sum()
        found = priced(network, price, Budget())
        assert found is not None
        assert found.bound_s <= optimum(problem)
        place = np.zeros(len(s.compute), dtype=np.int32)
        again = cheapest(s, price, network.at, found.table, place)
        assert float(price @ again) == pytest.approx(float(found.table[0]), rel=1e-12)
        assert place.tolist() == found.place.tolist()


def test_it_sees_that_a_slow_link_keeps_operators_together() -> None:
    """Two operators of 2 s with a tensor of 6 s between them, and one of 3 s that only the second device can run.

    Together on the first: loads (4, 3). Together on the second: (0, 7). Apart: (8, 11). At prices (p, 1 - p) the least
    of 4 p + 3 (1 - p), 7 (1 - p) and 8 p + 11 (1 - p) is largest where the first two meet, at p = 1/2: 3.5.
    """
    graph = OperatorGraph([Operator(v) for v in "abc"], [Tensor("x", 0, (1,), 6)])
    two = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    problem = Problem(graph, two, [[2.0, 2.0], [2.0, 2.0], [inf, 3.0]], MaxLoad("any"))
    assert bound(problem) == pytest.approx(3.5, rel=1e-6)
    assert optimum(problem) == 4.0


def test_it_sees_memory() -> None:
    """The fast device has room for one of two alike operators (1 s there, 9 s on the slow one): the best is 9.

    At prices (0, 1) of the loads and mu a byte on the fast device an operator costs min(mu, 9), both of them less the
    price of the room 2 mu - mu = mu for mu up to 9.
    """
    graph = OperatorGraph([Operator(v, weight_bytes=1) for v in "ab"])
    pair = Cluster([Device("fast", memory_bytes=1), Device("slow", memory_bytes=2)])
    problem = Problem(graph, pair, [[1.0, 9.0]] * 2, MaxLoad("any"))
    assert bound(problem, 60) == pytest.approx(9.0, rel=1e-3)


def test_it_is_no_worse_than_divided_operators_where_transfers_cost() -> None:
    """On ten chains with unlike links it is above the bound without transfers, and at even prices a bound too."""
    rng, above = np.random.default_rng(5), 0
    for _ in range(10):
        problem = module_chain(rng, MaxLoad("any"), most=9, unlike_links=True)
        divided = fractional_load(problem, budget=Budget(), rng=rng).lower_bound_s
        even = priced(module_network(problem), even_prices(module_network(problem)), Budget())
        assert even is not None
        found = bound(problem, 40)
        assert even.bound_s <= found * (1 + 1e-9)
        assert found >= divided * (1 - 1e-4)
        above += found > divided * 1.001
    assert above >= 5


def test_a_comb_is_taken_tooth_by_tooth() -> None:
    """A chain of four with a tooth at each: never more than one group is in use; edges keep their direction."""
    ends = [[0, 1], [1, 2], [2, 3], [0, 4], [1, 5], [2, 6], [3, 7]]
    edges = [(a, b) for a, b in ends]
    order = narrow_order(8, ends, edges, 3).tolist()
    assert order == [0, 4, 1, 5, 2, 6, 3, 7]
    above, below = reach(8, edges)
    assert above == [0, 1, 2, 3, 1, 2, 3, 4]
    assert below == [7, 5, 3, 1, 0, 0, 0, 0]


def test_wide_networks_and_replicas_give_no_bound() -> None:
    """It says nothing rather than something wrong."""
    graph = OperatorGraph([Operator("a")])
    pair = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    assert bound(Problem(graph, pair, [[1.0, 1.0]], MaxLoad("any"))) == pytest.approx(0.5)
    assert bound(Problem(graph, pair, [[1.0, 1.0]], MaxLoad("any", replicate=True))) == 0.0
