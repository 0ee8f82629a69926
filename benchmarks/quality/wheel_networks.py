"""Every network that the onnx wheel carries, on a fast GPU, a slow GPU and a CPU of the catalogue: a table.

Run: ``python benchmarks/quality/wheel_networks.py [--budget 10] [-o docs/wheel-networks.md]``. Times are predicted by
the roofline, not measured. Every plan is checked by ``verify``.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import onnx

import placewright as pw
from placewright.comparison import compare
from placewright.host import cpu_name
from placewright.io import write_atomic
from placewright.units import format_seconds

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
CLUSTER = Path(__file__).parents[2] / "examples/two-gpus-and-cpu.yaml"
COLUMNS = ("single-device", "heft", "etf", "annealing", "makespan-cp-sat", "auto")


def main() -> None:
    """Print the table, and write it where ``-o`` says."""
    logging.getLogger().setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds a solver and network")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    cluster = pw.read_cluster(CLUSTER)
    lines = [
        f"| network | operators | {' | '.join(COLUMNS)} | lower bound | gap of auto | violations |",
        f"|---|---:|{'---:|' * (len(COLUMNS) + 3)}",
    ]
    for path in sorted(LIGHT.glob("*.onnx")):
        graph = pw.capture(path)
        problem = pw.Problem(graph, cluster, pw.roofline(graph, cluster))
        rows = dict(compare(problem, COLUMNS, budget_s=options.budget))
        broken = sum(len(pw.verify(problem, r.plan)) for r in rows.values() if r.plan is not None)
        best = rows["auto"]
        lines.append(
            f"| {path.stem.removeprefix('light_')} | {len(graph)} | "
            + " | ".join(format_seconds(rows[c].value_s) for c in COLUMNS)
            + f" | {format_seconds(best.lower_bound_s)} | {best.gap:.2%} | {broken} |"
        )
        print(lines[-1], flush=True)
    text = "\n".join(
        [
            "# Networks of the onnx wheel on two unlike GPUs and a CPU",
            "",
            f"Made by `python benchmarks/quality/wheel_networks.py --budget {options.budget:g}` on 2 cores",
            f"({cpu_name()}). Cluster: `examples/two-gpus-and-cpu.yaml`. Predicted by the roofline; seed 0;",
            f"{options.budget:g} s a solver.",
            "Operators are counted after fusing. Plans are checked by `verify`; the last column counts violations.",
            "",
            *lines,
            "",
        ]
    )
    if options.output is not None:
        write_atomic(options.output, text)


if __name__ == "__main__":
    main()
