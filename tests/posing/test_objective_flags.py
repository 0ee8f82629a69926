"""What the flags of a command line make of an objective."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placewright.errors import InvalidInput
from placewright.objective import Makespan, MaxLoad, Objective, Offload, Throughput
from placewright.posing.objective_flags import ObjectiveFlags

BASE = MaxLoad("convex", overlap="full", replicate=True, sync_period=3)


@pytest.mark.parametrize(
    ("base", "given", "expected"),
    [
        (Makespan("port"), {}, Makespan("port")),
        (Makespan("port"), {"objective": "makespan"}, Makespan("port")),
        (Makespan("port"), {"objective": "max-load"}, MaxLoad()),
        (BASE, {"objective": "makespan", "contention": "none"}, Makespan("none")),
        (BASE, {}, BASE),
        (BASE, {"objective": "max-load", "contiguous": True}, MaxLoad(overlap="full", replicate=True, sync_period=3)),
        (MaxLoad(), {"contiguous": False}, MaxLoad("any")),
        (MaxLoad(), {"convex": True, "cpus_anywhere": True}, MaxLoad("convex", contiguous_cpus=False)),
        (MaxLoad(contiguous_cpus=False), {"cpus_anywhere": False}, MaxLoad()),
        (
            MaxLoad(),
            {"training_objective": "separate", "overlap": "transfers"},
            MaxLoad("contiguous", True, "separate", "transfers"),
        ),
        (Makespan("port"), {"objective": "offload"}, Offload()),
        (BASE, {"objective": "offload", "calls": "2"}, Offload(2)),
        (Offload(3), {"objective": "offload"}, Offload(3)),
        (Offload(3), {"calls": "any"}, Offload()),
        (Offload(3), {"objective": "max-load"}, MaxLoad()),
        (BASE, {"busy_share": 0.3}, replace(BASE, busy_share=0.3)),
        (replace(BASE, busy_share=0.3), {"overlap": "none"}, replace(BASE, overlap="none")),
        (replace(BASE, busy_share=0.3), {"overlap": "transfers"}, replace(BASE, overlap="transfers", busy_share=0.3)),
        (Throughput(), {"overlap": "full", "busy_share": 0.3}, Throughput(overlap="full", busy_share=0.3)),
        (BASE, {"replicate": False}, MaxLoad("convex", overlap="full", sync_period=3)),
        (
            MaxLoad(),
            {"replicate": True, "sync_period": 4, "sync_bandwidth": "10 GB/s"},
            MaxLoad(replicate=True, sync_period=4, sync_bandwidth_bytes_per_s=1e10),
        ),
    ],
)
def test_flags_change_what_they_name(base: Objective, given: dict[str, Any], expected: Objective) -> None:
    """Everything else stays as the file, or the default, has it; another objective starts from its defaults."""
    assert ObjectiveFlags(**given).applied(base) == expected


@pytest.mark.parametrize(
    ("base", "given", "complaint"),
    [
        (
            MaxLoad(),
            {"contention": "port"},
            "--contention is for the objective makespan, and this one is max-load; leave it out, or add --objective "
            "makespan",
        ),
        (
            Makespan(),
            {"contiguous": False, "sync_period": 2},
            "--non-contiguous and --sync-period are for the objective max-load, and this one is makespan; leave them "
            "out, or add --objective max-load",
        ),
        (Makespan(), {"replicate": False}, "--no-replicate is for the objective max-load, and this one is makespan"),
        (
            MaxLoad(),
            {"convex": True, "contiguous": False},
            "--convex and --non-contiguous exclude each other; keep one",
        ),
        (
            MaxLoad("any"),
            {"cpus_anywhere": True},
            "--cpus-anywhere is for contiguous and convex plans; without contiguity everything may be anywhere",
        ),
        (
            MaxLoad(),
            {"sync_period": 2},
            "--sync-period is about the weights of replicas; add --replicate or leave it out",
        ),
        (BASE, {"sync_bandwidth": "0 GB/s"}, "--sync-bandwidth '0 GB/s' is not above 0 and finite; write for example"),
        (BASE, {"sync_bandwidth": "fast"}, "--sync-bandwidth 'fast' is not a number with a unit"),
        (MaxLoad(), {"calls": "2"}, "--calls is for the objective offload, and this one is max-load; leave it out, or"),
        (
            Offload(),
            {"contention": "port", "contiguous": True, "overlap": "full"},
            "--contention is for the objective makespan, and this one is offload; leave it out, or add --objective "
            "makespan; --contiguous and --overlap are for the objective max-load, and this one is offload; leave them "
            "out, or add --objective max-load",
        ),
        (
            Offload(),
            {"calls": "0"},
            "--calls '0' is neither a whole number from 1 to 999999999 nor 'any'; write for example",
        ),
        (Offload(), {"calls": "-1"}, "--calls '-1' is neither"),
        (Offload(), {"calls": "two"}, "--calls 'two' is neither"),
        (Offload(), {"calls": "\u0662"}, "--calls '\u0662' is neither"),
        (Offload(), {"calls": "9" * 40}, "--calls '999"),
        (BASE, {"overlap": "half"}, "overlap 'half' is unknown; use one of none, transfers, full"),
        (BASE, {"busy_share": 1.5}, "busy share 1.5 is not from 0 to 1"),
        (BASE, {"busy_share": float("nan")}, "busy share nan is not from 0 to 1"),
        (
            MaxLoad(),
            {"busy_share": 0.3},
            "busy share 0.3 is of transfers that overlap computing, and the overlap is none",
        ),
        (Makespan(), {"busy_share": 0.3}, "--busy-share is for the objective max-load"),
        (BASE, {"training_objective": "max"}, "training objective 'max' is unknown; use one of sum, separate"),
        (
            BASE,
            {"objective": "speed"},
            "objective 'speed' is unknown; use one of makespan, token-latency, max-load, throughput, offload",
        ),
    ],
)
def test_flags_that_do_not_fit(base: Objective, given: dict[str, Any], complaint: str) -> None:
    """All in one line, each with what to do."""
    with pytest.raises(InvalidInput) as caught:
        ObjectiveFlags(**given).applied(base)
    assert str(caught.value).startswith(complaint)
