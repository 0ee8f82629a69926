"""Measured against predicted times of plans on testbeds of unlike hosts, and against what people do today.

    python benchmarks/quality/execution.py --keep execution.json -o docs/execution-measured.md

Needs root (see benchmarks/testbed). Interrupted, it goes on where it was with ``--keep``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).absolute().parents[2]
sys.path[:0] = [str(ROOT)]

from benchmarks.quality.execution_cases import HANDED_BYTES, SIZES_BYTES, as_measured, links_of, profiled, tight  # noqa: E402
from benchmarks.quality.execution_hosts import Hosts, Loader  # noqa: E402
from benchmarks.quality.execution_networks import NETWORKS  # noqa: E402
from benchmarks.quality.execution_page import page  # noqa: E402
from benchmarks.quality.execution_rivals import EQUAL, TORCH, rivals  # noqa: E402
from benchmarks.testbed.description import Description, read_testbed  # noqa: E402

import placewright as pw  # noqa: E402
from placewright.evaluate import evaluate  # noqa: E402
from placewright.io import problem_hash, read_problem, write_atomic, write_problem  # noqa: E402
from placewright.objective import Makespan, MaxLoad, Objective  # noqa: E402

TESTBEDS = ("two", "three", "four")
TIGHT = ("four",)
"""Where the memory of no host holds a network alone."""
BANDWIDTHS = {"100 Mb/s": 12.5e6, "1 Gb/s": 125e6, "10 Gb/s": 1250e6}
OBJECTIVES: dict[str, Objective] = {
    "makespan": Makespan(contention="port"),
    "throughput": MaxLoad(contiguity="any"),
}
PLACEWRIGHT, PLAIN = "placewright", "plain"
SAMPLES, FILLING = 10, 4
"""Of one run under the throughput, and how many of them don't count, since the pipeline is filled by them."""
MESSAGES = 15
"""Of each size, to measure what they take of the processors."""
SEED = 0


