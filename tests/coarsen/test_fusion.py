"""A back-end's rules find what it fuses and no more, keep what a placement is judged by, and never close a cycle."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.coarsen import ANY, RULES, FusionRules, fuse, rules_named
from placewright.coarsen.patterns import parse_pattern
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor
from tests.coarsen.networks import KINDS, graphs, groups, network


def chain(*kinds: str) -> str:
    """Operators a, b, c, ..., each of which reads the one before."""
    names = "abcdefghijkl"
    return " ".join(f"{names[k]}:{kind}{f'<{names[k - 1]}' if k else ''}" for k, kind in enumerate(kinds))


LAYER_NORM = (
    "a:MatMul m:ReduceMean<a s:Sub<a,m p:Pow!4<s v:ReduceMean<p e:Add!4<v r:Sqrt<e d:Div<s,r g:Mul!9<d h:Add!9<g"
)
TANH_GELU = "a:Gemm h:Mul!4<a p:Pow!4<a q:Mul!4<p s:Add<a,q t:Mul!4<s u:Tanh<t v:Add!4<u w:Mul<h,v"
RESIDUAL = "a:aten.linear b:aten.add<a c:aten.layer_norm<b d:aten.linear<c e:aten.add<b,d"
VIEWS = "a:aten.relu b:aten.view<a c:aten.linear<b d:aten.view<c e:aten.linear<d"
ATTENTION = "q:Gemm k:Gemm v:Gemm a:MatMul<q,k b:Div!4<a c:Softmax<b d:MatMul<c,v"
FOLD = "t:Transpose@2x3x4<a r:Reshape@6x4<t"


@pytest.mark.parametrize(
    ("rules", "text", "outputs", "expected"),
    [
        # a convolution takes in what scales, shifts and bends its result
        ("onnxruntime", chain("Conv", "BatchNormalization", "Mul!9", "Add!9", "Relu", "Conv"), "f", ["a b c d e", "f"]),
        # and the sum with another branch, when it is not read elsewhere; the first convolution is read twice
        ("onnxruntime", "x:Conv a:Conv<x b:BatchNormalization<a c:Sum<b,x d:Relu<c", "d", ["a b c d", "x"]),
        # a product takes in its bias but no activation; Gemm has its bias and takes in an activation
        ("onnxruntime", chain("MatMul!9", "Add!9", "Gelu"), "c", ["a b", "c"]),
        ("onnxruntime", chain("Gemm", "Relu"), "b", ["a b"]),
        # a sum of two products joins neither of them, but the normalisation that alone reads it
        ("onnxruntime", "a:MatMul b:MatMul c:Add<a,b d:LayerNormalization!9<c", "d", ["a", "b", "c d"]),
        ("onnxruntime", "a:MatMul b:MatMul c:Add<a,b d:LayerNormalization!9<c", "c,d", ["a", "b", "c", "d"]),
        # a normalisation and a GELU that are spelt out; both read their input twice and leave it alone
        ("onnxruntime", LAYER_NORM, "h", ["a", "m s p v e r d g h"]),
        ("onnxruntime", TANH_GELU, "w", ["a", "h p q s t u v w"]),
        ("onnxruntime", "a:MatMul s:Sigmoid<a m:Mul<a,s b:MatMul<m", "b", ["a", "b", "s m"]),
        # scales of a product, and a transposition of its last dimensions alone, are arguments of the product
        ("onnxruntime", "a:Gemm b:Gemm p:Mul!4<a q:Mul!4<b c:MatMul<p,q", "c", ["a", "b", "p q c"]),
        ("onnxruntime", "a:Gemm@2x3 t:Transpose@3x2<a b:Gemm c:MatMul<b,t", "c", ["a", "b", "t c"]),
        ("onnxruntime", "a:Gemm@1x2x3 t:Transpose@2x1x3<a b:Gemm c:MatMul<b,t", "c", ["a", "b", "c", "t"]),
        # of two transpositions with a reshaping between them one is left
        ("onnxruntime", f"a:Gemm@3x2x4 {FOLD} u:Transpose@4x6<r c:Gemm<u", "c", ["a", "c", "t r u"]),
        # CUDA has fused biases of GELU and softmax
        ("onnxruntime-cuda", "a:Gather b:Add!9<a c:Gelu<b", "c", ["a", "b c"]),
        ("onnxruntime-cuda", "a:MatMul b:MatMul c:Add<a,b d:Softmax<c", "d", ["a", "b", "c d"]),
        # loops over equally many elements are one kernel, with several readers or several tensors that leave, too
        ("inductor", RESIDUAL, "e", ["a", "b c", "d", "e"]),
        # but not over unlike many, unless the reader works on the result of a reduction ...
        ("inductor", "a:aten.mul@5 b:aten.add@50<a c:aten.add@50<a", "b,c", ["a", "b", "c"]),
        ("inductor", "a:aten.pow@50 b:aten.mean@5<a c:aten.rsqrt@5<b d:aten.mul@50<a,c", "d", ["a b c d"]),
        # ... or what is element-wise has that one reader
        ("inductor", "a:aten.exp@5 b:aten.mul@50<a c:aten.linear<b", "c", ["a b", "c"]),
        # a view of a loop's tensor belongs to it; a view of a product's does not
        ("inductor", VIEWS, "e", ["a b", "c", "d", "e"]),
        # pooling ends a kernel
        ("inductor", "a:aten.relu b:aten.max_pool2d<a c:aten.relu<b", "c", ["a b", "c"]),
        # TensorRT takes in activations behind products, and joins what is element-wise
        ("tensorrt", chain("MatMul", "Add!9", "Relu"), "c", ["a b c"]),
        ("tensorrt", "a:Conv s:Sigmoid<a m:Mul<a,s", "m", ["a s m"]),
        ("tensorrt", "a:Gather b:Exp<a c:Sub<b d:Softmax<c", "d", ["a", "b c", "d"]),
        ("tensorrt", ATTENTION, "d", ["a b c d", "k", "q", "v"]),
        # auto: ONNX Runtime's fusions, then the bias goes on with what any back-end keeps beside it
        ("auto", chain("MatMul", "Add!9", "Gelu"), "c", ["a b c"]),
        ("none", chain("Conv", "Relu"), "b", ["a", "b"]),
    ],
)  # fmt: skip
def test_what_a_back_end_fuses(rules: str, text: str, outputs: str, expected: list[str]) -> None:
    """Each rule on the smallest network that shows it."""
    assert groups(network(text, outputs), RULES[rules]) == expected


def test_a_grouped_convolution_keeps_its_sum_apart() -> None:
    """2 x 8 channels x 64 elements = 1,024 FLOPs is a dense 1 x 1 convolution; half of it is one of two groups."""

    def merged(flops: int) -> int:
        operators = [Operator("x", "Gemm"), Operator("y", "Gemm"), Operator("a", "Conv", flops), Operator("s", "Add")]
        shape = (1, 8, 2, 4)
        readers = ((2,), (3,), (3,), ())
        tensors = [Tensor(f"t{k}", k, r, 256, shape, "fp32", k == 3) for k, r in enumerate(readers)]
        return len(fuse(OperatorGraph(operators, tensors), RULES["onnxruntime"]))

    assert (merged(1024), merged(512)) == (3, 4)


@pytest.mark.parametrize("rules", ["inductor", "auto"])
def test_no_path_leads_around_a_group(rules: str) -> None:
    """b reads a, and reads c, which reads a: with a and b as one, c would wait for them and they for it."""
    graph = network("a:aten.relu c:aten.linear<a b:aten.add<a,c", "b")
    assert groups(graph, RULES[rules]) == ["a", "b", "c"]
    # without the way through the product, they are one
    assert groups(network("a:aten.relu c:aten.linear b:aten.add<a,c", "b"), RULES["inductor"]) == ["a b", "c"]


def test_a_long_way_around_is_seen() -> None:
    """The way from a to z around leads through ten products, over groups that were merged before."""
    steps = " ".join(f"p{k}:aten.linear<{f'r{k - 1}' if k else 'a'} r{k}:aten.relu<p{k}" for k in range(10))
    made = groups(network(f"a:aten.relu {steps} z:aten.add<a,r9", "z"), RULES["inductor"])
    assert "r9 z" in made and "a" in made


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("onnxruntime", "a:Conv b:Relu<a"),
        ("inductor", "a:aten.relu b:aten.add<a"),
        ("auto", "a:Gemm b:Softmax<a"),
    ],
)
def test_what_runs_on_unlike_devices_stays_apart(rules: str, text: str) -> None:
    """Each kind of rule merges the two, unless they are known to run on unlike devices; ``None`` goes with either."""
    graph = network(text, "b")
    assert groups(graph, RULES[rules]) == groups(graph, RULES[rules], ["x", "x"]) == ["a b"]
    assert groups(graph, RULES[rules], ["x", None]) == groups(graph, RULES[rules], [None, "y"]) == ["a b"]
    assert groups(graph, RULES[rules], ["x", "y"]) == ["a", "b"]


def test_support_is_the_groups() -> None:
    """The middle one may run where either neighbour does, but these may not run together."""
    graph = network(chain("aten.relu", "aten.add", "aten.mul"), "c")
    assert groups(graph, RULES["inductor"], ["x", None, "y"]) == ["a b", "c"]


def test_an_output_inside_keeps_a_pattern_apart() -> None:
    """The user of the network wants what the convolution makes, so its activation does not swallow it."""
    assert groups(network("a:Conv b:Relu<a", "b"), RULES["onnxruntime"]) == ["a b"]
    assert groups(network("a:Conv b:Relu<a", "a,b"), RULES["onnxruntime"]) == ["a", "b"]


@settings(max_examples=200, deadline=None)
@given(graphs(), st.sampled_from(sorted(RULES)), st.booleans())
def test_invariants(graph: OperatorGraph, name: str, divided: bool) -> None:
    """Whatever the graph: valid and acyclic, sums kept, each part once, crossing tensors kept, order of parts kept."""
    support = [k % 2 for k in range(len(graph))] if divided else None
    fused = fuse(graph, RULES[name], support=support)  # its constructor refuses cycles and names that stand twice
    for quantity in ("flops", "weight_bytes", "kv_cache_bytes"):
        assert sum(getattr(v, quantity) for v in fused.operators) == sum(getattr(v, quantity) for v in graph.operators)
    assert sum(v.traffic_bytes for v in fused.operators) <= sum(v.traffic_bytes for v in graph.operators)
    parts = Counter(name for v in fused.operators for name in v.part_names)
    assert parts == Counter(v.name for v in graph.operators)
    assert all(list(v.part_names) == sorted(v.part_names, key=lambda p: graph.index[p]) for v in fused.operators)
    assert all(v.name in v.part_names for v in fused.operators)
    group = {name: k for k, v in enumerate(fused.operators) for name in v.part_names}
    at = [group[v.name] for v in graph.operators]
    expected = {}
    for t in graph.tensors:
        outside = sorted({at[r] for r in t.readers} - {at[t.producer]})
        if outside or t.output:
            expected[t.name] = (at[t.producer], tuple(outside), t.size_bytes, t.output)
    assert {t.name: (t.producer, t.readers, t.size_bytes, t.output) for t in fused.tensors} == expected
    for members in graph.colocation:
        assert len({fused.unit_of[at[v]] for v in members}) == 1
    if divided:
        assert all(len({graph.index[p] % 2 for p in v.part_names}) == 1 for v in fused.operators)


@pytest.mark.parametrize("name", sorted(RULES))
def test_large_random_graphs_stay_acyclic(name: str) -> None:
    """Twenty graphs of 100 operators of random kinds, which read the one before, or others among the twenty before."""
    rng = random.Random(7)
    smaller = 0
    for _ in range(20):
        words = []
        for k in range(100):
            sources = rng.sample(range(max(0, k - 20), k), min(k, rng.randint(1, 3))) if rng.random() < 0.4 else [k - 1]
            named = ",".join(f"v{s}" for s in sources if s >= 0)
            words.append(f"v{k}:{rng.choice(KINDS)}!{rng.choice([0, 4, 400])}<{named}")
        smaller += len(fuse(network(" ".join(words), "v99"), RULES[name])) < 100
    assert (smaller > 0) == (name != "none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Relu", "states no inputs"),
        ("Relu(Conv(*)", "was expected"),
        ("Relu(Conv(*)) Add", "too much"),
        ("Relu[small](*)", "none of"),
        ("Relu?(*)", "optional"),
        ("(*)", "no kind"),
    ],
)
def test_a_pattern_that_is_none_is_refused(text: str, message: str) -> None:
    """Each fault is named."""
    with pytest.raises(ValueError, match=message):
        parse_pattern(text)


def test_unknown_rules_are_refused() -> None:
    """The names that there are are listed."""
    with pytest.raises(InvalidInput, match=r"'tvm' are unknown; use one of auto, onnxruntime"):
        rules_named("tvm")


def test_stages_come_one_after_the_other() -> None:
    """What an earlier stage merged is not merged again by a later one, though its pattern would fit."""
    first, second = parse_pattern("Add[weights](MatMul(*))"), parse_pattern("Softmax(Add($a))")
    graph = network("a:MatMul b:Add!9<a c:Softmax<b", "c")
    assert groups(graph, FusionRules("r", "", ((first,), (second,)))) == ["a b", "c"]
    assert groups(graph, FusionRules("r", "", ((second,), (first,)))) == ["a", "b c"]


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_what_onnx_runtime_really_fused(name: str, tmp_path: Path) -> None:
    """On two networks of the onnx wheel the rules find what ONNX Runtime fuses, and no more; ``auto`` cuts none of it.

    26 convolutions with a Relu; and 49 with a BatchNormalization, 17 of which have a Relu behind them. Half of the
    latter network's convolutions are grouped, so its 13 sums of two branches stay by themselves.
    """
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from benchmarks.quality.fusion_onnxruntime import runtime_groups, with_weights_apart
    from benchmarks.quality.fusion_pairs import compare

    from placewright.capture import capture

    path = tmp_path / "model.onnx"
    with_weights_apart(Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx", path)
    graph = capture(path, fuse="none")
    real = runtime_groups(path)
    found = compare(graph, RULES["onnxruntime"], real.of, lambda v: v.kind == "Dropout")
    assert (found.real, found.both, found.predicted) == ({"squeezenet": 26, "shufflenet": 66}[name],) * 3
    assert compare(graph, ANY, real.of, lambda v: v.kind == "Dropout").recall == 1.0
