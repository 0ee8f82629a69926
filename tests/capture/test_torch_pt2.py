"""Reading ``.pt2`` files: what torch writes is read, and nothing in a hostile file runs."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from placewright.capture.torch_export import capture_program, capture_pt2, export_module
from placewright.capture.torch_pt2 import read_pt2
from placewright.errors import InvalidInput

MARK = Path("executed")


class Net(nn.Module):
    """Tied weights, a buffer, a constant, a wrapper and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("scale", torch.ones(4))
        self.shift = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            y = self.b(self.a(x)) * self.scale + self.shift
        return {"y": y, "sum": y.sum()}


@pytest.fixture
def program() -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=2, max=64)
    return torch.export.export(Net(), (torch.ones(3, 4),), dynamic_shapes=({0: rows},), strict=False)


@pytest.fixture
def saved(program: torch.export.ExportedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    return path


def _changed(path: Path, change: Callable[[str, bytes], bytes | None], compression: int = zipfile.ZIP_STORED) -> Path:
    """Copy of an archive, each record replaced by what ``change`` makes of it; None drops it."""
    target = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", compression) as new:
        for record in old.infolist():
            content = change(record.filename, old.read(record))
            if content is not None:
                new.writestr(record.filename, content)
    return target


def _edited(path: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Copy of an archive with its program's JSON edited in place."""

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/net.json") and "/models/" not in name:
            return content
        model = json.loads(content)
        edit(model)
        return json.dumps(model).encode()

    return _changed(path, change)


def _refused(path: Path, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        capture_pt2(path)
    assert "\n" not in str(caught.value) and str(path.name) in str(caught.value)
    assert not MARK.exists()


def test_what_torch_saves_is_captured_like_the_program(program: torch.export.ExportedProgram, saved: Path) -> None:
    """Operators, tensors, classes and work survive the file; the source names it and its hash."""
    graph, expected = capture_pt2(saved), capture_program(program)
    assert [v.kind for v in graph.operators] == ["aten.linear", "aten.linear", "aten.mul", "aten.add", "aten.sum"]
    assert (graph.operators, graph.tensors, graph.colocation) == (
        expected.operators,
        expected.tensors,
        expected.colocation,
    )
    assert graph.colocation == ((0, 1),)
    assert [v.name for v in graph.operators][:2] == ["a", "b"]
    assert graph.source is not None
    assert (graph.source.format, graph.source.location) == ("pt2", str(saved))
    assert graph.source.sha256 == hashlib.sha256(saved.read_bytes()).hexdigest()


def test_weights_are_read_as_numbers_on_request(saved: Path) -> None:
    """With weights, the program computes what torch's own loader's does; without, they are on meta."""
    x = torch.randn(5, 4)
    read = read_pt2(saved, weights=True)
    expected = torch.export.load(saved).module()(x)
    assert all(torch.equal(a, b) for a, b in zip(read.module()(x), expected.values(), strict=True))
    shapes = read_pt2(saved)
    assert all(t.is_meta for t in shapes.state_dict.values())
    assert (
        shapes.state_dict["a.weight"].untyped_storage()._cdata == shapes.state_dict["b.weight"].untyped_storage()._cdata
    )


def test_a_program_saved_from_meta_is_captured(tmp_path: Path) -> None:
    """Its weights all name one empty record, which must not tie them together."""
    with torch.device("meta"):
        program = export_module(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), (torch.zeros(2, 4),))
    torch.export.save(program, tmp_path / "meta.pt2")
    graph = capture_pt2(tmp_path / "meta.pt2")
    assert graph.colocation == () and [v.weight_bytes for v in graph.operators] == [80, 80]


class _Bomb:
    """Unpickled, it leaves a file behind."""

    def __reduce__(self) -> Any:
        return MARK.touch, ()


def test_pickles_in_the_archive_are_never_loaded(saved: Path) -> None:
    """A bomb as sample inputs is ignored; as a weight, or as weights of the older format, it is refused."""
    bomb = pickle.dumps(_Bomb())
    sample = _changed(saved, lambda name, content: bomb if "sample_inputs" in name else content)
    assert len(capture_pt2(sample)) == 5
    assert not MARK.exists()
    assert pickle.loads(bomb) is None and MARK.exists()  # the bomb works
    MARK.unlink()

    def as_pickle(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            table = json.loads(content)
            table["config"]["a.bias"]["use_pickle"] = True
            return json.dumps(table).encode()
        return bomb if "weights/weight_" in name else content

    _refused(_changed(saved, as_pickle), "'a.bias' is stored as a pickle")

    def opaque(name: str, content: bytes) -> bytes:
        if name.endswith("constants_config.json"):
            table = json.loads(content)
            table["config"]["shift"] |= {"path_name": "opaque_obj_0", "tensor_meta": None}
            return json.dumps(table).encode()
        return content

    _refused(_changed(saved, opaque), "'shift' is stored as a pickle")
    older = _changed(saved, lambda name, content: None if name.endswith("weights_config.json") else content)
    _refused(older, "older files keep weights as a pickle")


def _first_node(model: dict[str, Any]) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = model["graph_module"]["graph"]["nodes"]
    return next(n for n in nodes if n["target"].startswith("torch.ops.aten"))


@pytest.mark.parametrize(
    "target",
    ["torch.os.system", "torch.ops.aten.from_file.default", "_operator.attrgetter", "builtins.eval", "torch.load"],
)
def test_operators_outside_the_list_are_refused(saved: Path, target: str) -> None:
    """A node may not call what is no operator of a network."""
    _refused(_edited(saved, lambda m: _first_node(m).update(target=target)), "which is not read from files")


@pytest.mark.parametrize(
    "name", ["x = __import__('pathlib').Path('executed').touch()  #", "a\n    b", "class", "é", "a.b", ""]
)
def test_names_that_would_be_compiled_as_code_are_refused(saved: Path, name: str) -> None:
    """fx writes names into source that it executes, so only identifiers pass."""

    def rename(model: dict[str, Any]) -> None:
        values = model["graph_module"]["graph"]["tensor_values"]
        values[name] = next(iter(values.values()))

    _refused(_edited(saved, rename), "is no identifier")


@pytest.mark.parametrize(
    "size",
    [
        "__import__('pathlib').Path('executed').touch()",
        "Symbol('s77').__class__",
        "Integer(__import__('os'))",
        "Pow(Integer(10), Pow(Integer(10), Integer(10)))",
        "[1 for _ in ()]",
        "lambda: 1",
        "Add(" * 400 + ")" * 400,
        "9" * 100,
        "s77 ** s77",
    ],
)
def test_symbolic_sizes_are_not_evaluated_as_code(saved: Path, size: str) -> None:
    """Sympy evaluates text, so only arithmetic in known functions reaches it."""

    def resize(model: dict[str, Any]) -> None:
        values = model["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0]["as_expr"]["expr_str"] = size

    _refused(_edited(saved, resize), "is no plain arithmetic")


def test_guards_and_call_signatures_of_the_file_are_not_used(saved: Path) -> None:
    """Text that torch would evaluate, or import modules by, is left out."""

    def poison(model: dict[str, Any]) -> None:
        model["guards_code"] = ["__import__('pathlib').Path('executed').touch()"]
        for entry in model["graph_module"]["module_call_graph"]:
            if entry["signature"]:
                entry["signature"]["in_spec"] = entry["signature"]["out_spec"] = "poison"

    program = read_pt2(_edited(saved, poison), weights=True)
    assert len(program.module()(torch.ones(3, 4))) == 2
    assert not MARK.exists()


def test_random_damage_to_the_program_never_gives_a_traceback(saved: Path) -> None:
    """Any number, text or list of the JSON replaced or dropped: captured or refused in one line, nothing else."""
    random = Random(5)

    def places(value: Any) -> list[tuple[Any, Any]]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [place for key, item in items for place in ((value, key), *places(item))]

    def damage(model: dict[str, Any]) -> None:
        holder, key = random.choice(places(model))
        if random.random() < 0.3 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = random.choice([None, -1, 2**70, "x", "torch.ops.aten.sin.default", [], {}, [[]], True, 1.5])

    outcomes = set()
    for _ in range(60):
        path = _edited(saved, damage)
        try:
            capture_pt2(path)
            outcomes.add("captured")
        except InvalidInput as error:
            assert "\n" not in str(error)
            outcomes.add("refused")
    assert outcomes == {"captured", "refused"}


def test_weights_that_reach_beyond_their_record_are_refused(saved: Path) -> None:
    """A table can't claim more numbers than the file holds."""

    def grow(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            table = json.loads(content)
            table["config"]["a.weight"]["tensor_meta"]["sizes"] = [{"as_int": 2**40}, {"as_int": 4}]
            return json.dumps(table).encode()
        return content

    _refused(_changed(saved, grow), "reaches beyond its record")


def test_damaged_files_end_in_one_line(saved: Path, tmp_path: Path) -> None:
    """Truncated at any place, garbage, compressed, nested JSON, missing: never a traceback."""
    content = saved.read_bytes()
    for length in (0, 10, len(content) // 3, len(content) // 2, len(content) - 30):
        (tmp_path / "cut.pt2").write_bytes(content[:length])
        # sample inputs are an archive of their own, which a cut behind them leaves whole
        _refused(tmp_path / "cut.pt2", "no complete .pt2 archive|holds 0 programs")
    (tmp_path / "garbage.pt2").write_bytes(b"\x80\x04" + bytes(range(256)) * 40)
    _refused(tmp_path / "garbage.pt2", "no complete .pt2 archive")
    _refused(tmp_path / "absent.pt2", "no such file")
    _refused(tmp_path, "can't be read")
    _refused(_changed(saved, lambda n, c: c, zipfile.ZIP_DEFLATED), "is compressed")
    _refused(_changed(saved, lambda n, c: b"[" * 10**6 if "/models/" in n else c), "is no JSON")
    _refused(_changed(saved, lambda n, c: b"{}" if "/models/" in n else c), "can't be read")
    _refused(_changed(saved, lambda n, c: None if "/models/" in n else c), "holds 0 programs")
    flipped = bytearray(content)
    flipped[content.index(b'"graph_module"') + 4] ^= 1
    (tmp_path / "flipped.pt2").write_bytes(flipped)
    _refused(tmp_path / "flipped.pt2", "no complete .pt2 archive")  # its checksum is wrong
