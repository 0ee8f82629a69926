"""Reports of a result: for a terminal, as one HTML page, and as a trace for Perfetto."""

from placewright.report.explain import explain
from placewright.report.html import html_report
from placewright.report.perfetto import trace, trace_json
from placewright.report.terminal import (
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
    "cluster_report",
    "comparison_table",
    "demo_table",
    "doctor_table",
    "evaluation_report",
    "explain",
    "html_report",
    "plan_report",
    "profile_report",
    "solvers_table",
    "trace",
    "trace_json",
    "verify_report",
]
