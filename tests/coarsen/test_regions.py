"""Views and light operators are merged by three rules, and a merged operator is what its parts were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from placewright.coarsen import FusionRules, fuse
from placewright.coarsen.kinds import is_light, is_view
from placewright.graph import Operator, OperatorGraph, Tensor
from tests.coarsen.networks import graphs, groups, network

REGIONS = FusionRules("regions", "views, and light operators behind one tensor", regions=True)


@pytest.mark.parametrize(
    ("text", "outputs", "expected"),
    [
        # an activation joins its producer, and a chain of them does
        ("a:Conv b:BatchNormalization<a c:Relu<b d:Conv<c", "d", ["a b c", "d"]),
        # not when somebody else reads what it reads: the other reader would wait for nothing
        ("a:Conv b:Relu<a c:Conv<a d:Conv<b", "c,d", ["a", "b", "c", "d"]),
        # nor when the network's user reads it
        ("a:Conv b:Relu<a c:Conv<b", "a,c", ["a", "b", "c"]),
        # SiLU, spelt out: both readers of a join it
        ("a:Conv b:Sigmoid<a c:Mul<a,b d:Conv<c", "d", ["a b c", "d"]),
        # a normalisation, spelt out, whose input goes on elsewhere: it becomes one operator of its own
        (
            "a:Conv m:ReduceMean<a s:Sub<a,m p:Pow<s v:ReduceMean<p d:Div<s,v e:Conv<d f:Add<a,e",
            "f",
            ["a", "e", "f", "m s p v d"],
        ),
        # a sum of two branches joins neither; what follows it joins it
        ("a:Conv b:Conv c:Add<a,b d:Relu<c", "d", ["a", "b", "c d"]),
        # two activations of one tensor leave as two tensors, so none joins
        ("a:Conv b:Relu<a c:Sigmoid<a d:Conv<b e:Conv<c", "d,e", ["a", "b", "c", "d", "e"]),
        # views of one tensor all join their producer, and what follows each of them alone joins too
        ("a:MatMul s:aten.split<a q:getitem<s k:getitem<s m:MatMul<q,k", "m", ["a s q k", "m"]),
        # a view beside another reader joins its own only reader: one tensor leaves a
        ("a:Conv r:Reshape<a b:MatMul<r c:Conv<a", "b,c", ["a", "c", "r b"]),
        # heavy operators are never merged
        ("a:Conv b:Conv<a c:MatMul<b", "c", ["a", "b", "c"]),
        # an operator that reads only the network's inputs has nobody to join
        ("a:Relu b:Conv<a", "b", ["a", "b"]),
    ],
)
def test_what_is_merged(text: str, outputs: str, expected: list[str]) -> None:
    """Each rule and its limits, on the smallest network that shows it."""
    assert groups(network(text, outputs), REGIONS) == expected


def test_shape_arithmetic_joins_its_producer() -> None:
    """Integers of a few bytes are no work: Shape, Gather and Concat stay with the tensor whose shape they take."""
    operators = [Operator("a", "Conv", 9), Operator("s", "Shape"), Operator("g", "Gather"), Operator("b", "Conv", 9)]
    tensors = [
        Tensor("ta", 0, (1, 3), 4096, dtype="fp32"),
        Tensor("ts", 1, (2,), 32, dtype="int64"),
        Tensor("tg", 2, (3,), 8, dtype="int64"),
        Tensor("tb", 3, (), 4096, dtype="fp32", output=True),
    ]
    assert groups(OperatorGraph(operators, tensors), REGIONS) == ["a s g", "b"]


def test_a_merged_operator() -> None:
    """Name of the heaviest part, sums, kinds, and traffic less the tensor that is not written and read back."""
    graph = network("a:Conv b:BatchNormalization<a c:Relu<b d:Add<c", "d")
    (merged,) = fuse(graph, REGIONS).operators
    assert (merged.name, merged.kind) == ("a", "Conv+BatchNormalization+Relu+...")
    assert merged.flops == 50 + 3
    # a writes 100 (its input is free here: traffic 100); b, c, d move 200 each; of 700, three tensors are saved twice
    assert merged.traffic_bytes == 700 - 600
    assert [t.name for t in fuse(graph, REGIONS).tensors] == ["td"]


def test_traffic_through_views() -> None:
    """A view moves nothing, so Conv -> Reshape -> Relu saves the write of Conv and the read of Relu, once each."""
    (merged,) = fuse(network("a:Conv r:Reshape<a b:Relu<r", "b"), REGIONS).operators
    assert merged.traffic_bytes == 100 + 0 + 200 - 200
    # when the view itself leaves, Conv's bytes are written for it
    (merged,) = fuse(network("a:Conv r:Reshape<a", "r"), REGIONS).operators
    assert merged.traffic_bytes == 100


def test_equal_groups_have_equal_signatures() -> None:
    """Signatures tell kinds and wiring apart, not names; a part without one leaves none for the group."""
    text = "{0}:Conv<z {0}1:Sigmoid<{0} {0}2:Mul<{0},{0}1 {0}3:MatMul<{0}2"
    graph = network("z:MatMul " + text.format("a") + " " + text.format("b"), "a3,b3")
    merged = {v.name: v.signature for v in fuse(graph, REGIONS).operators}
    assert merged["a"] == merged["b"] != ""
    other = network("z:MatMul a:Conv<z a1:Sigmoid<a a2:Mul<a1 a3:MatMul<a2", "a3")
    assert {v.name: v.signature for v in fuse(other, REGIONS).operators}["a"] != merged["a"]
    bare = OperatorGraph([Operator("a", "Conv"), Operator("b", "Relu")], [Tensor("t", 0, (1,), 4)])
    assert fuse(bare, REGIONS).operators[0].signature == ""


def test_colocation_is_carried_over() -> None:
    """A class of parts becomes a class of groups."""
    graph = network("a:Conv b:Relu<a c:Conv<b d:Relu<c", "d", colocation=[(1, 3)])
    assert fuse(graph, REGIONS).colocation == ((0, 1),)


def test_a_long_chain_is_one_group() -> None:
    """Regions are looked at 32 operators at a time, and add up."""
    text = "a:Conv " + " ".join(f"r{k}:Relu<{'r' + str(k - 1) if k else 'a'}" for k in range(100))
    assert len(fuse(network(text, "r99"), REGIONS)) == 1


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_no_more_bytes_can_cross(graph: OperatorGraph) -> None:
    """A group has at most one tensor more to send than the operator that heads it had, unless views take it apart."""
    plain = OperatorGraph(
        [v if not is_view(v.kind) else Operator(v.name, "Relu", signature="Relu") for v in graph.operators],
        [Tensor(t.name, t.producer, t.readers, 1000, (), "fp32", t.output) for t in graph.tensors],
        graph.colocation,
    )
    fused = fuse(plain, REGIONS)
    for v, operator in enumerate(fused.operators):
        sent = sum(1 for t in fused.tensors if t.producer == v)
        heaviest = max(len(plain.outputs_of[plain.index[name]]) for name in operator.part_names)
        assert sent <= heaviest


def test_is_near_linear() -> None:
    """Twice the operators take twice the steps: counted as calls of the interpreter, not by a clock."""
    import sys

    def steps(n: int) -> int:
        row = "k{0}:Conv<{1} a{0}:Relu<k{0} b{0}:Sigmoid<a{0} c{0}:Mul<a{0},b{0} d{0}:Add<c{0},{1}"
        graph = network(" ".join(row.format(k, f"d{k - 1}" if k else "") for k in range(n)), f"d{n - 1}")
        count = 0

        def tick(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tick)
        try:
            fuse(graph, REGIONS)
        finally:
            sys.setprofile(None)
        return count

    assert steps(160) < 2.5 * steps(80)


@pytest.mark.parametrize(
    ("kind", "light", "view"),
    [
        ("aten.gelu", True, False),
        ("aten.relu_.default", True, False),
        ("aten.view.default", True, True),
        ("_operator.getitem", True, True),
        ("aten.linear", False, False),
        ("aten.scaled_dot_product_attention", False, False),
        ("Transpose", True, False),
        ("example.Relu", False, False),
        ("", False, False),
    ],
)
def test_kinds(kind: str, light: bool, view: bool) -> None:
    """Overloads and in-place versions count as their base; a foreign domain's operator is not what its name says."""
    assert (is_light(kind), is_view(kind)) == (light, view)
