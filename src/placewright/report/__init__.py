"""Reports of a result: for a terminal, as one HTML page, and as a trace for Perfetto."""

from placewright.report.calibration import calibration_report
from placewright.report.explain import explain, explain_value
from placewright.report.generation import generation_report, generation_to_json
from placewright.report.html import html_report
from placewright.report.links import links_report
from placewright.report.many_samples import many_samples_report
from placewright.report.perfetto import trace, trace_json
from placewright.report.prediction_errors import prediction_errors_report, prediction_errors_to_json
from placewright.report.sensitivity import sensitivity_report, sensitivity_to_json
from placewright.report.terminal import (
    answers_report,
    cluster_report,
    comparison_table,
    demo_table,
    doctor_table,
    evaluation_report,
    plan_report,
    profile_report,
    solvers_table,
    verify_report,
)

__all__ = [
    "answers_report",
    "calibration_report",
    "cluster_report",
    "comparison_table",
    "demo_table",
    "doctor_table",
    "evaluation_report",
    "explain",
    "explain_value",
    "generation_report",
    "generation_to_json",
    "html_report",
    "links_report",
    "many_samples_report",
    "plan_report",
    "prediction_errors_report",
    "prediction_errors_to_json",
    "profile_report",
    "sensitivity_report",
    "sensitivity_to_json",
    "solvers_table",
    "trace",
    "trace_json",
    "verify_report",
]
