"""One rank of the test of distributed runs: random placements of small networks, compared with the unsplit ones."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from placewright.capture.torch_export import capture_program, export_module
from placewright.capture.torch_program import take_apart
from placewright.evaluate import plan_for
from placewright.execute.ranks.run import RankRun
from placewright.execute.ranks.segments import segments_of
from placewright.execute.torch.local import flat_inputs, places_of, relative_error
from placewright.execute.torch.parts import held_by

from .small_torch import NETWORKS, problem_of, random_plan


def main() -> None:
    """Print a line a network and placement: its name, the largest error, the numbers of segments and messages."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        torch.manual_seed(0)
        module, args, kwargs = NETWORKS[name]()
        program = export_module(module, args, kwargs)
        parts = take_apart(program)
        rng = np.random.default_rng(5)
        problem = problem_of(capture_program(program), world, rng)
        for _ in range(2):
            plan = plan_for(problem, random_plan(problem, rng).device_of)
            assert plan is not None
            places = places_of(parts, problem, plan)
            segments = segments_of(parts, places, problem, plan)
            cpu = torch.device("cpu")
            inputs = dict(zip(parts.inputs, flat_inputs(program, args, kwargs), strict=True))
            with torch.no_grad():
                held = held_by(parts, places, rank, cpu, returned=rank == 0)
                run = RankRun(parts, segments, {i: i for i in range(world)}, rank, f"d{rank}", held, inputs, cpu)
                outcomes = [run.run() for _ in range(2 if name != "branches" else 1)]  # one that counts its calls
                gathered: list[Any] = [None] * world
                dist.gather_object(outcomes[-1].outputs, gathered if rank == 0 else None)
                if rank:
                    continue
                outputs = {k: v for row in gathered for k, v in row.items()}
                if name == "branches":
                    module.calls.zero_()
                expected = tree_leaves(module(*args, **kwargs))
            error = relative_error([outputs[k] for k in range(len(parts.outputs))], expected)
            messages = sum(len(s.awaits) for row in segments.values() for s in row)
            print(name, error, sum(map(len, segments.values())), messages, flush=True)
    dist.barrier()  # nobody closes a connection that another one reads from
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
