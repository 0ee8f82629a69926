"""What a cluster with more devices would bring: the same network placed on it, from the plan that there is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.catalogue import lookup
from placewright.cluster import Cluster, Device
from placewright.costs import analytic
from placewright.errors import InvalidInput
from placewright.io import cluster_from_text
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Plan
from placewright.problem import Problem, Times
from placewright.result import OPTIMALITY_TOLERANCE, Result
from placewright.solve import solve
from placewright.units import format_bytes, format_seconds

__all__ = ["WhatIf", "sentences", "what_if", "what_ifs", "what_ifs_to_json", "with_devices"]

MOST_ADDED = 16


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What some devices more would bring.

    Attributes
    ----------
    models : tuple of str
        Entries of the catalogue that were added.
    before_s : float
        Value of the best plan without them.
    problem : Problem
        With them.
    result : Result
        Of that problem; its plan is never worse than the one before.
    added : tuple of int
        Their indices in that problem's cluster.
    without_s : float
        Lower bound of every plan without them.
    """

    models: tuple[str, ...]
    before_s: float
    problem: Problem
    result: Result
    added: tuple[int, ...]
    without_s: float = 0.0

    @property
    def after_s(self) -> float:
        """Value of the best plan with them."""
        return self.result.value_s

    @property
    def used(self) -> tuple[int, ...]:
        """Devices that the best plan with them uses."""
        return () if self.result.plan is None else self.result.plan.devices_used

    @property
    def sentence(self) -> str:
        """Say what they bring, and what they can bring at most."""
        many = len(self.models) > 1
        number = Counter(self.models)
        what = " and ".join(f"{'one' if n == 1 else n} more {model}" for model, n in number.items())
        nothing = f"{what} {'bring' if many else 'brings'} nothing that was found"
        before, after = format_seconds(self.before_s), format_seconds(self.after_s)
        change = self.after_s / self.before_s - 1 if self.before_s else 0.0
        if change > -1e-9:
            return f"{nothing}: {before} as before ({self._bound})"
        if not set(self.added) & set(self.used):
            without = "them" if many else "it"
            return f"{nothing}; the search found a plan without {without}, {after} instead of {before} ({self._bound})"
        # Where the plan before is not proved to be the best, part of the gain may be had without them.
        doubt = (
            "" if self.without_s > self.after_s else f"; as little without {'them' if many else 'it'} is not ruled out"
        )
        return f"{what}: {after} instead of {before} ({change:+.1%}; {self._bound}{doubt}); {self._held}"

    @property
    def _bound(self) -> str:
        """What is proved of the best plan with them."""
        if self.result.gap <= OPTIMALITY_TOLERANCE:
            return "proved to be the best"
        least = format_seconds(self.result.lower_bound_s)
        if least == format_seconds(self.after_s):
            return f"at most {max(self.result.gap, 1e-6):.2%} from the best"
        return f"no plan with {'them' if len(self.models) > 1 else 'it'} is below {least}"

    @property
    def _held(self) -> str:
        """What each of those in use would hold, and how many hold nothing."""
        placed = self.result.require_plan().device_of
        rows = [np.flatnonzero(placed == i) for i in self.added if i in self.used]
        sizes = [format_bytes(float(self.problem.resident_bytes[row].sum())) for row in rows]
        counts = [f"{len(row)} operator{'s' * (len(row) != 1)}" for row in rows]
        held = [f"{count} and {size}" for count, size in zip(counts, sizes, strict=True)]
        if len(self.added) == 1:
            return f"it would hold {held[0]}"
        idle = len(self.added) - len(rows)
        if not idle:
            return f"they would hold {', '.join(held)}"
        return f"{len(rows)} of them would hold {', '.join(held)}, {idle} nothing"


