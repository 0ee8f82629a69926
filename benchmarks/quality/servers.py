"""Language models over 1,024 GPUs in servers of three kinds: gap, time, states, and what plainer plans make.

python benchmarks/quality/servers.py                       the tables
python benchmarks/quality/servers.py --only states         the second table alone
python benchmarks/quality/servers.py --picture FILE.svg    cost against layers and devices too
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.quality.language_model import SHAPES, Shape, model_of  # noqa: E402
from benchmarks.quality.servers_picture import picture  # noqa: E402

import placewright as pw  # noqa: E402
from placewright._kernel.warm import warm_up  # noqa: E402
from placewright.algorithm import Budget  # noqa: E402
from placewright.bounds.throughput.servers import servers as bound_of  # noqa: E402
from placewright.bounds.throughput.servers_stages import stages_of  # noqa: E402
from placewright.costs import roofline  # noqa: E402
from placewright.io import read_cluster  # noqa: E402
from placewright.solvers.throughput.servers import ServerTeams  # noqa: E402
from placewright.solvers.throughput.servers_line import line_of  # noqa: E402
from placewright.solvers.throughput.servers_pipeline import Pipeline  # noqa: E402
from placewright.solvers.throughput.servers_teams import kinds_of, teams_of  # noqa: E402
from placewright.symmetry import symmetry_of  # noqa: E402
from placewright.verify import verify  # noqa: E402

CLUSTER = ROOT / "examples" / "many-servers.yaml"
TRAINING = {"sync_period": 2048, "sync_bandwidth_bytes_per_s": 50e9}
"""Weights are synchronised every 2,048 sequences of 4,096 tokens, at 400 Gbit/s."""

CASES: Sequence[tuple[str, bool, dict[str, Any]]] = (
    ("8b", False, {}),
    ("70b", False, {}),
    ("100-layers", False, {}),
    ("405b", False, {}),
    ("70b", True, TRAINING),
    ("100-layers", True, TRAINING),
    ("100-layers", True, {"sync_period": 2048}),
    ("405b", True, TRAINING),
)
LAYERS = (12, 25, 50, 100, 200)
SERVERS = ((1, 0, 0), (1, 1, 1), (2, 2, 2), (4, 4, 5), (8, 8, 11), (16, 16, 21), (32, 32, 43), (48, 48, 64))
"""Of each kind: from 8 to 1,024 devices."""

MOST_NAMED = 84
"""Devices up to which planning by name is tried."""


def clocked(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this process, and what the call returned."""
    begun = time.process_time()
    made = call()
    return time.process_time() - begun, made


def problem_of(
    shape: Shape, training: bool = False, servers: tuple[int, int, int] = SERVERS[-1], **options: Any
) -> pw.Problem:
    """Put the model on the first so many servers of each kind."""
    whole = read_cluster(CLUSTER)
    kept = {f"{kind}{k}" for kind, count in zip("hal", servers, strict=True) for k in range(count)}
    devices = [d for d in whole.devices if d.host in kept]
    names = {d.name for d in devices}
    links = [link for link in whole.links if link.link_class or set(link.between) <= names]
    cluster = pw.Cluster(devices, links)
    graph = model_of(shape, training=training)
    return pw.Problem(graph, cluster, roofline(graph, cluster), pw.Throughput(**options))


def solved(problem: pw.Problem) -> dict[str, Any]:
    """Take the steps one after the other, with their processor seconds."""
    classes_s, _ = clocked(lambda: (problem.cluster.channels_of, symmetry_of(problem)))
    bound_s, bound = clocked(lambda: bound_of(problem, budget=Budget(), rng=np.random.default_rng(0)).lower_bound_s)
    plan_s, result = clocked(lambda: ServerTeams()(problem, budget=Budget(), rng=np.random.default_rng(0)))
    plan = result.require_plan()
    check_s, broken = clocked(lambda: verify(problem, plan))
    assert not broken, broken[:3]
    seconds = {"classes": classes_s, "bound": bound_s, "plan": plan_s, "check": check_s}
    return {**seconds, "value": plan.value_s, "gap": 1.0 - bound / plan.value_s, "copies": len(plan.copies)}


def one_pipeline(problem: pw.Problem) -> float:
    """All devices in one pipeline, server after server, cut in the best way."""
    line = line_of(problem)
    devices = [i for kind in kinds_of(problem) for server in kind for i in server]
    sync = np.zeros(len(line))
    rate, cuts = Pipeline(line, devices).cut(sync)
    return pw.evaluate(problem, line.placed(cuts, devices)).value_s if rate > 0.0 else math.inf


def data_parallel(problem: pw.Problem) -> float:
    """Put the whole network on each device that holds it, shares in proportion to speed."""
    rooms = np.flatnonzero(problem.cluster.capacity_bytes >= problem.resident_bytes.sum())
    if not len(rooms):
        return math.inf
    speed = 1.0 / problem.times.processing_s[:, rooms].sum(axis=0)
    n = len(problem.graph)
    copies = [pw.Copy(np.full(n, i), s / speed.sum()) for i, s in zip(rooms.tolist(), speed.tolist(), strict=True)]
    copies.sort(key=lambda copy: -copy.share)
    return pw.evaluate(problem, copies[0].device_of, copies=copies).value_s


