"""One host of the execution benchmark: it holds networks and runs its part of many plans, again and again.

Networks are loaded once, by a process of which each host's worker is a fork. Both take tasks, a line of JSON each, and
answer each with a line: that process on its standard input and output, a worker on a socket in a file.
:mod:`benchmarks.quality.execution_hosts` asks them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import torch.distributed as dist

from placewright.execute.pipeline.handed_over import TorchChain, chain_of, why_no_chain
from placewright.execute.pipeline.rank import Passed
from placewright.execute.pipeline.setup import pipeline_of, rank_of_pipeline
from placewright.execute.pipeline.transport import Gloo
from placewright.execute.probe.workers import pair_seconds
from placewright.execute.ranks.network import RankNetwork
from placewright.execute.ranks.run import RankRun, Step
from placewright.execute.ranks.segments import Segment
from placewright.execute.torch.local import places_of
from placewright.execute.torch.parts import held_by
from placewright.io import read_problem
from placewright.plan import Plan, Schedule

AHEAD_S = 0.03
"""Between the agreement on a start and the start itself: nobody computes in between, so all have their share ahead."""
PATIENCE_S = 120.0
PR_SET_PDEATHSIG, CLONE_NEWNET = 1, 0x40000000
TORCH = "torch pipelining"
"""At the end of the name of a plan that torch's own pipelining runs."""
PLAIN = "plain"
"""In place of the name of a plan: the network's own module, on the first host, called as it is."""


class Worker:
    """What a host holds."""

    def __init__(self, networks: dict[str, RankNetwork], rank: int, world: int, meeting: str) -> None:
        self.networks, self.rank, self.world, self.meeting = networks, rank, world, meeting
        self.network: RankNetwork | None = None
        self.runs: dict[str, RankRun] = {}
        self.streams: dict[str, Callable[[], Passed]] = {}
        self.plain: Callable[[], Any] = lambda: None

    def meet(self) -> None:
        """Join the others."""
        patience = timedelta(seconds=PATIENCE_S)
        where = f"tcp://{self.meeting}"
        dist.init_process_group("gloo", init_method=where, rank=self.rank, world_size=self.world, timeout=patience)
        dist.barrier()

    def links(self, sizes_bytes: list[int]) -> list[list[Any]]:
        """Measure what tensors take between each two hosts; rows of (host, host, times fitted, times to check)."""
        rows = []
        for i in range(self.world):
            for j in range(i + 1, self.world):
                both = pair_seconds(dist, self.rank, i, j, "cpu", sizes_bytes)
                rows.append([i, j, *both.tolist()])
        return rows

    def handovers(self, sizes_bytes: list[int], count: int) -> list[float]:
        """Measure what a message takes of the processors: of the first host, which sends, and of the second one."""
        taken = []
        for size in sizes_bytes:
            content, single = torch.zeros(size, dtype=torch.uint8), []
            for k in range(count):
                dist.barrier()
                began = time.process_time()
                if self.rank == 0:
                    dist.isend(content, 1, tag=k).wait()
                elif self.rank == 1:
                    dist.irecv(torch.empty(size, dtype=torch.uint8), 0, tag=k).wait()
                single.append(time.process_time() - began)
            taken.append(statistics.median(single))
        return taken

    def take(self, name: str, problem: str) -> None:
        """Take one of the networks, as a problem poses it."""
        self.forget()
        self.network = self.networks[name]
        self.network.problem = read_problem(Path(problem))
        module, args, kwargs = self.network.model, self.network.args, self.network.kwargs
        self.plain = lambda: module(*args, **kwargs)

    def plans(self, plans: dict[str, Any]) -> dict[str, float]:
        """Get ready to run plans; on the first host, errors of the outputs that it has of them."""
        assert self.network is not None
        errors = {}
        for name, (device_of, start_s) in plans.items():
            schedule = Schedule(np.array(start_s), np.array(start_s))
            plan = Plan(np.array(device_of), schedule, 0.0)
            self.network.plan = plan
            self.network.places = places_of(self.network.parts, self.network.problem, plan)
            with torch.no_grad():
                self.runs[name] = self.network.rank(range(self.world), self.rank)
                made: list[Any] = [None] * self.world
                dist.barrier()
                outputs = self.runs[name].run().outputs
                dist.gather_object(outputs, made if self.rank == 0 else None)
                if self.rank == 0:
                    # Later rows first: rank 0 alone has what nobody makes.
                    errors[name] = self.network.error({k: v for row in made[::-1] for k, v in row.items()})
        return errors

    def streamed(self, plans: dict[str, Any], samples: int) -> dict[str, str]:
        """Get ready to pass many samples through plans; why torch's own pipelining can't run one that is for it."""
        assert self.network is not None
        posed, program = self.network.problem, self.network.parts
        ranks = {i: i for i in range(self.world)}
        inputs = [self.network.inputs] * samples
        refused = {}
        for name, (device_of, start_s) in plans.items():
            plan = Plan(np.array(device_of), Schedule(np.array(start_s), np.array(start_s)), 0.0)
            line = pipeline_of(program, posed, plan, samples)
            with torch.no_grad():
                if not name.endswith(TORCH):
                    mine, _ = rank_of_pipeline(program, posed, line, self.rank, ranks, Gloo(), inputs)
                    self.streams[name] = partial(mine.run, line.actions(self.rank), line.dealt)
                    continue
                (route,) = line.routes
                reason = why_no_chain(program, line.routes, (), samples, "forward")
                if reason is None and len(chain_of(route)) < self.world:
                    reason = "a host has no stage"
                if reason is not None:
                    refused[name] = reason
                    continue
                held = held_by(program, route.places, self.rank, self.network.place, returned=self.rank == 0)
                chain = TorchChain(program, route, self.rank, ranks, held, inputs, "forward")
                self.streams[name] = partial(chain.run, (), ())
        return refused

    def stream(self, names: list[str]) -> list[list[float]]:
        """Pass samples through plans, one plan after the other; of each, when each sample was done here."""
        told = []
        for name in names:
            begin = self._start()
            with torch.no_grad():
                ended = self.streams[name]().ended_s
            told.append([ended[k] - begin for k in sorted(ended)])
        return told

    def forget(self) -> None:
        """Forget the plans."""
        self.runs.clear()
        self.streams.clear()

    def run(self, names: list[str], spans: bool = False) -> list[Any]:
        """Run plans one after the other; of each what it took here, and what was done when, if wanted."""
        told = []
        for name in names:
            begin = self._start()
            rows: list[Any] = []
            with torch.no_grad():
                if name == PLAIN:
                    ended = begin if self.rank else self._plain_end()
                else:
                    outcome = self.runs[name].run()
                    ended = outcome.ended_s
                    rows = [_step(self.runs[name].segments[k], s, begin) for k, s in enumerate(outcome.steps)]
            told.append([ended - begin, rows if spans else []])
        return told

    def _plain_end(self) -> float:
        self.plain()
        return time.monotonic()

    def _start(self) -> float:
        """Agree on a time with the other hosts, and return at it."""
        start = torch.zeros(1, dtype=torch.float64)
        dist.barrier()
        if self.rank == 0:
            start[0] = time.monotonic() + AHEAD_S
        dist.broadcast(start, 0)
        begin = float(start[0])
        while (left := begin - time.monotonic()) > 0:
            time.sleep(left)
        return begin


