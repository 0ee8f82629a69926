"""The JSON objects of commands whose outcome is no search: an evaluation, a profile, measured runs."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from placewright.cluster import Cluster
from placewright.evaluate import Evaluation
from placewright.graph import OperatorGraph
from placewright.io.problem_file import problem_hash
from placewright.io.result_json import device_use
from placewright.measurement import Measurement
from placewright.problem import Problem, Times

__all__ = ["evaluation_to_json", "measurement_to_json", "times_to_json"]


def evaluation_to_json(problem: Problem, evaluation: Evaluation) -> dict[str, Any]:
    """Return what ``placewright evaluate --json`` prints."""
    return {
        "schema": "placewright/evaluation/1",
        "problem": {"name": problem.name, "hash": problem_hash(problem)},
        "value_s": evaluation.value_s if math.isfinite(evaluation.value_s) else None,
        "feasible": evaluation.feasible,
        "violations": list(evaluation.violations),
        "devices": [msgspec.to_builtins(device_use(use)) for use in evaluation.devices],
    }


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    """Return one entry of what ``placewright run --json`` prints."""
    first, third = measurement.quartiles_s
    return {
        "name": measurement.name,
        "predicted_s": measurement.predicted_s,
        "median_s": measurement.median_s,
        "quartiles_s": [first, third],
        "prediction_error": measurement.prediction_error,
        "max_relative_error": measurement.max_relative_error,
        "runs_s": list(measurement.runs_s),
    }


def times_to_json(graph: OperatorGraph, cluster: Cluster, times: Times) -> dict[str, Any]:
    """Return operator -> device -> seconds; ``null`` where a device can't run it."""
    devices = [d.name for d in cluster.devices]
    return {
        "source": times.source,
        "processing_s": {
            v.name: {d: s if math.isfinite(s) else None for d, s in zip(devices, row, strict=True)}
            for v, row in zip(graph.operators, times.processing_s.tolist(), strict=True)
        },
    }
