"""Copies of the network on teams of servers: what is alike is planned once, however many there are of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, Progress, ignore
from placewright.evaluate import plan_for
from placewright.one_copy import throughput_of
from placewright.plan import Copy, Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.throughput.servers_line import Line, line_of, span_of
from placewright.solvers.throughput.servers_pipeline import Alike, Pipeline
from placewright.solvers.throughput.servers_teams import Servers, Team, chosen, kinds_of, teams_of

__all__ = ["ServerTeams", "why_not_servers"]

Floats: TypeAlias = npt.NDArray[np.float64]
Part: TypeAlias = tuple[npt.NDArray[np.int32], float]

MOST_CROSSINGS = 50_000_000
"""Positions of the line that tensors cross, summed over tensors."""

ROUNDS = 40
"""Times that teams are chosen before what is known of them has to do."""

LISTING, RATING = 0.2, 0.5
"""Parts of what is left of the budget for listing teams, and then for estimating what they make."""

SYNC_ROUNDS = 3
"""Times that teams are chosen anew with the time that synchronisation takes by the plan before."""


@dataclass(frozen=True)
class ServerTeams:
    """Find teams of servers, how many of each, and what each device of a team does.

    1. *Kinds*: servers that can be exchanged (:mod:`placewright.symmetry`) are of one kind. A state says how many of
       each kind a team takes, so their number does not grow with the servers' number.
    2. *Teams*: each way to take servers that is worth trying, with one or more pipelines on it. The best cuts of the
       line of blocks for given devices, one after the other, with memory and links, are a dynamic program:
       value(s, b) = min over a of max(value(s - 1, a), load of a..b on device s). Channels lower the rate after.
    3. *Mixture*: a pipeline's cuts are whole blocks; its copies differ in them so that loads even out, within what
       memory holds. A linear program by column generation: the best cuts for prices are a shortest path.
    4. *Numbers*: an integer program over teams with one row a kind. A team is rated by an estimate, with
       blocks divided, until it is chosen; then 2 and 3 say what it makes, until all that are chosen are known.
    5. *Names*: teams are given servers; each copy of each pipeline takes samples in proportion to its rate.

    In training, synchronisation takes a share of each device's time that depends on the time per sample: none at first;
    then all is repeated with that of the plan before.

    Guarantee: none; :func:`placewright.bounds.throughput.servers.servers` says how far from the best it can be. A
    budget's iterations are teams.

    Complexity: O(teams x devices of a team x blocks x blocks of a stage).
    Source: ours; placing by the symmetry of the hardware is DiviML's (arXiv 2308.00127).
    When to use: for many servers of few kinds: 1,024 devices in seconds.

    Parameters
    ----------
    most_copies : int
        Of the network in a plan; where mixtures need more, pipelines that gain least from them keep one.

    Examples
    --------
    >>> from placewright import Cluster, Device, Link, Operator, OperatorGraph, Tensor, Throughput
    >>> graph = OperatorGraph([Operator(v, weight_bytes=8) for v in "ab"], [Tensor("x", 0, (1,), 4)])
    >>> four = Cluster([Device(f"d{i}", memory_bytes=8) for i in range(4)], [Link(0.0, 4.0, link_class="same-host")])
    >>> problem = Problem(graph, four, [[3.0] * 4] * 2, Throughput())
    >>> plan = ServerTeams()(problem, budget=Budget(), rng=np.random.default_rng(0)).plan
    >>> round(plan.value_s, 6), [copy.device_of.tolist() for copy in plan.copies]
    (2.0, [[0, 1], [2, 3]])
    """

    most_copies: int = 800

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Solve; see the class."""
        line, kinds = line_of(problem), kinds_of(problem)
        listing = budget.share(LISTING)
        teams = list(takewhile(lambda _: not listing.spent, islice(teams_of(line, kinds), budget.iterations)))
        best, sync = incumbent, np.zeros(len(line))
        trains = any(v.backward for v in problem.graph.operators)
        for _ in range(SYNC_ROUNDS if trains else 1):
            plan = self._planned(_Rates(line, kinds, sync), teams, budget)
            if plan is None:
                break
            if best is None or plan.value_s < best.value_s:
                best = plan
                on_progress(Progress("servers", plan.value_s, 0.0, budget.elapsed_s))
            if budget.spent or plan.value_s == 0.0:
                break
            sync = line.weights * _sync_s_per_byte(problem) / plan.value_s
        return Result(best, solver="servers")

    def _planned(self, rates: _Rates, teams: Sequence[Team], budget: Budget) -> Plan | None:
        """Choose teams by estimates, learn what those make that are chosen, and choose again."""
        rating = budget.share(RATING)
        values, known = [0.0 if rating.spent else rates.estimate(team) for team in teams], dict[int, list[Rated]]()
        available = [len(kind) for kind in rates.kinds]
        counts = chosen(teams, values, available)
        for _ in range(ROUNDS):
            new = [t for t, count in enumerate(counts) if count and t not in known]
            if not new or budget.spent:
                break
            for t in new:
                if not budget.spent:
                    known[t] = rates.of(teams[t])
                    whole = all(rated.rate > 0.0 for rated in known[t])
                    values[t] = sum(rated.rate for rated in known[t]) if whole else 0.0
            counts = chosen(teams, values, available)
        if any(count and t not in known for t, count in enumerate(counts)):
            counts = chosen(teams, [value if t in known else 0.0 for t, value in enumerate(values)], available)
        parts = self._parts(counts, known)
        placed = list(_copies(rates, teams, counts, parts))
        if not placed:
            return None
        problem = rates.line.problem
        return plan_for(problem, placed[0].device_of, copies=placed, provenance=Provenance("servers"))

    def _parts(self, counts: Sequence[int], known: dict[int, list[Rated]]) -> dict[tuple[int, int], list[Part]]:
        """Give each pipeline its mixture, those first that gain most, while there are not too many copies."""
        used = {t: count for t, count in enumerate(counts) if count}
        parts = {(t, p): [known[t][p].alone] for t in used for p in range(len(known[t]))}
        copies = sum(counts[t] for t, _ in parts)
        for t, p in sorted(parts, key=lambda k: (-counts[k[0]] * known[k[0]][k[1]].gain, k)):
            more = counts[t] * (len(known[t][p].mixed) - 1)
            if known[t][p].gain > 0.0 and copies + more <= self.most_copies:
                copies += more
                parts[t, p] = known[t][p].mixed
        return parts