class Kept:
    """What was measured and planned, by name, in a file that is written after each step."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def put(self, key: str, value: Any) -> Any:
        """Keep a value."""
        self.rows[key] = value
        if self.path is not None:
            write_atomic(self.path, json.dumps(self.rows))
        return value


def main() -> None:
    """Run what is not there yet, and write the page."""
    options = _options()
    kept = Kept(options.keep)
    kept.put("overlap", options.overlap)
    until = time.monotonic() + options.minutes * 60
    with TemporaryDirectory(prefix="placewright-") as folder, Loader() as loader:
        try:
            for objective in options.objectives:
                for testbed in options.testbeds:
                    _testbed(testbed, objective, options, kept, Path(folder), until, loader)
        except TimeoutError:
            _tell("time is up; go on with the same command")
    text = page(kept.rows, rounds=options.rounds, budget=options.budget)
    if options.output:
        write_atomic(options.output, text)
    else:
        sys.stdout.write(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testbeds", nargs="+", default=list(TESTBEDS), choices=TESTBEDS)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--bandwidths", nargs="+", default=list(BANDWIDTHS), choices=list(BANDWIDTHS))
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES), choices=list(OBJECTIVES))
    parser.add_argument(
        "--overlap",
        default="transfers",
        choices=["none", "transfers", "full"],
        help="of the throughput; its busy share is measured",
    )
    parser.add_argument("--budget", type=float, default=10.0, help="seconds that a plan may take")
    parser.add_argument("--rounds", type=int, default=9, help="how often each plan is run, in turn with the others")
    parser.add_argument("--minutes", type=float, default=inf, help="end after so many minutes, between two networks")
    parser.add_argument("--keep", type=Path, help="what is there already is not run again")
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


def _testbed(
    name: str, objective: str, options: argparse.Namespace, kept: Kept, folder: Path, until: float, loader: Loader
) -> None:
    """Run all networks on one testbed."""
    description = read_testbed(ROOT / "benchmarks" / "testbed" / f"{name}.yaml")
    kept.put(f"testbed {name}", [[h.name, h.core, h.share] for h in description.hosts])
    for network in options.networks:  # profiles first, while no worker is there
        _profile(name, description, network, kept, folder)
    todo = [
        n for n in options.networks if any(f"runs {key}" not in kept.rows for key in _keys(name, n, objective, options))
    ]
    missing = [b for b in options.bandwidths if f"handovers {name} {b}" not in kept.rows]
    if not todo and not missing:
        return
    for network in todo:
        if network not in loader.loaded:
            path = folder / f"{name}-{network}.json"
            loader.ask(do="load", name=network, problem=str(path), model=_spec(network))
            loader.loaded.add(network)
    with Hosts(description, loader) as hosts:
        for bandwidth in missing:
            hosts.testbed.shape(BANDWIDTHS[bandwidth])
            hosts.confine()
            kept.put(f"links {name} {bandwidth}", hosts.ask(do="links", sizes_bytes=list(SIZES_BYTES))[0])
            told = hosts.ask(do="handovers", sizes_bytes=list(HANDED_BYTES), count=MESSAGES)
            kept.put(f"handovers {name} {bandwidth}", told[:2])
            hosts.confine(False)
            _tell(f"{name}: links at {bandwidth} measured")
        for network in todo:
            if time.monotonic() > until:
                raise TimeoutError
            _network(name, objective, description, network, options, kept, folder, hosts)


def _keys(testbed: str, network: str, objective: str, options: argparse.Namespace) -> Iterator[str]:
    for bandwidth in options.bandwidths:
        yield f"{testbed}|{network}|{bandwidth}|{objective}"


def _profile(testbed: str, description: Description, network: str, kept: Kept, folder: Path) -> None:
    key = f"problem {testbed} {network}"
    path = folder / f"{testbed}-{network}.json"
    if key not in kept.rows:
        write_problem(path, profiled(description, _spec(network)))
        kept.put(key, path.read_text())
        _tell(f"{testbed}, {network}: profiled")
    path.write_text(kept.rows[key])


def _spec(network: str) -> str:
    return f"py:benchmarks.quality.execution_networks:{network}"


def _network(
    testbed: str,
    objective: str,
    description: Description,
    network: str,
    options: argparse.Namespace,
    kept: Kept,
    folder: Path,
    hosts: Hosts,
) -> None:
    """Plan and run one network at all bandwidths."""
    path = folder / f"{testbed}-{network}.json"
    base = read_problem(path)
    names = [h.name for h in description.hosts]
    hosts.testbed.shape(BANDWIDTHS["1 Gb/s"])
    hosts.ask(do="take", name=network, problem=str(path))
    everywhere = {f"only {name}": [[i] * len(base.graph), list(range(len(base.graph)))] for i, name in enumerate(names)}
    hosts.ask(do="plans", plans=everywhere)
    hosts.confine()
    key = f"alone {testbed} {network}"
    if key not in kept.rows:
        kept.put(key, _rounds(hosts, [PLAIN, *everywhere], "makespan", options.rounds))
    alone = {name: statistics.median(kept.rows[key][f"only {name}"]) for name in names}
    memory = {h.name: int(h.memory_bytes or 1 << 40) for h in description.hosts}
    if testbed in TIGHT:
        memory = tight(base, description)
    wanted: dict[str, dict[str, Any]] = {}
    for bandwidth in options.bandwidths:
        case = f"{testbed}|{network}|{bandwidth}|{objective}"
        if f"runs {case}" in kept.rows:
            continue
        links = links_of(description, kept.rows[f"links {testbed} {bandwidth}"])
        handed = kept.rows[f"handovers {testbed} {bandwidth}"]
        wished = OBJECTIVES[objective]
        if isinstance(wished, MaxLoad):
            wished = replace(wished, overlap=options.overlap)
        problem = as_measured(base, description, links, alone, handed, wished, memory)
        wanted[bandwidth] = _plans(case, problem, network, options, kept)
    hosts.confine(False)
    given = {f"{b} {n}": [p["device_of"], p["start_s"]] for b, ps in wanted.items() for n, p in ps.items()}
    errors = hosts.ask(do="plans", plans=given)[0]
    worst = max(errors.values(), default=0.0)
    if worst > 1e-4:
        raise SystemExit(f"{testbed}, {network}: an output is off by {worst:.2g}")
    if objective == "throughput":
        for name in hosts.ask(do="streamed", plans=given, samples=SAMPLES)[0]:
            bandwidth = next(b for b in wanted if name.startswith(f"{b} "))
            del wanted[bandwidth][name.removeprefix(f"{bandwidth} ")]
    hosts.confine()
    for bandwidth, plans in wanted.items():
        hosts.testbed.shape(BANDWIDTHS[bandwidth])
        order = [f"{bandwidth} {name}" for name in plans]
        rows = _rounds(hosts, order, objective, options.rounds)
        case = f"{testbed}|{network}|{bandwidth}|{objective}"
        kept.put(f"runs {case}", {name.removeprefix(f"{bandwidth} "): row for name, row in rows.items()})
        medians = {name: statistics.median(row) for name, row in kept.rows[f"runs {case}"].items()}
        told = (f"{name} {medians[name] * 1e3:.0f} ms ({p['predicted_s'] * 1e3:.0f})" for name, p in plans.items())
        _tell(f"{case}: {', '.join(told)}")
    hosts.confine(False)
    hosts.ask(do="forget")


def _plans(case: str, problem: pw.Problem, network: str, options: argparse.Namespace, kept: Kept) -> dict[str, Any]:
    """Plans of placewright and of its rivals, with their predicted times."""
    key = f"plans {case} {problem_hash(problem)} {options.budget:g}"
    if key not in kept.rows:
        from benchmarks.quality import execution_networks

        result = pw.solve(problem, budget=options.budget, seed=SEED)
        found = result.require_plan()
        plans = {PLACEWRIGHT: _kept_plan(found.device_of, found.schedule.start_s, result.value_s)}
        plans[PLACEWRIGHT]["bound_s"] = result.lower_bound_s
        module, _ = getattr(execution_networks, network)()
        for name, places in rivals(problem, module):
            judged = evaluate(problem, places)
            plans[name] = _kept_plan(places, judged.schedule.start_s, judged.value_s)
        if EQUAL in plans and problem.objective.name == "max-load":
            plans[TORCH] = plans[EQUAL]
        kept.put(key, plans)
    kept.put(f"plans {case}", key)
    return dict(kept.rows[key])


def _kept_plan(device_of: Any, start_s: Any, value_s: float) -> dict[str, Any]:
    return {
        "device_of": np.asarray(device_of).astype(int).tolist(),
        "start_s": np.asarray(start_s).tolist(),
        "predicted_s": value_s,
    }


def _rounds(hosts: Hosts, names: list[str], objective: str, rounds: int) -> dict[str, list[float]]:
    """Seconds per sample of each plan in each round, once each is warm."""
    rows: dict[str, list[float]] = {name: [] for name in names}
    if objective == "makespan":
        hosts.ask(do="run", names=names)
    for _ in range(rounds):
        answers = hosts.ask(do="run" if objective == "makespan" else "stream", names=names)
        for j, name in enumerate(names):
            if objective == "makespan":
                rows[name].append(max(a[j][0] for a in answers))
            else:
                done = np.max([a[j] for a in answers if a[j]], axis=0)
                rows[name].append(float(done[-1] - done[FILLING - 1]) / (SAMPLES - FILLING))
    return rows


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
