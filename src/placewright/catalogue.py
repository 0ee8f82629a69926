"""The hardware catalogue: vendors' figures of real devices, so that a cluster file can say ``model: rtx-3090``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import yaml

from placewright.cluster import Device
from placewright.errors import InvalidInput
from placewright.units import parse_bytes, parse_bytes_per_second, parse_flops_per_second, parse_seconds

__all__ = ["HardwareEntry", "load", "lookup"]

ENVIRONMENT = "PLACEWRIGHT_CATALOGUE"
LARGEST_FILE_BYTES = 4 << 20
DEEPEST_NESTING = 8
_BUILT_IN = Path(__file__).parent / "data" / "hardware.yaml"
_DEVICE_FIELDS = frozenset(f.name for f in fields(Device)) - {"name", "host", "model"}


@dataclass(frozen=True, slots=True)
class HardwareEntry:
    """Vendor's figures of one device.

    Attributes
    ----------
    model : str
        Name of the entry: lower case, words joined by ``-``.
    vendor, kind : str
    memory_bytes : int or None
        ``None`` where it depends on the configuration (most CPUs).
    flops_per_s : mapping of dtype to FLOP/s
        Dense peaks.
    memory_bandwidth_bytes_per_s : float
    launch_overhead_s : float
        What every operator costs on top of its arithmetic; the kind's default where the entry has none.
    source, date, note : str
        Where the figures stand, when that was published, and what to know about them.

    Examples
    --------
    >>> card = lookup("RTX 3090").device("gpu0", host="box", reserve_bytes=2**30)
    >>> card.model, card.memory_bytes // 2**30, card.flops_per_s["fp32"]
    ('rtx-3090', 24, 35600000000000.0)
    """

    model: str
    vendor: str
    kind: str
    memory_bytes: int | None
    flops_per_s: Mapping[str, float]
    memory_bandwidth_bytes_per_s: float
    launch_overhead_s: float
    source: str
    date: str
    note: str = ""

    def device(self, name: str, host: str = "local", **overrides: Any) -> Device:
        """Make a device with this entry's figures.

        Parameters
        ----------
        name, host : str
        **overrides
            Any other field of :class:`placewright.Device`; ``flops_per_s`` is merged by dtype, the rest replaces.

        Raises
        ------
        InvalidInput
            If an override is no field of a device.
        """
        unknown = sorted(set(overrides) - _DEVICE_FIELDS)
        if unknown:
            known = ", ".join(sorted(_DEVICE_FIELDS))
            raise InvalidInput(
                [f"device {name!r} has no field {key!r}; use one of {known}" for key in unknown], what=self.model
            )
        given: dict[str, Any] = {
            "kind": self.kind,
            "memory_bytes": self.memory_bytes,
            "memory_bandwidth_bytes_per_s": self.memory_bandwidth_bytes_per_s,
            "launch_overhead_s": self.launch_overhead_s,
        }
        peaks = MappingProxyType({**self.flops_per_s, **overrides.pop("flops_per_s", {})})
        return Device(name, model=self.model, host=host, flops_per_s=peaks, **(given | overrides))


class _Overhead(msgspec.Struct, forbid_unknown_fields=True):
    value: str | float
    source: str


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    vendor: str
    kind: str
    flops: dict[str, str | float]
    memory_bandwidth: str | float
    source: str
    date: str
    memory: str | int | None = None
    launch_overhead: str | float | None = None
    note: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    devices: dict[str, _Entry] = field(default_factory=dict)
    launch_overhead: dict[str, _Overhead] = field(default_factory=dict)


def load(path: Path | str | None = None) -> Mapping[str, HardwareEntry]:
    """Read the catalogue: the entries that are shipped, with those of the user's own file over them.

    Parameters
    ----------
    path : path or None
        The user's YAML file; by default the one that ``PLACEWRIGHT_CATALOGUE`` names, if any. It has the form of the
        file that is shipped: ``devices`` by name, and optionally ``launch_overhead`` by kind.

    Raises
    ------
    InvalidInput
        If a file can't be read or doesn't follow the schema; every bad entry is reported.
    """
    chosen = path if path is not None else os.environ.get(ENVIRONMENT) or None
    shipped, defaults = _built_in()
    if chosen is None:
        return shipped
    file = _read(Path(chosen))
    return MappingProxyType({**shipped, **_entries(file, defaults, Path(chosen))})


def lookup(model: str, path: Path | str | None = None) -> HardwareEntry:
    """Find one entry; case, spaces and underscores don't matter.

    Raises
    ------
    InvalidInput
        If there is none; the closest names are given.

    Examples
    --------
    >>> lookup("rtx-3900")
    Traceback (most recent call last):
    placewright.errors.InvalidInput: model 'rtx-3900' is not in the hardware catalogue; did you mean 'rtx-3090', ...
    """
    entries = load(path)
    key = _key(model)
    if key in entries:
        return entries[key]
    close = difflib.get_close_matches(key, entries, n=4, cutoff=0.5) or [k for k in entries if key and key in k][:4]
    hint = f"did you mean {', '.join(map(repr, close))}? Else" if close else f"known are {', '.join(sorted(entries))};"
    raise InvalidInput(
        f"model {model!r} is not in the hardware catalogue; {hint} give kind, flops and memory_bandwidth instead of "
        f"model, or name your own catalogue in {ENVIRONMENT}"
    )


def _key(model: str) -> str:
    return "-".join(model.lower().replace("_", " ").replace("-", " ").split())


@cache
def _built_in() -> tuple[Mapping[str, HardwareEntry], Mapping[str, str | float]]:
    file = _read(_BUILT_IN)
    overheads = {kind: item.value for kind, item in file.launch_overhead.items()}
    return MappingProxyType(_entries(file, {}, _BUILT_IN)), overheads


def _read(path: Path) -> _File:
    what = f"hardware catalogue {str(path)!r}"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"can't be read: {error.strerror or error}; correct the path", what=what) from None
    if len(data) > LARGEST_FILE_BYTES:
        raise InvalidInput(f"is larger than {LARGEST_FILE_BYTES} bytes; split it", what=what)
    try:
        depth = 0
        for event in yaml.parse(data):  # lazily: a bomb is refused before it is parsed to its end
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise InvalidInput("uses a YAML alias (*name); write the values out", what=what)
            if depth > DEEPEST_NESTING:
                raise InvalidInput(f"is nested deeper than {DEEPEST_NESTING} levels; flatten it", what=what)
        return msgspec.yaml.decode(data, type=_File)
    except (yaml.YAMLError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInput(f"is no valid catalogue: {reason}; compare it with the one shipped", what=what) from None


def _entries(file: _File, overheads: Mapping[str, str | float], path: Path) -> dict[str, HardwareEntry]:
    defaults = {**overheads, **{kind: item.value for kind, item in file.launch_overhead.items()}}
    found: dict[str, HardwareEntry] = {}
    violations: list[str] = []
    for name, entry in file.devices.items():
        model = _key(name)
        overhead = entry.launch_overhead if entry.launch_overhead is not None else defaults.get(entry.kind, 0.0)
        try:
            found[model] = HardwareEntry(
                model,
                entry.vendor,
                entry.kind,
                None if entry.memory is None else parse_bytes(entry.memory, "memory"),
                MappingProxyType({t: parse_flops_per_second(f, f"flops {t}") for t, f in entry.flops.items()}),
                parse_bytes_per_second(entry.memory_bandwidth, "memory_bandwidth"),
                parse_seconds(overhead, "launch_overhead"),
                entry.source,
                entry.date,
                entry.note,
            )
        except InvalidInput as error:
            violations += [f"entry {name!r}: {line}" for line in error.violations]
    if violations:
        raise InvalidInput(violations, what=f"hardware catalogue {str(path)!r}")
    return found
