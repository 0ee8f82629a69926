"""What happened when a plan was run: wall times of the runs and the spans of one of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

__all__ = ["Measurement", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """One thing that a device did in one run, in seconds from the start of the sample.

    Attributes
    ----------
    device : str
        That computed, waited, or sent.
    name : str
        An operator, or of a call of several the first and the last one; else a tensor.
    kind : str
        ``compute``; ``handover``: the device itself puts a tensor into the form in which it travels, or out of it;
        ``transfer``: from when it was sent to when its receiver had it; ``wait`` for a tensor.
    start_s, finish_s : float
    peer : str
        Of a transfer the receiver, of a wait and of a handover the other device.
    operators : tuple of str
        Of computing all operators, of a handover the one that makes or reads the tensor.
    found : bool
        Whether a transfer's finish is only when its receiver, who came later, found it there.
    """

    device: str
    name: str
    kind: Literal["compute", "handover", "transfer", "wait"]
    start_s: float
    finish_s: float
    peer: str = ""
    operators: tuple[str, ...] = ()
    found: bool = False


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
    clock_error_s : float
        How far the spans of devices on different hosts may be shifted against each other; 0 on one host.
    """

    name: str
    runs_s: tuple[float, ...]
    predicted_s: float
    spans: tuple[Span, ...] = ()
    max_relative_error: float = 0.0
    clock_error_s: float = 0.0

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
