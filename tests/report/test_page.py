"""The page in a real browser, without a network: it draws, keys do what the help says, only its script runs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate, plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.problem import Problem
from placewright.report import html_report
from placewright.result import Result

from .chromium import BROWSER, Browser
from .test_html import EVIL
from .two_branches import measured, problem, solved

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here")

MODULES = ("net.head.in", "net.left.conv", "net.right.conv", "net.head.out")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    given = problem(names=MODULES)  # type: ignore[arg-type]
    result, judged = solved(given, [0, 1, 0, 0], bound=0.005, bounds={"path": 0.005}, alternatives={"heft": 0.007})
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(html_report(given, result, judged, [measured(given, result.plan)]), encoding="utf-8")
    return path


def large(n: int = 10_000) -> str:
    """A chain of n operators in modules of 100, on two devices in turn, every operator measured."""
    operators = [Operator(f"model.layers.{k // 100}.experts.{k % 100}.down", "linear") for k in range(n)]
    tensors = [Tensor(f"t{k}", k, (k + 1,), 4096) for k in range(n - 1)]
    cluster = Cluster([Device("gpu0"), Device("gpu1")], [Link(1e-6, 1e10, link_class="same-host")])
    given = Problem(OperatorGraph(operators, tensors, name="large"), cluster, np.full((n, 2), 1e-4))
    placement = [k // 50 % 2 for k in range(n)]
    plan = plan_for(given, placement)
    assert plan is not None
    return html_report(given, Result(plan), evaluate(given, placement), [measured(given, plan)])


def colours_of(browser, canvas):
    """Number of different colours on a canvas."""
    return browser.value(
        f"(() => {{ const c = document.getElementById('{canvas}'); "
        "const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer); "
        "return new Set(d).size; })()"
    )


def said(browser, where):
    return browser.value(f"document.getElementById('{where}').textContent")


def fresh(browser, page, *size, **rest):
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page, *size, **rest)


def test_the_page_draws_without_a_network_and_without_complaints(browser, page):
    """It asks for itself alone; timeline and map have the colours of two devices, ink, and what lies between."""
    fresh(browser, page)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert colours_of(browser, "timeline-view") > 5
    assert colours_of(browser, "map-view") > 3


def test_the_map_is_walked_and_zoomed_by_keys_and_the_timeline_follows(browser, page):
    """M goes there, right chooses, Enter looks inside and all else in the timeline is dimmed, Escape goes back.

    The head's operators come first: net.head holds 2 of the 4, 1 + 1 of the 8 ms.
    """
    fresh(browser, page)
    browser.press("m")
    browser.press("ArrowRight")
    assert said(browser, "module").startswith(
        "net.head \u00b7 2 operators, 2 ms, 2 MiB of weights and cache \u00b7 25%"
    )
    browser.press("ArrowRight")
    assert said(browser, "module").startswith("net.left.conv \u00b7 Conv, 4 ms, 1 MiB of weights and cache \u00b7 50%")
    browser.press("ArrowLeft")
    browser.press("Enter")
    assert browser.value("placewright.root()") == "net.head"
    assert browser.value("[...placewright.state.focus]") == [1, 0, 0, 1]
    assert said(browser, "module").startswith("net.head.in \u00b7 Conv")
    browser.press("Escape")
    assert browser.value("placewright.root()") == "fork"
    assert browser.value("placewright.state.focus") is None
    assert browser.complaints == []


def test_the_timeline_is_walked_and_zoomed_by_keys(browser, page):
    """L goes there; right goes from bar to bar of a row, down to the row below; + halves what is seen."""
    fresh(browser, page)
    browser.press("l")
    whole = browser.value("placewright.view()")
    browser.press("ArrowRight")
    assert said(browser, "picked").startswith("net.head.in \u00b7 Conv on fast \u00b7 0 s to 1 ms")
    browser.press("ArrowRight")
    assert said(browser, "picked").startswith("net.right.conv \u00b7 Conv on fast \u00b7 1 ms to 3 ms")
    browser.press("ArrowDown")
    assert said(browser, "picked").startswith("transfer of x \u00b7 fast to slow")
    browser.press("+")
    near = browser.value("placewright.view()")
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    browser.press("0")
    assert browser.value("placewright.view()") == pytest.approx(whole)
    assert browser.complaints == []


def test_the_theme_follows_the_system_and_a_key(browser, page):
    """Dark where the system is dark; T goes on to dark, light, and back to the system's."""
    back = "getComputedStyle(document.body).backgroundColor"
    fresh(browser, page, scheme="light")
    light = browser.value(back)
    browser.press("t")
    dark = browser.value(back)
    assert light != dark
    browser.press("t")
    assert browser.value(back) == light
    fresh(browser, page, scheme="dark")
    assert browser.value(back) == light, "what was chosen is kept"
    browser.press("t")
    assert (browser.value(back), said(browser, "theme")) == (dark, "Theme: auto")


