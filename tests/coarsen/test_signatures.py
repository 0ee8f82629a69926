"""Fused operators have one signature when they are alike, whatever their tensors are called."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from placewright.coarsen import RULES, fuse
from placewright.graph import Operator, OperatorGraph, Tensor

KINDS = ("aten.relu", "aten.mul", "aten.add", "aten.sub")


def signature(
    names: Sequence[str] = ("getitem_1", "getitem_2"),
    *,
    crossed: bool = False,
    sizes: tuple[int, int] = (100, 100),
    leaving: int = -1,
    own: str = "",
) -> str:
    """Of a loop a -> (b, c) -> d, where b reads a's first result and c both; ``crossed``: b reads the second one."""
    operators = [Operator(v, kind, signature=kind) for v, kind in zip("abcd", KINDS, strict=True)]
    if own:
        operators[2] = Operator("c", KINDS[2], signature=own)
    readers = [(1, 2), (2,)]
    if crossed:
        readers.reverse()
    tensors = [
        Tensor(name, 0, row, size, (size // 4,), "fp32", k == leaving)
        for k, (name, row, size) in enumerate(zip(names, readers, sizes, strict=True))
    ]
    tensors += [Tensor("x", 1, (3,), 100, (25,)), Tensor("y", 2, (3,), 100, (25,))]
    tensors.append(Tensor("z", 3, (), 100, (25,), output=True))
    (fused,) = fuse(OperatorGraph(operators, tensors), RULES["inductor"]).operators
    assert fused.parts == tuple("abcd")
    return fused.signature


@pytest.mark.parametrize("names", [("getitem_9", "getitem_10"), ("b", "a"), ("a", "b")])
def test_names_do_not_matter(names: tuple[str, str]) -> None:
    """Number 10 sorts before number 9, and 1 before 2."""
    assert signature(names) == signature()


def test_equal_results_may_change_places() -> None:
    """Both hold as much: which of them two read, and which one, makes no other work."""
    assert signature(crossed=True) == signature()


def test_what_is_unlike_is_told_apart() -> None:
    """Which of two unlike results is read twice, which one leaves, and what the parts are."""
    made = [
        signature(),
        signature(sizes=(100, 40)),
        signature(sizes=(100, 40), crossed=True),
        signature(leaving=0),
        signature(leaving=1),
        signature(own="other"),
    ]
    assert len(set(made)) == len(made) and all(made)


def test_equal_layers_are_profiled_once() -> None:
    """Twelve layers split a tensor into unlike parts, whose numbers go past 9: so they sort variously."""
    operators, tensors = [], []
    for k in range(12):
        operators += [Operator(f"{v}{k}", kind, signature=v) for v, kind in zip("sqk", KINDS, strict=False)]
        operators.append(Operator(f"o{k}", "aten.linear", signature="o"))
        s, q, kk, o = range(4 * k, 4 * k + 4)
        tensors += [
            Tensor(f"getitem_{2 * k + 1}", s, (q, o), 40, (10,)),
            Tensor(f"getitem_{2 * k + 2}", s, (kk,), 60, (10,)),
        ]
        tensors += [Tensor(f"q{k}", q, (o,), 40, (10,)), Tensor(f"k{k}", kk, (o,), 40, (10,))]
        tensors.append(Tensor(f"o{k}", o, (o + 1,) if k < 11 else (), 40, (10,), output=k == 11))
    fused = fuse(OperatorGraph(operators, tensors), RULES["inductor"])
    loops = [v for v in fused.operators if v.parts]
    assert len(loops) == 12 and len({v.signature for v in loops[1:]}) == 1


def test_a_part_without_signature_leaves_none() -> None:
    """Nothing is known of its work."""
    graph = OperatorGraph([Operator("a", KINDS[0]), Operator("b", KINDS[1], signature="b")], [Tensor("x", 0, (1,), 8)])
    assert [v.signature for v in fuse(graph, RULES["inductor"]).operators] == [""]
