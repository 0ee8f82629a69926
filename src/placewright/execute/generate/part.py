"""A rank's part of a decoder, from a plan: built, filled, and joined to the parts of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placewright.execute.generate.decoder_rank import DecoderRank, GlooWire
from placewright.execute.generate.halves import Halves, halves_of
from placewright.execute.generate.model import Members, prepared
from placewright.execute.generate.placement import decoder_placement
from placewright.execute.generate.units import Unit
from placewright.execute.serve.messages import Decoder
from placewright.plan import Plan
from placewright.problem import Problem

__all__ = ["DecoderPart", "decoder_part"]

UNBOUNDED = 1 << 20
"""Tokens that a decoder takes which says nothing of it."""


@dataclass(frozen=True)
class DecoderPart:
    """What a rank has.

    Attributes
    ----------
    rank : DecoderRank
    decoder : Decoder
        What is to know of the whole.
    modules : tuple of str
        Paths of those that run here, each as a whole.
    head : int
        Rank that has the last one, and so the tokens.
    """

    rank: DecoderRank
    decoder: Decoder
    modules: tuple[str, ...]
    head: int


def decoder_part(problem: Problem, plan: Plan, location: str, weights: str | None, rank: int) -> DecoderPart:
    """Build the part of one rank, whose group is joined; rank k has the k-th device that the plan uses.

    Raises
    ------
    InvalidInput
        If the model, its weights or the plan can't be used.
    """
    placement = decoder_placement(problem, plan)
    number = {i: k for k, i in enumerate(plan.devices_used)}
    parts: list[Unit | Halves] = []
    rank_of: dict[str, int] = {}
    own: list[tuple[str, Any]] = []

    def shared_out(units: list[Unit]) -> tuple[Members, Members]:
        parts.extend(placement.divided(units, _halves))
        small = [u for p in parts for u in ((p.first, p.second) if isinstance(p, Halves) else (p,))]
        rank_of.update({path: number[i] for path, i in placement.places(small).items()})
        own.extend(m for unit in small if rank_of[unit.path] == rank for m in unit.members)
        return own, [m for unit in small if rank_of[unit.path] != rank for m in unit.members]

    model = prepared(location, weights, shared_out)
    device = problem.cluster.devices[plan.devices_used[rank]]
    made = DecoderRank(model, parts, rank_of, rank, GlooWire(), device.cpu_share)
    last = parts[-1]
    head = rank_of[last.second.path if isinstance(last, Halves) else last.path]
    return DecoderPart(made, _facts(model), tuple(path for path, _ in own), head)


def _halves(unit: Unit) -> Halves | None:
    return halves_of(unit, *unit.call) if unit.call is not None else None


def _facts(model: Any) -> Decoder:
    config = model.config
    ends = (getattr(model, "generation_config", None) or config).eos_token_id
    ends = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
    return Decoder(config.vocab_size, ends, getattr(config, "max_position_embeddings", None) or UNBOUNDED)
