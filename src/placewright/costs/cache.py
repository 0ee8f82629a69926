"""Measured times on disk, found again by the content of what was measured."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from placewright.errors import InvalidInput

__all__ = ["TimesCache", "default_folder", "key_of"]

FILE_NAME = "times-1.jsonl"
LARGEST_FILE_BYTES = 64 << 20
LONGEST_LINE_BYTES = 4096
_ENVIRONMENT = "PLACEWRIGHT_CACHE"


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    seconds: float


def default_folder() -> Path:
    """Folder of the user's cache: ``PLACEWRIGHT_CACHE``, else ``placewright`` in the XDG cache folder."""
    given = os.environ.get(_ENVIRONMENT)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "placewright"


def key_of(facts: Mapping[str, object]) -> str:
    """Hash everything that decides a time.

    Examples
    --------
    >>> key_of({"a": 1, "b": "x"}) == key_of({"b": "x", "a": 1}) != key_of({"a": 2, "b": "x"})
    True
    """
    return hashlib.sha256(msgspec.json.encode(dict(facts), order="sorted")).hexdigest()


class TimesCache:
    """Seconds by key, in one file of JSON lines.

    New entries are appended a line at a time, so several processes may write at once. A line that can't be read is
    ignored; the file is then rewritten without it, with a warning. Without a folder nothing is kept.

    Parameters
    ----------
    folder : Path or None

    Raises
    ------
    InvalidInput
        If the folder can't be made.

    Examples
    --------
    >>> cache = TimesCache(None)
    >>> cache.put("k", 1.5); cache.get("k")
    1.5
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE_NAME
        self._known: dict[str, float] = {}
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self._read(self.path)
        except OSError as error:
            raise InvalidInput(
                f"the cache {str(self.path)!r} can't be used: {error.strerror}; set {_ENVIRONMENT} to another folder"
            ) from None

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> float | None:
        """Seconds, or ``None`` when they are not known."""
        return self._known.get(key)

    def put(self, key: str, seconds: float) -> None:
        """Keep one time; a disk that is full or read-only loses it for later runs, with a warning."""
        self._known[key] = seconds
        if self.path is None:
            return
        line = msgspec.json.encode(_Line(key, seconds)) + b"\n"
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, line)  # one write of one line: appends of several processes don't mix
            finally:
                os.close(handle)
        except OSError as error:
            warnings.warn(f"the time is not kept in {str(self.path)!r}: {error.strerror}", stacklevel=2)

    def _read(self, path: Path) -> None:
        bad = 0
        for line in _lines(path):
            try:
                entry = msgspec.json.decode(line, type=_Line)
                if not 0 <= entry.seconds < float("inf"):
                    raise ValueError
            except (msgspec.MsgspecError, ValueError, RecursionError):
                bad += 1
            else:
                self._known[entry.key] = entry.seconds
        if bad:
            warnings.warn(
                f"the cache {str(path)!r} has {bad} lines that can't be read; they are dropped and measured again",
                stacklevel=4,
            )
            self._rewrite(path)

    def _rewrite(self, path: Path) -> None:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(msgspec.json.encode(_Line(k, s)) + b"\n" for k, s in self._known.items())
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their ends; an overlong one comes in pieces, and what is beyond the size limit not at all."""
    read = 0
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE_BYTES):
            read += len(line)
            if read > LARGEST_FILE_BYTES:
                yield b""
                return
            yield line.rstrip(b"\n") if line.endswith(b"\n") else b""
