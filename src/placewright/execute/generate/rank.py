"""Generate by ranks that ``torchrun`` has started, on one host or several: each of them takes the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placewright.execute.generate.generation import Generation, check_prompts, greedy
from placewright.execute.generate.options import Asked
from placewright.execute.generate.run import decoder_job
from placewright.execute.ranks.join import joined
from placewright.io import read_plan

__all__ = ["generate_rank"]


def generate_rank(
    plan_path: Path, asked: Asked, *, model: str | None, weights: str | None, timeout_s: float = 60.0
) -> Generation | None:
    """Run this process's layers; parameters as :func:`placewright.execute.generate.run.generate_plan`.

    The rank with the last unit tells all others the tokens, so that each knows what the next step reads, and when to
    end.

    Returns
    -------
    Generation or None
        On rank 0.

    Raises
    ------
    InvalidInput
        If the plan, the model or a prompt can't be used.
    ExecutionError
        If another rank is lost.
    """
    file = read_plan(plan_path)
    job = decoder_job(file, plan_path, model, weights, timeout_s)
    with joined(file.problem, file.plan, timeout_s) as rank:
        import torch
        import torch.distributed as dist

        from placewright.execute.generate.part import decoder_part

        part = decoder_part(file.problem, file.plan, job.model or "", job.weights, rank)
        check_prompts(asked.prompts, asked.tokens, part.decoder)
        dist.barrier()

        def step(rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Sequence[int]:
            chosen = part.rank.step(0, torch.tensor(rows), pads)
            told = torch.zeros(len(rows), dtype=torch.int64) if chosen is None else chosen
            dist.broadcast(told, src=part.head)
            return [int(token) for token in told]

        made = greedy(step, asked.prompts, asked.tokens, part.decoder.ends if asked.ends is None else asked.ends)
        dist.barrier()  # nobody closes a connection that another one still reads from
        return made if rank == 0 else None
