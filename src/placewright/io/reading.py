"""Bounded, safe reading of files that others wrote, and writing that leaves no half-written file behind.

A file is data: its size is looked at before it is read, how many values it holds and how deep they are nested before
memory is taken for them, and whatever is wrong with it ends in one line.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from placewright.errors import InvalidInput
from placewright.units import format_bytes

__all__ = [
    "check_writable",
    "checked_size",
    "closest",
    "decode_json",
    "decode_yaml",
    "encode_lines",
    "read_bounded",
    "translated",
    "write_atomic",
]

LARGEST_FILE_BYTES = 512 * 2**20
MOST_VALUES = 2**26
"""Values in one JSON file (counted by its commas): at most about 32 bytes of memory each."""
MOST_CONTAINERS = 2**23
"""Arrays and objects in one JSON file: at most about 100 bytes of memory each, besides their values."""
DEEPEST_YAML = 16
MOST_YAML_EVENTS = 2_000_000

T = TypeVar("T")
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_bounded(path: Path | str, what: str, limit_bytes: int = LARGEST_FILE_BYTES) -> bytes:
    """Read a regular file of at most ``limit_bytes``; a larger one is refused unread.

    Raises
    ------
    InvalidInput
        If it is absent, no regular file, unreadable or too large.
    """
    named = f"{what} {str(path)!r}"
    size = checked_size(Path(path), named)
    if size > limit_bytes:
        raise InvalidInput(_too_large(size, limit_bytes), what=named)
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise _unreadable(error, named) from None
    if len(data) > limit_bytes:
        raise InvalidInput(_too_large(len(data), limit_bytes), what=named)
    return data


def checked_size(path: Path, what: str) -> int:
    """Return the bytes of a regular file, unread; ``what`` names it in messages.

    Raises
    ------
    InvalidInput
        If it is absent, no regular file, or may not be read.
    """
    try:
        found = path.stat()
        readable = os.access(path, os.R_OK)
    except (OSError, ValueError) as error:
        raise _unreadable(error, what) from None
    if not stat.S_ISREG(found.st_mode):  # a pipe would make us wait, a device has no size
        raise InvalidInput("is not a regular file; give the path of a file", what=what)
    if not readable:
        raise InvalidInput("can't be read: permission denied; correct the path", what=what)
    return found.st_size


def _unreadable(error: OSError | ValueError, what: str) -> InvalidInput:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InvalidInput(f"can't be read: {reason.lower()}; correct the path", what=what)


def _too_large(size: int, limit: int) -> str:
    return f"has {format_bytes(size)}; files above {format_bytes(limit)} are not read, give a smaller one"


class _Head(msgspec.Struct):
    """What a versioned file says that it is."""

    schema: str = ""


def decode_json(data: bytes, kind: type[T], what: str, schema: str = "") -> T:
    """Decode strictly into ``kind``, a msgspec struct; ``what`` names the file in messages.

    Parameters
    ----------
    data : bytes
    kind : type
    what : str
    schema : str
        What the file must say that it is, which is looked at first: ``placewright/plan/1``.

    Raises
    ------
    InvalidInput
        With one line for malformed or truncated text, too many values, deep nesting, or what breaks the schema.
    """
    values, containers = data.count(b","), data.count(b"[") + data.count(b"{")
    if values > MOST_VALUES or containers > MOST_CONTAINERS:
        raise InvalidInput(
            f"holds {values:,} values in {containers:,} arrays and objects; at most {MOST_VALUES:,} in "
            f"{MOST_CONTAINERS:,} are read, give a smaller file",
            what=what,
        )
    try:
        if schema and (given := msgspec.json.decode(data, type=_Head).schema) != schema:
            said = f"says that it is {given[:100]!r}" if given else "has no 'schema'"
            raise InvalidInput(f"{said}; this takes a file with the schema {schema!r}", what=what)
        return msgspec.json.decode(data, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(translated(error, kind), what=what) from None


_AT = re.compile(r"^(.*) - at `(?:key in )?\$\.?(.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)


def translated(error: Exception, kind: type[Any], whole: str = "top level: ") -> str:
    """Say what a decoder found in the words of placewright's errors: thing, value, remedy, in one line.

    ``whole`` stands before what is wrong with the object as a whole.
    """
    if isinstance(error, RecursionError):
        return "is nested too deeply; no file of this kind needs more than a few levels"
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text; save it as UTF-8"
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return f"is not valid JSON: {_one_line(text)}; write the file again"
    found = _AT.match(text)
    text, where = (found[1], found[2]) if found else (text, "")
    place = f"{_one_line(where)}: " if where else whole
    unknown = _UNKNOWN.match(text)
    if unknown:
        return f"{place}unknown key {unknown[1]!r}{closest(unknown[1], _keys(kind))}"
    return f"{place}{_one_line(text[:1].lower() + text[1:])}; correct it"


def closest(word: str, known: Iterable[str]) -> str:
    """Say what to use in place of an unknown word: the known ones that are like it, or all of them.

    Examples
    --------
    >>> closest("memroy", ["memory", "model"])
    "; did you mean 'memory'?"
    >>> closest("x", ["memory", "model"])
    '; use one of memory, model'
    """
    names = list(dict.fromkeys(known))
    close = get_close_matches(word[:100], names, n=3)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; use one of {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"


def _keys(kind: type[Any]) -> list[str]:
    """Keys of a struct and of the structs in it."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    definitions = msgspec.json.schema(kind).get("$defs", {})
    return list(dict.fromkeys(key for d in definitions.values() for key in d.get("properties", {})))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:300] + "..."


