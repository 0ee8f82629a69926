"""What many samples through a plan came to: measured beside predicted time per sample, and what was learnt."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ManySamples", "Share", "Trained", "many_of_text", "many_text", "many_to_json", "steady_s"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one device did.

    Attributes
    ----------
    device : str
    samples : int
        That passed it, of those of one run.
    busy_s : float
        Computing for each sample of the run, those included that did not pass here; NaN where it is not known.
    most_kept : int
        Samples that had begun on it and not ended, at most.
    """

    device: str
    samples: int
    busy_s: float
    most_kept: int


@dataclass(frozen=True, slots=True)
class Trained:
    """What training came to.

    Attributes
    ----------
    optimiser : str
    losses : tuple of float
        Mean over the samples, before each step.
    gradient_error : float
        Of the first step: largest over the weights of max |difference| from the unsplit network's gradient, relative to
        the larger of that weight's largest gradient and 1 % of the largest of all. NaN where it can't be compared.
    weight_error : float
        After the last step, of the weights, in the same way.
    """

    optimiser: str
    losses: tuple[float, ...]
    gradient_error: float
    weight_error: float


@dataclass(frozen=True, slots=True)
class ManySamples:
    """Many samples through a plan, counted runs one after the other.

    Attributes
    ----------
    samples, in_flight : int
        Micro-batches of a run, and how many of them were open at a time, at most.
    schedule, engine : str
    predicted_s : float
        Time per sample of the forward pass, as planned.
    steady_s : tuple of float
        Of each run: seconds per sample between the end of filling and the end of the run.
    runs_s : tuple of float
        Wall seconds of each run, filling and draining included.
    max_relative_error : float
        Of the outputs of all samples; NaN where the unsplit network can't be run.
    shares : tuple of Share
    trained : Trained or None
    note : str
        Why the engine is not the one that was asked for.
    """

    samples: int
    in_flight: int
    schedule: str
    engine: str
    predicted_s: float
    steady_s: tuple[float, ...]
    runs_s: tuple[float, ...]
    max_relative_error: float
    shares: tuple[Share, ...]
    trained: Trained | None = None
    note: str = ""

    @property
    def median_s(self) -> float:
        """Median of the seconds per sample."""
        return statistics.median(self.steady_s)


def steady_s(began_s: float, ended_s: Sequence[float], filling: int) -> float:
    """Seconds per sample in steady state, from when each sample ended.

    The first ``filling`` samples are not counted, as long as half of all are left.

    Examples
    --------
    >>> steady_s(0.0, [3.0, 4.0, 5.0, 6.0], 1)  # the pipeline is full when the first has ended: 3 s for 3 samples
    1.0
    """
    ended = sorted(ended_s)
    first = min(filling, len(ended) // 2)
    if not first:
        return (ended[-1] - began_s) / len(ended)
    return (ended[-1] - ended[first - 1]) / (len(ended) - first)


def many_text(outcome: ManySamples) -> str:
    """Write an outcome for the process that started the ranks."""
    return json.dumps(asdict(outcome))


def many_of_text(text: str) -> ManySamples:
    """Read what :func:`many_text` wrote."""
    content = json.loads(text)
    shares = tuple(Share(**share) for share in content.pop("shares"))
    trained = content.pop("trained")
    if trained is not None:
        trained = Trained(**{**trained, "losses": tuple(trained["losses"])})
    content.update(steady_s=tuple(content["steady_s"]), runs_s=tuple(content["runs_s"]))
    return ManySamples(**content, shares=shares, trained=trained)


def many_to_json(outcome: ManySamples) -> dict[str, Any]:
    """Give an outcome as JSON can hold it: what could not be compared is null."""
    content = asdict(outcome)
    for row in (content, content["trained"] or {}):
        for name in ("max_relative_error", "gradient_error", "weight_error"):
            if name in row and not math.isfinite(row[name]):
                row[name] = None
    for share in content["shares"]:
        share["busy_s"] = share["busy_s"] if math.isfinite(share["busy_s"]) else None
    return {**content, "median_s": outcome.median_s}