def test_help_opens_by_a_key_and_closes(browser, page):
    """The question mark shows the keys; Escape closes them."""
    fresh(browser, page)
    browser.press("?")
    assert browser.value("document.getElementById('keys').open")
    browser.press("Escape")
    assert not browser.value("document.getElementById('keys').open")


def test_an_operator_is_found_by_its_name(browser, page):
    """The slash opens the list and waits for a text."""
    fresh(browser, page)
    browser.press("/")
    browser.call("Input.insertText", text="left")
    browser.frame()
    assert said(browser, "count") == "1 of 4 operators"


@pytest.mark.parametrize("width", [360, 3840])
def test_nothing_runs_over_the_edge(browser, page, width):
    """On a small telephone and on a wall the page is as wide as the window."""
    fresh(browser, page, width, 800)
    assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")


def test_hostile_names_are_shown_and_never_run(browser, tmp_path):
    """Names that would close a script, open one, or nest ten thousand modules: the page draws them as text."""
    evil = f'</script>{EVIL}"><img src=x onerror=alert(1)>'
    given = problem(Device("fast" + evil), Device("slow"), names=("a" + evil, "b", "x." * 10_000 + "y", "__proto__.d"))  # type: ignore[arg-type]
    result, judged = solved(given, [0, 1, 0, 0], alternatives={evil: 0.01})
    path = tmp_path / "evil.html"
    path.write_text(html_report(given, result, judged, [measured(given, result.plan)], title=evil), encoding="utf-8")
    fresh(browser, path)
    browser.press("l")
    browser.press("ArrowRight")
    assert evil in said(browser, "picked")
    assert evil in browser.value("document.querySelector('h1').textContent")
    assert browser.value("document.querySelectorAll('img').length + document.scripts.length") == 2
    assert browser.complaints == []
    assert browser.requests == [path.as_uri()]


def test_ten_thousand_operators_are_drawn_in_few_strokes(browser, tmp_path):
    """29,999 bars, of which no more are painted than there are columns of pixels in the rows; zoomed in, fewer."""
    path = tmp_path / "large.html"
    path.write_text(large(), encoding="utf-8")
    fresh(browser, path)
    browser.value(
        "window.strokes = 0; const paint = CanvasRenderingContext2D.prototype.fillRect; "
        "CanvasRenderingContext2D.prototype.fillRect = function (...a) { "
        "if (this.canvas.id === 'timeline-view') strokes += 1; paint.apply(this, a); }; 0"
    )
    browser.press("l")
    browser.press("0")
    whole = browser.value("strokes")
    for _ in range(8):
        browser.press("+")
    browser.value("strokes = 0")
    browser.press("+")
    assert 1000 < whole < 12_000
    assert 10 < browser.value("strokes") < 1000
    assert browser.complaints == []


DRAWN = """
window.drawn = new Map();
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  drawn.set(`${this.canvas.id} ${x} ${y}`, [this.canvas.id, y, x, this.measureText(text).width]);
  return fill.apply(this, arguments);
};
"""


def test_names_on_the_map_end_before_the_next_one_begins(browser, tmp_path):
    """Boxes as narrow as half a name: with 16 layers side by side every name is whole in its box, or cut there."""
    names = [f"net.layers.{k}.{part}" for k in range(16) for part in ("self_attention", "feed_forward")]
    given = Problem(
        OperatorGraph([Operator(name, "MatMul") for name in names]),
        Cluster([Device("fast"), Device("slow")], [Link(1e-5, 1e9, link_class="same-host")]),
        np.full((len(names), 2), 1e-3),
    )
    result, judged = solved(given, [0] * len(names))
    (tmp_path / "names.html").write_text(html_report(given, result, judged), encoding="utf-8")
    added = browser.call("Page.addScriptToEvaluateOnNewDocument", source=DRAWN)["identifier"]
    fresh(browser, tmp_path / "names.html", 1000)
    drawn = [row for row in browser.value("[...drawn.values()]") if row[0] == "map-view"]
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added)
    assert len(drawn) > 32
    rows: dict[float, list[tuple[float, float]]] = {}
    for _, y, x, width in drawn:
        rows.setdefault(y, []).append((x, width))
    for row in rows.values():
        row.sort()
        assert all(x + width <= after for (x, width), (after, _) in pairwise(row)), row


def test_on_a_telephone_nothing_is_listed_that_has_no_value(browser, page):
    """Only the plan was measured: the rows of other placements have no lines for it there, and have cells elsewhere."""
    seen = "[...document.querySelectorAll('td.absent')].map((cell) => cell.getClientRects().length)"
    fresh(browser, page, 390)
    assert set(browser.value(seen)) == {0}
    fresh(browser, page)
    assert set(browser.value(seen)) == {1}
