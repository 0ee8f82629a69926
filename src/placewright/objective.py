"""What is minimised: one frozen dataclass an objective, with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from placewright.errors import InvalidInput

__all__ = ["Contention", "Makespan", "Objective", "as_objective"]

Contention: TypeAlias = Literal["none", "link", "port"]


@dataclass(frozen=True, slots=True)
class Makespan:
    """Finish of the last operator for one sample.

    Each device runs one operator at a time; transfers overlap computing.

    Attributes
    ----------
    contention : {"none", "link", "port"}
        ``none``: transfers never wait. ``link``: a link carries one transfer at a time in each direction. ``port``:
        transfers that leave the same device, or that enter the same device, exclude each other (Moirai, arXiv
        2312.04025, congestion control). Under ``link`` and ``port`` those that share a channel exclude each other too.
    """

    contention: Contention = "link"
    name: Literal["makespan"] = "makespan"

    def __post_init__(self) -> None:
        if self.contention not in get_args(Contention):
            raise InvalidInput(
                f"contention {self.contention!r} is unknown; use one of {', '.join(get_args(Contention))}"
            )


Objective: TypeAlias = Makespan
"""The union of all objectives."""

_BY_NAME = {"makespan": Makespan}


def as_objective(given: Objective | str) -> Objective:
    """Pass an objective through; make one with default options from its name.

    Examples
    --------
    >>> as_objective("makespan").contention
    'link'
    """
    if not isinstance(given, str):
        return given
    if given not in _BY_NAME:
        raise InvalidInput(f"objective {given!r} is unknown; use one of {', '.join(_BY_NAME)}")
    return _BY_NAME[given]()
