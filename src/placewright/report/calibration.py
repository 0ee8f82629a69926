"""What a calibration measured, with the curve before and after it."""

from __future__ import annotations

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from placewright.costs.calibrate import Calibration
from placewright.report.terminal_parts import facts_of, seconds_of, spaced, table_of, text_of

__all__ = ["calibration_report"]


def calibration_report(found: Calibration) -> RenderableType:
    """Show each operator that was measured, what the curve said before, and what the corrected one says."""
    facts = [
        ("device", f"{found.device.name}, by {found.runtime}"),
        ("overhead of an operator", seconds_of(found.launch_overhead_s)),
        ("median error before", _median_error(found.before_s, found.measured_s)),
        ("median error after", _median_error(found.after_s, found.measured_s)),
    ]
    table = table_of("operators")
    table.add_column("operator", overflow="fold")
    for heading in ("measured", "before", "after", "error after"):
        table.add_column(heading, justify="right", no_wrap=True)
    columns = (found.measured_s.tolist(), found.before_s.tolist(), found.after_s.tolist())
    for trial, measured, before, after in zip(found.trials, *columns, strict=True):
        times = (Text(seconds_of(s)) for s in (measured, before, after))
        table.add_row(text_of(trial.name), *times, Text(f"{after / measured - 1:+.0%}"))
    return spaced([facts_of(facts), table])


def _median_error(predicted: np.ndarray, measured: np.ndarray) -> str:
    return f"{float(np.median(np.abs(predicted / measured - 1))):.0%}"
