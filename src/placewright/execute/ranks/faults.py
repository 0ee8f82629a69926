"""Which rank of a distributed run is to blame when it can't go on, from what all ranks last told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from placewright.errors import DeviceLost, ExecutionError, InvalidInput, PlacewrightError
from placewright.units import format_seconds

__all__ = ["BAD_INPUT", "SILENT_S", "State", "cause_of", "error_of", "line_of", "out_of_memory", "too_slow"]

BAD_INPUT = "bad input: "
"""What a rank says before what it can't use, so that whoever started it knows that nothing has failed."""

LOST = "lost device "
"""What a rank says before the name of a device that is lost, in JSON."""

SILENT_S = 3.0
"""Who has told nothing for so long is stopped or cut off; each rank tells twice a second what it does."""


BUSY = ("computes", "loads")


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a rank.

    Attributes
    ----------
    rank : int
    device : str
    phase : str
        See :class:`placewright.execute.ranks.doing.Doing`; empty: it has told nothing yet.
    what : str
        The operator, or the tensor.
    source : int
        Who makes the tensor.
    seconds : float
        For how long, when it last told.
    silent_s : float
        Since then.
    alive : bool or None
        Whether its process runs; ``None`` where that can't be seen from here.
    """

    rank: int
    device: str
    phase: str = ""
    what: str = ""
    source: int = -1
    seconds: float = 0.0
    silent_s: float = 0.0
    alive: bool | None = None


def cause_of(states: Sequence[State], me: int, *, late: bool) -> DeviceLost | None:
    """Name the device that holds rank ``me`` up.

    A process that has ended comes first, then one that has not been heard of; both may be waited for in vain by all.
    Of one that is ``late``, as nothing came from it in time, else whoever is at the end of the chain of those that wait
    for each other, if it computes; and of a rank that waits for all others to begin or to end a run, whoever has
    computed or loaded for longest.

    Parameters
    ----------
    states : sequence of State
        Of all ranks in their order.
    me : int
    late : bool
        Whether a limit of time has passed; else a connection was lost.

    Examples
    --------
    >>> waits = State(0, "a", "waits", "x", source=1, seconds=10.0)
    >>> print(cause_of([waits, State(1, "b", "computes", "conv", seconds=10.2)], 0, late=True))
    rank 1 on 'b' was still computing 'conv' after 10.2 s; give more time, or place less on it
    """
    others = [s for s in states if s.rank != me]
    for s in others:
        if s.alive is False:
            return DeviceLost(f"rank {s.rank} on {s.device!r} died{_while(states, s)}", device=s.device)
    for s in others:
        if not s.phase:
            return DeviceLost(f"rank {s.rank} on {s.device!r} did not come; was it started?", device=s.device)
    for s in others:
        if s.silent_s >= SILENT_S:
            since = format_seconds(s.silent_s)
            return DeviceLost(
                f"rank {s.rank} on {s.device!r} has not been heard of for {since}{_while(states, s)}; is it stopped, "
                "or its host gone?",
                device=s.device,
            )
    if not late:
        return None
    at, met = states[me], {me}
    while at.phase == "waits" and 0 <= at.source < len(states) and at.source not in met:
        at = states[at.source]
        met.add(at.rank)
    if at.phase == "rests":
        at = max((s for s in others if s.phase in BUSY), key=lambda s: s.seconds, default=at)
    return too_slow(at) if at.rank != me and at.phase in BUSY else None


def too_slow(state: State) -> DeviceLost:
    """Say that a rank computes, or loads, for too long."""
    what = f"computing {state.what!r}" if state.phase == "computes" else "loading"
    return DeviceLost(
        f"rank {state.rank} on {state.device!r} was still {what} after {format_seconds(state.seconds)}; give more "
        "time, or place less on it",
        device=state.device,
    )


def _while(states: Sequence[State], state: State) -> str:
    if state.phase == "computes":
        return f" while it computed {state.what!r}"
    if state.phase == "waits":
        maker = f" from {states[state.source].device!r}" if 0 <= state.source < len(states) else ""
        return f" while it waited for {state.what!r}{maker}"
    return " while it loaded its part" if state.phase == "loads" else ""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is that of memory which the operating system, or a limit, does not give."""
    text = str(error)
    known = (
        "can't allocate memory",
        "out of memory",
        "Cannot allocate memory",
        "bad_alloc",
        "bad allocation",
        "Failed to allocate",
    )
    return isinstance(error, MemoryError) or any(words in text for words in known)


def line_of(error: PlacewrightError) -> str:
    """Write an error on one line, for whoever started the rank.

    Examples
    --------
    >>> line_of(DeviceLost("it died", device="gpu0"))
    'lost device "gpu0": it died'
    """
    text = " ".join(str(error).split())
    if isinstance(error, DeviceLost):
        return f"{LOST}{json.dumps(error.device)}: {text}"
    return f"{BAD_INPUT}{text}" if error.exit_code == PlacewrightError.exit_code else text


def error_of(line: str) -> PlacewrightError:
    """Read what :func:`line_of` wrote.

    Examples
    --------
    >>> error_of('lost device "gpu0": it died').device
    'gpu0'
    """
    if line.startswith(BAD_INPUT):
        return InvalidInput(line.removeprefix(BAD_INPUT))
    found = re.match(rf'{LOST}("(?:[^"\\]|\\.)*"): ', line)
    if found is not None:
        try:
            return DeviceLost(line[found.end() :], device=str(json.loads(found[1])))
        except ValueError:
            pass
    return ExecutionError(line)
