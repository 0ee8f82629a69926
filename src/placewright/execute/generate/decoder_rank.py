"""One rank of a decoder that generates: it runs its own layers, with their caches, on hidden states that travel."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from placewright.errors import InvalidInput
from placewright.execute.generate.halves import Halves, relayed_halves
from placewright.execute.generate.units import Unit, relayed
from placewright.execute.ranks.doing import DOING
from placewright.host import rest

__all__ = ["DecoderRank", "GlooWire", "Wire"]

MOST_UNDER_WAY = 8
"""Hidden states that a rank sends before it waits for the first of them to be received."""


class Wire(Protocol):
    """How hidden states travel between ranks, in order for each pair."""

    def send(self, tensor: torch.Tensor, target: int) -> None:
        """Send without waiting for the receiver."""

    def receive(self, like: torch.Tensor, source: int) -> torch.Tensor:
        """Wait for the next tensor of that rank: one of the same shape and type."""


class GlooWire:
    """Over ``torch.distributed``, whose group is joined."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Any, torch.Tensor]] = deque()

    def send(self, tensor: torch.Tensor, target: int) -> None:
        """Send; of :data:`MOST_UNDER_WAY` tensors the first is waited for."""
        import torch.distributed as dist

        packed = tensor.detach().contiguous()
        self._under_way.append((dist.isend(packed, target), packed))
        while len(self._under_way) > MOST_UNDER_WAY:
            self._under_way.popleft()[0].wait()

    def receive(self, like: torch.Tensor, source: int) -> torch.Tensor:
        """Wait for the next tensor of that rank."""
        import torch.distributed as dist

        buffer = torch.empty(like.shape, dtype=like.dtype)
        dist.recv(buffer, source)
        return buffer


@dataclass
class _Stream:
    """What a rank keeps of one generation.

    ``cache`` has the keys and values of the rank's own layers; of all others one number for each token, since a decoder
    reads from its first layer how far it is.
    """

    cache: Any
    mask: torch.Tensor | None = None


class DecoderRank:
    """The units of one device, run step by step for several generations side by side.

    Every rank runs the decoder's own forward pass, so whatever it computes between its layers (masks, positions,
    scalings) is what the whole decoder computes. A unit of another rank is passed over; where two successive units
    belong to different ranks, the first one's rank sends the hidden state and the other one's awaits it. All ranks take
    the same steps in the same order, so what is awaited has been sent or will be by a rank that waits only for earlier
    steps or earlier units: nobody waits for ever.

    Parameters
    ----------
    model : transformers decoder
        With values where this rank needs them; changed in place.
    parts : sequence of Unit or Halves
        In the order in which they run.
    rank_of : mapping of str to int
        Rank of each unit.
    rank : int
        This one.
    wire : Wire
    pace : float
        Share of the time that this rank may compute for.
    """

    def __init__(
        self,
        model: Any,
        parts: Sequence[Unit | Halves],
        rank_of: Mapping[str, int],
        rank: int,
        wire: Wire,
        pace: float = 1.0,
    ) -> None:
        from transformers import Cache, DynamicCache

        self._model, self._rank, self._wire, self._pace = model, rank, wire, pace
        self._streams: dict[int, _Stream] = {}
        self._began = 0.0
        self._new_cache: Callable[[], Any] = lambda: DynamicCache(config=model.config)
        self._cache_type = Cache
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._one_logit = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        firsts = [part for part in parts if isinstance(part, Unit) and part.before]
        at = rank_of[firsts[0].path] if firsts else -1
        stray = [unit.path for unit in firsts if rank_of[unit.path] != at]
        if stray:
            raise InvalidInput(
                f"{stray[0]!r} and {firsts[0].path!r} must be on one device: the first layer reads their sum"
            )
        for part in parts:
            if isinstance(part, Unit):
                here = rank_of[part.path]
                instead = _passed_over if part.layer is None else self._counted(part.layer)
                relayed(part, self._relay(part.path, here if at < 0 else at, here), None if here == rank else instead)
                at = here
                continue
            ends = rank_of[part.first.path], rank_of[part.second.path]
            relays = self._relay(part.first.path, at, ends[0]), self._relay(part.second.path, *ends)
            count = self._counted(part.first.layer or 0)
            if rank in ends:
                relayed_halves(part, relays, (ends[0] == rank, ends[1] == rank), count)
            else:
                relayed(part.whole, relays[0], count)
            at = ends[1]
        self.gives_tokens = at == rank
        """Whether this rank has the last unit, and so the tokens."""

    def step(self, stream: int, tokens: torch.Tensor, pads: Sequence[int] = ()) -> torch.Tensor | None:
        """Read tokens, and give the most likely next one of each row where this rank has the last unit.

        Parameters
        ----------
        stream : int
            Which generation; the first step of a new number begins one.
        tokens : (rows, length) tensor of int64
        pads : sequence of int
            At the first step: how many tokens at the start of each row are none.
        """
        known = self._streams.get(stream)
        rows, length = tokens.shape
        if known is None:
            known = self._streams[stream] = _Stream(self._new_cache())
            if any(pads):
                columns = torch.arange(length)
                known.mask = (columns[None, :] >= torch.tensor(list(pads))[:, None]).to(torch.int64)
        elif known.mask is not None:
            known.mask = torch.cat([known.mask, torch.ones(rows, length, dtype=torch.int64)], dim=1)
        positions = {}
        if known.mask is not None:
            positions["attention_mask"] = known.mask
            positions["position_ids"] = (known.mask.cumsum(1) - 1).clamp(min=0)[:, -length:]
        self._began = time.monotonic()
        DOING.now("computes", f"step of {length} tokens")
        with torch.no_grad():
            made = self._model(
                input_ids=tokens, use_cache=True, **{self._cache_name: known.cache}, **positions, **self._one_logit
            )
            chosen = made.logits[:, -1, :].float().argmax(-1) if self.gives_tokens else None
        self._rest()
        DOING.now("rests")
        return chosen

    def forget(self, stream: int) -> None:
        """Drop the caches of a generation; one that is unknown does no harm."""
        self._streams.pop(stream, None)

    def _relay(self, path: str, source: int, target: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def relay(hidden: torch.Tensor) -> torch.Tensor:
            if source == target or self._rank not in (source, target):
                return hidden
            if self._rank == source:
                self._rest()
                self._wire.send(hidden, target)
                return hidden
            DOING.now("waits", f"what enters {path}", source)
            received = self._wire.receive(hidden, source)
            DOING.now("computes", path)
            self._began = time.monotonic()
            return received

        return relay

    def _rest(self) -> None:
        if self._pace < 1.0:
            rest(self._began, self._pace)
        self._began = time.monotonic()

    def _counted(self, layer: int) -> Callable[..., None]:
        """Make what runs in place of another rank's layer: its cache only counts."""

        def count(*args: Any, **kwargs: Any) -> None:
            cache = next((v for v in (*args, *kwargs.values()) if isinstance(v, self._cache_type)), None)
            if cache is None:
                return
            hidden = args[0] if args else kwargs["hidden_states"]
            marks = torch.zeros(hidden.shape[0], 1, hidden.shape[1], 1, dtype=hidden.dtype)
            cache.update(marks, marks, layer)

        return count


def _passed_over(*args: Any, **kwargs: Any) -> None:
    """Do nothing in place of a unit that keeps no state."""
