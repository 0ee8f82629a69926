"""The page of a pipeline: its bars are the judge's loads, and its parts are named as what they are."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from placewright.cluster import Device
from placewright.evaluate import evaluate
from placewright.objective import MaxLoad
from placewright.report import html_report, trace
from placewright.report.html_data import timeline
from placewright.report.html_loads import load_chart
from placewright.report.loads import peaks_s, stages_of
from placewright.result import Result

from .pipelines import MiB, chain, gpus, planned, training
from .test_html import EVIL, Page, data_of

PARTS = {"q0": "compute_s", "q1": "in_s", "q2": "out_s", "q3": "sync_s"}


class Chart(HTMLParser):
    """Bars by name: of each block its style, and its left edge and width as shares of the whole."""

    def __init__(self, text):
        super().__init__()
        self.bars, self.marks, self.where = {}, set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        css = (found.get("class") or "").split()
        share = {k: float(v) / 100 for k, v in re.findall(r"(left|width):([\d.]+)%", found.get("style") or "")}
        if css[:1] == ["who"]:
            self.where = "who"
        elif css[:1] == ["block"]:
            self.bars[self.name].append((css[1], share["left"], share["width"]))
        elif css[:1] in (["bound"], ["passes"]):
            self.marks.add((css[0], share["left"]))

    def handle_data(self, data):
        if self.where == "who":
            self.name = data.strip()
            self.bars[self.name] = []
            self.where = ""


def chart_of(given_, result, judged):
    return Chart(load_chart(given_, result, judged, stages_of(given_, judged, result.plan)))


def close(seconds, scale):
    """Widths are written to a thousandth of a percent."""
    return pytest.approx(seconds / scale, abs=1e-5)


@settings(phases=[Phase.explicit, Phase.generate], derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.sampled_from(["sum", "separate"]),
    st.sampled_from([("none", 0.0), ("transfers", 0.0), ("transfers", 0.25), ("full", 0.0), ("full", 0.25)]),
    st.booleans(),
)
def test_the_blocks_of_a_bar_are_the_parts_that_the_judge_gives(forward, mode, overlap, copied):
    """Every part has its width, the bars end at the loads, and the backward part starts at the longest forward one."""
    objective = MaxLoad("any", training=mode, overlap=overlap[0], replicate=copied, busy_share=overlap[1])
    given_ = training(objective, gpus(4))
    replicas = ((forward[0], 3),) if copied else ()
    given_, result, judged = planned(given_, [*forward, *reversed(forward)], replicas=replicas, bound=0.004)
    chart, peaks, value = chart_of(given_, result, judged), peaks_s(judged), judged.value_s
    for stage in stages_of(given_, judged, result.plan):
        blocks = chart.bars[stage.name]
        start = 0.0
        for load, peak in zip(stage.use.loads, peaks, strict=True):
            expected = [(css, getattr(load, part)) for css, part in PARTS.items() if getattr(load, part) > 0]
            shared = [(css, overlap[1] * seconds) for css, seconds in expected if css in ("q1", "q2") and overlap[1]]
            computed = [block for block in expected if block[0] == "q0"]
            expected = computed + shared + expected[len(computed) :]
            mine, blocks = blocks[: len(expected)], blocks[len(expected) :]
            assert [(css, width) for css, _, width in mine] == [(css, close(s, value)) for css, s in expected]
            if mine:
                assert min(left for _, left, _ in mine) == close(start, value)
                assert max(left + width for _, left, width in mine) == close(start + load.load_s, value)
            start += peak
        assert blocks == []
    assert ("bound", round(0.004 / value, 5)) in {(name, round(at, 5)) for name, at in chart.marks}
    assert any(name == "passes" for name, _ in chart.marks) == (mode == "separate")


def test_a_channel_has_its_bar():
    """x, y and z take 2 ms of the 4.5 on it."""
    given_, result, judged = planned(chain(devices=gpus(4), channel="pcie"), [0, 1, 2, 3])
    assert chart_of(given_, result, judged).bars["channel pcie@local"] == [("q4", 0.0, close(0.002, 0.0045))]


def test_the_page_says_what_the_judge_says():
    """222 samples/s at 4.5 ms; at most 231 at 4.32 ms; one sample alone 11.5 ms; stages by number."""
    devices = [*gpus(3, memory_bytes=8 * MiB), Device("cpu0", kind="cpu")]
    example = planned(chain(devices=devices), [0, 0, 1, 2], bound=0.00432)
    text = str(Page(html_report(*example)))
    for expected in (
        "max-load 4.5 ms 222 samples/s in steady state",
        "one sample alone 11.5 ms through the empty pipeline",
        "lower bound 4.32 ms proved: at most 231 samples/s",
        "gpu0 4 ms (88.9%) compute 3 ms, out 1 ms",
        "gpu1 bottleneck 4.5 ms (100%) compute 3 ms, in 1 ms, out 500 us",
        "lower bound 4.32 ms load = compute + in + out; the right edge is the value",
        "Stages in the order of the pipeline",
        "1 gpu0 gpu 2 a b 977 KiB 0 B",
        "cpu0 unused : it is slower at every operator",
        "One sample alone in the empty pipeline",
    ):
        assert expected in text, expected


def test_a_bound_on_the_load_is_not_drawn_among_the_times_of_one_sample():
    """The timeline ends with one sample's 11.5 ms; its rows follow the pipeline, a stage's copies in one."""
    given_, result, judged = planned(chain(), [2, 2, 1, 0], bound=0.004)
    data = timeline(given_, result, judged)
    assert (data["bound"], data["makespan"], data["end"]) == (0, 11.5, "one sample alone")
    assert [r["label"] for r in data["rows"] if r["type"] == "compute"] == ["gpu2", "gpu1", "gpu0"]
    copied = planned(training(MaxLoad(replicate=True)), [0, 0, 2, 2, 0, 0], replicas=((0, 1),))
    rows = data_of(html_report(*copied))["rows"]
    assert [r["label"] for r in rows if r["type"] == "compute"] == ["gpu0, gpu1 (2 copies)", "gpu2"]


def test_names_are_text_in_the_chart_and_the_table():
    """Devices and operators that look like markup do not become markup."""
    given_ = chain(devices=[Device(EVIL), Device(f"b{EVIL}"), Device(f"c{EVIL}", memory_bytes=1)])
    html = html_report(*planned(given_, [0, 0, 0, 1]))
    assert EVIL not in html
    assert str(Page(html)).count(EVIL) >= 5


def test_a_plan_without_loads_has_a_page():
    """All times zero: nothing to draw, nothing divided by zero."""
    from placewright.problem import Problem

    usual = chain()
    nothing = Problem(usual.graph, usual.cluster, [[0.0] * 3] * 4, usual.objective)
    assert "There is no load to draw." in html_report(*planned(nothing, [0, 0, 0, 0]))
    assert "There is no plan: too big." in html_report(nothing, Result(infeasible="too big"), None)


def test_the_trace_is_named_as_one_sample_alone():
    """The makespan's traces say predicted; here the value is no end of the schedule. Copies that idle are left out."""
    given_, result, judged = planned(training(MaxLoad(replicate=True)), [0, 0, 2, 2, 0, 0], replicas=((0, 1),))
    made = trace(given_, result.plan)
    names = [e["args"]["name"] for e in made["traceEvents"] if e["name"] == "process_name"]
    assert names == ["one sample alone: gpu0, gpu1 (2 copies)", "one sample alone: gpu2"]
    assert made["otherData"]["shows"] == "one sample alone"
    assert made["otherData"]["value_s"] == judged.value_s


def test_evaluations_of_other_placements_fit_the_chart_too():
    """A placement that breaks a rule can be drawn."""
    given_ = chain(devices=gpus(3, memory_bytes=MiB))
    judged = evaluate(given_, [0, 0, 1, 2])
    chart = Chart(load_chart(given_, Result(), judged, stages_of(given_, judged)))
    assert [css for css, _, _ in chart.bars["gpu0"]] == ["q0", "q2"]
