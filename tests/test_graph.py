"""The operator graph: what it refuses, how it sorts, what it derives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor


def named(*names: str) -> list[Operator]:
    return [Operator(n) for n in names]


def test_every_violation_is_reported() -> None:
    """Seven faults, seven sentences."""
    with pytest.raises(InvalidInput) as caught:
        OperatorGraph(
            [Operator("a", flops=-1), Operator("a", kv_cache_bytes=-2), Operator("b")],
            [
                Tensor("x", 0, (1,), size_bytes=-3),
                Tensor("x", 0, (9,)),
                Tensor("y", 0, (2, 1)),
                Tensor("z", 2, (1,)),
            ],
            [(0, 7)],
            name="net",
        )
    assert str(caught.value).startswith("graph 'net': ")
    for complaint in (
        "operator 'a' stands twice",
        "tensor 'x' stands twice",
        "operator 'a': flops -1 is below 0",
        "operator 'a': kv_cache_bytes -2 is below 0",
        "tensor 'x': size_bytes -3 is below 0",
        "tensor 'x': operator index 9 is outside 0..2",
        "tensor 'y': readers (2, 1) are not ascending and distinct",
        "tensor 'z': reader 'a' does not stand after its producer 'b'",
        "colocation class (0, 7): operator index 7 is outside 0..2",
    ):
        assert sum(complaint in v for v in caught.value.violations) == 1, complaint
    assert len(caught.value.violations) == 9


def test_more_bytes_than_can_be_added_up_are_refused() -> None:
    """2^61 of weights and as many of a tensor are the most; one byte more is told."""
    weights, tensor = Operator("a", weight_bytes=2**61), Tensor("x", 0, (1,), 2**61)
    OperatorGraph([weights, Operator("b")], [tensor])
    with pytest.raises(InvalidInput, match="4611686018427387905 bytes in all, more than 4611686018427387904"):
        OperatorGraph([weights, Operator("b", kv_cache_bytes=1)], [tensor])


def test_an_empty_graph_is_refused() -> None:
    """There would be nothing to place."""
    with pytest.raises(InvalidInput, match="it has no operators"):
        OperatorGraph([])


def test_a_cycle_is_named() -> None:
    """By ``build`` and by the class itself: the operators on it in the order of the tensors."""
    tensors = [("x", "a", ["b"], 1), ("y", "b", ["c"], 1), ("z", "c", ["a"], 1), ("w", "d", ["a"], 1)]
    with pytest.raises(InvalidInput, match="cycle: 'a' -> 'b' -> 'c' -> 'a'"):
        OperatorGraph.build(named("a", "b", "c", "d"), tensors)
    with pytest.raises(InvalidInput, match="cycle: 'a' -> 'b' -> 'a'"):
        OperatorGraph(named("a", "b"), [Tensor("x", 0, (1,)), Tensor("y", 1, (0,))])
    with pytest.raises(InvalidInput, match="cycle: 'a' -> 'a'"):
        OperatorGraph(named("a"), [Tensor("x", 0, (0,))])


def test_a_long_cycle_is_cut_off() -> None:
    """Eight names and dots."""
    n = 30
    tensors = [(f"t{k}", f"v{k}", [f"v{(k + 1) % n}"], 1) for k in range(n)]
    with pytest.raises(InvalidInput) as caught:
        OperatorGraph.build(named(*(f"v{k}" for k in range(n))), tensors)
    assert str(caught.value).count(" -> ") == 8 and " -> ...;" in str(caught.value)


def test_build_keeps_the_given_order_where_it_can() -> None:
    """d must come before a; b and c stay where they are relative to the others."""
    graph = OperatorGraph.build(named("a", "b", "c", "d"), [("x", "d", ["a"], 1)], [["a", "d"]])
    assert [v.name for v in graph.operators] == ["b", "c", "d", "a"]
    assert graph.tensors[0] == Tensor("x", 2, (3,), 1)
    assert graph.colocation == ((2, 3),)


def test_build_names_all_unknown_operators() -> None:
    """In tensors and in classes."""
    with pytest.raises(InvalidInput) as caught:
        OperatorGraph.build(named("a"), [("x", "gone", ["a", "lost"], 1)], [["a", "missing"]])
    assert [v.split("'")[-2] for v in caught.value.violations] == ["gone", "lost", "missing"]


def test_overlapping_classes_are_merged() -> None:
    """{0, 3} and {3, 5} are one class; {1} alone is none; units count in order of their first operator."""
    graph = OperatorGraph(named(*"abcdef"), colocation=[(5, 3), (1,), (0, 3), (2, 4)])
    assert graph.colocation == ((0, 3, 5), (2, 4))
    assert graph.unit_of == (0, 1, 2, 0, 2, 0)


def test_neighbours_are_counted_once() -> None:
    """Two tensors from a to c: one predecessor, two inputs."""
    graph = OperatorGraph(named("a", "b", "c"), [Tensor("y", 1, (2,)), Tensor("x2", 0, (2,)), Tensor("x1", 0, (1, 2))])
    assert [t.name for t in graph.tensors] == ["x1", "x2", "y"]
    assert graph.inputs_of == ((), (0,), (0, 1, 2)) and graph.outputs_of == ((0, 1), (2,), ())
    assert graph.predecessors == ((), (0,), (0, 1)) and graph.successors == ((1, 2), (2,), ())


@given(st.data())
def test_build_sorts_any_acyclic_graph(data: st.DataObject) -> None:
    """A shuffled chain of dependencies is sorted: every producer stands before its readers, nothing is lost."""
    n = data.draw(st.integers(1, 12))
    names = data.draw(st.permutations([f"v{k}" for k in range(n)]))
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    tensors = [(f"t{k}", f"v{min(e)}", [f"v{max(e)}"], k) for k, e in enumerate(edges) if e[0] != e[1]]
    graph = OperatorGraph.build(named(*names), tensors)
    assert sorted(v.name for v in graph.operators) == sorted(names)
    made = {t.name: t for t in graph.tensors}
    for name, producer, (reader,), size in tensors:
        t = made[name]
        assert (graph.operators[t.producer].name, t.size_bytes) == (producer, size)
        assert [graph.operators[r].name for r in t.readers] == [reader] and t.producer < t.readers[0]
