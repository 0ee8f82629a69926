"""Random graphs of stages: how many edges, which way, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.errors import InvalidInput
from placewright.networks import Wiring, draw_wiring
from placewright.networks.wiring import MOST_NODES

pytest.importorskip("networkx")


@st.composite
def _asked(draw: st.DrawFn) -> tuple[str, int, dict[str, Any]]:
    graph, nodes = draw(st.sampled_from(["er", "ba", "ws"])), draw(st.integers(3, 40))
    if graph == "ba":
        return graph, nodes, {"m": draw(st.integers(1, nodes - 1))}
    p = draw(st.floats(0, 1))
    return graph, nodes, {"p": p} if graph == "er" else {"p": p, "k": 2 * draw(st.integers(1, (nodes - 1) // 2))}


@settings(max_examples=200, deadline=None)
@given(asked=_asked(), seed=st.integers(0, 2**32))
def test_edges_lead_from_lower_to_higher_nodes(asked: tuple[str, int, dict[str, Any]], seed: int) -> None:
    """So a stage is acyclic. No edge is there twice, the seed alone decides, and every node leads to an output."""
    graph, nodes, parameters = asked
    wiring = draw_wiring(graph, nodes, seed, **parameters)  # type: ignore[arg-type]
    assert wiring == draw_wiring(graph, nodes, seed, **parameters)  # type: ignore[arg-type]
    assert len(wiring.sources_of) == nodes
    for v, sources in enumerate(wiring.sources_of):
        assert all(0 <= u < v for u in sources) and all(a < b for a, b in pairwise(sources))
    leads_out = set(wiring.outputs)
    for v in reversed(range(nodes)):
        assert v in leads_out
        leads_out |= set(wiring.sources_of[v])


@settings(max_examples=100, deadline=None)
@given(asked=_asked(), seed=st.integers(0, 2**32))
def test_edges_are_as_many_as_the_graph_says(asked: tuple[str, int, dict[str, Any]], seed: int) -> None:
    """Barabasi-Albert adds m edges with each of N - m nodes; Watts-Strogatz has N k / 2, however many are rewired."""
    graph, nodes, parameters = asked
    edges = draw_wiring(graph, nodes, seed, **parameters).edges  # type: ignore[arg-type]
    if graph == "ba":
        assert edges == parameters["m"] * (nodes - parameters["m"])
    elif graph == "ws":
        assert edges == nodes * parameters["k"] // 2
    else:
        assert 0 <= edges <= nodes * (nodes - 1) // 2


def test_erdos_renyi_has_the_mean_of_a_binomial() -> None:
    """400 graphs of 32 nodes: 496 pairs, 0.2 of them edges = 99.2, deviation sqrt(496 x 0.2 x 0.8) = 8.9.

    The mean of 400 deviates by 8.9 / 20 = 0.45; four times that are 1.8. The extremes are none and all of the pairs.
    """
    mean = sum(draw_wiring("er", 32, seed).edges for seed in range(400)) / 400
    assert abs(mean - 99.2) < 1.8
    assert (draw_wiring("er", 9, 0, p=0).edges, draw_wiring("er", 9, 0, p=1).edges) == (0, 36)


def test_barabasi_albert_begins_with_nodes_that_have_no_edges() -> None:
    """Node m is joined to all m before it, so these read the stage's input; each node that follows reads exactly m."""
    sources = draw_wiring("ba", 32, 3, m=4).sources_of
    assert sources[:5] == ((), (), (), (), (0, 1, 2, 3))
    assert {len(s) for s in sources[4:]} == {4}


def test_barabasi_albert_prefers_nodes_of_high_degree() -> None:
    """Early nodes are read more than late ones: over 100 graphs, nodes 5 to 9 more than nodes 20 to 24 by far."""
    readers = [0] * 32
    for seed in range(100):
        for sources in draw_wiring("ba", 32, seed).sources_of:
            for u in sources:
                readers[u] += 1
    assert sum(readers[5:10]) > 2 * sum(readers[20:25])


def test_watts_strogatz_without_rewiring_is_the_ring() -> None:
    """k = 4, p = 0 on six nodes: each is joined to the two before it, and the first two to the last two as well.

    Pairs at distance 1: 01 12 23 34 45 05; at distance 2: 02 13 24 35 04 15.
    """
    expected = Wiring(((), (0,), (0, 1), (1, 2), (0, 2, 3), (0, 1, 3, 4)))
    assert draw_wiring("ws", 6, 7, k=4, p=0.0) == expected


def test_watts_strogatz_rewires_the_share_that_it_is_told() -> None:
    """Of 200 x 2 edges a quarter is rewired, and hits a place of the ring again in about 4 of 200 cases.

    Expected 100 x 0.98 = 98 that are no longer on the ring, deviation 8.6 each; the mean of 25 graphs deviates by 1.7.
    """
    off = 0
    for seed in range(25):
        for v, sources in enumerate(draw_wiring("ws", 200, seed, k=4, p=0.25).sources_of):
            off += sum(min(v - u, 200 - v + u) > 2 for u in sources)
    assert abs(off / 25 - 98) < 7


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"graph": "sw"}, "random graph 'sw' is unknown; use one of er, ba, ws"),
        ({"nodes": 1}, f"1 nodes are not a whole number from 2 to {MOST_NODES:,}"),
        ({"nodes": MOST_NODES + 1}, "1001 nodes are not a whole number"),
        ({"k": 3}, "k = 3 is not even"),
        ({"k": 8}, "k = 8 is not even, at least 2 and below the 8 nodes"),
        ({"p": 1.5}, "p = 1.5 is no probability"),
        ({"p": float("nan")}, "p = nan is no probability"),
        ({"m": 2}, "m = 2 is no parameter of 'ws', which takes k and p"),
        ({"graph": "ba", "m": 8}, "m = 8 is not from 1 to 7"),
        ({"graph": "ba", "p": 0.5}, "p = 0.5 is no parameter of 'ba', which takes m"),
        ({"k": 3, "p": -1.0}, "k = 3 is not even, at least 2 and below the 8 nodes; give such a number; p = -1.0"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], said: str) -> None:
    """Each parameter that is out of range, or of another graph, is named with its value and the limit."""
    with pytest.raises(InvalidInput) as refused:
        draw_wiring(**{"graph": "ws", "nodes": 8, "seed": 0, **asked})
    assert said in str(refused.value)
