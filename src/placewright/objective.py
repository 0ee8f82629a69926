"""What is minimised: one frozen dataclass an objective, with its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from placewright.errors import InvalidInput

__all__ = [
    "Contention",
    "Contiguity",
    "Makespan",
    "MaxLoad",
    "Objective",
    "Offload",
    "Overlap",
    "Per",
    "Throughput",
    "TrainingObjective",
    "as_objective",
    "busy_share_of",
    "described",
    "load_rows",
]

Contention: TypeAlias = Literal["none", "link", "port"]
Per: TypeAlias = Literal["sample", "token", "answer", "picture"]
Contiguity: TypeAlias = Literal["contiguous", "convex", "any"]
TrainingObjective: TypeAlias = Literal["sum", "separate"]
Overlap: TypeAlias = Literal["none", "transfers", "full"]


@dataclass(frozen=True, slots=True)
class Makespan:
    """Finish of the last operator for one sample.

    Each device runs one operator at a time; transfers overlap computing.

    Attributes
    ----------
    contention : {"none", "link", "port"}
        ``none``: transfers never wait. ``link``: a link carries one transfer at a time in each direction. ``port``:
        transfers that leave the same device, or that enter the same device, exclude each other (Moirai, arXiv
        2312.04025, congestion control). Under ``link`` and ``port`` those that share a channel exclude each other too.
    per : {"sample", "token", "answer", "picture"}
        What the network does once, in words for a reader: ``token`` where it is one decode step of a language model,
        whose makespan is the latency of a token; ``answer`` where it is a prompt and all that follows it;
        ``picture`` where it is a diffusion pipeline's whole work, all steps of its denoiser.
    """

    contention: Contention = "link"
    name: Literal["makespan"] = "makespan"
    per: Per = "sample"

    def __post_init__(self) -> None:
        _check("contention", self.contention, get_args(Contention))
        _check("per", self.per, get_args(Per))


@dataclass(frozen=True, slots=True)
class MaxLoad:
    """Time per sample of a pipeline in steady state: the largest load of a device (arXiv 2006.16423, section 3).

    The load of a device is its processing times, plus for each tensor that enters from another device its transfer time
    once, plus for each tensor that leaves its transfer time once, however many readers it has there. Devices of kind
    ``cpu`` pay nothing for transfers: the data is in RAM already. A channel that links share has the load of the
    transfers over it, and counts as a device.

    Attributes
    ----------
    contiguity : {"contiguous", "convex", "any"}
        ``contiguous``: the devices can be put in an order along which no edge between forward operators goes back.
        ``convex``: no path of forward operators leaves a device and comes back to it, which is weaker. Backward
        operators whose colocation class has no forward one are bound by their own edges, turned round.
    contiguous_cpus : bool
        Whether devices of kind ``cpu`` are bound by contiguity too, as in the published programs.
    training : {"sum", "separate"}
        Of backward operators: the largest forward plus backward load (``sum``: PipeDream's schedule), or the largest
        forward load plus the largest backward load (``separate``: GPipe's). A tensor belongs to the pass of its
        producer. The same for networks without backward operators.
    overlap : {"none", "transfers", "full"}
        Load as the sum of computing, transfers in and transfers out (``none``); as the larger of what the device is
        busy with and all transfers (``transfers``); or as the largest of that, transfers in and transfers out
        (``full``). A device is busy with computing, and with ``busy_share`` of its transfers. Under ``sum`` both passes
        are added first.
    replicate : bool
        Whether a stage may run on several alike devices: on r of them its load is 1/r of what it would be on one, plus,
        with backward operators, 2 (r - 1) / r x weight bytes / bandwidth for each synchronisation of the weights.
    sync_period : int
        Samples between two synchronisations.
    sync_bandwidth_bytes_per_s : float or None
        Bandwidth of a synchronisation; ``None``: that of the links between the replicas.
    busy_share : float
        Part of a transfer's time, from 0 to 1, for which the device at either end can't compute, as it copies or
        serialises; the link takes the whole time, beside computing. Of ``transfers`` and ``full``; ``none`` is the
        same as 1.
    """

    contiguity: Contiguity = "contiguous"
    contiguous_cpus: bool = True
    training: TrainingObjective = "sum"
    overlap: Overlap = "none"
    replicate: bool = False
    sync_period: int = 1
    sync_bandwidth_bytes_per_s: float | None = None
    busy_share: float = 0.0
    name: Literal["max-load"] = "max-load"

    def __post_init__(self) -> None:
        _check("contiguity", self.contiguity, get_args(Contiguity))
        _check("training objective", self.training, get_args(TrainingObjective))
        _check_overlap(self.overlap, self.busy_share)
        _check_sync(self.sync_period, self.sync_bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Time per sample in steady state when several copies of the network, or of parts of it, run side by side.

    A plan is a set of *copies*. A copy is a placement of the whole network with a share of the samples, and copies may
    meet on devices: two that differ at one stage alone are a pipeline with that stage on two devices. The load of a
    device is the sum over the copies of share times load, as under ``max-load`` with both passes added; a device holds
    the weights and the KV cache of an operator once, however many of its copies run there. When training, the devices
    that hold copies of an operator synchronise its weights: each of r devices pays 2 (r - 1) / r x weight bytes /
    bandwidth for each synchronisation, which overlaps nothing. With one copy it is the max-load.

    Attributes
    ----------
    contiguity : {"contiguous", "convex", "any"}
        Of each copy by itself, as in :class:`MaxLoad`.
    contiguous_cpus : bool
        As in :class:`MaxLoad`.
    overlap : {"none", "transfers", "full"}
        As in :class:`MaxLoad`, of the sums over all copies.
    busy_share : float
        As in :class:`MaxLoad`.
    sync_period : int
        Samples between two synchronisations.
    sync_bandwidth_bytes_per_s : float or None
        Bandwidth of a synchronisation; ``None``: that of the slowest link between two of the devices.
    """

    contiguity: Contiguity = "contiguous"
    contiguous_cpus: bool = True
    overlap: Overlap = "none"
    sync_period: int = 1
    sync_bandwidth_bytes_per_s: float | None = None
    busy_share: float = 0.0
    name: Literal["throughput"] = "throughput"

    def __post_init__(self) -> None:
        _check("contiguity", self.contiguity, get_args(Contiguity))
        _check_overlap(self.overlap, self.busy_share)
        _check_sync(self.sync_period, self.sync_bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Offload:
    """Latency of one sample when accelerators take whole subgraphs off a pool of CPUs (arXiv 2006.16423, section 3).

    Devices of kind ``cpu`` are a pool of unlimited width: an operator there starts when its inputs are ready. Every
    other device runs *calls*, one after the other. A call is a set of its operators that no path leaves and comes back
    to. It starts when all tensors that enter it are in RAM and takes, not overlapped, the transfers of those tensors
    (each once), its processing times, and the transfers of its tensors that are read outside it (each once); it
    delivers everything at its end. Tensors between two calls of one device go through RAM too. Inputs and outputs of
    the network cost nothing.

    Attributes
    ----------
    calls : int or None
        Most calls of a device (q); ``None``: no limit.
    """

    calls: int | None = None
    name: Literal["offload"] = "offload"

    def __post_init__(self) -> None:
        if self.calls is not None and self.calls < 1:
            raise InvalidInput(f"{self.calls} calls a device are not at least 1; leave the limit out for any number")


def busy_share_of(objective: MaxLoad | Throughput) -> float:
    """Part of a transfer's time for which a device can't compute: all of it where nothing overlaps.

    Examples
    --------
    >>> busy_share_of(MaxLoad()), busy_share_of(MaxLoad(overlap="full", busy_share=0.25))
    (1.0, 0.25)
    """
    return 1.0 if objective.overlap == "none" else objective.busy_share


def load_rows(objective: MaxLoad | Throughput) -> tuple[tuple[float, float, float], ...]:
    """Rows of factors of computing, transfers in and transfers out: a load is the largest of the sums.

    The first row is what the device is busy with, the others what its links carry; these are left out where the first
    is never less. With k for the busy share, C, I and O for the parts: max(C + k (I + O), I + O), or max(C + k (I + O),
    I, O). Every load is at least each row of it, which is what lower bounds rest on.

    Examples
    --------
    >>> load_rows(MaxLoad())
    ((1.0, 1.0, 1.0),)
    >>> load_rows(MaxLoad(overlap="transfers", busy_share=0.25))
    ((1.0, 0.25, 0.25), (0.0, 1.0, 1.0))
    """
    k = busy_share_of(objective)
    busy = (1.0, k, k)
    if k == 1.0:
        return (busy,)
    return (busy, (0.0, 1.0, 1.0)) if objective.overlap == "transfers" else (busy, (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def _check_overlap(overlap: str, busy_share: float) -> None:
    _check("overlap", overlap, get_args(Overlap))
    if not 0.0 <= busy_share <= 1.0:
        raise InvalidInput(f"busy share {busy_share} is not from 0 to 1; give the part of a transfer's time, as in 0.3")
    if overlap == "none" and busy_share:
        raise InvalidInput(
            f"busy share {busy_share} is of transfers that overlap computing, and the overlap is none, which takes "
            "devices for all of it; use overlap transfers or full (--overlap), or leave the share out"
        )


def _check_sync(period: int, bandwidth: float | None) -> None:
    if period < 1:
        raise InvalidInput(f"sync period {period} is not at least 1 sample")
    if bandwidth is not None and not 0 < bandwidth < float("inf"):
        raise InvalidInput(
            f"sync bandwidth {bandwidth} B/s is not above 0 and finite; leave it out to use that of the links"
        )


def _check(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidInput(f"{what} {given!r} is unknown; use one of {', '.join(known)}")


def described(objective: Objective) -> tuple[str, ...]:
    """Say in words which options an objective has.

    Examples
    --------
    >>> described(Makespan("port")), described(MaxLoad(contiguity="any"))
    (('contention port',), ('not contiguous',))
    """
    if isinstance(objective, Makespan):
        once = {"token": "a generated token", "answer": "a whole answer", "picture": "a whole picture"}
        per = () if objective.per == "sample" else (once[objective.per],)
        return (*per, f"contention {objective.contention}")
    if isinstance(objective, Offload):
        return () if objective.calls is None else (f"at most {objective.calls} calls a device",)
    words: list[str] = ["not contiguous" if objective.contiguity == "any" else objective.contiguity]
    if objective.contiguity != "any" and not objective.contiguous_cpus:
        words.append("CPUs anywhere")
    if isinstance(objective, MaxLoad) and objective.training == "separate":
        words.append("forward and backward apart")
    if objective.overlap != "none":
        what = "transfers" if objective.overlap == "transfers" else "transfers in and transfers out"
        share = f", {objective.busy_share:.3g} of their time excepted" if objective.busy_share else ""
        words.append(f"{what} overlap computing{share}")
    period = objective.sync_period
    if isinstance(objective, MaxLoad) and objective.replicate:
        words.append("replicas" + (f", synchronised every {period} samples" if period > 1 else ""))
    elif isinstance(objective, Throughput) and period > 1:
        words.append(f"weights synchronised every {period} samples")
    return tuple(words)


Objective: TypeAlias = Makespan | MaxLoad | Throughput | Offload
"""The union of all objectives."""

_BY_NAME: dict[str, Callable[[], Objective]] = {
    "makespan": Makespan,
    "token-latency": lambda: Makespan(per="token"),
    "max-load": MaxLoad,
    "throughput": Throughput,
    "offload": Offload,
}


def as_objective(given: Objective | str) -> Objective:
    """Pass an objective through; make one with default options from its name.

    Examples
    --------
    >>> as_objective("makespan").contention
    'link'
    >>> as_objective("token-latency").per
    'token'
    """
    if not isinstance(given, str):
        return given
    if given not in _BY_NAME:
        raise InvalidInput(f"objective {given!r} is unknown; use one of {', '.join(_BY_NAME)}")
    return _BY_NAME[given]()
