"""Cluster files: YAML or JSON, short for the common case (ranges, link classes, models) and exact for the rare one.

>>> text = '''
... devices:
...   - {name: "node[0-1]-gpu[0-3]", model: a100-sxm-80gb, host: "node{0}", reserve: 1 GiB}
...   - {name: "node[0-1]-cpu", kind: cpu, host: "node{0}", memory: 64 GiB, flops: {fp32: 1.2 TFLOP/s}}
... links:
...   - {class: same-host, bandwidth: 12 GB/s, latency: 10 us, channel: pcie}
...   - {between: ["node[0-1]-gpu[0-3]", "node{0}-gpu*"], bandwidth: 300 GB/s, latency: 3 us}
...   - {class: between-hosts, bandwidth: 1 GB/s, latency: 50 us, channel: nic}
... '''
>>> cluster = cluster_from_text(text)
>>> [d.name for d in cluster.devices if d.host == "node1"]
['node1-gpu0', 'node1-gpu1', 'node1-gpu2', 'node1-gpu3', 'node1-cpu']

``[0-3,8]`` in a name stands for one device each; ``{0}`` in its host is what the name's first range stands at, ``{1}``
the second. The two ends of ``between`` may hold ranges and the wildcards ``*`` and ``?``, the second end also ``{0}``:
the rule then holds for every such pair. A name that is a device's exactly always means that device; ``[[`` is a plain
bracket elsewhere. Values beside ``model`` replace the catalogue's; ``flops`` does so by dtype. ``memory: null`` means
that no limit is known.

Where a transfer's time is not latency + bytes / bandwidth, ``points`` say what it is: straight lines from the latency
at 0 bytes over the points, and beyond the last of them what the bandwidth says.

>>> bent = cluster_from_text('''
... devices: [{name: a}, {name: b}]
... links: [{between: [a, b], bandwidth: 1 GB/s, latency: 2 us, points: [[4 kB, 3 us], [64 kB, 90 us]]}]
... ''')
>>> [round(bent.transfer_s(size, 0, 1) * 1e6, 6) for size in (0, 2000, 4000, 34000, 65000)]
[2.0, 2.5, 3.0, 46.5, 91.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from placewright.catalogue import lookup
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.io.name_ranges import MOST_NAMES, expand, fill, parse_numbers
from placewright.io.named_cluster import cluster_text
from placewright.io.reading import closest, decode_json, decode_yaml, read_bounded, translated
from placewright.units import parse_bytes, parse_bytes_per_second, parse_flops_per_second, parse_seconds

__all__ = ["ClusterEntry", "DeviceEntry", "LinkEntry", "cluster_from_text", "device_from_entry", "read_cluster"]

LARGEST_FILE_BYTES = 64 * 2**20
MOST_PAIRS = 2**18
"""Links by pair in one file."""

Bytes = Annotated[str | int | float, Meta(description="Bytes: '24 GiB' (2^30), '24 GB' (10^9), or a number of bytes.")]
Rate = Annotated[str | int | float, Meta(description="Bytes per second: '12 GB/s', '10 Gb/s' (bits), a number, 'inf'.")]
Seconds = Annotated[str | int | float, Meta(description="Seconds: '5 us', '1 ms', or a number of seconds.")]
Flops = Annotated[str | int | float, Meta(description="Operations per second: '1.2 TFLOP/s', or a number.")]


class DeviceEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A device, or one for each name that its ranges stand for."""

    name: Annotated[str, Meta(min_length=1, max_length=1000, description="May hold ranges: 'node[0-1]-gpu[0-3,8]'.")]
    kind: Annotated[str, Meta(description="cpu, gpu, npu...")] | UnsetType = UNSET
    model: Annotated[str, Meta(description="Entry of the hardware catalogue.")] | UnsetType = UNSET
    host: Annotated[str, Meta(description="'{0}' is what the first range of the name stands at.")] = "local"
    memory: Bytes | UnsetType | None = UNSET
    reserve: Bytes | UnsetType = UNSET
    flops: dict[str, Flops] | UnsetType = UNSET
    memory_bandwidth: Rate | UnsetType = UNSET
    launch_overhead: Seconds | UnsetType = UNSET
    cut_overhead: Seconds | UnsetType = UNSET
    cores: Annotated[list[int] | str, Meta(description="CPU cores: [0, 1] or '0-3,8'.")] | UnsetType = UNSET
    threads: Annotated[int, Meta(ge=0, le=65536)] | UnsetType = UNSET
    cpu_share: float | UnsetType = UNSET


class LinkEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"link_class": "class"}):
    """A rule for a class of pairs, or for the pairs that ``between`` stands for."""

    bandwidth: Rate
    latency: Seconds = 0.0
    link_class: Literal["same-host", "between-hosts"] | UnsetType = UNSET
    between: (
        Annotated[tuple[str, str], Meta(description="Two devices; ranges, * and ? stand for several.")] | UnsetType
    ) = UNSET
    channel: str = ""
    one_way: bool = False
    points: Annotated[
        list[tuple[Bytes, Seconds]],
        Meta(description="[bytes, seconds] by ascending bytes, straight lines between them and from the latency."),
    ] = []


class ClusterEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A cluster file."""

    devices: list[DeviceEntry]
    links: list[LinkEntry] = []
    name: str = ""
    schema: Literal["placewright/cluster/1"] = "placewright/cluster/1"


class _Shell(msgspec.Struct, forbid_unknown_fields=True):
    """A cluster file whose entries are not yet decoded, so that the faults of all of them are reported."""

    devices: list[Any]
    links: list[Any] = []
    name: str = ""
    schema: Literal["placewright/cluster/1"] = "placewright/cluster/1"


def read_cluster(path: Path | str) -> Cluster:
    """Read a cluster file; one named ``.json`` is read as JSON, any other as YAML.

    Where there is no such file, entries of the catalogue joined by ``+`` are one PC that has them:
    :func:`placewright.io.named_cluster.cluster_text`.

    Raises
    ------
    InvalidInput
        With every violation.
    """
    if (text := cluster_text(path)) is not None:
        return cluster_from_text(text, f"cluster {str(path)!r}")
    data = read_bounded(path, "cluster file", LARGEST_FILE_BYTES)
    return _cluster(data, f"cluster file {str(path)!r}", as_json=Path(path).suffix.lower() == ".json")


def cluster_from_text(text: str | bytes, what: str = "cluster") -> Cluster:
    """Make a cluster of YAML text; ``what`` names it in messages."""
    return _cluster(text.encode() if isinstance(text, str) else text, what, as_json=False)


def _cluster(data: bytes, what: str, *, as_json: bool) -> Cluster:
    content = decode_json(data, Any, what) if as_json else decode_yaml(data, what)
    try:
        shell = msgspec.convert(content, _Shell)
    except msgspec.ValidationError as error:
        raise InvalidInput(translated(error, _Shell), what=what) from None
    violations: list[str] = []
    devices: list[Device] = []
    for k, given in enumerate(shell.devices):
        if len(devices) >= MOST_NAMES:
            violations.append(
                f"there are more than {MOST_NAMES} devices, the most that a cluster file may have; split it"
            )
            break
        with _collecting(violations, _label(given, "device", k)):
            devices += _devices(msgspec.convert(given, DeviceEntry), MOST_NAMES - len(devices))
    links: list[Link] = []
    places = {d.name: k for k, d in enumerate(devices)}
    for k, given in enumerate(shell.links):
        with _collecting(violations, _label(given, "link", k)):
            links += _links(msgspec.convert(given, LinkEntry), places, MOST_PAIRS - len(links))
    if violations:
        raise InvalidInput(violations, what=what)
    try:
        return Cluster(devices, links, shell.name)
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None


class _collecting:  # noqa: N801 (used as a statement)
    """Turn an error in an entry into violations that name it."""

    def __init__(self, violations: list[str], label: str) -> None:
        self.violations, self.label = violations, label

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, msgspec.ValidationError):
            schema = DeviceEntry if self.label.startswith("device") else LinkEntry
            self.violations.append(f"{self.label}: {translated(error, schema, whole='')}")
        elif isinstance(error, InvalidInput):
            self.violations.extend(f"{self.label}: {line}" for line in error.violations)
        else:
            return False
        return True


def _label(given: Any, what: str, k: int) -> str:
    if isinstance(given, dict):
        for key in ("name", "class", "between"):
            if isinstance(value := given.get(key), str | list):
                text = value if isinstance(value, str) else "-".join(map(str, value))
                return f"{what} {text[:100]!r}"
    return f"{what} {k + 1}"


def _devices(entry: DeviceEntry, limit: int) -> Iterator[Device]:
    first = device_from_entry(entry)
    for name, chosen in expand(entry.name, limit):
        yield replace(first, name=name, host=fill(entry.host, chosen))


def device_from_entry(entry: DeviceEntry) -> Device:
    """Make the device of one entry, its name and host as they are written.

    Raises
    ------
    InvalidInput
        With every value that is no quantity, and for a model that is not in the catalogue.
    """
    violations: list[str] = []
    values: dict[str, Any] = {}

    def take(key: str, target: str, parse: Callable[[Any, str], Any]) -> None:
        given = getattr(entry, key)
        if given is not UNSET:
            try:
                values[target] = parse(given, key)
            except InvalidInput as error:
                violations.extend(error.violations)

    take("kind", "kind", _as_it_is)
    take("memory", "memory_bytes", lambda value, key: None if value is None else parse_bytes(value, key))
    take("reserve", "reserve_bytes", parse_bytes)
    take("flops", "flops_per_s", _peaks)
    take("memory_bandwidth", "memory_bandwidth_bytes_per_s", parse_bytes_per_second)
    take("launch_overhead", "launch_overhead_s", parse_seconds)
    take("cut_overhead", "cut_overhead_s", parse_seconds)
    take("cores", "cores", _cores)
    take("threads", "threads", _as_it_is)
    take("cpu_share", "cpu_share", _as_it_is)
    model = None
    if isinstance(entry.model, str) and entry.model:
        try:
            model = lookup(entry.model)
        except InvalidInput as error:
            violations.extend(error.violations)
    if violations:
        raise InvalidInput(violations)
    return model.device(entry.name, entry.host, **values) if model else Device(entry.name, host=entry.host, **values)


def _as_it_is(value: Any, key: str) -> Any:
    return value


def _peaks(given: Mapping[str, Any], key: str) -> Mapping[str, float]:
    return MappingProxyType({t: parse_flops_per_second(value, f"{key} {t}") for t, value in given.items()})


def _cores(given: list[int] | str, key: str) -> tuple[int, ...]:
    cores = parse_numbers(given) if isinstance(given, str) else tuple(given)
    if min(cores, default=0) < 0 or len(set(cores)) < len(cores):
        raise InvalidInput(f"{key} {list(cores)[:20]} are not distinct numbers of at least 0; list each core once")
    return cores


def _bandwidth(given: Any) -> float:
    return float("inf") if given == "inf" else parse_bytes_per_second(given, "bandwidth")


_End = tuple[str, tuple[str, ...]]


def _links(entry: LinkEntry, places: Mapping[str, int], limit: int) -> list[Link]:
    rule = Link(parse_seconds(entry.latency, "latency"), _bandwidth(entry.bandwidth), channel=entry.channel)
    points = ((parse_bytes(size, "points"), parse_seconds(seconds, "points")) for size, seconds in entry.points)
    rule = replace(rule, one_way=entry.one_way, points=tuple(points))
    if (entry.link_class is UNSET) == (entry.between is UNSET):
        raise InvalidInput("has neither or both of 'class' and 'between'; give one of them")
    if isinstance(entry.link_class, str):
        return [replace(rule, link_class=entry.link_class)]
    assert isinstance(entry.between, tuple)
    pairs: dict[tuple[str, str], None] = {}
    several = not all(end in places for end in entry.between)
    seconds: dict[str, list[_End]] = {}  # the same text stands for the same devices
    for a, chosen in _ends(entry.between[0], places):
        text = entry.between[1] if entry.between[1] in places else fill(entry.between[1], chosen)
        if text not in seconds:
            seconds[text] = _ends(text, places)
        for b, _ in seconds[text]:
            if several and (a == b or (not entry.one_way and (b, a) in pairs)):
                continue
            pairs[a, b] = None
            if len(pairs) > limit:
                raise InvalidInput(f"stands for too many pairs; a file may have {MOST_PAIRS} of them, use a class")
    if not pairs:
        raise InvalidInput("stands for no pair of two devices; name devices of this file")
    return [replace(rule, between=pair) for pair in pairs]


def _ends(text: str, places: Mapping[str, int]) -> list[_End]:
    """Devices that one end of ``between`` stands for, each with what its ranges stand at."""
    if text in places:
        return [(text, ())]
    found: list[_End] = []
    for name, numbers in expand(text):
        if name in places:
            found.append((name, numbers))
        elif "*" in name or "?" in name:
            found += [(d, numbers) for d in places if fnmatchcase(d, name.replace("[", "[[]"))]
        else:
            raise InvalidInput(f"there is no device {name!r}{closest(name, places)}")
    return found
