"""What the judge says of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from placewright.graph import RESIDENT_PARTS
from placewright.plan import Schedule
from placewright.units import format_bytes

__all__ = ["ChannelUse", "DeviceUse", "Evaluation", "Load"]


@dataclass(frozen=True, slots=True)
class Load:
    """What a sample in steady state costs one device, of a replicated stage one of its copies.

    Attributes
    ----------
    compute_s, in_s, out_s : float
        Seconds of processing, of tensors that enter and of tensors that leave.
    sync_s : float
        Seconds of weight synchronisation.
    load_s : float
        What counts: their sum, or what remains when transfers overlap with computing.
    """

    compute_s: float
    in_s: float
    out_s: float
    sync_s: float
    load_s: float


@dataclass(frozen=True, slots=True)
class ChannelUse:
    """The load of a channel that links share, in seconds a sample: one value, or forward and backward apart."""

    name: str
    load_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """How much of one device a plan uses.

    Attributes
    ----------
    name : str
    operators : int
    busy_s : float
        Seconds of computing, cuts included.
    sent_bytes, received_bytes : int
    weight_bytes, kv_cache_bytes, gradient_bytes, optimizer_bytes, saved_bytes : int
        Held as long as the plan runs, as :class:`placewright.graph.Operator` has them.
    activation_bytes : int
        Peak of the live tensors: from their producer's start (or the start of the transfer that brings them) to the
        finish of their last reader or transfer; outputs of the network stay to the end.
    workspace_bytes : int
        By how much tensors that nobody reads, live while their producer runs, raise that peak.
    limit_bytes : int or None
        Memory less reserve.
    loads : tuple of Load
        Under ``max-load``: one for both passes together, or one for the forward and one for the backward pass.
    """

    name: str
    operators: int
    busy_s: float
    sent_bytes: int
    received_bytes: int
    weight_bytes: int
    kv_cache_bytes: int
    activation_bytes: int
    limit_bytes: int | None
    loads: tuple[Load, ...] = ()
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    saved_bytes: int = 0
    workspace_bytes: int = 0

    @property
    def load_s(self) -> float:
        """Seconds a sample in steady state, all passes together; 0 where loads are not the objective."""
        return sum(load.load_s for load in self.loads)

    @property
    def memory_bytes(self) -> int:
        """Peak of all parts together."""
        return sum(self.memory_parts.values())

    @property
    def memory_parts(self) -> dict[str, int]:
        """Bytes by the parts' names in reports, in their order."""
        return {name: getattr(self, part) for part, name in RESIDENT_PARTS.items()} | {
            "activations": self.activation_bytes,
            "workspace": self.workspace_bytes,
        }

    @property
    def memory_listing(self) -> str:
        """The parts that are there as a text: ``weights 4.0 GiB, gradients 4.0 GiB``."""
        there = [f"{name} {format_bytes(size)}" for name, size in self.memory_parts.items() if size]
        return ", ".join(there) or "nothing"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Numbers of one plan. It is feasible when ``violations`` is empty.

    Attributes
    ----------
    value_s : float
        The objective in seconds; ``inf`` where a tensor can't travel or an operator can't run.
    schedule : Schedule
        Of one sample that has the cluster for itself.
    devices : tuple of DeviceUse
        One a device of the cluster, in its order.
    violations : tuple of str
        Every rule that the plan breaks, each with thing, value, limit and remedy.
    channels : tuple of ChannelUse
        Under ``max-load``: one a channel of the cluster.
    """

    value_s: float
    schedule: Schedule
    devices: tuple[DeviceUse, ...]
    violations: tuple[str, ...] = ()
    channels: tuple[ChannelUse, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations
