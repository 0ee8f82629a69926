"""Measure between processes that torch.distributed joins, on one machine or several: each one is a device.

A tensor goes to and fro between each two of them over gloo, alone in the cluster; half of the way there and back is its
transfer time. A worker with a GPU sends from its memory and receives into it, through RAM, as gloo makes it do.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from placewright.cluster import Cluster, Device, Link
from placewright.errors import ExecutionError, InvalidInput, MissingExtra
from placewright.execute.probe.gpus import torch_device_figures
from placewright.execute.probe.here import Probed
from placewright.execute.probe.link_fit import SIZES_BYTES, LinkFit, fit_link
from placewright.host import cpu_name, memory_bytes

__all__ = ["Meeting", "busy_share", "meeting_from", "pair_seconds", "probe_local_workers", "probe_workers"]

ROUNDS, WARMUP = 20, 2
"""All sizes are sent in every round, so that what disturbs the machine for a while does not hit one size alone."""
TURNS = ((2**16, 8), (2**20, 2), (2**40, 1))
"""Times that a tensor of up to so many bytes goes to and fro in a round; the fastest counts."""
MOST_WORKERS = 64
"""Pairs are measured one after the other."""
PATIENCE_S = 120.0
CARD_BYTES = 4096
"""What a worker says of itself, as JSON, padded with spaces."""
BUSY_BYTES, BUSY_TURNS = 2**20, 20
"""Of the messages that tell what they take of the processors, and how many go to and fro."""

OnStep = Callable[[str], None]


class Meeting(NamedTuple):
    """Where workers meet, and which of how many this one is."""

    host: str
    port: int
    rank: int
    workers: int


class _Card(msgspec.Struct):
    """What a worker says of itself."""

    host: Annotated[str, Meta(min_length=1, max_length=200)]
    kind: str
    memory_bytes: int
    threads: int
    flops_per_s: dict[str, float]
    memory_bandwidth_bytes_per_s: float
    launch_overhead_s: float
    model: Annotated[str, Meta(max_length=200)] = ""


def meeting_from(
    at: str | None, rank: int | None, workers: int | None, environ: Mapping[str, str] = os.environ
) -> Meeting:
    """Read where to meet from options, or from what torchrun sets in the environment.

    Parameters
    ----------
    at : str, optional
        ``HOST:PORT`` of the worker with rank 0; with it, ``rank`` and ``workers`` are needed.
    rank, workers : int, optional
    environ : mapping
        ``MASTER_ADDR``, ``MASTER_PORT``, ``RANK`` and ``WORLD_SIZE``, used without ``at``.

    Raises
    ------
    InvalidInput
        If something is missing or out of range.

    Examples
    --------
    >>> meeting_from("10.0.0.1:29511", 1, 3)
    Meeting(host='10.0.0.1', port=29511, rank=1, workers=3)
    """
    if at is None:
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        missing = [name for name in names if name not in environ]
        if missing:
            raise InvalidInput(
                f"{', '.join(missing)} not set: start every worker by torchrun, or give --at HOST:PORT, --rank and "
                "--workers to each"
            )
        host, port_text, rank_text, count_text = (environ[name] for name in names)
        numbers = [rank_text, count_text]
    else:
        host, _, port_text = at.rpartition(":")
        numbers = ["" if x is None else str(x) for x in (rank, workers)]
    if not host or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise InvalidInput(f"{at or port_text!r} is no HOST:PORT; give for example --at 10.0.0.1:29511")
    if not all(x.isdigit() for x in numbers):
        raise InvalidInput(f"rank {numbers[0]!r} of {numbers[1]!r} workers: give both --rank and --workers")
    place, count = map(int, numbers)
    if not 2 <= count <= MOST_WORKERS or not place < count:
        raise InvalidInput(f"rank {place} of {count} workers: 2 to {MOST_WORKERS} can meet, with ranks from 0")
    return Meeting(host, int(port_text), place, count)


def probe_local_workers(
    workers: int, *, sizes_bytes: Sequence[int] = SIZES_BYTES, on_progress: OnStep | None = None
) -> Probed:
    """Start so many workers on this machine, this process among them, and measure between them.

    Raises
    ------
    InvalidInput
        If there would be fewer than 2 or more than 64.
    ExecutionError
        If they do not meet.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    mine = meeting_from(f"127.0.0.1:{port}", 0, workers)
    entry = "from placewright.execute.probe.workers import main; main()"
    others = []
    try:
        for rank in range(1, workers):
            command = [sys.executable, "-c", entry, f"127.0.0.1:{port}", *map(str, (rank, workers, *sizes_bytes))]
            others.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        probed = probe_workers(mine, sizes_bytes=sizes_bytes, on_progress=on_progress)
        assert probed is not None
        return probed
    finally:
        for process in others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5.0)
            process.kill()
            process.wait()


