"""What happened when a plan was run: wall times of the runs and the spans of one of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

__all__ = ["Measurement", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """One thing that a device did in one run, in seconds from the start of the sample."""

    device: str
    name: str
    kind: Literal["compute", "transfer", "wait"]
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measured runs of one placement beside its prediction.

    Attributes
    ----------
    name : str
        What was run: ``plan``, or a device's name for the network on that device alone.
    runs_s : tuple of float
        Wall seconds of each counted run, from the go signal to the last operator's finish.
    predicted_s : float
        What the judge gave the same placement.
    spans : tuple of Span
        Of the run nearest to the median.
    max_relative_error : float
        Largest difference of an output from the unsplit model's, relative to that output's largest magnitude; NaN where
        that could not be run.
    """

    name: str
    runs_s: tuple[float, ...]
    predicted_s: float
    spans: tuple[Span, ...] = ()
    max_relative_error: float = 0.0

    @property
    def median_s(self) -> float:
        """Median of the runs."""
        return statistics.median(self.runs_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """First and third quartile of the runs."""
        if len(self.runs_s) < 2:
            return self.runs_s[0], self.runs_s[0]
        q1, _, q3 = statistics.quantiles(self.runs_s, n=4, method="inclusive")
        return q1, q3

    @property
    def prediction_error(self) -> float:
        """(predicted - measured median) / measured median."""
        return (self.predicted_s - self.median_s) / self.median_s
