"""What a command line says of the objective, and the objective that follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from placewright.errors import InvalidInput
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput, as_objective
from placewright.units import parse_bytes_per_second

__all__ = ["ObjectiveFlags"]


_OWNERS = {
    "--contention": ("makespan",),
    "--calls": ("offload",),
    "--training-objective": ("max-load",),
    "--replicate": ("max-load",),
    "--no-replicate": ("max-load",),
}
"""Whose flags those are that are not of max-load and throughput."""

_LOADS = ("max-load", "throughput")


@dataclass(frozen=True, slots=True)
class ObjectiveFlags:
    """Flags of the command line that are about the objective; ``None`` where one was not given.

    Attributes
    ----------
    objective : str or None
        Name of an objective.
    contention : str or None
        Of the makespan.
    calls : str or None
        Of offload: a number, or ``any``. All others are of max-load, and but for ``training_objective`` and
        ``replicate`` of throughput too.
    contiguous, convex, cpus_anywhere : bool or None
    training_objective, overlap : str or None
    replicate : bool or None
    sync_period : int or None
    sync_bandwidth : str or None
        With a unit: ``10 GB/s``.
    busy_share : float or None

    Examples
    --------
    >>> ObjectiveFlags(contention="port").applied(Makespan())
    Makespan(contention='port', name='makespan', per='sample')
    >>> ObjectiveFlags(objective="max-load", contiguous=False).applied(Makespan()).contiguity
    'any'
    """

    objective: str | None = None
    contention: str | None = None
    calls: str | None = None
    contiguous: bool | None = None
    convex: bool | None = None
    cpus_anywhere: bool | None = None
    training_objective: str | None = None
    overlap: str | None = None
    replicate: bool | None = None
    sync_period: int | None = None
    sync_bandwidth: str | None = None
    busy_share: float | None = None

    def applied(self, base: Objective) -> Objective:
        """Return ``base`` with the flags' options, or another objective when they name one.

        Parameters
        ----------
        base : Objective
            That of the file, or the default.

        Raises
        ------
        InvalidInput
            With every flag that does not fit the objective, and every value that is unknown.
        """
        chosen = base if self.objective in (None, base.name) else as_objective(str(self.objective))
        violations = list(self._misfits(chosen))
        if violations:
            raise InvalidInput(violations)
        if isinstance(chosen, Makespan):
            return chosen if self.contention is None else replace(chosen, contention=self.contention)  # type: ignore[arg-type]
        if isinstance(chosen, Offload):
            return chosen if self.calls is None else replace(chosen, calls=_calls(self.calls))
        options = self._loads()
        if self.overlap == "none":  # what a file says of transfers that overlap computing is without an object then
            options.setdefault("busy_share", 0.0)
        return replace(chosen, **options)

    def _given(self) -> Iterator[tuple[str, Any]]:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name != "objective" and value is not None:
                spelt = f.name.replace("_", "-")
                spelt = {"contiguous-False": "non-contiguous", "replicate-False": "no-replicate"}.get(
                    f"{spelt}-{value}", spelt
                )
                yield f"--{spelt}", value

    def _misfits(self, chosen: Objective) -> Iterator[str]:
        given = dict(self._given())
        wrong_by: dict[str, list[str]] = {}
        for flag in given:
            owners = _OWNERS.get(flag, _LOADS)
            if chosen.name not in owners:
                wrong_by.setdefault(owners[0], []).append(flag)
        for its, wrong in wrong_by.items():
            verb, them = ("is", "it") if len(wrong) == 1 else ("are", "them")
            yield (
                f"{' and '.join(wrong)} {verb} for the objective {its}, and this one is {chosen.name}; leave {them} "
                f"out, or add --objective {its}"
            )
        if isinstance(chosen, Offload) and self.calls is not None and _calls(self.calls, -1) == -1:
            yield f"--calls {self.calls!r} is neither a whole number from 1 to 999999999 nor 'any'; write for example 2"
        if not isinstance(chosen, MaxLoad | Throughput):
            return
        if self.convex and self.contiguous is not None:
            other = "--contiguous" if self.contiguous else "--non-contiguous"
            yield f"--convex and {other} exclude each other; keep one"
        elif self.cpus_anywhere and self._loads().get("contiguity", chosen.contiguity) == "any":
            yield "--cpus-anywhere is for contiguous and convex plans; without contiguity everything may be anywhere"
        if isinstance(chosen, MaxLoad) and not (chosen.replicate if self.replicate is None else self.replicate):
            for flag in ("--sync-period", "--sync-bandwidth"):
                if flag in given:
                    yield f"{flag} is about the weights of replicas; add --replicate or leave it out"
        if self.sync_bandwidth is not None:
            bandwidth = parse_bytes_per_second(self.sync_bandwidth, "--sync-bandwidth")
            if not 0 < bandwidth < math.inf:
                yield f"--sync-bandwidth {self.sync_bandwidth!r} is not above 0 and finite; write for example '10 GB/s'"

    def _loads(self) -> dict[str, Any]:
        """Options of max-load or throughput that were given."""
        options: dict[str, Any] = {
            "contiguity": None if self.contiguous is None else "contiguous" if self.contiguous else "any",
            "contiguous_cpus": None if self.cpus_anywhere is None else not self.cpus_anywhere,
            "training": self.training_objective,
            "overlap": self.overlap,
            "replicate": self.replicate,
            "sync_period": self.sync_period,
            "busy_share": self.busy_share,
        }
        if self.convex:
            options["contiguity"] = "convex"
        if self.sync_bandwidth is not None:
            options["sync_bandwidth_bytes_per_s"] = parse_bytes_per_second(self.sync_bandwidth, "--sync-bandwidth")
        return {key: value for key, value in options.items() if value is not None}


def _calls(text: str, wrong: int | None = None) -> int | None:
    """Read a number of calls, ``None`` for any; ``wrong`` where the text says neither."""
    if text == "any":
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0 else wrong
