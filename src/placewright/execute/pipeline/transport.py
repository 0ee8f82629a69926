"""How the ranks of a pipeline reach each other: over ``torch.distributed``, or over anything that does the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist

__all__ = ["Gloo", "Pending", "Transport"]


class Pending(Protocol):
    """Something on its way."""

    def wait(self) -> object:
        """Return when it has arrived, or has been received."""


class Transport(Protocol):
    """What a rank needs of the others; ranks by number."""

    def send(self, content: torch.Tensor, to: int, tag: int) -> Pending:
        """Send bytes; does not wait for the receiver."""

    def receive(self, buffer: torch.Tensor, source: int, tag: int) -> Pending:
        """Have a buffer filled with what was sent with a tag."""

    def add_up(self, values: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """Replace values by their sums over some ranks, which all call this in one order."""


class Gloo:
    """``torch.distributed`` as it was joined.

    Parameters
    ----------
    together : sequence of tuple of int
        Sets of ranks that will add up values; every rank gives the same.
    """

    def __init__(self, together: Sequence[tuple[int, ...]] = ()) -> None:
        self._groups = {ranks: dist.new_group(list(ranks)) for ranks in together}

    def send(self, content: torch.Tensor, to: int, tag: int) -> Pending:
        """See :class:`Transport`."""
        request = dist.isend(content, to, tag=tag)
        assert request is not None
        return request

    def receive(self, buffer: torch.Tensor, source: int, tag: int) -> Pending:
        """See :class:`Transport`."""
        request = dist.irecv(buffer, source, tag=tag)
        assert request is not None
        return request

    def add_up(self, values: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`."""
        dist.all_reduce(values, group=self._groups[ranks])
