"""What the ranks of a run saw, put together: computing, handing over, waiting, and the transfers between two ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placewright.execute.ranks.run import Outcome, Step
from placewright.execute.ranks.segments import Message, Segment
from placewright.measurement import Span

__all__ = ["Seen", "merged", "seen"]

FOUND_S = 5e-5
"""Who waits no longer than this for a message found it there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one rank saw of a run, by its own clock.

    Attributes
    ----------
    began_s : float
    spans : tuple of Span
        Computing, handing over and waiting.
    sent : dict of int to float
        When the message of each tag was sent.
    received : dict of int to (Message, float, float)
        When the rank began to wait for a message, and when it had it.
    """

    began_s: float
    spans: tuple[Span, ...]
    sent: dict[int, float]
    received: dict[int, tuple[Message, float, float]]


def seen(segments: Sequence[Segment], outcome: Outcome, names: Mapping[int, str], device: int) -> Seen:
    """Tell what a rank saw of a run.

    Parameters
    ----------
    segments : sequence of Segment
        Of its device.
    outcome : Outcome
    names : mapping of int to str
        Of all devices.
    device : int
        Its own.
    """
    spans: list[Span] = []
    sent: dict[int, float] = {}
    received: dict[int, tuple[Message, float, float]] = {}
    for segment, step in zip(segments, outcome.steps, strict=True):
        spans += _arrivals(segment, step, names, device)
        received.update({m.tag: (m, *wait) for m, wait in zip(segment.awaits, step.waits, strict=True)})
        spans += _computing(segment, step, names[device])
        last = segment.operators[-1].name
        for m, (begin, at, end) in zip(segment.sends, step.sends, strict=True):
            sent[m.tag] = at
            spans.append(Span(names[device], m.name, "handover", begin, end, names[m.target], (last,)))
    return Seen(outcome.began_s, tuple(spans), sent, received)


def _arrivals(segment: Segment, step: Step, names: Mapping[int, str], device: int) -> Iterator[Span]:
    """Yield the waits, and after each its unpacking, which lasts until the next thing begins."""
    first = segment.operators[0].name
    nexts = [*(before for before, _ in step.waits[1:]), step.start_s]
    for m, (before, after), following in zip(segment.awaits, step.waits, nexts, strict=False):
        yield Span(names[device], m.name, "wait", before, after, names[m.source])
        yield Span(names[device], m.name, "handover", after, following, names[m.source], (first,))


def _computing(segment: Segment, step: Step, name: str) -> Iterator[Span]:
    """Yield the operators; what a segment takes besides them, a rest for a share of a core most of all, is spread."""
    begin, end, marks = step.start_s, step.end_s, step.marks
    inside, count = marks[-1] - marks[0], len(segment.operators)
    for k, v in enumerate(segment.operators):
        shares = ((marks[j] - marks[0]) / inside if inside > 0 else j / count for j in (k, k + 1))
        start, finish = (begin + share * (end - begin) for share in shares)
        yield Span(name, v.name, "compute", start, finish, operators=(v.name,))


def merged(rows: Sequence[Seen], ahead_s: Sequence[float], names: Mapping[int, str]) -> tuple[Span, ...]:
    """Put what all ranks saw on one clock, in seconds from the first one's start.

    Parameters
    ----------
    rows : sequence of Seen
        Of each rank.
    ahead_s : sequence of float
        By how much each rank's clock is ahead.
    names : mapping of int to str
        Of devices.
    """
    spans = [
        Span(s.device, s.name, s.kind, s.start_s - ahead, s.finish_s - ahead, s.peer, s.operators)
        for row, ahead in zip(rows, ahead_s, strict=True)
        for s in row.spans
    ]
    sent = {tag: at - ahead for row, ahead in zip(rows, ahead_s, strict=True) for tag, at in row.sent.items()}
    for row, ahead in zip(rows, ahead_s, strict=True):
        for tag, (m, before, after) in row.received.items():
            start = min(sent[tag], after - ahead)  # clocks of two hosts agree only so far
            found = after - before <= FOUND_S
            spans.append(Span(names[m.source], m.name, "transfer", start, after - ahead, names[m.target], found=found))
    zero = min(row.began_s - ahead for row, ahead in zip(rows, ahead_s, strict=True))
    return tuple(
        Span(s.device, s.name, s.kind, s.start_s - zero, s.finish_s - zero, s.peer, s.operators, s.found)
        for s in sorted(spans, key=lambda s: (s.start_s, s.finish_s, s.device))
    )
