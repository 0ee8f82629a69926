"""``auto`` leaves copies of what is read far apart to their readers, and joins all else that a compiler joins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.coarsen import ANY, RULES, FusionRules, duplicate, duplicated_parts, fuse
from placewright.coarsen.rules_inductor import LOOPS
from placewright.problem import Problem
from tests.coarsen.networks import groups, network

NEAR = FusionRules("near", "", loops=replace(LOOPS, near=True))


def layers(count: int, words: str, last: str = "") -> str:
    """Write the words of each layer, with # for its number and % for the one before."""
    rows = [words.replace("#", str(k)).replace("%", str(k - 1)) for k in range(1, count + 1)]
    return " ".join([*rows, last.replace("%", str(count))])


TABLE = "t:aten.embedding s:aten.mul<t l0:aten.linear " + layers(12, "c#:aten.where<s l#:aten.linear<l%,c#")
"""A table of positions, and twelve layers, each of which makes a copy of its own."""


def test_a_compiler_makes_all_copies_at_once() -> None:
    """The explicit rules stay true to it: one kernel with twelve results."""
    fused = fuse(network(TABLE, "l12"), RULES["inductor"])
    (table,) = (k for k, v in enumerate(fused.operators) if "t" in v.part_names)
    assert len(fused.operators[table].parts) == 14 and len(fused.outputs_of[table]) == 12


@pytest.mark.parametrize("rules", [NEAR, ANY])
def test_copies_stay_where_they_are_read(rules: FusionRules) -> None:
    """The table is one operator with one result; each copy stands for itself, the first one, too."""
    made = groups(network(TABLE, "l12"), rules)
    assert "t s" in made and all(f"c{k}" in made for k in range(1, 13))


def test_a_copy_with_one_layer_is_joined() -> None:
    """Nobody else reads the table then."""
    assert groups(network("t:aten.embedding c:aten.where<t l:aten.linear<c", "l"), NEAR) == ["l", "t c"]


def test_readers_in_one_place_are_near() -> None:
    """Both halves of a gate are needed by the same product, one of twelve in a row; so all is one loop."""
    gate = "n#:aten.add<l% g#:aten.sigmoid<n# u#:aten.mul<n# m#:aten.mul<g#,u# l#:aten.linear<m#"
    made = groups(network("l0:aten.linear " + layers(12, gate), "l12"), NEAR)
    assert all(f"n{k} g{k} u{k} m{k}" in made for k in range(1, 13))


def test_a_sum_and_the_normalisation_behind_it_stay_one() -> None:
    """The sum is read once more behind the layer, far away here; but the normalisation follows at once."""
    layer = "n#:aten.layer_norm<r% a#:aten.linear<n# b#:aten.linear<a# r#:aten.add<r%,b#"
    made = groups(network("r0:aten.embedding " + layers(3, layer), "r3"), NEAR)
    assert made == sorted(["r0 n1", "a1", "b1", "r1 n2", "a2", "b2", "r2 n3", "a3", "b3", "r3"])
    assert made == groups(network("r0:aten.embedding " + layers(3, layer), "r3"), RULES["inductor"])


def test_a_mask_is_not_bound_to_the_first_layer() -> None:
    """Each layer adds it to what the one before made: in the first one's loop it would wait for its input."""
    text = "m:aten.where l0:aten.linear " + layers(12, "s#:aten.add<l%,m l#:aten.linear<s#")
    assert "m" in groups(network(text, "l12"), NEAR)
    assert "m s1" in groups(network(text, "l12"), RULES["inductor"])


def test_a_view_far_from_others_goes_to_its_reader() -> None:
    """Where not only views read a tensor, a view for each layer is no result of the loop, to be sent by itself."""
    text = "t:aten.embedding l0:aten.linear<t " + layers(12, "v#:aten.view<t l#:aten.linear<l%,v#")
    fused = fuse(network(text, "l12"))
    assert len(fused.outputs_of[fused.index["t"]]) == 1
    assert fused.operators[fused.index["l7"]].parts == ("v7", "l7")


def test_the_table_is_duplicated() -> None:
    """It takes 0.1 s of 12 x 100 s, its copies 10 s each, which is more than 0.5 %: they stay, and each has the table.

    All copies could be made at the start, but the last one is needed eleven layers behind the first.
    """
    graph = fuse(network(TABLE, "l12"))
    cluster = Cluster([Device("gpu"), Device("cpu")], [Link(1.0, 8.0, link_class="same-host")])
    seconds = {"t": 0.1, "c": 10.0, "l": 100.0}
    made = duplicate(Problem(graph, cluster, [[seconds[v.part_names[0][0]]] * 2 for v in graph.operators]))
    assert duplicated_parts(made.graph) == ("t", "s")
    assert made.graph.operators[made.graph.index["c5"]].parts == ("t", "s", "c5")
