"""Cluster, problem and plan files, and the JSON object of a result."""

from placewright.io.any_description import read_description
from placewright.io.any_problem import FoundProblem, read_any_problem
from placewright.io.cluster_file import cluster_from_text, read_cluster
from placewright.io.cluster_writing import cluster_to_text, write_cluster
from placewright.io.moirai_sheet import MoiraiSheet, read_moirai
from placewright.io.other_json import evaluation_to_json, runs_to_json, times_to_json, verdict_to_json
from placewright.io.partitioning_file import read_partitioning
from placewright.io.partitioning_split import Split, read_split, split_to_json
from placewright.io.partitioning_writing import problem_to_partitioning
from placewright.io.pipedream_file import PipedreamProfile, read_pipedream, speeds_of
from placewright.io.plan_file import PlanFile, read_plan, write_plan
from placewright.io.problem_file import (
    problem_from_json,
    problem_hash,
    problem_to_json,
    problem_to_text,
    read_problem,
    write_problem,
)
from placewright.io.reading import check_writable, write_atomic
from placewright.io.result_json import placement_by_name, result_to_json

__all__ = [
    "FoundProblem",
    "MoiraiSheet",
    "PipedreamProfile",
    "PlanFile",
    "Split",
    "check_writable",
    "cluster_from_text",
    "cluster_to_text",
    "evaluation_to_json",
    "placement_by_name",
    "problem_from_json",
    "problem_hash",
    "problem_to_json",
    "problem_to_partitioning",
    "problem_to_text",
    "read_any_problem",
    "read_cluster",
    "read_description",
    "read_moirai",
    "read_partitioning",
    "read_pipedream",
    "read_plan",
    "read_problem",
    "read_split",
    "result_to_json",
    "runs_to_json",
    "speeds_of",
    "split_to_json",
    "times_to_json",
    "verdict_to_json",
    "write_atomic",
    "write_cluster",
    "write_plan",
    "write_problem",
]