def what_if(
    problem: Problem,
    plan: Plan,
    models: Sequence[str],
    *,
    host: str | None = None,
    budget: float | Budget = 20.0,
    seed: int = 0,
    on_progress: OnProgress = ignore,
    without_s: float = 0.0,
) -> WhatIf:
    """Place the network again with more devices.

    Parameters
    ----------
    problem : Problem
    plan : Plan
        The search starts from it.
    models : sequence of str
        Entries of the hardware catalogue, one a device.
    host : str or None
        That gets them; ``None``: the one of the first accelerator, or of the first device.
    budget, seed, on_progress
        As :func:`placewright.solve.solve` has them.
    without_s : float
        Lower bound of every plan of the problem as it is, in seconds.

    Raises
    ------
    InvalidInput
        If a model or the host is unknown, or :func:`with_devices` can't tell the times.
    """
    more = with_devices(problem, models, host)
    clock = budget if isinstance(budget, Budget) else Budget(float(budget))
    result = solve(more, budget=clock, seed=seed, on_progress=on_progress, start=plan)
    first = len(problem.cluster)
    return WhatIf(tuple(models), plan.value_s, more, result, tuple(range(first, first + len(models))), without_s)


def with_devices(problem: Problem, models: Sequence[str], host: str | None = None) -> Problem:
    """Return the problem on its cluster with devices of the catalogue added, joined by the cluster's classes of links.

    A device of a model that is there already has the processing times of that one. Another has those of the device that
    is most like it (of its kind, nearest in memory bandwidth), times what the analytic costs say of both for each
    operator: so what was measured or given is carried over, and analytic times are the analytic ones. Where a table
    gives the transfer times, a further pair has those of the pairs that the same rule joins.

    Raises
    ------
    InvalidInput
        If the operators state no work, a table of transfer times has unlike ones for pairs of one rule, or no class of
        links reaches the device.
    """
    cluster = problem.cluster
    if not 1 <= len(models) <= MOST_ADDED:
        raise InvalidInput(f"{len(models)} devices are not between 1 and {MOST_ADDED}")
    hosts = list(dict.fromkeys(d.host for d in cluster.devices))
    if host is not None and host not in hosts:
        raise InvalidInput(f"--host {host!r} is none of the cluster's hosts: {', '.join(hosts)}")
    home = host or next((d.host for d in cluster.devices if d.kind != "cpu"), hosts[0])
    taken = {d.name for d in cluster.devices}
    added: list[Device] = []
    for model in models:
        name = next(n for k in range(MOST_ADDED + len(taken)) if (n := f"more-{model}-{k}") not in taken)
        taken.add(name)
        lookup(model)
        text = json.dumps({"devices": [{"name": name, "model": model, "host": home}]})
        added.append(cluster_from_text(text, f"device {model}").devices[0])
    larger = Cluster((*cluster.devices, *added), cluster.links, cluster.name)
    _check_reached(larger, len(cluster))
    columns = [_column(problem, larger, len(cluster) + k) for k in range(len(added))]
    alike = [like for _, like in columns]
    cut = problem.times.cut_s
    times = Times(
        np.column_stack([problem.times.processing_s, *(p for p, _ in columns)]),
        _table(problem, larger),
        source=problem.times.source,
        cut_s=None if cut is None else np.column_stack([cut, cut[:, alike]]),
    )
    if cut is None:
        overheads = [
            replace(d, cut_overhead_s=cluster.devices[i].cut_overhead_s) for d, i in zip(added, alike, strict=True)
        ]
        larger = Cluster((*cluster.devices, *overheads), cluster.links, cluster.name)
    return replace(problem, cluster=larger, times=times)


def _table(problem: Problem, larger: Cluster) -> npt.NDArray[np.float64] | None:
    """(T, D, D) transfer times on the larger cluster, where the problem has a table of its own."""
    given = problem.times.transfer_s
    if given is None:
        return None
    D, rules, known = len(problem.cluster), larger.rule_of, problem.cluster.rule_of
    table = np.zeros((len(given), len(larger), len(larger)))
    table[:, :D, :D] = given
    for rule in sorted(set(rules.ravel().tolist()) - {-1}):
        pairs = given[:, known == rule]
        fresh = rules == rule
        fresh[:D, :D] = False
        if not fresh.any():
            continue
        if not pairs.shape[1] or (pairs != pairs[:, :1]).any():
            raise InvalidInput(
                "the problem gives its transfer times as a table, which does not tell those of a further device; plan "
                "with a cluster file"
            )
        table[:, fresh] = pairs[:, :1]
    return table


def _check_reached(cluster: Cluster, first: int) -> None:
    rules = cluster.rule_of
    for i in range(first, len(cluster)):
        if first and not (rules[i, :first] >= 0).all():
            raise InvalidInput(
                f"no class of links joins host {cluster.devices[i].host!r} with all others, so a further device there "
                "is not reached; give the cluster file links of the classes same-host and between-hosts"
            )


