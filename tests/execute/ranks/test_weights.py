"""Weights of a rank: each is read from its shard when it is asked for, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors.torch import save_file  # noqa: E402

from placewright.capture.torch_weights import Weight  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from placewright.execute.ranks.weights import RankWeights, random_inputs, shards_of  # noqa: E402


def meta(name: str, *shape: int, storage: object = None) -> Weight:
    return Weight(f"p_{name}", name, torch.empty(shape, device="meta"), True, (storage or name,))


def folder(tmp_path: Path) -> Path:
    """Two shards with an index; the second one is no safetensors file at all."""
    save_file({"a": torch.arange(6.0).reshape(2, 3), "wide": torch.ones(4)}, tmp_path / "one.safetensors")
    (tmp_path / "two.safetensors").write_bytes(b"not a tensor")
    index = {"weight_map": {"a": "one.safetensors", "wide": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    """A broken shard harms nobody who needs nothing of it; a tied weight is found by the other's name, and is one."""
    weights = RankWeights(
        {"x": meta("a", 2, 3), "y": meta("tied", 2, 3, storage="a"), "z": meta("b", 2)}, shards_of(folder(tmp_path))
    )
    assert torch.equal(weights["x"].tensor, torch.arange(6.0).reshape(2, 3))
    assert weights["y"].tensor is weights["x"].tensor
    with pytest.raises(Exception, match=r"(?i)header"):
        weights["z"]


def test_a_weight_of_another_shape_or_of_no_file_is_named(tmp_path: Path) -> None:
    """The name, both shapes, and what to do."""
    weights = RankWeights({"x": meta("wide", 5), "y": meta("absent", 1)}, shards_of(folder(tmp_path)))
    with pytest.raises(InvalidInput, match=r"'wide' has the shape \[4\] in 'one.safetensors' and \[5\]"):
        weights["x"]
    with pytest.raises(InvalidInput, match="'absent' is in none of the safetensors files"):
        weights["y"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is no index of shards"),
        ('{"weight_map": {"a": "../else.safetensors"}}', "names '../else.safetensors', which is not in its folder"),
    ],
)
def test_a_bad_index_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    """An index is data: it can't lead out of its folder."""
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(InvalidInput, match=message):
        shards_of(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"holds no .safetensors file"):
        shards_of(tmp_path / "empty")


def test_drawn_values_depend_on_the_name_alone() -> None:
    """Two ranks that draw different weights agree on those that both have; inputs on meta get values too."""
    one = RankWeights({"x": meta("a", 8, 4)}, {}, drawn=True)["x"].tensor
    other = RankWeights({"y": meta("b", 3), "x": meta("a", 8, 4)}, {}, drawn=True)["x"].tensor
    assert torch.equal(one, other)
    assert float(one.std()) > 0
    made = random_inputs({"ids": torch.zeros(2, 3, dtype=torch.int64, device="meta"), "n": 3})
    assert made["n"] == 3
    assert set(made["ids"].unique().tolist()) <= {0, 1}
