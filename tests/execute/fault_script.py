"""Ranks that are killed, stopped, cut off, loop, compute wrongly, or lack memory: what they say and leave.

One process imports torch and forks the ranks of each case, as ``torchrun`` would start them: it hosts the store, and
ends all when one of them has died.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch.distributed import TCPStore

from placewright.capture.torch_export import capture_program, export_module
from placewright.errors import PlacewrightError
from placewright.evaluate import judge, plan_for
from placewright.execute.ranks.faults import line_of
from placewright.execute.ranks.main import run_rank
from placewright.io import write_plan
from placewright.result import Result

from .small_torch import problem_of

LIMIT_S = 2.5
FAULT = "PLACEWRIGHT_TEST_FAULT"
"""Variable with what goes wrong on rank 1 of 3, when its operator runs."""


def _cut_off() -> None:
    """Close the connections to other ranks, that is all but the listening ones and those to the store."""
    store = int(os.environ["MASTER_PORT"])
    for name in Path("/proc/self/fd").iterdir():
        try:
            stream = socket.socket(fileno=os.dup(int(name.name)))
        except OSError:
            continue
        with stream:
            try:
                if stream.family in (socket.AF_INET, socket.AF_INET6) and stream.getpeername()[1] != store:
                    stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _misbehaves() -> bool:
    return os.environ.get("RANK") == "1" and os.environ.get("WORLD_SIZE") == "3"


def _misbehave() -> None:
    if not _misbehaves():
        return
    fault = os.environ[FAULT]
    if fault in ("SIGKILL", "SIGSTOP"):
        time.sleep(1.2)  # as long as it takes to tell the others what is computed
        os.kill(os.getpid(), getattr(signal, fault))
    elif fault == "loop":
        while True:
            pass
    elif fault == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
        torch.empty(1 << 40)
    elif fault == "error":
        raise ValueError("no such token")
    elif fault == "cut":
        _cut_off()


@torch.library.custom_op("fault_script::frail", mutates_args=())
def frail(x: torch.Tensor) -> torch.Tensor:
    """Return x, unless something goes wrong."""
    _misbehave()
    return x * 1.5 if _misbehaves() and os.environ[FAULT] == "wrong" else x.clone()


@frail.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Net(torch.nn.Module):
    """Three layers with the frail operator between the second and the third."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(frail(self.second(self.first(x))))


def net() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Give the module and its inputs."""
    torch.manual_seed(0)
    return Net().eval(), (torch.ones(2, 4),)


def write_small_plan(folder: Path) -> Path:
    """Write a plan: the second layer and the frail operator on d1, the first on d0, the last, without outlet, on d2."""
    module, args = net()
    problem = problem_of(capture_program(export_module(module, args, {})), 3, np.random.default_rng(0))
    at = [1 if v.name in ("second", "frail") or "frail" in v.name else 0 for v in problem.graph.operators]
    at[-1] = 2
    plan = plan_for(problem, at)
    assert plan is not None
    path = folder / "plan.json"
    write_plan(path, problem, Result(plan), judge(problem, plan))
    return path


def _rank(plan: Path, rank: int, world: int, port: int, said: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    os.dup2(said, 2)
    try:
        run_rank(plan, model="py:tests.execute.fault_script:net", runs=1, timeout_s=LIMIT_S)
    except PlacewrightError as error:
        sys.stderr.write(f"placewright: rank {rank}: {line_of(error)}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)
    os._exit(0)


def case(fault: str, plan: Path, world: int) -> dict[str, object]:
    """Run one case: what was said, how each rank ended, and how many seconds it took from the start."""
    os.environ[FAULT] = fault
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
    heard, said = os.pipe()
    pids = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            _rank(plan, rank, world, store.port, said)
        pids.append(pid)
    os.close(said)
    codes: dict[int, int] = {}
    begun = time.monotonic()
    while len(codes) < world and time.monotonic() < begun + 60:
        for rank, pid in enumerate(pids):
            ended, status = os.waitpid(pid, os.WNOHANG) if rank not in codes else (0, 0)
            if ended:
                codes[rank] = os.waitstatus_to_exitcode(status)
                if codes[rank] < 0:
                    for other in (p for r, p in enumerate(pids) if r not in codes):
                        os.kill(other, signal.SIGTERM)
        time.sleep(0.05)
    seconds = time.monotonic() - begun
    left = [r for r in range(world) if r not in codes]
    for r in left:
        os.kill(pids[r], signal.SIGKILL)
        os.waitpid(pids[r], 0)
    with os.fdopen(heard) as stream:
        lines = stream.read().splitlines()
    return {"fault": fault, "codes": [codes.get(r) for r in range(world)], "left": left, "said": lines, "s": seconds}


if __name__ == "__main__":
    import tempfile

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = write_small_plan(Path(folder))
        for name in sys.argv[1:]:
            print(json.dumps(case(name, path, 3)), flush=True)