def main() -> None:
    """Be the worker that the arguments say: where to meet, rank, number of workers, sizes."""
    rank, workers, *sizes = map(int, sys.argv[2:])
    probe_workers(meeting_from(sys.argv[1], rank, workers), sizes_bytes=sizes)


def probe_workers(
    meeting: Meeting, *, sizes_bytes: Sequence[int] = SIZES_BYTES, on_progress: OnStep | None = None
) -> Probed | None:
    """Take part in a measurement; the worker with rank 0 gets the cluster, the others ``None``.

    Every worker must be started with the same ``host``, ``port``, number of workers and sizes. Nothing but numbers and
    JSON of bounded length is exchanged.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    ExecutionError
        If the workers do not meet, or one is lost.
    """
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise MissingExtra("torch", "torch", "measuring between workers") from None
    tell = on_progress or (lambda line: None)
    where = f"{meeting.host}:{meeting.port}"
    try:
        tell(f"waiting for {meeting.workers} workers at {where}")
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{where}",
            rank=meeting.rank,
            world_size=meeting.workers,
            timeout=datetime.timedelta(seconds=PATIENCE_S),
        )
    except (RuntimeError, ValueError) as error:
        raise ExecutionError(
            f"{meeting.workers} workers did not meet at {where}: {_first_line(error)}; start all of them within "
            f"{PATIENCE_S:.0f} s, and see that the port can be reached"
        ) from None
    try:
        place = _place(torch)
        cards = _cards(dist, meeting, place, tell)
        times, shares = {}, []
        for i, j in combinations(range(meeting.workers), 2):
            tell(f"measuring transfers between workers {i} and {j}")
            times[i, j] = pair_seconds(dist, meeting.rank, i, j, place, sizes_bytes)
            if cards[i].kind == cards[j].kind == "cpu":
                shares.append(busy_share(dist, meeting.rank, i, j))
    except RuntimeError as error:
        raise ExecutionError(f"a worker was lost while measuring: {_first_line(error)}; start them again") from None
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()
    return _probed(cards, times, sizes_bytes, shares) if meeting.rank == 0 else None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _place(torch: Any) -> str:
    """Torch device of this worker: the GPU of its local rank, or the CPU."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    return f"cuda:{local}" if torch.cuda.is_available() and local < torch.cuda.device_count() else "cpu"


def _cards(dist: Any, meeting: Meeting, place: str, tell: OnStep) -> list[_Card]:
    """Measure each worker's device, one worker at a time, and tell all of all."""
    import torch

    mine = b""
    for rank in range(meeting.workers):
        if rank == meeting.rank:
            tell(f"measuring worker {rank}")
            mine = msgspec.json.encode(_own_card(place))
        dist.barrier()
    padded = torch.frombuffer(bytearray(mine.ljust(CARD_BYTES)), dtype=torch.uint8)
    gathered = [torch.zeros(CARD_BYTES, dtype=torch.uint8) for _ in range(meeting.workers)]
    dist.all_gather(gathered, padded)
    try:
        return [msgspec.json.decode(bytes(row.tolist()), type=_Card) for row in gathered]
    except msgspec.MsgspecError as error:
        raise ExecutionError(f"a worker does not say what it is: {error}; use one version everywhere") from None


def _own_card(place: str) -> _Card:
    import torch

    figures = torch_device_figures(place)
    kind = "cpu" if place == "cpu" else "gpu"
    model = cpu_name() if place == "cpu" else torch.cuda.get_device_name(place)
    threads = torch.get_num_threads() if place == "cpu" else 0
    figures.setdefault("memory_bytes", memory_bytes())
    return _Card(platform.node()[:200] or "local", kind, threads=threads, model=model[:200], **figures)


