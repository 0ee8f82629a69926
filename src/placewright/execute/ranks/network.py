"""The network as each rank of a distributed run has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.execute.network import load_torch
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.execute.ranks.run import RankRun

__all__ = ["RANDOM", "RankNetwork"]

RANDOM = "random"
"""In place of a folder of weights: values drawn from each weight's name, the same on every rank."""


class RankNetwork:
    """The network on every rank: its program, its inputs, and its weights as far as they are asked for.

    Attributes
    ----------
    parts, unread : TorchProgram
        With weights that are read when they are asked for, and with those that the module was built with.
    inputs : dict of str to value
        By the name of their fx node.
    spec : TreeSpec
        How the inputs stand in a call.
    whole : bool
        Whether the unsplit network can be run here.
    """

    def __init__(self, problem: Problem, plan: Plan, location: str, weights: str | None) -> None:
        import torch
        from torch.export import ExportedProgram

        from placewright.capture.torch_export import export_module
        from placewright.capture.torch_program import take_apart
        from placewright.execute.ranks.weights import RankWeights, random_inputs, shards_of
        from placewright.execute.torch.local import flat_inputs, places_of

        self.problem, self.plan = problem, plan
        self.model, args, kwargs = load_torch(problem, location)
        self.args, self.kwargs = random_inputs((args, kwargs))
        program = self.model
        if not isinstance(program, ExportedProgram):
            on_meta = any(t.is_meta for t in (*self.model.parameters(), *self.model.buffers()))
            program = export_module(self.model, *((args, kwargs) if on_meta else (self.args, self.kwargs)))
        parts = take_apart(program, fold=any(v.folded for v in problem.graph.operators))
        self.unread, self.spec = parts, program.call_spec.in_spec
        shards = {} if weights is None or weights == RANDOM else shards_of(Path(weights))
        self.parts = replace(parts, weights=RankWeights(parts.weights, shards, drawn=weights == RANDOM))
        self.whole = not any(w.tensor.is_meta and w.tensor.numel() for w in parts.weights.values())
        self.inputs = dict(zip(parts.inputs, flat_inputs(program, self.args, self.kwargs), strict=True))
        self.places = places_of(parts, problem, plan)
        self.place = torch.device("cpu")

    def rank(self, used: Sequence[int], rank: int) -> RankRun:
        """Make what a rank runs."""
        from placewright.execute.ranks.run import RankRun
        from placewright.execute.ranks.segments import segments_of
        from placewright.execute.torch.parts import held_by

        own = used[rank]
        segments = segments_of(self.parts, self.places, self.problem, self.plan)
        held = held_by(self.parts, self.places, own, self.place, returned=rank == 0)
        device = self.problem.cluster.devices[own]
        rank_of = {i: k for k, i in enumerate(used)}
        return RankRun(
            self.parts, segments, rank_of, own, device.name, held, self.inputs, self.place, pace=device.cpu_share
        )

    def error(self, outputs: dict[int, Any]) -> float:
        """Largest relative difference from the unsplit network; NaN where that can't be run."""
        from placewright.execute.torch.local import relative_error, unsplit_outputs

        if not self.whole:
            return float("nan")
        split = [outputs[k] for k in range(len(self.parts.outputs))]
        return relative_error(split, unsplit_outputs(self.model, self.args, self.kwargs))
