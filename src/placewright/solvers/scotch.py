"""Scotch's graph partitioner, run as a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from placewright.algorithm import Budget, OnProgress, ignore
from placewright.ended_by_signal import cleared_when_ended
from placewright.errors import ExecutionError, InvalidInput
from placewright.loads import Loads, loads_of
from placewright.plan import Plan, Provenance
from placewright.problem import Problem
from placewright.result import Result
from placewright.solvers.as_max_load import as_max_load
from placewright.solvers.judged import judged, settled

__all__ = ["Scotch"]

Ints = npt.NDArray[np.int64]

PER_SECOND = 1e9
"""Weights are whole numbers: nanoseconds, the millionths of a millisecond of the published program."""

MOST_WEIGHT = 2**31 - 1
"""What all vertices together may weigh, as some builds of Scotch count in 32 bits."""

A_LOOK_S = 0.05
"""Seconds between two looks at the budget while the program runs."""

PARTITIONERS, MAPPERS = ("scotch_gpart", "gpart"), ("scotch_gmap", "gmap")
"""Names of the programs: Debian's, and those of Scotch's own installation."""


@dataclass(frozen=True, slots=True)
class Scotch:
    """Partition the network by Scotch, a baseline of arXiv 2006.16423: even processing times, few transfers.

    Vertices are colocation classes weighted by their processing times, edges are weighted by the transfer times between
    two classes, both ways; ``scotch_gpart`` (Pellegrini and Roman 1996) cuts the graph into one part an accelerator by
    its default strategy: parts within 5 % of even, a small sum of the edges cut. That sum is not the largest load, and
    a tensor is paid once for each class that reads it. As published it knows neither memory nor contiguity and uses no
    CPU: a partition that breaks a rule is no plan; where none of those that break none is as good, its value is
    returned as ``rejected_s``.

    Where it differs: Scotch's answer depends on the order in which vertices are listed, by a factor of 2 and more on
    the operator graphs. The published program lists them in the order of a hash table; here the order of the network is
    tried first, then random orders, and the best is kept: on the published files it is at least as good as the
    published value of one thread. For unlike accelerators a class weighs its mean time, and ``scotch_gmap`` maps onto
    parts weighted by speed (``cmpltw``); that a class can't run somewhere it doesn't know.

    ``Budget.iterations`` counts runs of the program. Scotch runs in one thread, so that its answer is repeatable.

    Guarantee: none.
    Complexity: some O(E log V) a run.
    Source: Pellegrini and Roman 1996, as a baseline of arXiv 2006.16423.
    When to use: to compare with graph partitioning; needs the program ``scotch_gpart``.

    Attributes
    ----------
    orders : int
        Runs.
    run_s : float
        Longest time of a run in seconds; one that takes longer is ended, and is the last.
    """

    orders: int = 32
    run_s: float = 60.0

    def supports(self, problem: Problem) -> str | None:
        """Tell why a problem is out of reach: no accelerator, or no Scotch."""
        loads = loads_of(as_max_load(problem))
        if not loads.pays.any():
            return "it splits among accelerators, and there are none"
        names = PARTITIONERS if _alike(loads) else MAPPERS
        if _program(names) is None:
            return f"it needs the program {names[0]}; install it (apt-get install scotch)"
        return None

    def __call__(
        self,
        problem: Problem,
        *,
        budget: Budget,
        rng: np.random.Generator,
        incumbent: Plan | None = None,
        on_progress: OnProgress = ignore,
    ) -> Result:
        """Run Scotch on each order and judge the partitions."""
        begun, loads = budget.elapsed_s, loads_of(as_max_load(problem))
        names = PARTITIONERS if _alike(loads) else MAPPERS
        program, why_not = _program(names), self.supports(problem)
        if program is None or why_not is not None:
            raise InvalidInput(f"solver 'scotch' can't take this problem: {why_not}")
        targets = np.flatnonzero(loads.pays)
        vertex, edges = _weights(loads)
        runs = self.orders if budget.iterations is None else max(1, budget.iterations)
        best = Result()
        with cleared_when_ended(), TemporaryDirectory(prefix="placewright-scotch-") as folder:
            here = Path(folder)
            if names is MAPPERS:
                (here / "target.tgt").write_text(_speeds(loads))
            for run in range(runs):
                order = rng.permutation(loads.n_units) if run else np.arange(loads.n_units)
                (here / "source.grf").write_text(_graph_text(vertex, edges, order))
                what = str(len(targets)) if names is PARTITIONERS else "target.tgt"
                files = [what, "source.grf"] if names is PARTITIONERS else ["source.grf", what]
                part = _run([program, *files, "parts.map"], here, budget, self.run_s)
                if part is None:
                    break
                device = loads.devices_of(targets[part[np.argsort(order)]])
                best = best.merge(judged(problem, device, Provenance("scotch", None, "", {"run": run})))
                if budget.spent:
                    break
        return replace(settled(best), solver="scotch", runtime_s=budget.elapsed_s - begun)


def _alike(loads: Loads) -> bool:
    return len(set(loads.device_class[loads.pays].tolist())) <= 1


def _program(names: Sequence[str]) -> str | None:
    return next((found for found in map(shutil.which, names) if found), None)


def _weights(loads: Loads) -> tuple[Ints, dict[tuple[int, int], int]]:
    """Whole weights of the units, and of the pairs of units that send each other something."""
    on = loads.pays & loads.allowed
    work = np.where(on, loads.compute_s.sum(axis=0), 0.0).sum(axis=1) / np.maximum(1, on.sum(axis=1))
    ends = np.stack([loads.send_s[:, loads.pays], loads.receive_s[:, loads.pays]])
    known = np.isfinite(ends)
    seconds = np.where(known, ends, 0.0).sum(axis=(0, 2)) / np.maximum(1, known.sum(axis=(0, 2)))
    pair_s: dict[tuple[int, int], float] = {}
    for m, home in enumerate(loads.producer.tolist()):
        for k in loads.reader[loads.reader_ptr[m] : loads.reader_ptr[m + 1]].tolist():
            ends_of = min(home, k), max(home, k)
            pair_s[ends_of] = pair_s.get(ends_of, 0.0) + float(seconds[m])
    most = max(float(work.sum()), max(pair_s.values(), default=0.0))
    scale = min(PER_SECOND, MOST_WEIGHT / most) if most > 0 else PER_SECOND
    # Cut off, as in the published program; what seconds lose against its milliseconds is put back.
    return np.floor(work * scale + 1e-6).astype(np.int64), {k: int(x * scale + 1e-6) for k, x in pair_s.items()}


def _graph_text(vertex: Ints, edges: dict[tuple[int, int], int], order: npt.NDArray[np.int64]) -> str:
    """Write Scotch's text format, with the units as vertices in the order given.

    Examples
    --------
    >>> print(_graph_text(np.array([5, 7]), {(0, 1): 3}, np.array([1, 0])), end="")
    0
    2 2
    0 111
    0 7 1 3 1
    1 5 1 3 0
    """
    number = np.argsort(order).tolist()
    near: list[list[tuple[int, int]]] = [[] for _ in order]
    for (a, b), weight in edges.items():
        near[a].append((number[b], weight))
        near[b].append((number[a], weight))
    lines = ["0", f"{len(order)} {2 * len(edges)}", "0 111"]
    for x, k in enumerate(order.tolist()):
        arcs = [f"{weight} {other}" for other, weight in sorted(near[k])]
        lines.append(" ".join([str(x), str(vertex[k]), str(len(arcs)), *arcs]))
    return "\n".join(lines) + "\n"


def _speeds(loads: Loads) -> str:
    """Architecture of unlike accelerators: shares of the work that they would do in the same time, out of 1000."""
    on = loads.allowed[:, loads.pays]
    anywhere = on.all(axis=1) if on.all(axis=1).any() else np.ones(len(on), dtype=np.bool_)
    times = np.where(on, loads.compute_s.sum(axis=0)[:, loads.pays], 0.0)[anywhere].sum(axis=0)
    speed = times[times > 0].min() / times if (times > 0).all() else np.ones(len(times))
    shares = np.maximum(1, np.round(1000 * speed / speed.max())).astype(int).tolist()
    return " ".join(["cmpltw", str(len(shares)), *map(str, shares)]) + "\n"


def _run(command: list[str], folder: Path, budget: Budget, most_s: float) -> Ints | None:
    """Part of each vertex; ``None`` when the program was ended because it took too long or the budget was spent."""
    ended, began = folder / "parts.map", time.monotonic()
    ended.unlink(missing_ok=True)
    environment = {**os.environ, "SCOTCH_PTHREAD_NUMBER": "1"}
    with (folder / "log").open("wb") as log:
        # In a session of its own, where Ctrl-C does not reach it: the budget says when to stop.
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            while running.poll() is None:
                try:
                    running.wait(A_LOOK_S)
                except subprocess.TimeoutExpired:
                    if budget.spent or time.monotonic() - began > most_s:
                        return None
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
    if running.returncode or not ended.exists():
        said = (folder / "log").read_text(errors="replace").strip().splitlines()
        raise ExecutionError(
            f"{Path(command[0]).name} failed ({running.returncode}): {said[-1] if said else 'no message'}"
        )
    fields = np.array(ended.read_text().split()[1:], dtype=np.int64).reshape(-1, 2)
    part = np.zeros(len(fields), dtype=np.int64)
    part[fields[:, 0]] = fields[:, 1]
    return part
