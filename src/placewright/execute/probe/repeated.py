"""Which probe the options of the command line ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from placewright.errors import InvalidInput
from placewright.execute.probe.here import Probed, probe
from placewright.execute.probe.workers import meeting_from, probe_local_workers, probe_workers
from placewright.io import read_description

__all__ = ["measured_cluster"]


def measured_cluster(
    devices: int | None,
    distributed: bool,
    at: str | None,
    rank: int | None,
    workers: int | None,
    description: Path | None = None,
    *,
    on_progress: Callable[[str], None] | None = None,
) -> Probed | None:
    """Probe this machine, or between workers, or read a description; ``None`` on a worker whose rank is not 0.

    Raises
    ------
    InvalidInput
        If options exclude each other.
    """
    between = distributed or at is not None or workers is not None
    if description is not None:
        if between or devices is not None or rank is not None:
            raise InvalidInput("--from measures nothing; leave out the options of a measurement")
        cluster, notes = read_description(description)
        return Probed(cluster, notes=notes)
    if between and devices is not None:
        raise InvalidInput("--devices shares out this machine, and a worker is one device; leave it out")
    if rank is not None and at is None:
        raise InvalidInput("--rank needs --at HOST:PORT, where the worker with rank 0 is")
    if distributed or at is not None:
        return probe_workers(meeting_from(at, rank, workers), on_progress=on_progress)
    if workers is not None:
        return probe_local_workers(workers, on_progress=on_progress)
    return probe(devices=devices, on_progress=on_progress)
