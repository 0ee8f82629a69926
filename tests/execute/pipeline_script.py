"""One rank of the test of many samples over gloo: torch's pipelining and our own executor on chains and copies."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from placewright.execute.pipeline.handed_over import why_no_chain
from placewright.execute.pipeline.reference import largest_difference
from placewright.execute.pipeline.samples import loss_of, sample_inputs
from placewright.execute.pipeline.setup import add_up_gradients, learning_of, pipeline_of, rank_of_pipeline
from placewright.execute.pipeline.transport import Gloo
from placewright.execute.torch.local import relative_error
from placewright.plan import Copy

from .small_torch import problem_of, random_plan
from .threaded_ranks import threaded

SAMPLES = 6

CASES = (
    ("chain", "forward", True),
    ("chain", "gpipe", True),
    ("turned", "1f1b", True),
    ("turned", "1f1b", False),
    ("copies", "1f1b", False),
    ("back", "gpipe", False),
)
"""Placement, schedule, and whether torch runs it."""


class Chain(torch.nn.Module):
    """Four layers, of which the first one's result is read again, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(5, 5) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x = torch.tanh(self.layers[0](x))
        for layer in self.layers[1:3]:
            x = torch.tanh(layer(x))
        x = torch.tanh(self.layers[3](x + first))
        return (x * x).mean()


def chain() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """What ``py:tests.execute.pipeline_script:chain`` names."""
    torch.manual_seed(1)
    return Chain(), (torch.randn(3, 5),)


def main() -> None:
    """Print a line a case: its number, the largest error, the samples that each rank took."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    torch.set_num_threads(1)
    module, args = chain()
    given = threaded((module, args, {}))
    problem = problem_of(given.graph, 2, np.random.default_rng(0))
    n = len(given.graph)
    drawn = random_plan(problem, np.random.default_rng(0))
    first, second = ([int(k >= n // 2) for k in range(n)], [int(k < n // 2) for k in range(n)])
    plans: dict[str, Any] = {
        "chain": replace(drawn, device_of=np.array(first)),
        "turned": replace(drawn, device_of=np.array(second)),
        "copies": replace(drawn, copies=(Copy(np.array(first), 0.7), Copy(np.zeros(n), 0.3))),
        "back": replace(drawn, device_of=np.array([k // 3 % 2 for k in range(n)])),
    }
    rank_of = {0: 0, 1: 1}
    inputs = [sample_inputs(given.inputs, m) for m in range(SAMPLES)]
    expected = [module(inp) for row in inputs for inp in row.values()]
    (sum(expected, start=torch.zeros(())) / SAMPLES).backward()  # type: ignore[no-untyped-call]
    gradients = {t: p.grad for t, p in module.named_parameters()}
    for case, (name, schedule, by_torch) in enumerate(CASES):
        pipeline = pipeline_of(given.program, problem, plans[name], SAMPLES, schedule=schedule)  # type: ignore[arg-type]
        learns = learning_of(given.program, pipeline.routes) if schedule != "forward" else None
        tracked = learns.tracked if learns is not None else frozenset()
        why = why_no_chain(given.program, pipeline.routes, tracked, SAMPLES, schedule)
        assert (why is None) == (name in ("chain", "turned")), why
        transport = Gloo(learns.together(rank_of) if learns is not None else ())
        mine, weights = rank_of_pipeline(
            given.program,
            problem,
            pipeline,
            rank,
            rank_of,
            transport,
            inputs,
            learns=learns,
            loss=loss_of(given.program, tracked, None) if learns is not None else None,
            chain=schedule if by_torch else None,  # type: ignore[arg-type]
        )
        dist.barrier()
        passed = mine.run(pipeline.actions(rank), pipeline.dealt, keep=learns is None)
        found: dict[str, Any] = {}
        if weights is not None and learns is not None:
            add_up_gradients(weights, learns, rank_of, transport)
            found = {t: p.grad for t, p in weights.parameters.items()}
        gathered: list[Any] = [None, None]
        dist.gather_object((passed.outputs, found, len(passed.ended_s)), gathered if rank == 0 else None)
        if rank:
            continue
        if learns is None:
            made = {m: v for outputs, _, _ in gathered for m, row in outputs.items() for v in row.values()}
            error = max(relative_error([made[m]], [expected[m]]) for m in range(SAMPLES))
        else:
            held = [g for _, g, _ in gathered]
            assert set(gradients) == {t for g in held for t in g}
            error = max(largest_difference(g, {t: gradients[t] for t in g}) for g in held)
        print("case", case, error, *(count for _, _, count in gathered), flush=True)
    dist.barrier()  # nobody closes a connection that another one reads from
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
