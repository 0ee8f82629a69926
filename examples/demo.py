"""The whole way on this machine: capture a real network, measure it, place it, prove the plan, run it, compare.

Run with ``make demo``, or ``python examples/demo.py [MODEL.onnx] [--devices N] [--budget 20s] [--out FOLDER]``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import onnx
from rich.console import Console

import placewright as pw
from placewright.execute.onnx.run import run_onnx_alone, run_onnx_plan
from placewright.execute.probe.here import probe
from placewright.io import write_atomic
from placewright.measurement import Measurement
from placewright.report import cluster_report, demo_table, explain, html_report, trace_json
from placewright.report.progress import ProgressLine
from placewright.units import format_seconds, parse_seconds

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
RUNS, ROUNDS = 15, 3


def pooled(before: Measurement | None, now: Measurement) -> Measurement:
    """All runs of both, with the spans of the one whose median is nearer to that of all."""
    if before is None:
        return now
    error = max(before.max_relative_error, now.max_relative_error)
    both = replace(now, runs_s=before.runs_s + now.runs_s, max_relative_error=error)
    nearer = min((before, now), key=lambda m: abs(m.median_s - both.median_s))
    return replace(both, spans=nearer.spans)


def main() -> None:
    """Do it all; end with a table and the files plan.json, plan.html and trace.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(LIGHT / "light_inception_v2.onnx"))
    parser.add_argument("--devices", type=int, default=None, help="workers to split this machine into")
    parser.add_argument("--budget", default="20s", help="time to search")
    parser.add_argument("--runs", type=int, default=RUNS, help="measured runs of each placement and round")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder of the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    progress = ProgressLine(sys.stderr)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 80)

    progress.tell("1. measuring this machine: its workers, and transfers between them")
    cluster = probe(devices=options.devices, on_progress=progress.step).cluster
    progress.tell(f"2. capturing {Path(options.model).name} and measuring each of its operators once")
    graph = pw.capture(options.model)
    costs = pw.profile(options.model, graph, cluster, on_progress=progress.step)
    cluster = costs.cluster(cluster)
    console.print(cluster_report(cluster))
    problem = pw.Problem(graph, cluster, costs.times, objective="makespan", name=Path(options.model).stem)

    progress.tell(f"3. placing {len(graph)} operators on {len(cluster)} devices")
    result = pw.solve(problem, budget=parse_seconds(options.budget), on_progress=progress)
    plan = result.require_plan()
    placed = {"plan": plan}
    for name in ("heft", "etf"):
        other = pw.solve(problem, solver=name, budget=10.0).plan
        if other is not None:
            placed[name] = other

    progress.tell(
        f"4. running each placement {ROUNDS} x {options.runs} times, outputs checked against the unsplit network"
    )
    measured: dict[str, Measurement] = {}
    for _ in range(ROUNDS):  # in turn, so that a machine that changes pace does not favour one of them
        for name, one in placed.items():
            progress.step(f"   {name}")
            run = run_onnx_plan(options.model, problem, one, runs=options.runs, name=name)[0]
            measured[name] = pooled(measured.get(name), run)
        for i, device in enumerate(cluster.devices):
            if problem.allowed[:, i].all():
                progress.step(f"   {device.name} alone")
                run = run_onnx_alone(options.model, problem, device.name, runs=options.runs)[0]
                measured[device.name] = pooled(measured.get(device.name), run)
    progress.close()
    runs = list(measured.values())

    judged = pw.evaluate(problem, plan.device_of, schedule=plan.schedule)
    sentences = explain(problem, result, judged)
    pw.write_plan(options.out / "plan.json", problem, result, judged, explanation=sentences)
    write_atomic(options.out / "plan.html", html_report(problem, result, judged, runs))
    write_atomic(options.out / "trace.json", trace_json(problem, plan, runs))

    console.print(demo_table(result, runs))
    for sentence in sentences:
        console.print(f"- {sentence}")
    alone = min((m for m in runs if m.name in cluster.index), key=lambda m: m.median_s)
    mine = measured["plan"]
    console.print(
        f"- Measured: the plan takes {format_seconds(mine.median_s)}, {alone.name} alone "
        f"{format_seconds(alone.median_s)}: {alone.median_s / mine.median_s:.2f} times as fast. "
        f"Outputs equal the unsplit network's (largest relative difference {mine.max_relative_error:.1e})."
    )
    console.print(f"Written: {', '.join(str(options.out / f) for f in ('plan.json', 'plan.html', 'trace.json'))}")


if __name__ == "__main__":
    main()
