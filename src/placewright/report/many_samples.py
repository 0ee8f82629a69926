"""What many samples through a plan came to: time per sample beside the predicted one, devices, and training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from placewright.report.listing import counted
from placewright.report.terminal_parts import sentences_of, spaced, table_of, text_of
from placewright.units import format_seconds

if TYPE_CHECKING:
    from placewright.execute.pipeline.outcome import ManySamples, Trained

__all__ = ["many_samples_report"]

SAME = 1e-5
"""Weights that differ by no more are equal but for rounding."""


def many_samples_report(outcome: ManySamples) -> RenderableType:
    """Show what each device did, and the times."""
    table = table_of("devices")
    table.add_column("device")
    table.add_column("samples", justify="right")
    table.add_column("computing a sample", justify="right")
    table.add_column("most at a time", justify="right")
    for share in outcome.shares:
        table.add_row(
            text_of(share.device),
            Text(str(share.samples)),
            Text("-" if math.isnan(share.busy_s) else format_seconds(share.busy_s)),
            Text(str(share.most_kept)),
        )
    return spaced([table, sentences_of(_sentences(outcome))])


def _sentences(outcome: ManySamples) -> list[str]:
    low, high = format_seconds(min(outcome.steady_s)), format_seconds(max(outcome.steady_s))
    spread = f"median of {len(outcome.steady_s)} runs, {low} to {high}" if len(outcome.steady_s) > 1 else "one run"
    trained, predicted = outcome.trained, format_seconds(outcome.predicted_s)
    told = [outcome.note] if outcome.note else []
    what = {"forward": "through the pipeline", "gpipe": "trained in GPipe's order", "1f1b": "trained in the order 1F1B"}
    told.append(
        f"{outcome.samples} samples {what[outcome.schedule]}, at most {outcome.in_flight} in flight"
        f"{', run by torch.distributed.pipelining' if outcome.engine == 'torch' else ''}."
    )
    if trained is None:
        told.append(f"{format_seconds(outcome.median_s)} a sample in steady state ({spread}); predicted {predicted}.")
        if math.isnan(outcome.max_relative_error):
            told.append("The weights are not all real, so outputs were not compared with the unsplit network's.")
        else:
            told.append(
                "Outputs of every sample equal the unsplit network's (largest relative difference "
                f"{outcome.max_relative_error:.2g})."
            )
        return told
    told.append(
        f"{format_seconds(outcome.median_s)} a sample, forward and backward, filling and draining included ({spread}); "
        f"the forward pass alone was predicted to take {predicted} a sample."
    )
    losses = " -> ".join(f"{loss:.6g}" for loss in (trained.losses[0], *trained.losses[1:][-1:]))
    told.append(f"Mean loss, with a step of {trained.optimiser} after each run: {losses}.")
    if math.isnan(trained.gradient_error):
        told.append("The weights are not all real, so gradients were not compared with the unsplit network's.")
    else:
        told.append(
            f"Gradients equal the unsplit network's (largest relative difference {trained.gradient_error:.2g}); after "
            f"{counted(len(outcome.runs_s), 'step')} the weights differ by {trained.weight_error:.2g} of their largest"
            + (", since adam divides gradients that are mere rounding by their size." if _amplified(trained) else ".")
        )
    return told


def _amplified(trained: Trained) -> bool:
    return trained.optimiser == "adam" and trained.weight_error > SAME
