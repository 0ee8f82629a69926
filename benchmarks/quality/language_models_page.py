"""The page of the benchmark of language models: what was compared, two tables, and what is gained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["DOES_NOT_FIT", "OTHERS", "WAYS", "gains", "page", "table"]

WAYS = ("auto", "balanced", "llama.cpp", "exo", "equal", "one device")
OTHERS = WAYS[:-1]
"""Splits; one device is no rival where it has no room, and an easy one where it has."""

DOES_NOT_FIT = "does not fit"


def page(rows: Sequence[dict[str, Any]], budget: float) -> str:
    """Markdown of all rows."""
    one = [row for row in rows if row["objective"] == "makespan"]
    many = [row for row in rows if row["objective"] == "max-load"]
    return (
        Path(__file__)
        .with_name("language_models_explained.md")
        .read_text()
        .format(
            budget=budget,
            latency=table(one, "ours"),
            latency_gains=gains(one),
            throughput=table(many, "ours, steps/s"),
            throughput_gains=gains(many),
        )
    )


def table(rows: Sequence[dict[str, Any]], heading: str) -> str:
    """One line a cell: ours, devices used and gap, and what the others take."""
    rates = "/s" in heading
    lines = [
        f"| model | cluster | {heading} | devices | gap | " + " | ".join(WAYS) + " |",
        "|---" * (5 + len(WAYS)) + "|",
    ]
    for row in rows:
        begin = f"| {row['model']} | {row['cluster']} | "
        if row["value_s"] is None:
            lines.append(f"{begin}{DOES_NOT_FIT} |" + " |" * (2 + len(WAYS)))
            continue
        others = [_other(row[way], row["value_s"], rates) for way in WAYS]
        ours = f"{_figure(row['value_s'], rates)} | {row['devices']} | {100 * row['gap']:.1f} %"
        lines.append(f"{begin}{ours} | {' | '.join(others)} |")
    return "\n".join(lines)


def _figure(seconds: float, rates: bool) -> str:
    return f"{1 / seconds:.3g}" if rates else f"{1e3 * seconds:,.0f} ms" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _other(found: float | str, ours: float, rates: bool) -> str:
    if isinstance(found, str):
        return found
    return f"{_figure(found, rates).removesuffix(' ms')} ({100 * (found / ours - 1):+.0f} %)"


def gains(rows: Sequence[dict[str, Any]]) -> str:
    """How much less time ours take than each other, and than the best of the splits in each cell."""
    lines = ["| against | cells | median | least | most | does not fit |", "|---" * 6 + "|"]
    for way in (*WAYS, "the best split"):
        found, without = [], 0
        for row in rows:
            given = [row[w] for w in OTHERS] if way == "the best split" else [row[way]]
            known = [value for value in given if isinstance(value, float)]
            if known:
                found.append(100 * (1 - row["value_s"] / min(known)))
            without += not known and DOES_NOT_FIT in given and row["value_s"] is not None
        if found:
            shares = " | ".join(f"{share:.1f} %" for share in (median(found), min(found), max(found)))
            lines.append(f"| {way} | {len(found)} | {shares} | {without} |")
    return "Less time than the others:\n\n" + "\n".join(lines)
