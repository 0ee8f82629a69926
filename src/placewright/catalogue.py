"""The hardware catalogue: vendors' figures of real devices, so that a cluster file can say ``model: rtx-3090``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from placewright.cluster import Device
from placewright.errors import InvalidInput
from placewright.units import parse_bytes, parse_bytes_per_second, parse_flops_per_second, parse_seconds

__all__ = [
    "Correction",
    "Efficiency",
    "HardwareEntry",
    "HardwareFile",
    "WrittenEntry",
    "find",
    "load",
    "lookup",
    "own_path",
    "read_entries",
    "use",
    "user_path",
    "with_entry",
]

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
    clock_hz, compute_units, cache_bytes : float
        Boost clock, multiprocessors (compute units, cores), last-level cache; 0 where not given.
    efficiency : mapping of class of operators to mapping of field to number
        What a calibration corrected: see :class:`placewright.costs.curve.Curve`.

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
    clock_hz: float = 0.0
    compute_units: float = 0.0
    cache_bytes: float = 0.0
    efficiency: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))

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


_Positive = Annotated[float, Meta(gt=0)]
_NotNegative = Annotated[float, Meta(ge=0)]


class Correction(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Numbers of an efficiency curve (:class:`placewright.costs.curve.Curve`); what isn't given stays as shipped."""

    arithmetic: _Positive | None = None
    memory: _Positive | None = None
    sharpness: _Positive | None = None
    floor_cycles: _NotNegative | None = None
    depth_cycles: _NotNegative | None = None
    piece_cycles: _NotNegative | None = None
    cached_gain: _NotNegative | None = None
    cached_share: _Positive | None = None


class Efficiency(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a calibration found, by class of operators."""

    product: Correction | None = None
    convolution: Correction | None = None
    prefill: Correction | None = None
    decode: Correction | None = None
    function: Correction | None = None
    window: Correction | None = None
    other: Correction | None = None


class WrittenEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One device as a catalogue's file states it."""

    vendor: str
    kind: str
    flops: dict[str, str | float]
    memory_bandwidth: str | float
    source: str
    date: str
    memory: str | int | None = None
    launch_overhead: str | float | None = None
    note: str = ""
    clock_mhz: _Positive | None = None
    compute_units: Annotated[int, Meta(gt=0)] | None = None
    cache: str | int | None = None
    efficiency: Efficiency | None = None


class HardwareFile(msgspec.Struct, forbid_unknown_fields=True):
    """A catalogue as it is written: entries by name, and launch overheads by kind."""

    devices: dict[str, WrittenEntry] = msgspec.field(default_factory=dict)
    launch_overhead: dict[str, _Overhead] = msgspec.field(default_factory=dict)


class _AnyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The same before its entries are looked at."""

    devices: dict[str, Any] = msgspec.field(default_factory=dict)
    launch_overhead: dict[str, _Overhead] = msgspec.field(default_factory=dict)


def load(path: Path | str | None = None) -> Mapping[str, HardwareEntry]:
    """Read the catalogue: the entries that are shipped, with those of the user's own file over them.

    Parameters
    ----------
    path : path or None
        The user's YAML file; by default :func:`user_path`. It has the form of the file that is shipped: ``devices`` by
        name, and optionally ``launch_overhead`` by kind.

    Raises
    ------
    InvalidInput
        If a file can't be read or doesn't follow the schema; every bad entry is reported.
    """
    chosen = Path(path) if path is not None else user_path()
    shipped, defaults = _built_in()
    if chosen is None:
        return shipped
    return MappingProxyType({**shipped, **_entries(_read(chosen), defaults, chosen)})


def use(path: Path) -> None:
    """Read a user's catalogue in place of the usual one from now on, in the processes started from here too.

    Raises
    ------
    InvalidInput
        As :func:`load`.
    """
    load(path)
    os.environ[ENVIRONMENT] = str(path)


def user_path() -> Path | None:
    """Return the user's own catalogue: what ``PLACEWRIGHT_CATALOGUE`` names, else ``catalogue.yaml`` in their folder.

    The folder is ``$XDG_CONFIG_HOME/placewright``, by default ``~/.config/placewright``; no file there is no error.
    """
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    usual = own_path()
    return usual if usual.is_file() else None


def own_path() -> Path:
    """Return where a user's catalogue is looked for when nothing names one."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "placewright" / "catalogue.yaml"


def find(model: str) -> HardwareEntry | None:
    """Look up an entry that need not be there, as for the name of a device's model in an old problem file."""
    return load().get(_key(model)) if model else None


def read_entries(path: Path) -> HardwareFile:
    """Read a user's file as it is written, to be written again with an entry more.

    Raises
    ------
    InvalidInput
        As :func:`load`.
    """
    file = _read(path)
    _entries(file, {}, path)
    return file


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
        f"model, or name your own catalogue with --catalogue or in {ENVIRONMENT}"
    )


def _key(model: str) -> str:
    return "-".join(model.lower().replace("_", " ").replace("-", " ").split())


def with_entry(path: Path | None, name: str, entry: WrittenEntry) -> str:
    """Make the text of a user's catalogue with an entry more, or in place of one; ``path`` need not be there yet.

    Comments of the file are not kept.
    """
    file = read_entries(path) if path is not None and path.is_file() else HardwareFile()
    devices = {k: v for k, v in file.devices.items() if _key(k) != _key(name)} | {name: entry}
    content = {"devices": devices} | ({"launch_overhead": file.launch_overhead} if file.launch_overhead else {})
    return yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False, allow_unicode=True, width=120)


@cache
def _built_in() -> tuple[Mapping[str, HardwareEntry], Mapping[str, str | float]]:
    file = _read(_BUILT_IN)
    overheads = {kind: item.value for kind, item in file.launch_overhead.items()}
    return MappingProxyType(_entries(file, {}, _BUILT_IN)), overheads


def _read(path: Path) -> HardwareFile:
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
        return _decoded(data, what)
    except (yaml.YAMLError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInput(f"is no valid catalogue: {reason}; compare it with the one shipped", what=what) from None


def _decoded(data: bytes, what: str) -> HardwareFile:
    """Decode an entry at a time, so that what is wrong names the entry it is in."""
    content = msgspec.yaml.decode(data, type=_AnyFile)
    violations, devices = [], {}
    for name, entry in content.devices.items():
        try:
            devices[name] = msgspec.convert(entry, WrittenEntry)
        except msgspec.ValidationError as error:
            text, _, where = str(error).partition(" - at `$")
            there = f"{where.strip('.`')}: " if where else ""
            violations.append(f"entry {name!r}: {there}{text[:1].lower()}{text[1:]}; compare it with the one shipped")
    if violations:
        raise InvalidInput(violations, what=what)
    return HardwareFile(devices, content.launch_overhead)


def _entries(file: HardwareFile, overheads: Mapping[str, str | float], path: Path) -> dict[str, HardwareEntry]:
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
                (entry.clock_mhz or 0.0) * 1e6,
                float(entry.compute_units or 0),
                0.0 if entry.cache is None else float(parse_bytes(entry.cache, "cache")),
                _numbers(entry.efficiency),
            )
        except InvalidInput as error:
            violations += [f"entry {name!r}: {line}" for line in error.violations]
    if violations:
        raise InvalidInput(violations, what=f"hardware catalogue {str(path)!r}")
    return found


def _numbers(efficiency: Efficiency | None) -> Mapping[str, Mapping[str, float]]:
    given = {} if efficiency is None else msgspec.to_builtins(efficiency)
    return MappingProxyType({c: MappingProxyType(f) for c, f in given.items()})
