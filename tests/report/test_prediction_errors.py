"""The table of where a prediction was off: in a terminal, on a page, as JSON."""

from __future__ import annotations

import io
import json

from rich.console import Console

from placewright.prediction_errors import DeviceSeconds, Piece, PredictionErrors
from placewright.report import prediction_errors_report, prediction_errors_to_json
from placewright.report.prediction_errors import explain_prediction_errors, prediction_errors_html

PATH = (
    Piece("compute", "<gpu>", "a", 2.5, 2.0),
    Piece("transfer", "<gpu>", "x", 2.25, 1.0, "cpu"),
    Piece("wait", "cpu", "", 0.25, 0.0),
    Piece("compute", "cpu", "b", 3.0, 3.0),
)
GPU = DeviceSeconds(
    "<gpu>",
    {"compute": 2.5, "handover": 0.0, "transfer": 2.25, "wait": 5.5},
    {"compute": 2.0, "handover": 0.0, "transfer": 1.0, "wait": 4.0},
)
CPU = DeviceSeconds(
    "cpu",
    {"compute": 7.0, "handover": 0.0, "transfer": 0.0, "wait": 1.0},
    {"compute": 4.0, "handover": 0.0, "transfer": 0.0, "wait": 2.0},
)
WORST = (Piece("compute", "cpu", "c", 4.0, 1.0), PATH[1], PATH[0])
FOUND = PredictionErrors(8.0, 6.0, PATH, (GPU, CPU), WORST, clock_error_s=2e-4)


def test_the_table_in_a_terminal() -> None:
    """Over the run and on the path, the path's shares of the error, and what was most off; all within 80 columns."""
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(prediction_errors_report(FOUND))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    for row in (
        "<gpu> computing 2.5 s 2 s 2.5 s 2 s 25%",
        "sending 2.25 s 1 s 2.25 s 1 s 62.5%",
        "waiting 5.5 s 4 s - - -",
        "cpu computing 7 s 4 s 3 s 3 s 0%",
        "waiting 1 s 2 s 250 ms 0 s 12.5%",
        "the path 8 s 6 s 100%",
        "c cpu 4 s 1 s +3 s",
        "x to cpu <gpu> 2.25 s 1 s +1.25 s",
    ):
        assert row in lines
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_what_explains_most_comes_first_and_small_errors_are_not_explained() -> None:
    """62.5 % sending, 25 % computing, 12.5 % waiting; a run that is 1 % off needs no reasons."""
    first, *reasons, last = explain_prediction_errors(FOUND)
    assert first == "The run took 8 s, 33.3% more than the 6 s of the plan's schedule."
    assert [r.partition(" explains ")[2][:5] for r in reasons] == ["62.5%", "25% o", "12.5%"]
    assert last == "The clocks of the hosts agree to within 200 us."
    near = PredictionErrors(6.06, 6.0, PATH, (GPU, CPU), WORST)
    assert len(explain_prediction_errors(near)) == 1


def test_json_holds_every_number() -> None:
    """Shares sum to 1; there is none of an error of 0, and no table where there is nothing to tell."""
    made = json.loads(json.dumps(prediction_errors_to_json(FOUND)))
    assert sum(row["share_of_error"] for row in made["by_kind"]) == 1.0
    assert sum(row["on_path"]["share_of_error"] for row in made["devices"]) == 1.0
    assert made["path"][1] == {
        "kind": "transfer", "device": "<gpu>", "name": "x", "to": "cpu", "measured_s": 2.25, "predicted_s": 1.0,
    }  # fmt: skip
    exact = prediction_errors_to_json(PredictionErrors(6.0, 6.0, PATH[3:], (CPU,), ()))
    assert exact is not None and exact["by_kind"][0]["share_of_error"] is None
    assert prediction_errors_to_json(None) is None


def test_names_reach_the_page_escaped() -> None:
    """They come from files."""
    page = prediction_errors_html(FOUND)
    assert "<gpu>" not in page and page.count("&lt;gpu&gt;") >= 3
