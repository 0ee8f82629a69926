"""Plans on few devices: the best few of them, and no further one unless it is worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from math import inf
from types import MappingProxyType

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.errors import InvalidInput
from placewright.plan import Plan
from placewright.problem import Problem, Wish
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.solve import solve
from placewright.solvers.entry import Entry
from placewright.symmetry import symmetry_of
from placewright.units import format_seconds

__all__ = ["FewDevices", "only_on", "solve_on_few"]

MOST_CHOICES = 256
"""Sets of devices that are looked at, each a problem of its own."""

FIRST_LOOK = 0.3
"""Of the budget: for a first plan and bound of every choice; the rest is for the choices that may be the best."""


@dataclass(frozen=True, eq=False)
class FewDevices:
    """The best choice of devices.

    Attributes
    ----------
    problem : Problem
        The one given, with all operators forbidden on devices that are not chosen.
    result : Result
        Of that problem.
    values_s : mapping of int to float
        Of the best plan on so many devices.
    lower_bounds_s : mapping of int to float
        What no plan on so many devices is below.
    sentence : str
        What was chosen, and from what.
    """

    problem: Problem
    result: Result
    values_s: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    lower_bounds_s: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    sentence: str = ""


@dataclass
class _Choice:
    problem: Problem
    devices: tuple[int, ...]
    result: Result = field(default_factory=Result)


def only_on(problem: Problem, devices: tuple[int, ...]) -> Problem:
    """Return the problem with every operator forbidden on all other devices."""
    others = [d.name for i, d in enumerate(problem.cluster.devices) if i not in devices]
    return replace(problem, wishes=(*problem.wishes, *(Wish("*", escape(name), forbid=True) for name in others)))


def solve_on_few(
    problem: Problem,
    most: int | None = None,
    *,
    min_gain: float = 0.0,
    solver: str = "auto",
    budget: float | Budget = 60.0,
    seed: int = 0,
    on_progress: OnProgress = ignore,
    given: Mapping[str, Entry] = MappingProxyType({}),
    coarsen: str = "none",
    start: Plan | None = None,
) -> FewDevices:
    """Choose devices, and place the network on them; on any of them where nothing is wished.

    A plan on at most k devices is one of a set of exactly k (as long as there are k), so the best over all such sets is
    the best on at most k, and the least of their bounds holds for every plan on at most k. Sets that exchanges of alike
    devices turn into each other are looked at once.

    Parameters
    ----------
    problem : Problem
    most : int or None
        Devices that may be used; ``None``: all.
    min_gain : float
        By which share of the time each further device must make the plan faster: from k to k + j devices the time must
        fall to (1 - min_gain) ** j of what it is; else the fewer are kept.
    solver, budget, seed, on_progress, given, coarsen, start
        As :func:`placewright.solve.solve` has them; the budget is for all choices together.

    Raises
    ------
    InvalidInput
        If the numbers are out of range, or there are too many choices.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Problem
    >>> graph = OperatorGraph([Operator("a"), Operator("b")])
    >>> pair = Cluster([Device("gpu"), Device("cpu")], [Link(1e-3, 1e9, link_class="same-host")])
    >>> both = Problem(graph, pair, [[1.0, 1.9], [1.0, 1.9]])
    >>> solve_on_few(both, min_gain=0.1, budget=2).result.value_s  # 1.9 s on both are no tenth less than 2 s on one
    2.0
    """
    D = len(problem.cluster)
    if most is not None and not 1 <= most <= D:
        raise InvalidInput(f"--max-devices {most} is not between 1 and the cluster's {D} devices")
    if most is None and not min_gain:
        found = solve(
            problem,
            solver=solver,
            budget=budget,
            seed=seed,
            on_progress=on_progress,
            given=given,
            coarsen=coarsen,
            start=start,
        )
        return FewDevices(problem, found)
    if not 0 <= min_gain < 1:
        raise InvalidInput(f"--min-gain {min_gain:.0%} is not between 0% and 100%")
    limit = D if most is None else most
    counts = range(1, limit + 1) if min_gain else range(limit, limit + 1)
    choices = [_Choice(only_on(problem, row), row) for count in counts for row in _sets(problem, count)]
    clock = budget if isinstance(budget, Budget) else Budget(float(budget))

    def look(choice: _Choice, share: float) -> None:
        found = solve(
            choice.problem,
            solver=solver,
            budget=clock.share(share),
            seed=seed,
            on_progress=on_progress,
            given=given,
            coarsen=coarsen,
            start=start if start is not None and set(start.devices_used) <= set(choice.devices) else None,
        )
        choice.result = choice.result.merge(found)

    for k, choice in enumerate(choices):
        look(choice, FIRST_LOOK / (len(choices) - k) if len(choices) > 1 else 1.0)
    for count in counts:
        _look_again([c for c in choices if len(c.devices) == count], look, len(counts), clock)
    best = {count: min((c for c in choices if len(c.devices) == count), key=_standing) for count in counts}
    chosen = _worth_it(best, min_gain)
    values = {count: c.result.value_s for count, c in best.items()}
    bounds = {count: min(_bound(c) for c in choices if len(c.devices) == count) for count in counts}
    sentence = _sentence(problem, chosen, values, bounds, min_gain)
    return FewDevices(chosen.problem, chosen.result, values, bounds, sentence)


def _value(choice: _Choice) -> float:
    return choice.result.value_s


def _standing(choice: _Choice) -> tuple[float, bool]:
    """Rank a choice by its value; without any plan, one that may have one comes before one that is infeasible."""
    return _value(choice), bool(choice.result.infeasible)


def _bound(choice: _Choice) -> float:
    return inf if choice.result.infeasible else choice.result.lower_bound_s


def _look_again(choices: list[_Choice], look: Callable[[_Choice, float], None], counts: int, clock: Budget) -> None:
    """Give what is left to those whose bound is below the best plan, the best first."""
    for choice in sorted(choices, key=_value):
        least = min(map(_value, choices)) * (1 - OPTIMALITY_TOLERANCE)
        unsettled = [c for c in choices if _bound(c) < least and c.result.gap > OPTIMALITY_TOLERANCE]
        if choice in unsettled and not clock.spent:
            look(choice, 1.0 / (counts * len(unsettled)))


def _sets(problem: Problem, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of so many devices, one of those that are alike."""
    of = symmetry_of(problem).device_class.tolist()
    rows = [[i for i, c in enumerate(of) if c == which] for which in sorted(set(of))]
    for k, numbers in enumerate(_parts([len(row) for row in rows], count)):
        if k == MOST_CHOICES:
            raise InvalidInput(
                f"there are more than {MOST_CHOICES} sets of {count} devices that differ; forbid some with "
                "--forbid '*=DEVICE'"
            )
        yield tuple(sorted(i for row, n in zip(rows, numbers, strict=True) for i in row[:n]))