def _column(problem: Problem, larger: Cluster, at: int) -> tuple[npt.NDArray[np.float64], int]:
    """Derive the processing times of an added device from those of one that is there, which is returned too."""
    device, there = larger.devices[at], problem.cluster.devices
    p = problem.times.processing_s
    same = next((i for i, d in enumerate(there) if d.model == device.model), None)
    if same is not None:
        return p[:, same], same
    if not any(v.flops or v.traffic_bytes for v in problem.graph.operators):
        raise InvalidInput(
            f"the operators of this problem state no work, so their times on a {device.model} are not known; a device "
            "of a model that the cluster has can be added, or plan from a network"
        )
    known = [i for i, d in enumerate(there) if d.memory_bandwidth_bytes_per_s and d.flops_per_s]
    if not known:
        raise InvalidInput("no device of this cluster states its figures, so none can be compared with a further one")
    like = min(
        known,
        key=lambda i: (
            there[i].kind != device.kind,
            abs(np.log(there[i].memory_bandwidth_bytes_per_s / device.memory_bandwidth_bytes_per_s)),
        ),
    )
    both = analytic(problem.graph, Cluster([there[like], device], larger.links[:0])).processing_s
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(both[:, 0] > 0, both[:, 1] / both[:, 0], 1.0)
    return np.where(np.isfinite(ratio), p[:, like] * ratio, np.inf), like


def what_ifs(
    problem: Problem,
    plan: Plan,
    wishes: Sequence[str],
    *,
    host: str | None = None,
    budget_s: float = 20.0,
    seed: int = 0,
    on_progress: OnProgress = ignore,
    lower_bound_s: float = 0.0,
) -> list[WhatIf]:
    """Ask :func:`what_if` for each wish, of models joined by ``+``, within one budget; all are checked first.

    A plan that is not known to be the best is first improved on without any device more, with an equal share of the
    budget: what a longer search finds is no gain of a device. ``lower_bound_s`` holds for every plan of the problem.
    """
    rows = [[model.strip() for model in wish.split("+")] for wish in wishes]
    for models in rows:
        with_devices(problem, models, host)
    clock = Budget(budget_s)
    if plan.value_s > lower_bound_s * (1 + OPTIMALITY_TOLERANCE):
        again = solve(
            problem, budget=clock.share(1.0 / (len(rows) + 1)), seed=seed, on_progress=on_progress, start=plan
        )
        lower_bound_s = max(lower_bound_s, again.lower_bound_s)
        plan = again.plan if again.plan is not None and again.value_s < plan.value_s else plan
    return [
        what_if(
            problem,
            plan,
            models,
            host=host,
            budget=clock.share(1.0 / (len(rows) - k)),
            seed=seed,
            on_progress=on_progress,
            without_s=lower_bound_s,
        )
        for k, models in enumerate(rows)
    ]


def sentences(rows: Sequence[WhatIf], plan_s: float) -> list[str]:
    """Say what each wish brings, the one that brings most first; ``plan_s`` is the value of the plan that was given."""
    said = [row.sentence for row in sorted(rows, key=lambda row: row.after_s)]
    if rows and rows[0].before_s < plan_s * (1 - OPTIMALITY_TOLERANCE):
        better = f"{format_seconds(rows[0].before_s)} instead of {format_seconds(plan_s)}"
        said.insert(0, f"without any device more a longer search found {better}, which the others are compared with")
    for row in rows[:1]:
        cached = any(v.kv_cache_bytes for v in row.problem.graph.operators)
        if cached and isinstance(row.problem.objective, MaxLoad | Throughput):
            said.append("caches are the plan's, for as many queries under way; more devices are kept busy by more")
    return said


def what_ifs_to_json(rows: Sequence[WhatIf]) -> dict[str, Any]:
    """Make what ``--json`` prints, in the order of the wishes."""
    return {
        "whatif": [
            {
                "add": list(row.models),
                "before_s": row.before_s,
                "after_s": row.after_s,
                "lower_bound_s": row.result.lower_bound_s,
                "used": [row.problem.cluster.devices[i].model for i in row.added if i in row.used],
                "sentence": row.sentence,
            }
            for row in rows
        ]
    }