@dataclass(frozen=True, eq=False)
class Rated:
    """What a pipeline makes: with one cut of the line alone, and with a mixture of cuts."""

    alone: Part
    mixed: list[Part]

    @property
    def rate(self) -> float:
        """Samples a second."""
        return max(self.alone[1], sum(rate for _, rate in self.mixed))

    @property
    def gain(self) -> float:
        """Samples a second that the mixture makes more."""
        return self.rate - self.alone[1]


class _Rates:
    """Samples a second of teams, alike pipelines once."""

    def __init__(self, line: Line, kinds: Sequence[Servers], sync: Floats) -> None:
        self.line, self.kinds, self.sync = line, kinds, sync
        self._estimates: dict[Alike, float] = {}
        self._known: dict[Alike, Rated] = {}

    def pipelines(self, team: Team) -> list[Pipeline]:
        """Return a team's pipelines, on the first servers of each kind."""
        together = len(team.pipelines)
        return [Pipeline(self.line, team.devices(p, self.kinds), together) for p in range(together)]

    def estimate(self, team: Team) -> float:
        """Return about how many samples a second it makes; 0 where a pipeline does not hold the network."""
        found = []
        for pipeline in self.pipelines(team):
            if pipeline.alike not in self._estimates:
                self._estimates[pipeline.alike] = pipeline.estimate(self.sync)
            found.append(self._estimates[pipeline.alike])
        return sum(found) if min(found) > 0.0 else 0.0

    def of(self, team: Team) -> list[Rated]:
        """Return what each pipeline of a team makes."""
        found = []
        for pipeline in self.pipelines(team):
            if pipeline.alike not in self._known:
                rate, cuts = pipeline.cut(self.sync)
                mixed = pipeline.mixed(cuts, self.sync) if rate > 0.0 and len(pipeline.devices) > 1 else []
                self._known[pipeline.alike] = Rated((cuts, rate), mixed)
            found.append(self._known[pipeline.alike])
        return found


def why_not_servers(problem: Problem) -> str | None:
    """Return the reason why a problem is out of reach: too many tensors go far."""
    crossings = span_of(problem).crossings
    if crossings > MOST_CROSSINGS:
        return f"its tensors pass {crossings:,} blocks, more than {MOST_CROSSINGS:,}; coarsen the network"
    return None


def _sync_s_per_byte(problem: Problem) -> float:
    """Seconds a sample for each byte of weights when many hold them: at the given rate, or that of the slowest link."""
    objective = throughput_of(problem)
    slowest = min((link.bandwidth_bytes_per_s for link in problem.cluster.links), default=float("inf"))
    return 2.0 / (objective.sync_bandwidth_bytes_per_s or slowest) / objective.sync_period


def _copies(
    rates: _Rates, teams: Sequence[Team], counts: Sequence[int], parts: dict[tuple[int, int], list[Part]]
) -> Iterator[Copy]:
    """Give teams their servers, in order; one copy of the network for each part of each pipeline."""
    left = [list(kind) for kind in rates.kinds]
    for t, count in enumerate(counts):
        for _ in range(count):
            own = [servers[:n] for servers, n in zip(left, teams[t].takes, strict=True)]
            left = [servers[n:] for servers, n in zip(left, teams[t].takes, strict=True)]
            for p in range(len(teams[t].pipelines)):
                for at, rate in parts[t, p]:
                    yield Copy(rates.line.placed(at, teams[t].devices(p, own)), rate)
