"""Reports of plans for the throughput: loads over all copies, the copies, and what the sentences compare."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

import placewright as pw
from placewright.evaluate import Evaluation, evaluate, judge, plan_for
from placewright.report import evaluation_report, explain, html_report, plan_report, trace_json
from placewright.report.copies import CopyUse, copies_of, places_text
from placewright.report.perfetto import ALONE

ALTERNATIVES = {"data-parallel": 4 / 3, "model-parallel": 2.5, "only fast": 2.0, "only slow": 4.0}


def problem(**options: object) -> pw.Problem:
    """Two operators of 4 B and 1 s each on the fast device, 2 s on the slow one; x takes 8 B / (16 B/s) = 0.5 s."""
    operators = [pw.Operator("a", weight_bytes=4), pw.Operator("b", weight_bytes=4)]
    if options.pop("backward", False):
        operators.append(pw.Operator("b'", backward=True))
    graph = pw.OperatorGraph(operators, [pw.Tensor("x", 0, (1,), 8)])
    pair = pw.Cluster([pw.Device("fast"), pw.Device("slow")], [pw.Link(0.0, 16.0, link_class="same-host")])
    return pw.Problem(graph, pair, [[1.0, 2.0]] * len(operators), pw.Throughput(**options), name="two")


def planned(given: pw.Problem, *copies: pw.Copy) -> tuple[pw.Result, Evaluation]:
    """The plan of the copies, with a bound of 1.25 s and what other ways make."""
    plan = plan_for(given, copies[0].device_of, copies=copies, provenance=pw.Provenance("by-hand", seed=3))
    assert plan is not None
    found = pw.Result(plan, 1.25, "", 1.5, "by-hand", {"fractional-load": 1.25}, ALTERNATIVES)
    return found, judge(given, plan)


def shown(renderable: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def test_the_terminal_shows_loads_over_all_copies_and_the_copies() -> None:
    """Three quarters at 2 s and a quarter with a alone: 1.75 s and 0.25 x 0.5 s out on fast; 0.5 and 0.125 on slow."""
    given = problem()
    result, judged = planned(given, pw.Copy([0, 0], 3.0), pw.Copy([0, 1], 1.0))
    text = shown(plan_report(given, result, judged))
    assert " fast             2   1.88 s    100%    1.75 s        -   125 ms" in text
    assert " slow             1   625 ms   33.3%    500 ms   125 ms        -" in text
    assert " 1     75%   all on fast\n 2     25%   1 on fast, 1 on slow" in text
    assert " value             1.88 s a sample, 0.533 samples/s" in text


def test_no_more_than_twelve_copies_are_listed() -> None:
    """Sixteen placements of four operators: twelve rows, and how many more there are."""
    graph = pw.OperatorGraph([pw.Operator(v) for v in "abcd"])
    pair = pw.Cluster([pw.Device("d0"), pw.Device("d1")], [pw.Link(0.0, 16.0, link_class="same-host")])
    given = pw.Problem(graph, pair, [[1.0, 1.0]] * 4, pw.Throughput("any"))
    result, judged = planned(given, *(pw.Copy([k >> v & 1 for v in range(4)], 1.0) for k in range(16)))
    text = shown(plan_report(given, result, judged))
    assert "\n 12    6.2%   3 on d1, 1 on d0\n ... and 4 placements more\n" in text and "\n 13 " not in text


@pytest.mark.parametrize(
    ("copies", "says"),
    [
        # 4/3 s is what data-parallel takes.
        (
            [pw.Copy([0, 0], 2.0), pw.Copy([1, 1], 1.0)],
            [
                "Each device has the whole network and its share of the samples: 'fast' 66.7% and 'slow' 33.3%.",
                "this plan makes as many as data-parallel.",
            ],
        ),
        # 1.875 / (4/3) = 1.406
        (
            [pw.Copy([0, 0], 3.0), pw.Copy([0, 1], 1.0)],
            [
                "2 copies of the network share the samples; 1 of 2 operators is held by several devices.",
                "data-parallel makes 40.6% more than this plan.",
            ],
        ),
        ([pw.Copy([0, 1], 1.0)], ["One copy of the network takes all samples.", "data-parallel makes 87.5% more"]),
    ],
)
def test_sentences_say_what_copies_have_in_common_and_compare_fairly(copies: list[pw.Copy], says: list[str]) -> None:
    """A plan below the best baseline is told so, one that equals it too."""
    given = problem()
    result, judged = planned(given, *copies)
    text = " ".join(explain(given, result, judged))
    for sentence in says:
        assert sentence in text


def test_what_synchronising_takes_is_told() -> None:
    """2 (2 - 1) / 2 x 8 B / (16 B/s) = 0.5 s a sample on both devices."""
    given = problem(backward=True)
    result, judged = planned(given, pw.Copy([0, 0, 0], 2.0), pw.Copy([1, 1, 1], 1.0))
    assert "To keep their weights equal, a device needs up to 500 ms a sample." in explain(given, result, judged)
    assert "compute + in + out + sync" in shown(plan_report(given, result, judged))


def test_the_page_has_a_row_for_each_copy_and_its_timeline_is_the_first_ones() -> None:
    """Two rows with shares; the time line names one sample through the first copy, and so does the trace."""
    given = problem()
    result, judged = planned(given, pw.Copy([0, 0], 3.0), pw.Copy([0, 1], 1.0))
    page = html_report(given, result, judged)
    assert (
        '<th scope="row">copy 1</th><td data-label="share">75%</td><td data-label="operators">all on fast</td>' in page
    )
    assert '<th scope="row">copy 2</th><td data-label="share">25%</td>' in page
    assert "One sample alone through the first copy" in page and "Load of a sample over all copies" in page
    about = json.loads(trace_json(given, result.require_plan()))["otherData"]
    assert about["shows"] == ALONE


def test_broken_rules_count_copies_as_reports_do() -> None:
    """The second copy sends x to a device that no link reaches."""
    graph = pw.OperatorGraph([pw.Operator("a"), pw.Operator("b")], [pw.Tensor("x", 0, (1,), 8)])
    given = pw.Problem(graph, pw.Cluster([pw.Device("d0"), pw.Device("d1")]), [[1.0, 1.0]] * 2, pw.Throughput())
    judged = evaluate(given, [0, 0], copies=[pw.Copy([0, 0], 0.5), pw.Copy([0, 1], 0.5)])
    assert judged.violations == (
        "copy 2: tensor 'x' must go from 'd0' to 'd1', which no link joins; add a link or place its reader elsewhere",
    )
    assert "copy 2: tensor 'x' must go" in shown(evaluation_report(given, judged))


def test_devices_of_a_copy_are_named_in_the_order_of_the_network() -> None:
    """Not in the order of the cluster; of many only four."""
    given = problem()
    result, _ = planned(given, pw.Copy([1, 0], 1.0))
    assert copies_of(given, result.require_plan()) == [CopyUse(1.0, (("slow", 1), ("fast", 1)))]
    assert places_text(CopyUse(1.0, tuple((f"d{i}", 1) for i in range(6)))).endswith("1 on d3, and 2 devices more")
