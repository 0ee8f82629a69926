"""The JSON objects of commands whose outcome is no search: an evaluation, a profile, measured runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from placewright.cluster import Cluster
from placewright.evaluate import Evaluation
from placewright.graph import OperatorGraph
from placewright.io.problem_file import problem_hash
from placewright.io.result_json import channel_use, device_use
from placewright.measurement import Measurement
from placewright.problem import Problem, Times

__all__ = ["evaluation_to_json", "runs_to_json", "times_to_json", "verdict_to_json"]


def evaluation_to_json(problem: Problem, evaluation: Evaluation) -> dict[str, Any]:
    """Return what ``placewright evaluate --json`` prints."""
    return {
        "schema": "placewright/evaluation/1",
        "problem": _named(problem),
        "value_s": evaluation.value_s if math.isfinite(evaluation.value_s) else None,
        "feasible": evaluation.feasible,
        "violations": list(evaluation.violations),
        "devices": [msgspec.to_builtins(device_use(use)) for use in evaluation.devices],
        "channels": [msgspec.to_builtins(channel_use(use)) for use in evaluation.channels],
    }


def verdict_to_json(problem: Problem, violations: Sequence[str]) -> dict[str, Any]:
    """Return what ``placewright verify --json`` prints."""
    return {
        "schema": "placewright/verdict/1",
        "problem": _named(problem),
        "legal": not violations,
        "violations": list(violations),
    }


def runs_to_json(problem: Problem, measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Return what ``placewright run --json`` prints: the plan's measurement first."""
    return {
        "schema": "placewright/runs/1",
        "problem": _named(problem),
        "measurements": [_measurement(m) for m in measurements],
    }


def _named(problem: Problem) -> dict[str, str]:
    return {"name": problem.name, "hash": problem_hash(problem)}


def _measurement(measurement: Measurement) -> dict[str, Any]:
    first, third = measurement.quartiles_s
    return {
        "name": measurement.name,
        "predicted_s": measurement.predicted_s,
        "median_s": measurement.median_s,
        "quartiles_s": [first, third],
        "prediction_error": measurement.prediction_error,
        "max_relative_error": None if math.isnan(measurement.max_relative_error) else measurement.max_relative_error,
        "runs_s": list(measurement.runs_s),
    }


def times_to_json(graph: OperatorGraph, cluster: Cluster, times: Times) -> dict[str, Any]:
    """Return what ``placewright profile --json`` prints; ``null`` where a device can't run an operator."""
    devices = [d.name for d in cluster.devices]
    return {
        "schema": "placewright/times/1",
        "source": times.source,
        "processing_s": {
            v.name: {d: s if math.isfinite(s) else None for d, s in zip(devices, row, strict=True)}
            for v, row in zip(graph.operators, times.processing_s.tolist(), strict=True)
        },
    }
