"""On which numbers a plan depends: how far each may be off before another plan is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget
from placewright.cluster import Link
from placewright.evaluate import judge
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import OPTIMALITY_TOLERANCE, Result

__all__ = ["Dependence", "Sensitivity", "sensitivity"]

REACH = 4.0
"""Figures are taken to be off by at most this factor."""

STEPS = 6
"""Factors between 1 and the reach that are looked at, evenly in their logarithm."""

HALVINGS = 5
"""Halvings of the step in which another plan becomes better."""

DOUBT_MEASURED, DOUBT_MODELLED = 1.1, 1.25
"""Factors by which a measured time, and one from a model or a datasheet, are taken to be off."""

CLEARLY = 1e-3
"""Relative difference from which another plan counts as better."""

JUDGING = 0.4
"""Of the budget, for judging all plans under all factors."""

SHORTEST_S = 0.1
"""Seconds that each search for other plans gets at least."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """What a plan's being best owes to one figure.

    A *factor* multiplies the times that the figure stands for: above 1 they are longer than assumed.

    Attributes
    ----------
    what : str
        Devices or link.
    kind : {"speed", "bandwidth"}
    doubt : float
        Factor by which the figure is taken to be off.
    slower_at, faster_at : float
        Least factor above 1, and largest below 1, at which a known plan is better by more than 0.1 %; ``inf`` and 0:
        none within a factor of 4.
    sure_to : float
        Factor up to which the plan is proved to stay optimal when the times get longer: the lower bound holds for
        longer times too, and the plan's value there still meets it. 1: nothing is proved; 4: that far or further.
    loss : float
        Share of the plan's time that the best known plan would save where that is most, within the doubt.
    """

    what: str
    kind: Literal["speed", "bandwidth"]
    doubt: float
    slower_at: float
    faster_at: float
    sure_to: float
    loss: float


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """All figures that were looked at, those whose error would cost most first.

    Attributes
    ----------
    rows : tuple of Dependence
    better : Plan or None
        A plan that is better already, if one was met on the way.
    plans : int
        Different plans that were compared.
    interrupted : bool
        Whether figures were left out, because the budget was spent or the user stopped it.
    """

    rows: tuple[Dependence, ...]
    better: Plan | None
    plans: int
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Figure:
    what: str
    kind: Literal["speed", "bandwidth"]
    doubt: float
    at: Callable[[float], Problem]


def sensitivity(
    problem: Problem,
    result: Result,
    *,
    budget: float | Budget = 20.0,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Sensitivity:
    """Say how far each device's speed and each link's bandwidth may be off before another plan is better.

    The problem is solved again with each figure off by its doubt and by a factor of 4, in both directions. The plans so
    found, and the one at hand, are judged under every factor, each with its own order. So "another plan is better" is
    shown by a plan; that none is better is proved only as far as ``sure_to`` says.

    Parameters
    ----------
    problem : Problem
    result : Result
        With a plan of the problem, and its lower bound.
    budget : float or Budget
        Seconds for all searches together; iterations count for each search alone.
    seed : int
    on_progress : callable
        Called with a line before each figure.

    Raises
    ------
    NoPlan
        If the result has no plan.

    Examples
    --------
    Two operators of 1 s, and of 1.5 s on the other device, which take no transfer: one on each. When the second takes
    2 s and more, both on the first are better: from a factor of 1.33 on.

    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, solve
    >>> pair = Cluster([Device("a"), Device("b")], [Link(0.0, 1e9, link_class="same-host")])
    >>> problem = Problem(OperatorGraph([Operator("x"), Operator("y")]), pair, [[1.0, 1.5], [1.0, 1.5]])
    >>> found = sensitivity(problem, solve(problem, budget=1), budget=4)
    >>> row = next(r for r in found.rows if r.what == "b")
    >>> round(row.slower_at, 2), row.faster_at < 0.5  # 1.5 x 4 / 3 = 2; below 1 / 3 both on b are better
    (1.33, True)
    """
    from placewright.solve import solve  # loads every solver, which what only shows a table needs not wait for

    plan = result.require_plan()
    clock = budget if isinstance(budget, Budget) else Budget(float(budget))
    figures = [*_devices(problem, plan), *_links(problem)]
    pool: dict[tuple[object, ...], Plan] = {_key(plan): plan}
    interrupted = False
    for k, figure in enumerate(figures):
        on_progress(f"{figure.kind} of {figure.what} ({k + 1} of {len(figures)})")
        for m, factor in enumerate((figure.doubt, 1.0 / figure.doubt, REACH, 1.0 / REACH)):
            left = 4 * (len(figures) - k) - m
            searching = max(0.0, clock.left_s - clock.seconds * JUDGING) if clock.seconds < inf else inf
            part = Budget(max(SHORTEST_S, searching / left), clock.iterations, clock.cancelled)
            found = solve(figure.at(factor), budget=part, seed=seed)
            interrupted = interrupted or found.interrupted
            if found.plan is not None:
                pool.setdefault(_key(found.plan), found.plan)
            if interrupted or clock.spent:
                break
        if interrupted or clock.spent:
            break
    plans = list(pool.values())
    rows: list[Dependence] = []
    for figure in figures:
        if rows and clock.spent:
            interrupted = True
            break
        rows.append(_dependence(figure, plan, plans, result.lower_bound_s, clock))
    rows.sort(key=lambda row: (-row.loss, min(row.slower_at, 1.0 / row.faster_at if row.faster_at else inf), row.what))
    values = [_value(problem, q) for q in plans]
    k = min(range(len(plans)), key=values.__getitem__)
    better = replace(plans[k], value_s=values[k], schedule=judge(problem, plans[k]).schedule)
    return Sensitivity(
        tuple(rows), better if values[k] < plan.value_s * (1.0 - CLEARLY) else None, len(plans), interrupted
    )


def _dependence(figure: _Figure, plan: Plan, plans: Sequence[Plan], bound_s: float, clock: Budget) -> Dependence:
    values: dict[float, tuple[float, float]] = {}

    def both(factor: float) -> tuple[float, float]:
        """Value of the plan, and the least of all plans."""
        if factor not in values:
            changed = figure.at(factor)
            each = [_value(changed, q) for q in plans]
            values[factor] = each[plans.index(plan)], min(each)
        return values[factor]

    def beaten(factor: float) -> bool:
        own, least = both(factor)
        return least < own * (1.0 - CLEARLY)

    def sure(factor: float) -> bool:
        return both(factor)[0] * (1.0 - OPTIMALITY_TOLERANCE) <= bound_s

    longer = [REACH ** (x / STEPS) for x in range(STEPS + 1)]
    inside = [figure.doubt**x for x in (-1.0, -0.5, 0.5, 1.0)]
    losses = [1.0 - least / own for own, least in map(both, inside) if 0.0 < own < inf]
    _, slower = _between(beaten, longer, clock)
    _, faster = _between(beaten, [1.0 / factor for factor in longer], clock)
    last_sure, _ = _between(lambda factor: not sure(factor), longer, clock)
    return Dependence(
        figure.what,
        figure.kind,
        figure.doubt,
        inf if slower is None else slower,
        0.0 if faster is None else faster,
        last_sure,
        max((0.0, *losses)),
    )


def _between(holds: Callable[[float], bool], factors: Sequence[float], clock: Budget) -> tuple[float, float | None]:
    """Last of the factors before something holds, and the first where it does, closer than the step.

    Where it holds from the start both are that; where it never does, or the time is over before, the second is none.
    """
    before = factors[0]
    if holds(before):
        return before, before
    for factor in factors[1:]:
        if clock.spent:
            break
        if holds(factor):
            for _ in range(HALVINGS):
                if clock.spent:
                    break
                middle = (before * factor) ** 0.5
                before, factor = (before, middle) if holds(middle) else (middle, factor)
            return before, factor
        before = factor
    return before, None


def _devices(problem: Problem, plan: Plan) -> Iterator[_Figure]:
    """One figure for all devices of a catalogue's model that have equal times, and one for each other device.

    Devices that a stage of the plan is copied to are one too: they are of one kind, or the plan would be none.
    """
    stage_of = {i: stage[0] for stage in plan.replicas for i in stage}
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, d in enumerate(problem.cluster.devices):
        key = (d.model, problem.times.processing_s[:, i].tobytes()) if d.model else (stage_of.get(i, i),)
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        devices = [problem.cluster.devices[i] for i in members]
        measured = problem.times.source == "profiled" or ("profiled" in problem.times.source and bool(devices[0].cores))
        yield _Figure(
            _named([d.name for d in devices]),
            "speed",
            DOUBT_MEASURED if measured else DOUBT_MODELLED,
            lambda factor, members=members: _slowed(problem, members, factor),  # type: ignore[misc]
        )


def _links(problem: Problem) -> Iterator[_Figure]:
    rules = problem.cluster.rule_of
    if problem.times.transfer_s is not None and not (rules >= 0).any():
        everywhere = ~np.eye(len(problem.cluster), dtype=bool)
        if everywhere.any():
            yield _Figure("all links", "bandwidth", DOUBT_MODELLED, lambda f: _narrowed_table(problem, everywhere, f))
        return
    groups: dict[tuple[object, ...], list[int]] = {}
    used = np.bincount(rules[rules >= 0], minlength=len(problem.cluster.links))
    for k, link in enumerate(problem.cluster.links):
        if used[k]:
            figures = link.latency_s, link.bandwidth_bytes_per_s, link.points
            groups.setdefault((link.link_class, *figures), []).append(k)
    for members in groups.values():
        links = [problem.cluster.links[k] for k in members]
        what = _named([x.link_class or ("->" if x.one_way else "-").join(x.between) for x in links])
        pairs = np.isin(rules, members)
        yield _Figure(
            what,
            "bandwidth",
            DOUBT_MODELLED,
            (lambda f, pairs=pairs: _narrowed_table(problem, pairs, f))  # type: ignore[misc]
            if problem.times.transfer_s is not None
            else (lambda f, members=members: _narrowed(problem, members, f)),  # type: ignore[misc]
        )


def _slowed(problem: Problem, devices: Sequence[int], factor: float) -> Problem:
    processing, cut = problem.times.processing_s.copy(), problem.cut_s.copy()
    processing[:, devices] *= factor
    cut[:, devices] *= factor
    return replace(problem, times=replace(problem.times, processing_s=processing, cut_s=cut))


def _narrowed(problem: Problem, rules: Sequence[int], factor: float) -> Problem:
    def off(link: Link) -> Link:
        longer = tuple((size, link.latency_s + (seconds - link.latency_s) * factor) for size, seconds in link.points)
        return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / factor, points=longer)

    cluster = problem.cluster
    chosen = set(rules)
    links = [off(link) if k in chosen else link for k, link in enumerate(cluster.links)]
    return replace(problem, cluster=replace(cluster, links=tuple(links)))


def _narrowed_table(problem: Problem, pairs: npt.NDArray[np.bool_], factor: float) -> Problem:
    table = problem.times.transfer_s
    if table is None:
        raise TypeError("the problem has no table of transfer times")
    return replace(problem, times=replace(problem.times, transfer_s=table * np.where(pairs, factor, 1.0)))


def _value(problem: Problem, plan: Plan) -> float:
    """Value of a plan in its own order; ``inf`` where it breaks a rule."""
    judged = judge(problem, plan)
    return judged.value_s if judged.feasible else inf


def _key(plan: Plan) -> tuple[object, ...]:
    calls = b"" if plan.call_of is None else plan.call_of.tobytes()
    order = plan.schedule.start_s.argsort(kind="stable").tobytes()
    copies = tuple((copy.device_of.tobytes(), copy.share) for copy in plan.copies)
    return plan.device_of.tobytes(), plan.replicas, copies, calls, order


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]}, ... {names[-1]} ({len(names)})"
