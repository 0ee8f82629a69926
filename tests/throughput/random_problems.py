"""Random small throughput problems: those of the max-load with copies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from placewright import Problem, Throughput
from tests.max_load.random_problems import max_load_problems


@st.composite
def throughput_problems(draw: st.DrawFn, most_operators: int = 5, most_devices: int = 3, **options: Any) -> Problem:
    """Problems of a few operators and devices; ``options`` as for the max-load."""
    given = draw(max_load_problems(most_operators, most_devices, training="sum", replicate=False, **options))
    o = given.objective
    options = {f: getattr(o, f) for f in ("overlap", "sync_period", "sync_bandwidth_bytes_per_s", "busy_share")}
    objective = Throughput(o.contiguity, o.contiguous_cpus, **options)
    return Problem(given.graph, given.cluster, given.times, objective, given.wishes)