def encode_lines(document: msgspec.Struct) -> bytes:
    """JSON with a line for each key of the outermost object: compact, and still to be looked at with ``head``."""
    fields = msgspec.structs.fields(document)
    pairs = ((f.encode_name, getattr(document, f.name)) for f in fields)
    lines = [msgspec.json.encode(key) + b":" + msgspec.json.encode(value) for key, value in pairs]
    return b"{" + b",\n".join(lines) + b"}\n"


def decode_yaml(data: bytes, what: str) -> Any:
    """Read YAML with plain values only: no aliases, no tags that make objects, no key twice, bounded depth.

    Raises
    ------
    InvalidInput
        With one line that names where in the file.
    """
    try:
        _check_yaml(data, what)
        return yaml.load(data, Loader=_FAST)
    except yaml.MarkedYAMLError as error:
        mark = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidInput(
            f"is not valid YAML{mark}: {_one_line(error.problem or str(error))}; correct it", what=what
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"is not valid YAML: {_one_line(str(error))}; correct it", what=what) from None


def _check_yaml(data: bytes, what: str) -> None:
    """Walk the events, which takes no memory, before values are made of them."""
    open_: list[set[str] | None] = []  # keys of each open mapping; None for a sequence
    is_key: list[bool] = []  # whether the next node of it is a key
    for count, event in enumerate(yaml.parse(data, Loader=_FAST)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput(f"line {line} uses the alias *{event.anchor}; write the value out instead", what=what)
        if count > MOST_YAML_EVENTS:
            raise InvalidInput(f"has more than {MOST_YAML_EVENTS:,} values; use ranges such as gpu[0-7]", what=what)
        if isinstance(event, yaml.CollectionEndEvent):
            open_.pop()
            is_key.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        if open_ and (keys := open_[-1]) is not None:
            if is_key[-1]:
                key = event.value if isinstance(event, yaml.ScalarEvent) else None
                if key is None:
                    raise InvalidInput(f"line {line} has a key that is no text; use a plain name", what=what)
                if key in keys:
                    raise InvalidInput(f"line {line} gives {key!r} a second time; keep one", what=what)
                keys.add(key)
            is_key[-1] = not is_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            is_key.append(True)
            if len(open_) > DEEPEST_YAML:
                raise InvalidInput(
                    f"line {line} is nested deeper than {DEEPEST_YAML} levels; no such file needs that", what=what
                )


def check_writable(*paths: Path | str | None) -> None:
    """Refuse paths that :func:`write_atomic` could not write to, before work is done for them; ``None`` is none.

    Raises
    ------
    InvalidInput
        With every path that is a folder, in a folder that is absent or can't be written to, or given twice.
    """
    given = [path for path in paths if path is not None]
    found = [f"file {str(path)!r} {reason}" for path in given if (reason := _why_not(path))]
    targets = [os.path.realpath(path) for path in given]
    found += [
        f"file {str(path)!r} would be written twice; give each output a path of its own"
        for k, path in enumerate(given)
        if targets[k] in targets[:k] and Path(targets[k]).parent != Path("/dev")
    ]
    if found:
        raise InvalidInput(found)


def _why_not(path: Path | str) -> str:
    remedy = "give a path in a folder that exists and is writable"
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            return f"can't be written: is a directory; {remedy}"
        if not target.parent.is_dir():
            return f"can't be written: there is no folder {str(target.parent)!r}; {remedy}"
        there = target if target.exists() and not target.is_file() else target.parent
        if not os.access(there, os.W_OK):
            return f"can't be written: permission denied; {remedy}"
    except OSError as error:
        return f"can't be written: {(error.strerror or str(error)).lower()}; {remedy}"
    return ""


def write_atomic(path: Path | str, data: bytes | str) -> None:
    """Write a file as a whole: to a temporary one in the same folder, then in its place.

    A link is followed; what is no regular file (``/dev/stdout``, a pipe) is written to as it is.

    Raises
    ------
    InvalidInput
        If the folder is absent or can't be written to.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
        try:
            with temporary.open("xb") as file:
                file.write(content)
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(
            f"can't be written: {reason.lower()}; give a path in a folder that exists and is writable",
            what=f"file {str(path)!r}",
        ) from None