def _parts(most: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to make a total of one number each, none above its most; every start has an end."""
    if not most:
        yield ()
        return
    first, *rest = most
    for number in range(max(0, total - sum(rest)), min(first, total) + 1):
        for others in _parts(rest, total - number):
            yield (number, *others)


def _worth_it(best: Mapping[int, _Choice], min_gain: float) -> _Choice:
    """Take fewer devices unless more are worth it."""
    fewest, *more = sorted(best)
    chosen, fewer = best[fewest], fewest
    for count in more:
        value = _value(chosen)
        if value == inf or _value(best[count]) <= value * (1 - min_gain) ** (count - fewer):
            chosen, fewer = best[count], count
    return chosen


def _sentence(
    problem: Problem,
    chosen: _Choice,
    values: Mapping[int, float],
    bounds: Mapping[int, float],
    min_gain: float,
) -> str:
    if chosen.result.plan is None:
        return ""
    names = ", ".join(problem.cluster.devices[i].name for i in chosen.devices)
    count = len(chosen.devices)
    text = f"chosen of {len(problem.cluster)} devices: {names} ({format_seconds(values[count])}"
    text += f"; no {count} devices are below {format_seconds(bounds[count])})"
    others = [f"{k}: {format_seconds(v)}" for k, v in sorted(values.items()) if k != count and v < inf]
    if others:
        text += f"; the best on other numbers of devices, {', '.join(others)}"
        if min_gain:
            text += f", are not worth it at {min_gain:.0%} a device"
    return text
