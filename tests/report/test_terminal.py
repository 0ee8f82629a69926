"""Terminal reports as a pipe receives them."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate
from placewright.measurement import Measurement
from placewright.report import (
    cluster_report,
    comparison_table,
    demo_table,
    doctor_table,
    evaluation_report,
    plan_report,
    solvers_table,
    verify_report,
)
from placewright.result import Result

from .two_branches import MiB, measured, problem, solved


def rendered(renderable, width=80, encoding="utf-8"):
    """What a pipe gets: no colours, no control codes."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    Console(file=stream, width=width).print(renderable)
    stream.flush()
    return raw.getvalue().decode(encoding)


def rows_of(text, first):
    return [line.split() for line in text.splitlines() if line.strip().startswith(first)]


@pytest.fixture(scope="module")
def example():
    given = problem(Device("fast", memory_bytes=8 * MiB), Device("slow"))
    result, judged = solved(
        given, [0, 1, 0, 0], bound=0.005, bounds={"path": 0.005, "load": 0.004},
        alternatives={"only fast": 0.006, "only slow": 0.012, "heft": float("inf")},
    )  # fmt: skip
    return given, result, judged


def test_a_plan_is_reported_with_value_bound_gap_and_origin(example):
    """6.022 ms, bound 5 ms: gap 17%; status, solver, time and seed beside them."""
    text = rendered(plan_report(*example))
    assert rows_of(text, "value") == [["value", "6.02", "ms"]]
    assert rows_of(text, "lower bound ")[0] == ["lower", "bound", "5", "ms,", "gap", "17%"]
    assert rows_of(text, "solver") == [["solver", "by-hand,", "1.5", "s,", "seed", "3"]]
    assert rows_of(text, "status") == [["status", "feasible"]]
    # fast computes a, c and d: 4 ms of 6.022, receives y; its 3 MiB of weights are 37.5% of 8 MiB, with 2 to 3 kB more.
    assert ["fast", "3", "4", "ms", "66.4%", "1000", "B", "1000", "B"] in rows_of(text, "fast")
    assert rows_of(text, "fast")[1][-3:] == ["8", "MiB", "37.5%"]
    assert rows_of(text, "path") == [["path", "5", "ms", "83%"]]


def test_measured_runs_stand_beside_their_alternatives(example):
    """The plan ran 1.25 times its prediction (error -20%); the device's own run belongs to 'only fast'."""
    given, result, _ = example
    runs = [measured(given, result.plan), Measurement("fast", (0.005, 0.006, 0.007), 0.006)]
    text = rendered(demo_table(result, runs))
    assert rows_of(text, "plan")[0] == ["plan", "6.02", "ms", "1.000", "7.53", "ms", "7.45-7.6", "ms", "-20%"]
    assert rows_of(text, "only fast")[0][2:] == ["6", "ms", "0.996", "6", "ms", "5.5-6.5", "ms", "0%"]
    assert rows_of(text, "heft") == [["heft", "infeasible", "-", "-", "-", "-"]]
    assert rows_of(text, "lower bound") == [["lower", "bound", "5", "ms", "0.830"]]
    assert "gap of the plan: 17% (feasible)" in text


def test_a_comparison_has_a_row_a_solver(example):
    """A bound alone has no value, an infeasible problem neither."""
    text = rendered(comparison_table([("hand", example[1]), ("bound", Result(lower_bound_s=0.002)), ("x", Result())]))
    assert rows_of(text, "hand") == [["hand", "6.02", "ms", "1.0000", "17%", "feasible", "1.5", "s"]]
    assert rows_of(text, "bound") == [["bound", "-", "-", "-", "unknown", "0", "s"]]
    assert rows_of(text, "lower bound") == [["lower", "bound", "5", "ms", "0.8303"]]


def test_a_comparison_tells_values_apart_that_look_the_same_and_what_was_left_out(example):
    """A value and one 0.02 % higher, which three digits don't show; long names of solvers keep to 80 columns."""
    better = example[1]
    plan = better.require_plan()
    worse = replace(better, plan=replace(plan, value_s=plan.value_s * 1.0002))
    rows = [("large-neighbourhood", better), ("heft", worse)]
    text = rendered(comparison_table(rows, {"placeto": "it needs torch"}))
    assert rows_of(text, "heft")[0][:4] == ["heft", "6.02", "ms", "1.0002"]
    assert "- placeto was not run: it needs torch" in text
    assert max(map(len, text.splitlines())) <= 80


