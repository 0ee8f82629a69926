"""How the units of a stage are wired: random graphs, made acyclic by the order of their nodes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from placewright.errors import InvalidInput, MissingExtra

__all__ = ["MOST_NODES", "Wiring", "draw_wiring"]

RandomGraph: TypeAlias = Literal["er", "ba", "ws"]

MOST_NODES = 1_000
"""Of a stage."""

PARAMETERS: dict[str, dict[str, float]] = {"er": {"p": 0.2}, "ba": {"m": 5}, "ws": {"k": 4, "p": 0.75}}
"""What each random graph takes, and the defaults."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """A stage: its nodes in order, and what each of them reads.

    Attributes
    ----------
    sources_of : tuple of tuple of int
        For each node the nodes that it reads, ascending, all before it. Nodes that read none read the stage's input.
    """

    sources_of: tuple[tuple[int, ...], ...]

    @property
    def edges(self) -> int:
        """Edges between nodes; those of the input and of the output node are not counted."""
        return sum(len(sources) for sources in self.sources_of)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Nodes that no node reads, ascending: the output node reads them.

        Examples
        --------
        >>> Wiring(((), (0,), (0,), (1,))).outputs
        (2, 3)
        """
        read = {u for sources in self.sources_of for u in sources}
        return tuple(v for v in range(len(self.sources_of)) if v not in read)


def draw_wiring(
    graph: RandomGraph,
    nodes: int,
    seed: int | random.Random,
    *,
    k: int | None = None,
    p: float | None = None,
    m: int | None = None,
) -> Wiring:
    """Draw an undirected graph and turn each edge from the lower to the higher node (Xie et al. 2019).

    Nodes are numbered as the paper does: Erdos-Renyi in any order, Barabasi-Albert as they are added, Watts-Strogatz
    along the ring.

    Parameters
    ----------
    graph : {"er", "ba", "ws"}
        ``er``: each pair is an edge with probability ``p``. ``ba``: ``m`` nodes without edges, then one node at a time
        with ``m`` edges to nodes drawn by their degree; m (nodes - m) edges. ``ws``: a ring where each node is joined
        to its ``k`` nearest, each edge then rewired with probability ``p``; nodes k / 2 edges.
    nodes : int
    seed : int or random.Random
    k, p, m
        Parameters of the graph; ``None``: k = 4 and p = 0.75 for ``ws``, p = 0.2 for ``er``, m = 5 for ``ba``.

    Raises
    ------
    InvalidInput
        If the graph is unknown, or a parameter is out of its range or of another graph.
    MissingExtra
        If networkx, which comes with torch, is not installed.

    Examples
    --------
    >>> draw_wiring("ws", 32, 0).edges, draw_wiring("ba", 32, 0).edges  # 32 x 4 / 2, and 5 x (32 - 5)
    (64, 135)
    """
    given = {name: value for name, value in (("k", k), ("p", p), ("m", m)) if value is not None}
    _check(graph, nodes, given)
    try:
        import networkx
    except ImportError:
        raise MissingExtra("networkx", "torch", "drawing a random graph") from None

    draw = seed if isinstance(seed, random.Random) else random.Random(seed)
    value = {**PARAMETERS[graph], **given}
    if graph == "er":
        drawn = networkx.gnp_random_graph(nodes, value["p"], seed=draw)
    elif graph == "ba":
        # The first node that is added finds m nodes of degree 0 and is joined to all of them.
        start = networkx.Graph((u, int(value["m"])) for u in range(int(value["m"])))
        drawn = networkx.barabasi_albert_graph(nodes, int(value["m"]), seed=draw, initial_graph=start)
    else:
        drawn = networkx.watts_strogatz_graph(nodes, int(value["k"]), value["p"], seed=draw)
    return Wiring(tuple(tuple(sorted(u for u in drawn[v] if u < v)) for v in range(nodes)))


def _check(graph: str, nodes: int, given: dict[str, float]) -> None:
    if graph not in get_args(RandomGraph):
        raise InvalidInput(f"random graph {graph!r} is unknown; use one of {', '.join(PARAMETERS)}")
    wrong: list[str] = []
    if not _whole(nodes) or not 2 <= nodes <= MOST_NODES:
        raise InvalidInput(f"{nodes} nodes are not a whole number from 2 to {MOST_NODES:,}; give another number")
    for name in given.keys() - PARAMETERS[graph].keys():
        taken = " and ".join(PARAMETERS[graph])
        wrong.append(f"{name} = {given[name]} is no parameter of {graph!r}, which takes {taken}; leave it out")
    value = {**PARAMETERS[graph], **given}
    if "p" in PARAMETERS[graph] and not 0 <= value["p"] <= 1:
        wrong.append(f"p = {value['p']} is no probability; give a number from 0 to 1")
    if graph == "ba" and not (_whole(value["m"]) and 1 <= value["m"] < nodes):
        wrong.append(f"m = {value['m']} is not from 1 to {nodes - 1}, one less than the nodes; give fewer edges a node")
    if graph == "ws" and not (_whole(value["k"]) and 2 <= value["k"] < nodes and value["k"] % 2 == 0):
        wrong.append(f"k = {value['k']} is not even, at least 2 and below the {nodes} nodes; give such a number")
    if wrong:
        raise InvalidInput(sorted(wrong), what="random graph")


def _whole(value: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
