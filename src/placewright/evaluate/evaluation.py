"""What the judge says of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from placewright.plan import Schedule

__all__ = ["DeviceUse", "Evaluation"]


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
    weight_bytes, kv_cache_bytes : int
        Held as long as the plan runs.
    activation_bytes : int
        Peak of the live tensors: from their producer's start (or the start of the transfer that brings them) to the
        finish of their last reader or transfer; outputs of the network stay to the end.
    limit_bytes : int or None
        Memory less reserve.
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

    @property
    def memory_bytes(self) -> int:
        """Peak of all parts together."""
        return self.weight_bytes + self.kv_cache_bytes + self.activation_bytes


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Numbers of one plan. It is feasible when ``violations`` is empty.

    Attributes
    ----------
    value_s : float
        The objective in seconds; ``inf`` where a tensor can't travel or an operator can't run.
    schedule : Schedule
    devices : tuple of DeviceUse
        One a device of the cluster, in its order.
    violations : tuple of str
        Every rule that the plan breaks, each with thing, value, limit and remedy.
    """

    value_s: float
    schedule: Schedule
    devices: tuple[DeviceUse, ...]
    violations: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations
