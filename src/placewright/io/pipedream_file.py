"""Profiles in the text format of PipeDream (Narayanan et al., SOSP 2019): one GPU's times of the layers of a network.

A layer is a line ``nodeN -- description -- forward_compute_time=ms, backward_compute_time=ms, activation_size=bytes,
parameter_size=bytes``, an edge a tab and ``nodeA -- nodeB``. A size may be a list, ``[8.0; 4.0]``.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import numpy.typing as npt

from placewright.cluster import Cluster
from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Source
from placewright.io.name_ranges import expand
from placewright.io.partitioning_file import LONGEST, MILLISECONDS, MOST_BYTES, MOST_NAMED, UNIT_S
from placewright.io.reading import closest, read_bounded
from placewright.problem import Times

__all__ = ["BACKWARD", "PipedreamProfile", "read_pipedream", "speeds_of"]

BACKWARD = ".backward"
"""What the name of a layer's operator in the backward pass ends in."""

LARGEST_FILE_BYTES = 64 * 2**20
MOST_LAYERS = 100_000
MOST_EDGES = 1_000_000


@dataclass(frozen=True, eq=False)
class PipedreamProfile:
    """A profiled network.

    Attributes
    ----------
    graph : OperatorGraph
        Of each layer a forward operator and, when training, a backward one that shares its device.
    time_s : (n,) array
        Seconds of each operator on the GPU that was profiled.
    """

    graph: OperatorGraph
    time_s: npt.NDArray[np.float64]

    def times_on(self, cluster: Cluster, speed: Mapping[str, float]) -> Times:
        """Make processing times on devices that are ``speed`` times as fast as the profiled one; by default 1."""
        factors = [float(speed.get(d.name, 1.0)) for d in cluster.devices]
        if set(factors) == {1.0}:
            said = "every device as fast as the profiled one"
        else:
            said = "speed " + ", ".join(f"{d.name}={f:g}" for d, f in zip(cluster.devices, factors, strict=True))
        return Times(self.time_s[:, None] / np.array(factors), source=f"{MILLISECONDS}; {said}")


@dataclass(slots=True)
class _Layer:
    """A line of a layer."""

    name: str
    kind: str
    forward_ms: float
    backward_ms: float
    activation_bytes: int
    weight_bytes: int
    sources: dict[str, None] = field(default_factory=dict)


def read_pipedream(path: Path | str, *, inference: bool = False) -> PipedreamProfile:
    """Read a profile of PipeDream as a network for training, or for inference.

    A layer's output goes to the layers that read it; in the backward pass each reader sends a gradient of the same size
    back. A layer that reads nothing and has no time in the backward pass is an input of the network, and gets none.

    Parameters
    ----------
    path : path
    inference : bool
        Leave the backward pass out.

    Raises
    ------
    InvalidInput
        With every violation, each with its line.
    """
    what = f"profile {str(path)!r}"
    data = read_bounded(path, "profile", LARGEST_FILE_BYTES)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("is not UTF-8 text; save it as UTF-8", what=what) from None
    violations: list[str] = []
    layers = _layers(text, violations)
    if not layers and not violations:
        violations.append("has no layers; a layer is a line such as 'node1 -- Conv2d -- forward_compute_time=...'")
    if violations:
        more = ["and there are more like these"] if len(violations) > MOST_NAMED else []
        raise InvalidInput([*violations[:MOST_NAMED], *more], what=what)
    source = Source("problem", str(path), hashlib.sha256(data).hexdigest())
    try:
        return _profile(layers, Path(path).stem, source, inference)
    except InvalidInput as error:  # a cycle
        raise InvalidInput(error.violations, what=what) from None


_SIZE = r"\[[^\]]*\]|[^,\s]+"
_LAYER = re.compile(
    r"(?P<name>\S+) -- (?P<kind>.*) -- forward_compute_time=(?P<forward>[^,\s]+), "
    rf"backward_compute_time=(?P<backward>[^,\s]+), activation_size=(?P<activation>{_SIZE}), "
    rf"parameter_size=(?P<weights>{_SIZE})(?: -- stage_id=\S*)?"
)
_EDGE = re.compile(r"(?P<source>\S+) -- (?P<target>\S+)")
_EXAMPLE = (
    "'node1 -- Conv2d -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0, parameter_size=4.0'"
)


def _layers(text: str, violations: list[str]) -> dict[str, _Layer]:
    """Layers by name, in the order of the file, each with those that it reads."""
    layers: dict[str, _Layer] = {}
    line_of: dict[str, int] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if len(violations) > MOST_NAMED or len(layers) > MOST_LAYERS or len(edges) > MOST_EDGES:
            break
        stripped = line.strip()
        if not stripped:
            continue
        where = f"line {number}"
        if line[0].isspace():
            edge = _EDGE.fullmatch(stripped)
            if edge is None:
                violations.append(
                    f"{where}: {_shown(stripped)} is no edge; write for example a tab and 'node1 -- node2'"
                )
            else:
                edges.append((number, edge["source"], edge["target"]))
            continue
        found = _LAYER.fullmatch(stripped)
        if found is None:
            violations.append(f"{where}: {_shown(stripped)} is no layer; write for example {_EXAMPLE}")
            continue
        name = found["name"]
        if name in layers:
            violations.append(f"{where}: {name[:60]!r} was a layer in line {line_of[name]} already; keep one")
            continue
        line_of[name] = number
        layers[name] = _Layer(
            name,
            found["kind"].strip()[:200],
            _time(found["forward"], f"{where}: forward_compute_time", violations),
            _time(found["backward"], f"{where}: backward_compute_time", violations),
            _bytes(found["activation"], f"{where}: activation_size", violations),
            _bytes(found["weights"], f"{where}: parameter_size", violations),
        )
    if len(layers) > MOST_LAYERS or len(edges) > MOST_EDGES:
        violations.append(f"has more than {MOST_LAYERS:,} layers or {MOST_EDGES:,} edges; give a smaller one")
    for number, source, target in edges:
        if len(violations) > MOST_NAMED:
            break
        absent = [name for name in (source, target) if name not in layers]
        if absent:
            violations.append(f"line {number}: there is no layer {absent[0][:60]!r}{_like(absent[0], layers)}")
        elif source == target:
            violations.append(f"line {number}: {source[:60]!r} can't read its own output; remove the line")
        else:
            layers[target].sources[source] = None
    return layers


