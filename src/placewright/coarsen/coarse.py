"""Coarse problems: groups of operators placed as one, and the way back to a plan of every operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placewright.errors import InvalidInput
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.objective import Makespan
from placewright.plan import Plan, Provenance, Schedule, Transfer
from placewright.problem import Problem, Times

__all__ = ["Coarse", "contract"]


@dataclass(frozen=True, eq=False)
class Coarse:
    """A problem, and a smaller one whose operators are groups of its operators.

    Attributes
    ----------
    fine, problem : Problem
        The problem given, and the coarse one.
    groups : tuple of tuple of int
        For each coarse operator the operators that it stands for, in topological order.
    tensors : tuple of int
        For each coarse tensor the tensor that it is.

    Notes
    -----
    **Times.** Coarse operator G takes on device i the sum of p[v, i] over its members, as they do one after the other;
    ``inf`` where one of them may not run. With F and B the sums of cut[v, i] over the members that read a tensor from
    outside of G, and over those whose tensor is read outside, it loses max(F, B) at a side of a cut. Tensors between
    groups are those of the problem, sent once to each device.

    **Bounds.** A plan of the coarse problem is one of many of the fine problem, so the coarse optimum is never below
    the fine one. A lower bound of the coarse problem is *no* bound of the fine one.
    """

    fine: Problem
    problem: Problem
    groups: tuple[tuple[int, ...], ...]
    tensors: tuple[int, ...]

    def expand(self, plan: Plan) -> Plan | None:
        """Make of a coarse plan the plan in which every operator is where its group is, in the same order.

        Returns
        -------
        Plan or None
            Of a value that is not above the coarse plan's (but for rounding). ``None`` where it breaks a rule, which
            only memory can make it do: the tensors inside a group are nowhere in the coarse problem.

        Notes
        -----
        **No action starts later.** Take the coarse actions (operators and transfers) in the order of the coarse
        schedule, and let the members of a group follow each other in its place; every device and link takes its
        actions in this order, each as early as it can. By induction over it: when a transfer's turn comes, its tensor
        is there no later than at the end of its group, and all that used its links before have ended no later than in
        the coarse schedule; so it starts no later. When the turn of group G comes, on device i, all tensors that it
        reads have arrived, and the device is free, no later than at its coarse start S; inside, a member waits for
        nothing but the members before it. So they end no later than S plus their times plus what they lose at cuts. A
        member loses time before it only if it reads a tensor of another device, which then is one from outside of G,
        so that G loses time there as well, and at least as much as all such members together; the same holds behind.
        So all of G ends no later than in the coarse schedule, and the last action of all does.

        Examples
        --------
        >>> from placewright import Cluster, Device, Link
        >>> from placewright.evaluate import plan_for
        >>> graph = OperatorGraph([Operator("a"), Operator("b"), Operator("c")], [Tensor("x", 0, (1, 2), 8)])
        >>> pair = Cluster([Device("gpu"), Device("cpu")], [Link(1.0, 8.0, link_class="same-host")])
        >>> coarse = contract(Problem(graph, pair, [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]), [(0, 1)])
        >>> plan = plan_for(coarse.problem, [0, 1])
        >>> plan.value_s, coarse.expand(plan).value_s  # (1 + 2) + 2 + 4; x leaves when a is done: 1 + 2 + 4
        (9.0, 7.0)
        """
        # Loaded here, with all kernels: capture, which needs only the fusions of this package, does without.
        from placewright.evaluate import plan_for

        n, size = len(self.problem.graph), len(self.fine.graph)
        device = np.zeros(size, dtype=np.int32)
        place = np.zeros(size)
        transfers: list[Transfer] = []
        count = 0
        for action in _in_order(self.problem, plan.schedule):
            if isinstance(action, Transfer):
                transfers.append(Transfer(self.tensors[action.tensor], action.source, action.target, count, count))
                count += 1
                continue
            for v in self.groups[action]:
                device[v], place[v] = plan.device_of[action], count
                count += 1
        origin = plan.provenance
        parameters = {**origin.parameters, "coarse_operators": n}
        provenance = Provenance(origin.solver, origin.seed, origin.version, parameters)
        # Only the order of the schedule counts: the judge starts each action as early as it allows.
        order = Schedule(place, place, tuple(transfers))
        return plan_for(self.fine, device, schedule=order, provenance=provenance)


def _in_order(problem: Problem, schedule: Schedule) -> list[int | Transfer]:
    """Operators and transfers as they start; of those that start and end together, in topological order."""
    tensors = problem.graph.tensors
    starts, ends = schedule.start_s.tolist(), schedule.finish_s.tolist()
    keyed: list[tuple[tuple[float, float, int, int, int], int | Transfer]] = [
        ((starts[v], ends[v], v, 0, 0), v) for v in range(len(problem.graph))
    ]
    keyed += [
        ((x.start_s, x.finish_s, tensors[x.tensor].producer, 1 + x.tensor, x.target), x) for x in schedule.transfers
    ]
    return [action for _, action in sorted(keyed, key=lambda item: item[0])]


def contract(problem: Problem, groups: Iterable[Sequence[int]]) -> Coarse:
    """Make the coarse problem of some groups; operators in none of them stand for themselves.

    Parameters
    ----------
    problem : Problem
        With the objective ``makespan``.
    groups : iterable of sequence of int
        Operators that are placed as one, each in one group at most.

    Raises
    ------
    InvalidInput
        If the objective is another one, an operator is in two groups, or the groups form a cycle (which is named).

    Notes
    -----
    O(n + m + T D^2) for n operators, m readers, and T tensors whose times a table gives for D devices.

    Examples
    --------
    >>> from placewright import Cluster, Device
    >>> graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 8)])
    >>> coarse = contract(Problem(graph, Cluster([Device("gpu")]), [[1.0], [2.0]]), [(0, 1)])
    >>> [v.parts for v in coarse.problem.graph.operators], coarse.problem.times.processing_s.tolist()
    ([('a', 'b')], [[3.0]])
    """
    if not isinstance(problem.objective, Makespan):
        raise InvalidInput(
            f"coarsening keeps the value of plans under the makespan, not under {problem.objective.name}; leave it out"
        )
    graph = problem.graph
    rows, home = _partition(len(graph), groups)
    names = [graph.operators[row[0]].name for row in rows]
    made, tensors = [], []
    for u, t in enumerate(graph.tensors):
        readers = sorted({home[r] for r in t.readers} - {home[t.producer]})
        if readers or t.output:
            made.append(Tensor(t.name, home[t.producer], tuple(readers), t.size_bytes, t.shape, t.dtype, t.output))
            tensors.append(u)
    classes = [[names[k] for k in sorted({home[v] for v in members})] for members in graph.colocation]
    small = OperatorGraph.build([_operator(graph, row) for row in rows], made, classes, graph.name, graph.source)
    index = {name: k for k, name in enumerate(names)}
    chosen = tuple(rows[index[v.name]] for v in small.operators)
    # The graph sorts its tensors; names tell which is which.
    of_name = {graph.tensors[u].name: u for u in tensors}
    kept = tuple(of_name[t.name] for t in small.tensors)
    given = Times(
        _summed(np.where(problem.allowed, problem.times.processing_s, np.inf), chosen),
        None if problem.times.transfer_s is None else problem.times.transfer_s[list(kept)],
        problem.times.source,
        _cut_s(problem, chosen, home),
    )
    # Wishes are in the times: what may not run somewhere takes forever there.
    return Coarse(problem, Problem(small, problem.cluster, given, problem.objective, (), problem.name), chosen, kept)


def _partition(n: int, groups: Iterable[Sequence[int]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """All groups, ordered by their first operators, and the group of each operator."""
    leader = [-1] * n
    members: dict[int, tuple[int, ...]] = {}
    for group in groups:
        row = tuple(sorted(set(group)))
        for v in row:
            if leader[v] >= 0:
                raise InvalidInput(f"operator {v} is in two groups; groups must not overlap")
            leader[v] = row[0]
        members[row[0]] = row
    rows = [members.get(v, (v,)) for v in range(n) if leader[v] in (-1, v)]
    home = [0] * n
    for k, row in enumerate(rows):
        for v in row:
            home[v] = k
    return rows, home


def _operator(graph: OperatorGraph, row: Sequence[int]) -> Operator:
    first = graph.operators[row[0]]
    if len(row) == 1:
        return first
    members = [graph.operators[v] for v in row]
    return Operator(
        first.name,
        f"{len(row)} operators",
        sum(v.flops for v in members),
        sum(v.traffic_bytes for v in members),
        sum(v.weight_bytes for v in members),
        sum(v.kv_cache_bytes for v in members),
        first.dtype,
        parts=tuple(dict.fromkeys(name for v in members for name in v.part_names)),
        folded=tuple(dict.fromkeys(name for v in members for name in v.folded)),
        gradient_bytes=sum(v.gradient_bytes for v in members),
        optimizer_bytes=sum(v.optimizer_bytes for v in members),
        saved_bytes=sum(v.saved_bytes for v in members),
        caches=tuple(c for v in members for c in v.caches),
    )


def _summed(table: npt.NDArray[np.float64], rows: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    ends = np.cumsum([0, *map(len, rows)])[:-1]
    summed: npt.NDArray[np.float64] = np.add.reduceat(table[np.concatenate(rows)], ends, axis=0)
    return summed


def _cut_s(problem: Problem, rows: Sequence[Sequence[int]], home: Sequence[int]) -> npt.NDArray[np.float64]:
    """(N, D) seconds at a side of a cut: of all members that may lose time there, the side that is worse."""
    graph, cut = problem.graph, problem.cut_s
    reads = np.zeros(len(graph))
    is_read = np.zeros(len(graph))
    for t in graph.tensors:
        outside = [r for r in t.readers if home[r] != home[t.producer]]
        reads[outside] = 1.0
        is_read[t.producer] = max(is_read[t.producer], float(bool(outside)))
    return np.maximum(_summed(cut * reads[:, None], rows), _summed(cut * is_read[:, None], rows))
