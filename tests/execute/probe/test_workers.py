"""Measuring between processes that torch.distributed joins."""

from __future__ import annotations

import re
import socket

import numpy as np
import pytest

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.probe import gpus as probe_gpus
from placewright.execute.probe import workers as probe_workers
from placewright.execute.probe.repeated import measured_cluster
from placewright.execute.probe.workers import Meeting, meeting_from, probe_local_workers

TORCHRUN = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "4"}


def test_where_workers_meet_is_read_from_options_or_torchrun() -> None:
    """Options go first; an IPv6 address keeps its colons."""
    assert meeting_from(None, None, None, TORCHRUN) == Meeting("10.0.0.7", 29500, 1, 4)
    assert meeting_from("host:1", 0, 2, TORCHRUN) == Meeting("host", 1, 0, 2)
    assert meeting_from("[fe80::1]:29511", 63, 64, {}) == Meeting("[fe80::1]", 29511, 63, 64)


@pytest.mark.parametrize(
    ("at", "rank", "workers", "environ", "message"),
    [
        (None, None, None, {"RANK": "0"}, "MASTER_ADDR, MASTER_PORT, WORLD_SIZE not set: start every worker by torch"),
        (None, None, None, TORCHRUN | {"MASTER_PORT": "x"}, "'x' is no HOST:PORT"),
        ("host", 0, 2, {}, "'host' is no HOST:PORT; give for example"),
        ("host:70000", 0, 2, {}, "'host:70000' is no HOST:PORT"),
        ("host:1", None, 2, {}, "rank '' of '2' workers: give both --rank and --workers"),
        ("host:1", 2, 2, {}, "rank 2 of 2 workers: 2 to 64 can meet, with ranks from 0"),
        ("host:1", 0, 65, {}, "rank 0 of 65 workers: 2 to 64 can meet"),
    ],
)
def test_what_is_wrong_with_a_meeting_is_said(
    at: str | None, rank: int | None, workers: int | None, environ: dict[str, str], message: str
) -> None:
    """Value, limit, remedy."""
    with pytest.raises(InvalidInput, match=message.replace("(", r"\(")):
        meeting_from(at, rank, workers, environ)


def test_options_that_exclude_each_other_are_refused() -> None:
    """Devices of one machine against workers; a rank without a place."""
    with pytest.raises(InvalidInput, match="--devices shares out this machine"):
        measured_cluster(2, False, None, None, 2)
    with pytest.raises(InvalidInput, match="--rank needs --at HOST:PORT"):
        measured_cluster(None, False, None, 1, 2)


def test_two_workers_of_this_machine_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are devices of one host that share its memory, and their link's times lie between loopback's limits."""
    pytest.importorskip("torch")
    monkeypatch.setattr(probe_gpus, "RUNS", 2)
    lines: list[str] = []
    sizes = (2**17, 2**18, 2**21)
    made = probe_local_workers(2, sizes_bytes=sizes, on_progress=lines.append)
    a, b = made.cluster.devices
    assert (a.host, a.kind, a.memory_bytes) == (b.host, b.kind, b.memory_bytes) and a.name != b.name
    (link,) = made.cluster.links
    assert link.between == (a.name, b.name)
    seconds = link.seconds(sizes)
    assert (np.diff(seconds) >= 0).all() and seconds[0] > 1e-6 and 1e-5 < seconds[-1] < 5.0
    ((name, fit),) = made.fits
    assert name == f"{a.name}-{b.name}" and np.isfinite(fit.error).all()
    assert lines[1:] == ["measuring worker 0", "measuring transfers between workers 0 and 1"]
    (note,) = made.notes
    assert 0 < float(re.search(r"take (\d+)% of their time", note)[1]) <= 100
    assert note.endswith("--overlap none.") or re.search(r"--overlap full --busy-share 0\.\d\d\.$", note)


def test_workers_that_do_not_meet_end_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two never comes."""
    pytest.importorskip("torch")
    monkeypatch.setattr(probe_workers, "PATIENCE_S", 1.0)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with pytest.raises(ExecutionError, match=f"2 workers did not meet at 127.0.0.1:{port}: .*; start all of them"):
        probe_workers.probe_workers(Meeting("127.0.0.1", port, 0, 2))
