"""What this process of a distributed run does at the moment, for whoever has to name the one that holds up all."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

__all__ = ["DOING", "Doing", "failing_operator", "operator_at_work"]

LONGEST_STACK = 200


@dataclass(slots=True)
class Doing:
    """Set by what runs, read by the thread that watches.

    Attributes
    ----------
    phase : str
        ``loads``, ``computes``, ``waits``, ``rests`` between runs, or ``ends`` after an error.
    what : str
        Of computing the first operator of the part at work, of waiting the tensor.
    source : int
        Of waiting the rank that makes it; -1 else.
    since_s : float
        By ``time.monotonic``.
    """

    phase: str = "loads"
    what: str = ""
    source: int = -1
    since_s: float = field(default_factory=time.monotonic)

    def now(self, phase: str, what: str = "", source: int = -1, since_s: float | None = None) -> None:
        """Say what begins."""
        self.phase, self.what, self.source = phase, what, source
        self.since_s = time.monotonic() if since_s is None else since_s


DOING = Doing()
"""Of this process."""


def operator_at_work() -> str:
    """Operator that the main thread runs, as far as its stack tells; empty else."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    for _ in range(LONGEST_STACK):
        if frame is None:
            break
        name = _operator(frame, frame.f_lineno)
        if name:
            return name
        frame = frame.f_back
    return ""


def failing_operator(error: BaseException) -> str:
    """Operator in which an error was raised; empty where it was in none."""
    found, step = "", error.__traceback__
    while step is not None:
        found, step = _operator(step.tb_frame, step.tb_lineno) or found, step.tb_next
    return found


def _operator(frame: FrameType, line: int) -> str:
    """Operator at a line of a part's generated code: each line begins with the name of the node that it computes."""
    if not frame.f_code.co_filename.startswith("<eval_with_key>"):
        return ""
    module: Any = frame.f_locals.get("self")
    known = getattr(module, "operator_of", None)
    if not isinstance(known, dict):
        return ""
    lines = module.code.splitlines()
    name = lines[line - 1].split("=")[0].strip() if 0 < line <= len(lines) else ""
    return str(known.get(name, ""))
