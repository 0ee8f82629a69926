"""A placement problem: graph, cluster, times, objective and wishes in one frozen, validated object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import numpy.typing as npt

from placewright.cluster import Cluster
from placewright.errors import InvalidInput
from placewright.graph import RESIDENT_PARTS, OperatorGraph
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput, as_objective
from placewright.units import format_bytes

__all__ = ["Problem", "Times", "Wish"]

LONGEST_S = 1e100
"""Of a time that is finite: sums of such ones stay finite, and none is taken for what can't be."""

MOST_TABLE_TIMES = 2**27


@dataclass(frozen=True, eq=False)
class Times:
    """Processing times, and transfer times where links don't give them.

    Attributes
    ----------
    processing_s : (n, D) array
        p[v, i] in seconds; ``inf`` where device i can't run operator v.
    transfer_s : (T, D, D) array or None
        c[u, i, j] in seconds for every tensor, when a file gives them; ``None``: what the links say.
    cut_s : (n, D) array or None
        Seconds that operator v on device i loses at one side of a cut: once when it reads a tensor made elsewhere, and
        once again when one of its tensors is read elsewhere. ``None``: the device's ``cut_overhead_s``.
    source : str
        How they were had: ``profiled``, ``roofline``, ``given``...
    """

    processing_s: npt.NDArray[np.float64]
    transfer_s: npt.NDArray[np.float64] | None = None
    source: str = "given"
    cut_s: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for name in ("processing_s", "transfer_s", "cut_s"):
            given = getattr(self, name)
            if given is not None:
                array = np.array(given, dtype=np.float64)
                array.setflags(write=False)
                object.__setattr__(self, name, array)


@dataclass(frozen=True, slots=True)
class Wish:
    """A user's pin or forbid: operators whose name matches the pattern run only on, or never on, a device.

    Attributes
    ----------
    pattern : str
        Shell-style (``encoder.*``), matched against operator names and the names of their parts.
    device : str
        Name or shell-style pattern of devices.
    forbid : bool
    """

    pattern: str
    device: str
    forbid: bool = False


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that determines a plan's value.

    Parameters
    ----------
    graph : OperatorGraph
    cluster : Cluster
    times : Times or (n, D) array of seconds
    objective : Objective or str
    wishes : sequence of Wish
    name : str
        Defaults to the graph's.

    Raises
    ------
    InvalidInput
        With every violation: wrong shapes, NaN or negative times, a wish that matches nothing.

    Notes
    -----
    That no device may run an operator is not an error here but an infeasible problem; see :attr:`allowed`.

    Examples
    --------
    >>> from placewright.graph import Operator
    >>> from placewright.cluster import Device
    >>> problem = Problem(OperatorGraph([Operator("a")]), Cluster([Device("gpu"), Device("cpu")]), [[1.0, 2.0]],
    ...                   wishes=[Wish("a", "cpu")])
    >>> problem.allowed.tolist()
    [[False, True]]
    """

    graph: OperatorGraph
    cluster: Cluster
    times: Times
    objective: Objective = field(default_factory=Makespan)
    wishes: tuple[Wish, ...] = ()
    name: str = ""

    def __init__(
        self,
        graph: OperatorGraph,
        cluster: Cluster,
        times: Times | npt.ArrayLike,
        objective: Objective | str = "makespan",
        wishes: Iterable[Wish] = (),
        name: str = "",
    ) -> None:
        set_ = object.__setattr__
        set_(self, "graph", graph)
        set_(self, "cluster", cluster)
        set_(self, "times", times if isinstance(times, Times) else Times(np.asarray(times, dtype=np.float64)))
        set_(self, "objective", as_objective(objective))
        set_(self, "wishes", tuple(wishes))
        set_(self, "name", name or graph.name)
        violations = self._violations()
        if violations:
            raise InvalidInput(violations, what=f"problem {self.name!r}" if self.name else "problem")

    @cached_property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """(n, D) whether device i may run operator v: finite time, every wish, and the same for its whole unit.

        Under ``offload`` a unit shares the pool of CPUs, not one of them: any CPU device may run its part of it.
        """
        allowed = np.isfinite(self.times.processing_s)
        for wish in self.wishes:
            rows, columns = self._matches(wish)
            if wish.forbid:
                allowed[np.array(rows)[:, None], columns] = False
            else:
                others = np.setdiff1d(np.arange(len(self.cluster)), columns)
                allowed[np.array(rows)[:, None], others] = False
        pooled = isinstance(self.objective, Offload)
        pool = np.array([pooled and d.kind == "cpu" for d in self.cluster.devices])
        for members in self.graph.colocation:
            rows = list(members)
            everywhere = allowed[rows].all(axis=0)
            if pool.any():
                in_pool = bool(allowed[rows][:, pool].any(axis=1).all())
                allowed[rows] = np.where(pool, allowed[rows] & in_pool, everywhere)
            else:
                allowed[rows] = everywhere
        allowed.setflags(write=False)
        return allowed

    @cached_property
    def cut_s(self) -> npt.NDArray[np.float64]:
        """(n, D) seconds that operator v on device i loses at either side of a cut."""
        if self.times.cut_s is not None:
            return self.times.cut_s
        table = np.tile([d.cut_overhead_s for d in self.cluster.devices], (len(self.graph), 1))
        table.setflags(write=False)
        return table

    @cached_property
    def resident_bytes(self) -> npt.NDArray[np.int64]:
        """(n,) bytes that each operator holds for as long as the plan runs: weights, KV cache, what training keeps."""
        return np.array([v.resident_bytes for v in self.graph.operators], dtype=np.int64)

    @cached_property
    def resident_parts(self) -> npt.NDArray[np.int64]:
        """(parts, n) the same, part by part in the order of :data:`placewright.graph.RESIDENT_PARTS`."""
        rows = [[getattr(v, part) for v in self.graph.operators] for part in RESIDENT_PARTS]
        return np.array(rows, dtype=np.int64)

    def resident_listing(self, operators: Sequence[int] | None = None) -> str:
        """Say what operators (by default all) hold, part by part: ``weights 4 GiB, gradients 4 GiB``."""
        chosen = slice(None) if operators is None else list(operators)
        sizes = self.resident_parts[:, chosen].sum(axis=1).tolist()
        there = [
            f"{name} {format_bytes(size)}" for name, size in zip(RESIDENT_PARTS.values(), sizes, strict=True) if size
        ]
        return ", ".join(there)

    def transfer_s(self, tensor: int, source: int, target: int) -> float:
        """c[u, i, j] in seconds: 0 on one device, ``inf`` where unreachable."""
        if source == target:
            return 0.0
        if self.times.transfer_s is not None:
            return float(self.times.transfer_s[tensor, source, target])
        if self.transfer_table is not None:
            return float(self.transfer_table[tensor, source, target])
        return self.cluster.transfer_s(self.graph.tensors[tensor].size_bytes, source, target)

    @cached_property
    def transfer_table(self) -> npt.NDArray[np.float64] | None:
        """(T, D, D) c[u, i, j] where a file gives them or a link has points; ``None``: latency + bytes / bandwidth."""
        if self.times.transfer_s is not None or not self.cluster.bends:
            return self.times.transfer_s
        table = self.cluster.transfer_table([t.size_bytes for t in self.graph.tensors])
        table.setflags(write=False)
        return table

    def _matches(self, wish: Wish) -> tuple[list[int], list[int]]:
        rows = [
            k
            for k, v in enumerate(self.graph.operators)
            if any(fnmatchcase(name, wish.pattern) for name in {v.name, *v.parts})
        ]
        columns = [i for i, d in enumerate(self.cluster.devices) if fnmatchcase(d.name, wish.device)]
        return rows, columns

    def _violations(self) -> list[str]:
        found: list[str] = []
        n, D, T = len(self.graph), len(self.cluster), len(self.graph.tensors)
        p, c = self.times.processing_s, self.times.transfer_s
        if p.shape != (n, D):
            return [f"processing times have the shape {p.shape}, not (operators, devices) = ({n}, {D})"]
        if c is not None and c.shape != (T, D, D):
            return [f"transfer times have the shape {c.shape}, not (tensors, devices, devices) = ({T}, {D}, {D})"]
        cut = self.times.cut_s
        if cut is not None and cut.shape != (n, D):
            return [f"cut times have the shape {cut.shape}, not (operators, devices) = ({n}, {D})"]
        if cut is not None and not (np.isfinite(cut) & (cut >= 0)).all():
            v, i = np.argwhere(~(np.isfinite(cut) & (cut >= 0)))[0].tolist()
            found.append(
                f"operator {self.graph.operators[v].name!r} on {self.cluster.devices[i].name!r}: "
                f"cut time {cut[v, i]} s is not a finite number of at least 0"
            )
        for v, i in np.argwhere(~(p >= 0))[:20].tolist():
            found.append(
                f"operator {self.graph.operators[v].name!r} on {self.cluster.devices[i].name!r}: processing time "
                f"{p[v, i]} s is not a number of at least 0; use inf where it can't run"
            )
        if c is not None:
            for u, i, j in np.argwhere(~(c >= 0))[:20].tolist():
                found.append(
                    f"tensor {self.graph.tensors[u].name!r} {i}->{j}: transfer time {c[u, i, j]} s is not >= 0"
                )
        for what, given in (("processing", p), ("cut", cut), ("transfer", c)):
            largest = 0.0 if given is None else float(given.max(where=np.isfinite(given), initial=0.0))
            if largest > LONGEST_S:
                found.append(f"{what} time {largest} s is above {LONGEST_S:g} s; use inf where it can't be")
        if c is None and self.cluster.bends and T * D * D > MOST_TABLE_TIMES:
            found.append(
                f"links with points make a table of tensors x devices x devices = {T} x {D} x {D} transfer times, more "
                f"than the {MOST_TABLE_TIMES} that it may have; leave out the points"
            )
        if _syncs_for_nothing(self):
            found.append(
                "replicas synchronise their weights, but some devices of equal times have no link of finite bandwidth "
                "between them; give the sync bandwidth (--sync-bandwidth '10 GB/s')"
            )
        for wish in self.wishes:
            rows, columns = self._matches(wish)
            verb = "forbid" if wish.forbid else "pin"
            if not columns:
                known = ", ".join(d.name for d in self.cluster.devices[:12])
                found.append(
                    f"{verb} {wish.pattern}={wish.device}: no device is named {wish.device!r}; there are: {known}"
                )
            if not rows:
                found.append(
                    f"{verb} {wish.pattern}={wish.device}: no operator matches {wish.pattern!r}; "
                    "'placewright show' lists their names"
                )
        return found


def _syncs_for_nothing(problem: Problem) -> bool:
    """Whether replicas would synchronise over no link, or an infinite one where a table gives the times."""
    objective, cluster = problem.objective, problem.cluster
    if not (isinstance(objective, Throughput) or (isinstance(objective, MaxLoad) and objective.replicate)):
        return False
    if objective.sync_bandwidth_bytes_per_s is not None or not any(v.backward for v in problem.graph.operators):
        return False
    given = problem.times.transfer_s is not None
    if given and any(link.bandwidth_bytes_per_s == float("inf") for link in cluster.links):
        return True
    if isinstance(objective, Throughput):  # copies need not meet: those that do are judged
        return False
    p = problem.times.processing_s
    apart = np.argwhere((cluster.rule_of < 0) & ~np.eye(len(cluster), dtype=bool))
    return any(bool((p[:, i] == p[:, j]).all()) for i, j in apart.tolist())