def test_nothing_is_wider_than_the_terminal_and_nothing_is_coloured_in_a_pipe(example):
    """Long names are folded at 80 columns; piped text has no escape codes, also where only ASCII can be written."""
    long = [Device("gpu-with-a-very-long-name-" + "x" * 60), Device("slow")]
    given = problem(*long, names=[v * 90 for v in "abcd"])  # type: ignore[arg-type]
    result, judged = solved(given, [0, 1, 0, 0], bound=0.001, bounds={"b" * 99: 0.001}, alternatives={"h" * 99: 0.1})
    for encoding in ("utf-8", "ascii"):
        text = rendered(plan_report(given, result, judged, [measured(given, result.plan)]), encoding=encoding)
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text
        assert text.count("x" * 10) > 1


def test_names_are_neither_markup_nor_control_codes():
    """A name such as [red] stays as it is, and an escape code in it does not reach the terminal."""
    given = problem(Device("[red]"), Device("\x1b[31mslow"))
    text = rendered(plan_report(given, *solved(given, [0, 1, 0, 0])))
    assert "[red]" in text
    assert "?[31mslow" in text
    assert "\x1b" not in text


def test_a_judgement_lists_every_broken_rule():
    """4 MiB of weights on 2 MiB."""
    given = problem(Device("fast", memory_bytes=2 * MiB), Device("slow"))
    text = rendered(evaluation_report(given, evaluate(given, [0, 0, 0, 0])))
    assert "breaks 1 rule" in text
    assert "device 'fast' needs 4" in " ".join(text.split())


def test_a_check_reports_what_it_found():
    """Nothing found and two things found read differently."""
    assert rendered(verify_report([])).startswith("verified")
    assert [line.strip() for line in rendered(verify_report(["one", "two"])).splitlines()] == [
        "2 violations found", "- one", "- two",
    ]  # fmt: skip


def test_a_cluster_is_listed_with_its_links_and_cut_off_when_large():
    """40 devices: 32 are shown and the rest counted."""
    devices = [Device(f"d{k}", memory_bytes=2**30, flops_per_s={"fp16": 2e12, "fp32": 1e12}) for k in range(40)]
    links = [
        Link(1e-5, 12e9, link_class="same-host", channel="pcie"),
        Link(0, 5e10, between=("d0", "d1"), one_way=True),
    ]
    text = rendered(cluster_report(Cluster(devices, links)))
    assert rows_of(text, "d31 ") == [["d31", "gpu", "local", "-", "1", "GiB", "2", "TFLOP/s", "fp16"]]
    assert "d32" not in text
    assert "... and 8 devices more" in text
    assert rows_of(text, "same-host") == [["same-host", "12", "GB/s", "10", "us", "pcie"]]
    assert "d0 -> d1" in text


def test_a_link_with_points_is_told_by_what_a_large_tensor_gets():
    """64 MiB at 1 ms for the first kB and 64 GB/s beyond it: 2.05 ms, 32.8 GB/s in all; no time at all is no limit."""
    devices = [Device(name) for name in "abcd"]
    links = [
        Link(0.0, 64e9, between=("a", "b"), points=((1000, 1e-3),)),
        Link(1e-6, 1650e9, between=("a", "c")),
        Link(1e-6, float("inf"), between=("a", "d")),
        Link(0.0, float("inf"), between=("b", "c"), points=((1000, 0.0),)),
    ]
    text = rendered(cluster_report(Cluster(devices, links)))
    assert [rows_of(text, f"{pair[0]} - {pair[1]}")[0][3:-3] for pair in ("ab", "ac", "ad", "bc")] == [
        ["32.8", "GB/s", "at", "64", "MiB"],
        ["1,650", "GB/s"],
        ["no", "limit"],
        ["no", "limit"],
    ]


def test_plain_tables_show_their_rows():
    """Solvers and the doctor's findings."""
    assert rows_of(rendered(solvers_table([("heft", "heuristic", "lists")])), "heft") == [
        ["heft", "heuristic", "lists"]
    ]
    assert rows_of(rendered(doctor_table([("onnx", "absent", "pip install")])), "onnx") == [
        ["onnx", "absent", "pip", "install"]
    ]


def test_a_result_without_a_plan_is_reported():
    """Infeasible: the reason, and no tables."""
    text = rendered(plan_report(problem(), Result(infeasible="too big"), None))
    assert "There is no plan: too big." in text
    assert "devices\n" not in text
