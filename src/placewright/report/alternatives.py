"""The plan beside every other plan that was met and every run that was measured, as one list of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placewright.measurement import Measurement
from placewright.result import Result

__all__ = ["ONLY", "PLAN", "Alternative", "alternatives_of"]

PLAN = "plan"
"""Name of the plan's own row, and of its measurement."""

ONLY = "only "
"""Before a device's name it names the alternative that places everything on that device."""

SHOWN = 24
"""At most so many alternatives are listed: a cluster may have a thousand devices."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One row: a plan's name, its predicted value, and its measured runs if there are any.

    Attributes
    ----------
    name : str
    predicted_s : float
        As the judge gave it; ``inf`` where infeasible.
    measured : Measurement or None
    """

    name: str
    predicted_s: float
    measured: Measurement | None = None

    def relative_to(self, value_s: float) -> float:
        """Predicted value over ``value_s``; 1 when both are 0."""
        if value_s > 0:
            return self.predicted_s / value_s
        return 1.0 if self.predicted_s == value_s else float("inf")


def alternatives_of(
    result: Result, measurements: Sequence[Measurement] = (), *, grouped: bool = False
) -> list[Alternative]:
    """Rows in the order of the result's alternatives, then runs that belong to none of them, the plan last.

    A measurement belongs to the alternative of the same name, and one named after a device to ``only <device>``. Two
    runs of one name are two rows. Of many alternatives only the best are kept, and those that were measured. With
    ``grouped``, single devices with equal values share a row.

    Examples
    --------
    >>> rows = alternatives_of(Result(alternatives={"heft": 2.0, "only gpu0": 2.5}), [Measurement("gpu0", (3.0,), 2.5)])
    >>> [(r.name, r.predicted_s, r.measured is not None) for r in rows]
    [('heft', 2.0, False), ('only gpu0', 2.5, True)]
    """
    left = list(measurements)

    def take(name: str) -> Measurement | None:
        for k, m in enumerate(left):
            if m.name == name:
                return left.pop(k)
        return None

    own = take(PLAN)
    rows = [
        Alternative(name, value, take(name) or take(name.removeprefix(ONLY)))
        for name, value in result.alternatives.items()
        if name != PLAN
    ]
    if grouped:
        rows = _grouped(rows)
    if len(rows) > SHOWN:
        best = sorted(range(len(rows)), key=lambda k: (rows[k].measured is None, rows[k].predicted_s, k))[:SHOWN]
        rows = [rows[k] for k in sorted(best)]
    rows += [Alternative(m.name, m.predicted_s, m) for m in left]
    if result.plan is not None or own is not None:
        value = result.value_s if result.plan is not None or own is None else own.predicted_s
        rows.append(Alternative(PLAN, value, own))
    return rows


def _grouped(rows: Sequence[Alternative]) -> list[Alternative]:
    """Gather single devices that take equally long and were not measured, where the first of them stands."""
    alike: dict[float, int] = {}
    for r in rows:
        if r.name.startswith(ONLY) and r.measured is None:
            alike[r.predicted_s] = alike.get(r.predicted_s, 0) + 1
    kept: list[Alternative] = []
    for r in rows:
        if not (r.name.startswith(ONLY) and r.measured is None):
            kept.append(r)
        elif r.predicted_s in alike:
            more = alike.pop(r.predicted_s) - 1
            kept.append(replace(r, name=f"{r.name} (same for {more} more)") if more else r)
    return kept
