"""Problem files: versioned JSON that alone reproduces a plan, and the hash by which a plan knows its problem."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from placewright.errors import InvalidInput
from placewright.io.problem_document import ProblemDocument
from placewright.io.problem_reading import to_problem
from placewright.io.problem_writing import cluster_document, objective_document, rows, to_document
from placewright.io.reading import decode_json, encode_lines, read_bounded, translated, write_atomic
from placewright.objective import MaxLoad, Offload, Throughput
from placewright.problem import Problem

__all__ = [
    "PROBLEM_SCHEMA",
    "problem_content",
    "problem_from_bytes",
    "problem_from_json",
    "problem_hash",
    "problem_to_json",
    "problem_to_text",
    "read_problem",
    "write_problem",
]

PROBLEM_SCHEMA = "placewright/problem/1"


def read_problem(path: Path | str) -> Problem:
    """Read a problem file.

    Raises
    ------
    InvalidInput
        With every violation, in one line; also for a file of another kind or version, one that is too large or nested
        too deeply.
    """
    return problem_from_bytes(read_bounded(path, "problem file"), path)


def problem_from_bytes(data: bytes, path: Path | str) -> Problem:
    """Make a problem of a file's content; ``path`` names it in messages. Raises as :func:`read_problem`."""
    what = f"problem file {str(path)!r}"
    return to_problem(decode_json(data, ProblemDocument, what, schema=PROBLEM_SCHEMA), what)


def write_problem(path: Path | str, problem: Problem) -> None:
    """Write a problem file that :func:`read_problem` reads back as a problem of the same hash.

    Raises
    ------
    InvalidInput
        If the path can't be written to.
    """
    write_atomic(path, problem_to_text(problem))


def problem_to_text(problem: Problem) -> bytes:
    """Make the content of a problem file."""
    return encode_lines(to_document(problem))


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Make of a problem what its file holds, as plain dicts, lists, numbers and text.

    Examples
    --------
    >>> from placewright.graph import Operator, OperatorGraph
    >>> from placewright.cluster import Cluster, Device
    >>> one = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu"), Device("cpu")]), [[1.0, float("inf")]])
    >>> problem_to_json(one)["processing_s"]
    [[1.0, None]]
    >>> problem_hash(problem_from_json(problem_to_json(one))) == problem_hash(one)
    True
    """
    document: dict[str, Any] = msgspec.to_builtins(to_document(problem))
    return document


def problem_from_json(content: Any, what: str = "problem") -> Problem:
    """Make a problem of what :func:`problem_to_json` gives.

    Raises
    ------
    InvalidInput
        With every violation.
    """
    try:
        document = msgspec.convert(content, ProblemDocument, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(translated(error, ProblemDocument), what=what) from None
    return to_problem(document, what)


_hashes: WeakKeyDictionary[Problem, str] = WeakKeyDictionary()


def problem_hash(problem: Problem) -> str:
    """Hash of everything that determines the value of a plan, and of the names by which a plan refers to it.

    Two problems of one hash give the same value to every plan. What only describes (kinds, FLOPs, shapes, catalogue
    models, the source of the times, file names, the problem's name) does not change it.

    Returns
    -------
    str
        ``sha256:`` and 64 hexadecimal digits, of the canonical JSON of :func:`problem_content`: keys in the order
        there, no spaces, the shortest text of every float that reads back as the same float.
    """
    if problem not in _hashes:
        encoded = msgspec.json.encode(problem_content(problem))
        _hashes[problem] = f"sha256:{hashlib.sha256(encoded).hexdigest()}"
    return _hashes[problem]


def problem_content(problem: Problem) -> dict[str, Any]:
    """Make the part of a problem that is hashed, as plain values.

    Under max-load and throughput it also says which operators are of the backward pass, and under these and offload
    which devices are CPUs: they pay nothing for transfers there.
    """
    graph, times, cluster = problem.graph, problem.times, cluster_document(problem.cluster)
    objective = msgspec.to_builtins(objective_document(problem.objective))
    objective.pop("per", None)  # a word for readers
    content = {
        "operators": [[v.name, int(v.weight_bytes), int(v.kv_cache_bytes), v.parts] for v in graph.operators],
        "tensors": [
            [u.name, int(u.producer), [*map(int, u.readers)], int(u.size_bytes), bool(u.output)] for u in graph.tensors
        ],
        "colocation": graph.colocation,
        "devices": [[d.name, d.host, d.memory_bytes, d.reserve_bytes, d.cut_overhead_s] for d in cluster.devices],
        "links": [
            [k.link_class, k.between, k.latency_s, k.bandwidth_bytes_per_s, k.channel, k.one_way]
            + ([k.points] if k.points else [])
            for k in cluster.links
        ],
        "processing_s": rows(times.processing_s),
        "transfer_s": None if times.transfer_s is None else rows(times.transfer_s),
        "cut_s": None if times.cut_s is None else rows(times.cut_s),
        "objective": objective,
        "wishes": [[w.pattern, w.device, w.forbid] for w in problem.wishes],
    }
    if any(v.resident_bytes != v.weight_bytes + v.kv_cache_bytes for v in graph.operators):
        content["training"] = [
            [int(v.gradient_bytes), int(v.optimizer_bytes), int(v.saved_bytes)] for v in graph.operators
        ]
    if isinstance(problem.objective, MaxLoad | Throughput):
        content["backward"] = [v.name for v in graph.operators if v.backward]
    if isinstance(problem.objective, MaxLoad | Throughput | Offload):
        content["cpus"] = [d.name for d in cluster.devices if d.kind == "cpu"]
    return content
