"""Layers that are alike are found as repeated blocks, and nothing else is."""

from __future__ import annotations

import pytest

from placewright.coarsen.repeated_blocks import block_groups, repeated_blocks
from placewright.graph import Operator, OperatorGraph, Tensor


def network(kinds: list[str], reads: list[list[int]], sizes: dict[int, int] | None = None) -> OperatorGraph:
    """Operators by kind, and the operators that each reads; tensors of 8 bytes unless told otherwise."""
    readers = [[v for v, row in enumerate(reads) if u in row] for u in range(len(kinds))]
    size = sizes or {}
    return OperatorGraph(
        [Operator(f"v{k}", kind) for k, kind in enumerate(kinds)],
        [Tensor(f"t{u:02d}", u, tuple(row), size.get(u, 8)) for u, row in enumerate(readers) if row],
    )


def transformer(layers: int, mask: bool = False, **changes: int) -> OperatorGraph:
    """embed (mask) (qkv attend add) * layers head: add reads attend and what qkv read; attend reads the mask too."""
    kinds, reads = ["embed"], [[]]
    if mask:
        kinds, reads = [*kinds, "mask"], [*reads, []]
    last = 0
    for _ in range(layers):
        k = len(kinds)
        kinds += ["qkv", "attend", "add"]
        reads += [[last], [k, *([1] if mask else [])], [k + 1, last]]
        last = k + 2
    return network([*kinds, "head"], [*reads, [last]], {int(k[1:]): size for k, size in changes.items()})


def shown(graph: OperatorGraph) -> list[str]:
    return [f"{r} at {r.first}" for r in repeated_blocks(graph)]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # all layers but the first, which reads the embedding further back
        (transformer(6), ["6 x 3 operators at 1"]),
        (transformer(12, mask=True), ["11 x 3 operators at 5"]),
        # a tensor of another size in layer 2 (operators 7 to 9) parts the layers before it and behind it
        (transformer(6, t8=16), ["2 x 3 operators at 1", "3 x 3 operators at 10"]),
        # two layers are six operators, enough; a chain of unlike ones repeats nothing
        (transformer(2), ["2 x 3 operators at 1"]),
        (network([f"k{k}" for k in range(9)], [[], *([k] for k in range(8))]), []),
    ],
)
def test_layers_are_found(graph: OperatorGraph, expected: list[str]) -> None:
    """By hand: what repeats, how often, and where the first block begins."""
    assert shown(graph) == expected


def test_blocks_within_blocks() -> None:
    """Stages of three equal pairs and a pooling: 2 x 7 operators, of which 3 x 2 repeat inside."""
    kinds = ["stem", *(["conv", "relu"] * 3 + ["pool"]) * 2, "head"]
    (stage,) = repeated_blocks(network(kinds, [[], *([k] for k in range(len(kinds) - 1))]))
    assert str(stage) == "2 x 7 operators (3 x 2 operators)" and stage.inside[0].first == 1


def test_equal_layers_have_equal_hashes_in_any_network() -> None:
    """The hash is the block's, not the network's; a layer with another operator has another."""
    (six,), (nine,) = repeated_blocks(transformer(6)), repeated_blocks(transformer(9))
    assert six.hash == nine.hash and six.count != nine.count
    other = network(["stem", *("qkv", "look", "add") * 4, "head"], [[], *([k] for k in range(13))])
    assert repeated_blocks(other)[0].hash != six.hash


def test_names_of_tensors_do_not_matter() -> None:
    """What splits in two names its tensors t9, t10 and t11, t12: their order by name turns round, the layers don't."""
    operators, tensors, n = [Operator("embed", "embed")], [], 0
    last = 0
    for k in range(8):
        v = len(operators)
        operators += [Operator(f"s{k}", "split"), Operator(f"a{k}", "left"), Operator(f"j{k}", "join")]
        tensors.append(Tensor(f"x{k}", last, (v,), 8))
        tensors += [
            Tensor(f"t{n + 1}", v, (v + 1,), 8),
            Tensor(f"t{n + 2}", v, (v + 2,), 8),
            Tensor(f"l{k}", v + 1, (v + 2,), 8),
        ]
        last, n = v + 2, n + 2
    operators.append(Operator("head", "head"))
    tensors.append(Tensor("y", last, (last + 1,), 8))
    assert shown(OperatorGraph(operators, tensors)) == ["8 x 3 operators at 1"]


def test_blocks_are_groups_in_topological_order() -> None:
    """Every block of several operators is a group, and no two overlap."""
    groups = block_groups(transformer(6))
    assert groups == [(1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12), (13, 14, 15), (16, 17, 18)]
