"""Answers for a terminal, and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from placewright.answers.answering import Answer
from placewright.report.terminal_parts import sentences_of, spaced

__all__ = ["answers_to_json", "asked_report"]


def asked_report(first: Sequence[str], answers: Sequence[Answer], last: RenderableType) -> RenderableType:
    """Show what comes first, each question above its answer, and what comes last."""
    asked = [Group(Text(a.question, style="bold"), sentences_of(a.sentences)) for a in answers]
    return spaced([sentences_of(first), *asked, last])


def answers_to_json(answers: Sequence[Answer]) -> dict[str, Any]:
    """Make what ``--json`` prints."""
    return {"answers": [{"question": a.question, "sentences": list(a.sentences)} for a in answers]}