def equal_shares(problem: pw.Problem, *, alike: bool) -> float:
    """As few servers of a kind as hold the network make one pipeline each; all with equal shares, or by speed."""
    line, kinds = line_of(problem), kinds_of(problem)
    capacity, total = problem.cluster.capacity_bytes, float(line.resident[-1])
    found: list[tuple[np.ndarray, float]] = []
    for kind in kinds:
        for need in range(1, len(kind) + 1):
            devices = [i for server in kind[:need] for i in server]
            if capacity[devices].sum() < total:
                continue
            rate, cuts = Pipeline(line, devices).cut(np.zeros(len(line)))
            if rate > 0.0:
                for k in range(len(kind) // need):
                    own = [i for server in kind[k * need : (k + 1) * need] for i in server]
                    found.append((line.placed(cuts, own), 1.0 if alike else rate))
                break
    if not found:
        return math.inf
    whole = sum(share for _, share in found)
    copies = sorted((pw.Copy(placed, share / whole) for placed, share in found), key=lambda copy: -copy.share)
    return pw.evaluate(problem, copies[0].device_of, copies=copies).value_s


def named(problem: pw.Problem) -> tuple[int, int, float]:
    """Teams by kind; stages by class; and how many teams of named servers those of kinds stand for (log10)."""
    kinds = kinds_of(problem)
    teams = list(teams_of(line_of(problem), kinds))
    ways = sum(math.prod(math.comb(len(kind), n) for kind, n in zip(kinds, team.takes, strict=True)) for team in teams)
    stages = stages_of(problem, Budget())
    return len(teams), 0 if stages is None else stages.table.load.size, math.log10(ways)


def unlike(problem: pw.Problem) -> pw.Problem:
    """Give each device a byte more of memory than the last: nothing can be exchanged."""
    cluster = problem.cluster
    devices = [replace(d, memory_bytes=(d.memory_bytes or 0) + k) for k, d in enumerate(cluster.devices)]
    return pw.Problem(problem.graph, pw.Cluster(devices, cluster.links), problem.times, problem.objective)


def plans() -> Iterator[str]:
    yield "| network | operators | ms / sample | gap | CPU s | one pipeline | data parallel | equal shares | by speed |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, training, options in CASES:
        problem = problem_of(SHAPES[name], training, **options)
        row = solved(problem)
        seconds = sum(row[step] for step in ("classes", "bound", "plan", "check"))
        plainer = [
            one_pipeline(problem),
            data_parallel(problem),
            equal_shares(problem, alike=True),
            equal_shares(problem, alike=False),
        ]
        ratios = " | ".join(f"{value / row['value']:.2f}" if math.isfinite(value) else "-" for value in plainer)
        kind = "training" if training else "inference"
        if training and "sync_bandwidth_bytes_per_s" not in options:
            kind += ", links"
        yield (
            f"| {name} {kind} | {len(problem.graph):,} | {row['value'] * 1e3:.4f} | {row['gap']:.2%} | {seconds:.1f} | "
            f"{ratios} |"
        )


def states() -> Iterator[str]:
    yield "| devices | stages x classes | teams | named teams | bound s | plan s | bound by name s | plan by name s |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    for servers in SERVERS:
        problem = problem_of(SHAPES["70b"], servers=servers)
        D = len(problem.cluster)
        row = solved(problem)  # first: stages are listed once
        teams, entries, ways = named(problem)
        apart = solved(unlike(problem)) if D <= MOST_NAMED else None
        by_name = f"{apart['bound']:.2f} | {apart['plan']:.2f}" if apart else "- | -"
        yield f"| {D:,} | {entries:,} | {teams} | 10^{ways:.1f} | {row['bound']:.2f} | {row['plan']:.2f} | {by_name} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--only", choices=("plans", "states", "curves"))
    given = parser.parse_args()
    warm_up("throughput")
    for name, table in (("plans", plans), ("states", states)):
        if given.only in (None, name):
            for line in table():
                print(line, flush=True)
            print()
    if given.picture and given.only in (None, "curves"):
        large = SHAPES["100-layers"]
        by_layers = []
        for layers in LAYERS:
            row = solved(problem_of(replace(large, layers=layers)))
            by_layers.append({"layers": layers, "devices": 1024, **row})
            print(by_layers[-1], flush=True)
        by_devices = []
        for servers in SERVERS:
            problem = problem_of(large, servers=servers)
            by_devices.append({"layers": large.layers, "devices": len(problem.cluster), **solved(problem)})
            print(by_devices[-1], flush=True)
        given.picture.write_text(picture(by_layers, by_devices))


if __name__ == "__main__":
    main()