def pair_seconds(
    dist: Any, rank: int, i: int, j: int, place: str, sizes_bytes: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Seconds of a transfer between two workers, by size: of every other run, and of the rest. Everyone learns them."""
    import torch

    found = torch.zeros((2, len(sizes_bytes)), dtype=torch.float64)
    if rank in (i, j):
        held = [torch.zeros(size, dtype=torch.uint8, device=place) for size in sizes_bytes]
        first, other = rank == i, j if rank == i else i
        rows = [[_there_and_back_s(dist, first, other, tensor) for tensor in held] for _ in range(WARMUP + ROUNDS)]
        halves = [np.quantile(np.array(rows[WARMUP + half :: 2]), 0.25, axis=0) / 2.0 for half in (0, 1)]
        found = torch.from_numpy(np.stack(halves))
    dist.broadcast(found, src=i)
    return np.asarray(found.numpy(), dtype=np.float64)


def busy_share(dist: Any, rank: int, i: int, j: int) -> float:
    """Part of a transfer's time between two CPU workers that it takes of their cores: the mean of both ends.

    Of 1 MiB, to and fro: CPU time of the process over the fastest turn's wall time, and over the cores that it computes
    with. What waits, for the wire or for other work on the machine, takes no CPU time. Everyone learns it.
    """
    import torch

    taken = torch.zeros(1, dtype=torch.float64)
    if rank in (i, j):
        held = torch.zeros(BUSY_BYTES, dtype=torch.uint8)
        cpu, turns = time.process_time(), BUSY_TURNS * next(n for most, n in TURNS if most >= BUSY_BYTES)
        fastest = min(_there_and_back_s(dist, rank == i, j if rank == i else i, held) for _ in range(BUSY_TURNS))
        taken[0] = (time.process_time() - cpu) / turns / fastest / torch.get_num_threads() / 2
    dist.all_reduce(taken)
    return min(1.0, float(taken[0]))


def _there_and_back_s(dist: Any, first: bool, other: int, held: Any) -> float:
    """Seconds until a tensor has gone to the other worker and come back, at the fastest of a few turns."""
    import torch

    fastest = float("inf")
    buffer = held if held.device.type == "cpu" else torch.empty_like(held, device="cpu")
    for _ in range(next(turns for most, turns in TURNS if held.numel() <= most)):
        began = time.perf_counter()
        for sends in (first, not first):
            if sends:
                dist.send(buffer if buffer is held else buffer.copy_(held), other)
            else:
                dist.recv(buffer, other)
                if buffer is not held:
                    held.copy_(buffer)
                    torch.cuda.synchronize(held.device)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def _probed(
    cards: Sequence[_Card],
    times: Mapping[tuple[int, int], npt.NDArray[np.float64]],
    sizes_bytes: Sequence[int],
    shares: Sequence[float],
) -> Probed:
    """Make the cluster: the CPU workers of one host share its memory."""
    on_host = Counter((c.host, c.kind) for c in cards)
    seen: Counter[tuple[str, str]] = Counter()
    devices: list[Device] = []
    for card in cards:
        key = card.host, card.kind
        share = on_host[key] if card.kind == "cpu" else 1
        devices.append(
            Device(
                f"{card.host}-{card.kind}{seen[key]}",
                card.kind,
                host=card.host,
                memory_bytes=card.memory_bytes // share,
                flops_per_s=card.flops_per_s,
                memory_bandwidth_bytes_per_s=card.memory_bandwidth_bytes_per_s,
                launch_overhead_s=card.launch_overhead_s,
                threads=card.threads,
            )
        )
        seen[key] += 1
    links: list[Link] = []
    fits: list[tuple[str, LinkFit]] = []
    for (i, j), (fitted, checked) in times.items():
        fit = fit_link(sizes_bytes, fitted, checked)
        links.append(fit.link((devices[i].name, devices[j].name)))
        fits.append((f"{devices[i].name}-{devices[j].name}", fit))
    models = ", ".join(dict.fromkeys(c.model for c in cards))
    return Probed(Cluster(devices, links, name=models), tuple(fits), tuple(_busy_note(shares)))


def _busy_note(shares: Sequence[float]) -> list[str]:
    """Say how busy transfers keep CPUs, and with which options plans of many samples count it."""
    if not shares:
        return []
    mean = float(np.mean(shares))
    beside = f"--overlap full --busy-share {mean:.2f}" if mean < 1 else "--overlap none"
    return [
        f"Transfers of 1 MiB take {100 * mean:.0f}% of their time of the cores at their ends (pairs: "
        f"{100 * min(shares):.0f}% to {100 * max(shares):.0f}%); max-load and throughput count that with {beside}."
    ]