def _step(segment: Segment, step: Step, begin: float) -> Any:
    """Tell what a host did of a segment, from the start of the run: waits, operators, sends."""
    return [
        [(m.name, a - begin, b - begin) for m, (a, b) in zip(segment.awaits, step.waits, strict=True)],
        [v.name for v in segment.operators],
        step.start_s - begin,
        [mark - begin for mark in step.marks],
        step.end_s - begin,
        [(m.name, *(at - begin for at in row)) for m, row in zip(segment.sends, step.sends, strict=True)],
    ]


class Loader:
    """The process that workers are forks of."""

    def __init__(self) -> None:
        self.networks: dict[str, RankNetwork] = {}

    def load(self, name: str, problem: str, model: str) -> None:
        """Make a network."""
        posed = read_problem(Path(problem))
        n = len(posed.graph)
        nothing = Plan(np.zeros(n, dtype=np.int64), Schedule(np.arange(n), np.arange(n)), 0.0)
        self.networks[name] = RankNetwork(posed, nothing, model, None)

    def fork(self, namespace: str, interface: str, meeting: str, rank: int, world: int, at: str) -> int:
        """Start a worker in a network namespace; its process."""
        process = os.fork()
        if process:
            return process
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            with Path(namespace).open() as file:
                if libc.setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            os.environ["GLOO_SOCKET_IFNAME"] = interface
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(at)
                with line.makefile("r") as tasks, line.makefile("w") as answers:
                    answer_all(Worker(self.networks, rank, world, meeting), tasks, answers)
        finally:
            os._exit(0)


def answer_all(asked: object, tasks: TextIO, answers: TextIO) -> None:
    """Do tasks until there are no more."""
    for line in tasks:
        task = json.loads(line)
        try:
            answer = {"value": getattr(asked, task.pop("do"))(**task)}
        except Exception as error:  # told to the benchmark, which stops
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Entry of the process."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    torch.set_num_threads(1)  # no thread is there to be lost in a fork
    answer_all(Loader(), sys.stdin, answers)


if __name__ == "__main__":
    main()
