"""Where a prediction was off and why: as tables for a terminal and a page, as sentences, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rich.console import RenderableType

from placewright.prediction_errors import KINDS, Piece, PredictionErrors
from placewright.report.html_parts import sentences, text_table
from placewright.report.listing import percent
from placewright.report.terminal_parts import plain_table, sentences_of, spaced
from placewright.units import format_seconds

__all__ = [
    "explain_prediction_errors",
    "prediction_errors_html",
    "prediction_errors_report",
    "prediction_errors_to_json",
]

WORST = 10
"""So many operators and transfers are shown."""

WORTH = 0.1
"""Share of the error, or of the predicted time, from which something is told."""

NOISE = 1e-12
"""Share of the whole time below which a difference of sums is none."""

WORDS: Mapping[str, str] = MappingProxyType(
    {"compute": "computing", "handover": "handover", "transfer": "sending", "wait": "waiting"}
)

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "compute": "measure the operators on these devices: placewright profile",
        "handover": "state what a cut costs: cut_overhead in the cluster file, or times from placewright profile",
        "transfer": "measure the links: placewright probe",
        "wait": "the ranks waited for what the plan does not know of, or took another order than it has",
    }
)

HEADINGS = ("device", "what", "measured", "predicted", "path, measured", "path, predicted", "share of error")

WORST_HEADINGS = ("operator or transfer", "device", "measured", "predicted", "difference")


def prediction_errors_report(found: PredictionErrors) -> RenderableType:
    """Show what each device did, measured and predicted, in the run and on its critical path, and what was most off."""
    return spaced(
        [
            plain_table("where the prediction was off", HEADINGS, _rows(found)),
            plain_table("most off", WORST_HEADINGS, _worst(found)),
            sentences_of(explain_prediction_errors(found)),
        ]
    )


def prediction_errors_html(found: PredictionErrors) -> str:
    """Give the same for a page."""
    told = f'<ul class="sentences">\n{sentences(explain_prediction_errors(found))}\n</ul>'
    return "\n".join([text_table(HEADINGS, _rows(found)), text_table(WORST_HEADINGS, _worst(found)), told])


def explain_prediction_errors(found: PredictionErrors) -> list[str]:
    """Say by how much the prediction was off, what explains it, and what to do.

    Examples
    --------
    >>> pieces = (Piece("compute", "gpu", "a", 3.0, 2.0), Piece("transfer", "gpu", "x", 1.5, 1.0, "cpu"))
    >>> for line in explain_prediction_errors(PredictionErrors(4.5, 3.0, pieces, (), ())):
    ...     print(line)
    The run took 4.5 s, 50% more than the 3 s of the plan's schedule.
    On its critical path computing explains 66.7% of that: measure the operators on these devices: placewright profile.
    On its critical path sending explains 33.3% of that: measure the links: placewright probe.
    """
    took, planned = format_seconds(found.measured_s), format_seconds(found.predicted_s)
    off = found.error_s / found.predicted_s if found.predicted_s > 0 else 0.0
    side = f"{percent(abs(off))} {'more' if off > 0 else 'less'} than"
    lines = [f"The run took {took}, {side} the {planned} of the plan's schedule."]
    if found.error_s and abs(off) >= WORTH:
        shares = sorted(((p.error_s / found.error_s, kind) for kind, p in found.by_kind.items()), reverse=True)
        lines += [
            f"On its critical path {WORDS[kind]} explains {percent(share)} of that: {REMEDIES[kind]}."
            for share, kind in shares
            if share >= WORTH
        ]
    if found.clock_error_s:
        lines.append(f"The clocks of the hosts agree to within {format_seconds(found.clock_error_s)}.")
    return lines


def prediction_errors_to_json(found: PredictionErrors | None) -> dict[str, Any] | None:
    """One JSON object; null where there is nothing to tell."""
    if found is None:
        return None
    return {
        "measured_s": found.measured_s,
        "predicted_s": found.predicted_s,
        "clock_error_s": found.clock_error_s,
        "explanation": explain_prediction_errors(found),
        "by_kind": [{"kind": kind, **_numbers(found, p)} for kind, p in found.by_kind.items()],
        "devices": [
            {
                "device": d.device,
                "kind": kind,
                "measured_s": d.measured_s[kind],
                "predicted_s": d.predicted_s[kind],
                "on_path": _numbers(found, found.on_path.get((d.device, kind), Piece(kind, d.device, "", 0.0, 0.0))),
            }
            for d in found.devices
            for kind in KINDS
        ],
        "path": [_piece(p) for p in found.path],
        "worst": [_piece(p) for p in found.worst[:WORST]],
    }


def _rows(found: PredictionErrors) -> Iterator[tuple[str, ...]]:
    """Yield a row for each device and kind of which there is anything, and the sums of the path."""
    least = NOISE * max(found.measured_s, found.predicted_s)
    for d in found.devices:
        first = d.device
        for kind in KINDS:
            on_path = found.on_path.get((d.device, kind))
            whole_s = tuple(0.0 if abs(s) < least else s for s in (d.measured_s[kind], d.predicted_s[kind]))
            path_s = (0.0, 0.0) if on_path is None else (on_path.measured_s, on_path.predicted_s)
            if not any(whole_s) and max(map(abs, path_s)) < least:
                continue
            whole = format_seconds(whole_s[0]), format_seconds(whole_s[1])
            path = ("-", "-", "-") if on_path is None else (*_seconds(on_path), _share(found, on_path))
            yield first, WORDS[kind], *whole, *path
            first = ""
    total = Piece("wait", "", "", found.measured_s, found.predicted_s)
    yield "the path", "", "", "", *_seconds(total), _share(found, total)


def _worst(found: PredictionErrors) -> list[tuple[str, ...]]:
    return [(_named(p), p.device, *_seconds(p), _signed(p.error_s)) for p in found.worst[:WORST]]


def _numbers(found: PredictionErrors, piece: Piece) -> dict[str, float | None]:
    share = piece.error_s / found.error_s if found.error_s else None
    return {"measured_s": piece.measured_s, "predicted_s": piece.predicted_s, "share_of_error": share}


def _piece(piece: Piece) -> dict[str, Any]:
    about = {"kind": piece.kind, "device": piece.device, "name": piece.name}
    received = {"to": piece.to} if piece.kind == "transfer" else {}
    return {**about, **received, "measured_s": piece.measured_s, "predicted_s": piece.predicted_s}


def _named(piece: Piece) -> str:
    return f"{piece.name} to {piece.to}" if piece.kind == "transfer" else piece.name


def _seconds(piece: Piece) -> tuple[str, str]:
    return format_seconds(piece.measured_s), format_seconds(piece.predicted_s)


def _share(found: PredictionErrors, piece: Piece) -> str:
    return percent(piece.error_s / found.error_s) if found.error_s else "-"


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else ''}{format_seconds(seconds)}"