def _like(name: str, layers: Mapping[str, _Layer]) -> str:
    return closest(name, list(layers)[:5000]) if layers else "; add it"


def _shown(line: str) -> str:
    return repr(line if len(line) <= 100 else f"{line[:100]}...")


_NUMBER = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?")


def _time(text: str, where: str, violations: list[str]) -> float:
    time = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 <= time <= LONGEST:
        violations.append(f"{where} {text[:40]!r} is not a number between 0 and {LONGEST:g} ms")
        return 0.0
    return time


def _bytes(text: str, where: str, violations: list[str]) -> int:
    """Whole bytes of a number, or of the sum of a list of numbers."""
    parts = [part.strip() for part in text[1:-1].replace(",", ";").split(";")] if text.startswith("[") else [text]
    total = 0.0
    for part in parts:
        total += float(part) if _NUMBER.fullmatch(part) else math.nan
    if not 0 <= total <= MOST_BYTES:
        violations.append(
            f"{where} {text[:40]!r} is not a number of bytes between 0 and {MOST_BYTES}, or a list of such"
        )
        return 0
    return math.ceil(total)


def _profile(layers: Mapping[str, _Layer], name: str, source: Source, inference: bool) -> PipedreamProfile:
    readers: dict[str, list[str]] = {layer: [] for layer in layers}
    for layer in layers.values():
        for maker in layer.sources:
            readers[maker].append(layer.name)
    operators = [Operator(v.name, v.kind, weight_bytes=v.weight_bytes) for v in layers.values()]
    tensors: list[tuple[str, str, Sequence[str], int]] = []
    if inference:
        tensors += [(v, v, read_by, layers[v].activation_bytes) for v, read_by in readers.items() if read_by]
        graph = OperatorGraph.build(operators, tensors, name=name, source=source)
    else:
        operators += [Operator(v.name + BACKWARD, v.kind, backward=True) for v in layers.values()]
        for v in layers.values():
            # A layer's output is there when its backward operator starts, which shares its device.
            own = v.name + BACKWARD
            tensors.append((v.name, v.name, [*readers[v.name], own], v.activation_bytes))
            if v.sources or v.backward_ms > 0:
                back = ((f"{v.name}.gradient@{reader}", reader + BACKWARD) for reader in readers[v.name])
                tensors += [(tensor, reader, [own], v.activation_bytes) for tensor, reader in back]
        pairs = [(v, v + BACKWARD) for v in layers]
        graph = OperatorGraph.build(operators, tensors, pairs, name, source)
    time_ms = [
        layers[w.name.removesuffix(BACKWARD)].backward_ms if w.backward else layers[w.name].forward_ms
        for w in graph.operators
    ]
    return PipedreamProfile(graph, np.array(time_ms) * UNIT_S)


def speeds_of(texts: Sequence[str], cluster: Cluster) -> dict[str, float]:
    """Speed of each device that a ``PATTERN=FACTOR`` names; a later one overrides an earlier one.

    Parameters
    ----------
    texts : sequence of str
        A pattern is a name, one with ranges (``gpu[0-7]``) or shell-style (``gpu*``).
    cluster : Cluster

    Raises
    ------
    InvalidInput
        With every violation: no ``=``, no device of that name, a factor that is not above 0.

    Examples
    --------
    >>> from placewright import Device
    >>> speeds_of(["*=1", "gpu[1-2]=0.5"], Cluster([Device("gpu0"), Device("gpu1"), Device("gpu2")]))
    {'gpu0': 1.0, 'gpu1': 0.5, 'gpu2': 0.5}
    """
    found: dict[str, float] = {}
    violations: list[str] = []
    for text in texts:
        option = f"--speed {text[:100]!r}"
        pattern, equals, factor = text.rpartition("=")
        if not (equals and pattern and factor):
            violations.append(f"{option} is not PATTERN=FACTOR; write for example --speed 'gpu[1-2]=0.5'")
            continue
        value = float(factor) if _NUMBER.fullmatch(factor.strip()) else math.nan
        if not 0 < value <= 1e9 or 1 / value > 1e9:
            violations.append(f"{option}: the speed {factor[:40]!r} is not a number above 0, with 1 for as fast")
            continue
        names = {name for name, _ in expand(pattern)}
        matched = [d.name for d in cluster.devices if d.name in names or fnmatchcase(d.name, pattern)]
        if not matched:
            violations.append(f"{option}: no device is named {pattern!r}{closest(pattern, cluster.index)}")
        found.update(dict.fromkeys(matched, value))
    if violations:
        raise InvalidInput(violations)
    return {d.name: found[d.name] for d in cluster.devices if d.name in found}
