"""Reading within bounds, and writing as a whole."""

import os
import stat
from typing import Any

import msgspec
import pytest

from placewright.errors import InvalidInput
from placewright.io import reading
from placewright.io.reading import decode_json, decode_yaml, read_bounded, write_atomic


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    left: list[list[float | None]]
    right: int = 0


def refused(call, *args, **kwargs):
    with pytest.raises(InvalidInput) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_file_is_read_up_to_its_limit(tmp_path):
    """Eight bytes are read under a limit of eight and refused under one of seven."""
    (tmp_path / "f").write_bytes(b"12345678")
    assert read_bounded(tmp_path / "f", "file", 8) == b"12345678"
    assert "has 8 B; files above 7 B are not read" in refused(read_bounded, tmp_path / "f", "file", 7)


def test_a_file_of_2_gib_is_refused_without_being_read(tmp_path, monkeypatch):
    """Its size is enough: nothing opens it."""
    bomb = tmp_path / "bomb.json"
    with bomb.open("wb") as file:
        file.truncate(2 * 2**30)  # sparse

    def opened(*args, **kwargs):
        raise AssertionError("the bomb was opened")

    monkeypatch.setattr("pathlib.Path.open", opened)
    assert "has 2 GiB; files above 512 MiB are not read" in refused(read_bounded, bomb, "problem file")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    """Absent paths, folders, pipes without a writer, endless devices, names with a NUL."""
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "absent", "no such file"),
        (tmp_path, "is not a regular file"),
        (tmp_path / "pipe", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("nul\0", "can't be read"),
    ):
        assert message in refused(read_bounded, path, "file")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 1_000_000, "top level: expected `object`, got `array`"),
        (b'{"left":' + b"[" * 1_000_000, "left[0][0]: expected `float | null`, got `array`"),
        (b'{"left":[[NaN]]}', "is not valid JSON"),
        (b'{"left":[[1e999]]}', "left[0][0]: number out of range"),
        (b'{"left":[["\xff"]]}', "expected `float | null`"),
        (b'{"left":[[1', "is not valid JSON: input data was truncated"),
        (b'{"left":[[1]],"right":1.5}', "right: expected `int`, got `float`"),
        (b'{"left":[[1]],"rihgt":1}', "top level: unknown key 'rihgt'; did you mean 'right'?"),
        (b'{"left":[[1]],"a\\nb":1}', r"unknown key 'a\nb'; use one of left, right"),
        (b"", "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
    ],
)
def test_bad_json_ends_in_one_line(data, message):
    """Each fault is named with its place."""
    assert message.lower() in refused(decode_json, data, Pair, "file 'x'").lower()


def test_deep_nesting_where_anything_may_stand_ends_in_one_line():
    """No RecursionError reaches the caller, whatever the depth."""
    for data in (b"[" * 5_000_000, b'{"a":' * 500_000, b"[" * 100_000 + b"]" * 100_000):
        assert "is nested too deeply" in refused(decode_json, data, Any, "file 'x'")
    hidden = b'{"schema":"s","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert "is nested too deeply" in refused(decode_json, hidden, Pair, "file 'x'", schema="s")


def test_many_small_lists_are_refused_before_memory_is_taken(monkeypatch):
    """`[[],[],[]...` would take 30 times its size: containers and values are counted first."""
    monkeypatch.setattr(reading, "MOST_CONTAINERS", 1000)
    assert "arrays and objects" in refused(decode_json, b'{"left":[' + b"[]," * 1000 + b"[]]}", Pair, "f")
    assert len(decode_json(b'{"left":[' + b"[]," * 500 + b"[]]}", Pair, "f").left) == 501
    monkeypatch.setattr(reading, "MOST_VALUES", 1000)
    assert "values in" in refused(decode_json, b'{"left":[[' + b"1," * 1001 + b"1]]}", Pair, "f")


def test_the_schema_of_a_file_is_looked_at_first():
    """A file of another kind or version is named as such, not by its first unknown key."""
    other = refused(decode_json, b'{"schema":"placewright/plan/9","x":1}', Pair, "f", schema="placewright/plan/1")
    assert other == "f: says that it is 'placewright/plan/9'; this takes a file with the schema 'placewright/plan/1'"
    assert "has no 'schema'" in refused(decode_json, b'{"x":1}', Pair, "f", schema="placewright/plan/1")


def test_yaml_is_plain_values():
    """Text, numbers, lists, maps."""
    assert decode_yaml(b"a: [1, 2.5, {b: x}]\nc: null\n", "f") == {"a": [1, 2.5, {"b": "x"}], "c": None}
    assert decode_yaml(b"", "f") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x\n", "line 2 uses the alias *x"),
        (
            "a: &a [l, l]\n"
            + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
            "alias *a",
        ),
        ("a: 1\nb: 2\na: 3\n", "line 3 gives 'a' a second time"),
        ("[" * 100, "nested deeper than 16 levels"),
        ("[" * 1_000_000, "exceeded maximum nesting depth"),
        ("- " * 50 + "x", "nested deeper than 16 levels"),
        ("? [a]\n: b\n", "has a key that is no text"),
        ("a: !!python/object/apply:os.system [ls]\n", "is not valid YAML in line 1"),
        ("a: [1\nb: 2\n", "is not valid YAML in line 2"),
        ("a: 2001-99-99\n", "is not valid YAML"),
        ("a: \x07\n", "is not valid YAML"),
        ("a: 1\n---\nb: 2\n", "is not valid YAML"),
    ],
)
def test_bad_yaml_ends_in_one_line(text, message):
    """Aliases (bombs), keys that stand twice, deep nesting, tags that make objects, broken text."""
    assert message in refused(decode_yaml, text.encode(), "f")


def test_bytes_that_are_no_text_are_no_yaml():
    """Invalid UTF-8 is one line too."""
    assert "is not valid YAML" in refused(decode_yaml, b"a: \xff\xfe\xff", "f")


def test_yaml_with_too_many_values_is_refused(monkeypatch):
    """The number of values is bounded while they are parsed."""
    monkeypatch.setattr(reading, "MOST_YAML_EVENTS", 100)
    assert "more than 100 values" in refused(decode_yaml, b"[" + b"1," * 200 + b"1]", "f")


def test_a_file_is_written_as_a_whole(tmp_path):
    """New and existing files hold exactly what was written, keep their mode, and nothing else is left."""
    target = tmp_path / "f.json"
    write_atomic(target, "äb")
    assert target.read_bytes() == "äb".encode()
    target.chmod(0o640)
    write_atomic(target, b"second")
    assert target.read_bytes() == b"second"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """The old content stays and the temporary file goes, also when the user interrupts."""
    target = tmp_path / "f"
    target.write_text("old")

    def stopped(self, other):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_links_are_followed_and_pipes_written_to(tmp_path):
    """A symbolic link stays one; a pipe (as /dev/stdout may be) is not replaced by a file."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(tmp_path / "pipe", "through")
    assert os.read(end, 100) == b"through"
    os.close(end)
    assert (tmp_path / "pipe").is_fifo()


def test_a_path_that_can_not_be_written_to_is_one_line(tmp_path):
    """A missing folder, a folder itself, a NUL."""
    assert "no such file or directory" in refused(write_atomic, tmp_path / "no" / "f", "x")
    assert "can't be written" in refused(write_atomic, tmp_path, "x")
    assert "can't be written" in refused(write_atomic, "a\0b", "x")
