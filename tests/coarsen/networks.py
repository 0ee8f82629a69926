"""Small networks as text, for the tests of fusion."""

from __future__ import annotations

from hypothesis import strategies as st

from placewright.coarsen import FusionRules, fuse
from placewright.coarsen.kinds import is_light, is_view
from placewright.graph import Operator, OperatorGraph, Tensor

__all__ = ["KINDS", "graphs", "groups", "network"]

KINDS = """
Conv MatMul Gemm Relu Add Add Mul Sigmoid ReduceMean Reshape Transpose Softmax BatchNormalization LayerNormalization
aten.split getitem aten.linear aten.add aten.mul aten.mean aten.layer_norm aten.cat aten.view aten.add_ aten.relu
""".split()  # noqa: SIM905


def network(text: str, outputs: str = "", **details: object) -> OperatorGraph:
    """``"a:Conv b:Relu<a c:Add<a,b"``: operators with kind and what they read; each makes one 100-byte tensor.

    ``b:Mul!4<a`` has 4 bytes of weights, ``b:Transpose@2x3<a`` makes a tensor of 2 x 3 elements; else it has 25.
    """
    reads: dict[str, list[str]] = {}
    operators, shapes = [], []
    for word in text.split():
        name, _, rest = word.partition(":")
        rest, _, sources = rest.partition("<")
        rest, _, shape = rest.partition("@")
        kind, _, weights = rest.partition("!")
        reads[name] = [s for s in sources.split(",") if s]
        light, view = is_light(kind), is_view(kind)
        traffic = 0 if view else 100 * (len(reads[name]) + 1)
        shapes.append(tuple(int(d) for d in shape.split("x")) if shape else (25,))
        operators.append(Operator(name, kind, 1 if light else 50, traffic, int(weights or 0), signature=f"sig {kind}"))
    tensors = []
    for k, v in enumerate(operators):
        readers = tuple(j for j, w in enumerate(operators) if v.name in reads[w.name])
        leaves = v.name in outputs.split(",")
        tensors.append(Tensor(f"t{v.name}", k, readers, 100, shapes[k], dtype="fp32", output=leaves))
    return OperatorGraph(operators, tensors, **details)  # type: ignore[arg-type]


def groups(graph: OperatorGraph, rules: FusionRules, support: list[object] | None = None) -> list[str]:
    """Parts of each operator after fusing."""
    return sorted(" ".join(v.part_names) for v in fuse(graph, rules, support=support).operators)  # type: ignore[arg-type]


@st.composite
def graphs(draw: st.DrawFn) -> OperatorGraph:
    """Random graphs of up to 14 operators; some make two tensors, some tensors leave, some operators are tied."""
    n = draw(st.integers(1, 14))
    number = st.integers(0, 100)
    operators, tensors = [], []
    for k in range(n):
        kind = draw(st.sampled_from(KINDS))
        operators.append(
            Operator(f"v{k}", kind, draw(number), draw(number), draw(number), draw(number), signature=kind)
        )
        for j in range(draw(st.integers(1, 2))):
            readers = sorted(draw(st.sets(st.integers(k + 1, n - 1), max_size=3))) if k + 1 < n else []
            dtype = draw(st.sampled_from(["fp32", "int64"]))
            size = draw(st.sampled_from([8, 1000]))
            leaves = draw(st.integers(0, 3)) == 0
            tensors.append(Tensor(f"t{k}.{j}", k, tuple(readers), size, (size // 4,), dtype, leaves))
    classes = draw(st.lists(st.lists(st.integers(0, n - 1), min_size=2, max_size=3), max_size=2))
    return OperatorGraph(operators, tensors, classes)
