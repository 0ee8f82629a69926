"""A CPU and two unlike GPUs of the catalogue against the fastest GPU alone: latency and throughput, as predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from benchmarks.quality.timed_runs import Kept, Run

import placewright as pw
from placewright.coarsen import duplicate
from placewright.io.cluster_file import cluster_from_text
from placewright.solvers import SOLVERS
from placewright.units import format_seconds

__all__ = ["PAIRS", "Row", "clusters", "compared", "summary", "table"]

PAIRS: Mapping[str, tuple[str, str, str]] = {
    "a10 + l4": ("a10", "l4", "alike in arithmetic, 2 to 1 in memory bandwidth"),
    "rtx-4090 + a100-sxm-40gb": ("rtx-4090", "a100-sxm-40gb", "4 to 1 in fp32 arithmetic, 2 to 3 in memory bandwidth"),
    "v100-sxm2-16gb + t4": ("v100-sxm2-16gb", "t4", "2 to 1 in arithmetic, 3 to 1 in memory bandwidth"),
    "rtx-4090 + rtx-3060-12gb": ("rtx-4090", "rtx-3060-12gb", "6 to 1 in arithmetic, 3 to 1 in memory bandwidth"),
}
"""Two models of the catalogue, and how unlike they are."""

CPU = "epyc-7763"

SIDE_BY_SIDE = ("data-parallel", "model-parallel")
"""Solvers for the throughput that use one kind of parallelism alone."""

CLUSTER = """
devices:
  - {{name: gpu0, model: {0}, host: box}}
  - {{name: gpu1, model: {1}, host: box}}
  - {{name: cpu, model: {2}, host: box, memory: 128 GiB}}
links:
  - {{class: same-host, bandwidth: 24 GB/s, latency: 10 us, channel: pcie}}
"""


@dataclass(frozen=True)
class Row:
    """A network on a CPU and two GPUs; seconds, ``inf`` where a plan is not there."""

    pair: str
    network: str
    batch: int
    alone_latency_s: float
    latency: Run
    alone_sample_s: float
    sample: Run
    by_solver: Mapping[str, float]

    @property
    def latency_ratio(self) -> float:
        """How many times sooner a sample is done than on the fastest GPU alone."""
        return self.alone_latency_s / self.latency.value_s

    @property
    def throughput_ratio(self) -> float:
        """How many times more samples a second than on the fastest GPU alone."""
        return self.alone_sample_s / self.sample.value_s


def clusters(pairs: Sequence[str]) -> Iterator[tuple[str, pw.Cluster]]:
    """Yield each pair with the CPU, on one PCIe channel."""
    for pair in pairs:
        one, other, _ = PAIRS[pair]
        yield pair, cluster_from_text(CLUSTER.format(one, other, CPU), pair)


def compared(
    graphs: Sequence[tuple[str, int, pw.OperatorGraph]], pairs: Sequence[str], kept: Kept, budget_s: float
) -> list[Row]:
    """Plan each network on each pair for both objectives."""
    rows = []
    for pair, cluster in clusters(pairs):
        for network, batch, graph in graphs:
            times = pw.roofline(graph, cluster)
            name = f"{network}, batch {batch}, on {pair}"
            one = duplicate(pw.Problem(graph, cluster, times, name=name))
            many = replace(one, objective=pw.Throughput())
            alone = [kept.run(p, "single-device", budget_s) for p in (one, many)]
            whole = [kept.run(p, "auto", budget_s) for p in (one, many)]
            latency, sample = whole
            if latency is None or sample is None or alone[0] is None or alone[1] is None:
                continue
            able = [s for s in SIDE_BY_SIDE if s in SOLVERS["throughput"]]
            runs = {s: kept.run(many, s, budget_s) for s in able}
            by_solver = {s: inf if r is None else r.value_s for s, r in runs.items()}
            gpus = [_fastest_gpu(r) for r in (alone[0], alone[1])]
            rows.append(Row(pair, network, batch, gpus[0], latency, gpus[1], sample, by_solver))
            print(_line(rows[-1]), flush=True)
    return rows


def _fastest_gpu(run: Run) -> float:
    return min((s for name, s in run.alone.items() if name.startswith("gpu")), default=inf)


def table(rows: Sequence[Row]) -> list[str]:
    """One table a pair."""
    lines: list[str] = []
    for pair in dict.fromkeys(r.pair for r in rows):
        lines += [
            f"### {pair}: {PAIRS[pair][2]}",
            "",
            "| network | batch | latency, fastest GPU | latency | times less | at most | time per sample, fastest GPU "
            f"| {' | '.join(SIDE_BY_SIDE)} | copies | times more | at most |",
            f"|---|---:|---:|---:|---:|---:|---:|{'---:|' * len(SIDE_BY_SIDE)}---:|---:|---:|",
            *(_line(r) for r in rows if r.pair == pair),
            "",
        ]
    return lines


def _line(r: Row) -> str:
    cells = [
        *(r.network, str(r.batch), _seconds(r.alone_latency_s), _seconds(r.latency.value_s)),
        *(_times(r.latency_ratio), _most(r.alone_latency_s, r.latency)),
        _seconds(r.alone_sample_s),
        *(_seconds(r.by_solver.get(s, inf)) for s in SIDE_BY_SIDE),
        *(_seconds(r.sample.value_s), _times(r.throughput_ratio), _most(r.alone_sample_s, r.sample)),
    ]
    return f"| {' | '.join(cells)} |"


def _seconds(value: float) -> str:
    return "-" if value == inf else format_seconds(value)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if 0 < ratio < inf else "-"


def _most(alone_s: float, run: Run) -> str:
    return _times(alone_s / run.bound_s) if run.bound_s > 0 else "?"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Give medians and the largest ratios, of networks that fit a GPU alone."""
    for what, ratio in (("latency", "latency_ratio"), ("throughput", "throughput_ratio")):
        fits = [(getattr(r, ratio), r) for r in rows if 0 < getattr(r, ratio) < inf]
        if not fits:
            continue
        most, where = max(fits, key=lambda pair: pair[0])
        word = "lower latency" if what == "latency" else "more throughput"
        yield (
            f"Predicted, a CPU and two unlike GPUs over the fastest GPU alone: median "
            f"{median(value for value, _ in fits):.2f} times {word}, at most {most:.2f} ({where.network}, batch "
            f"{where.batch}, on {where.pair}), of {len(fits)} that fit the GPU."
        )
