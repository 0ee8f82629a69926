"""A rank's part of a decoder, from a plan: built, filled, and joined to the parts of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placewright.execute.decoder_model import prepared
from placewright.execute.decoder_placement import DecoderPlacement, decoder_placement
from placewright.execute.decoder_rank import DecoderRank, GlooWire
from placewright.execute.decoder_units import Unit
from placewright.execute.resident_messages import Decoder
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
    units : tuple of str
        Paths of the modules that run here.
    head : int
        Rank that has the last one, and so the tokens.
    placement : DecoderPlacement
    """

    rank: DecoderRank
    decoder: Decoder
    units: tuple[str, ...]
    head: int
    placement: DecoderPlacement


def decoder_part(problem: Problem, plan: Plan, location: str, weights: str | None, rank: int) -> DecoderPart:
    """Build the part of one rank, whose group is joined; rank k has the k-th device that the plan uses.

    Raises
    ------
    InvalidInput
        If the model, its weights or the plan can't be used.
    """
    placement = decoder_placement(problem, plan)
    number = {i: k for k, i in enumerate(plan.devices_used)}
    rank_of: dict[str, int] = {}

    def mine(units: list[Unit]) -> set[str]:
        rank_of.update({path: number[i] for path, i in placement.places(units).items()})
        return {path for path, at in rank_of.items() if at == rank}

    model, units = prepared(location, weights, mine)
    device = problem.cluster.devices[plan.devices_used[rank]]
    made = DecoderRank(model, units, rank_of, rank, GlooWire(), device.cpu_share)
    own = tuple(unit.path for unit in units if rank_of[unit.path] == rank)
    return DecoderPart(made, _facts(model), own, rank_of[units[-1].path], placement)


def _facts(model: Any) -> Decoder:
    config = model.config
    ends = (getattr(model, "generation_config", None) or config).eos_token_id
    ends = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
    return Decoder(config.vocab_size, ends, getattr(config, "max_position_embeddings", None) or UNBOUNDED)
