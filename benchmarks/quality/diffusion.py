"""Diffusion pipelines on clusters that people describe: our plans against those of components as wholes.

Every placement is judged on the same problem by the same judge: the components over GPUs as diffusers'
``device_map="balanced"`` has them, by its own function (``diffusers``); the best of all placements of whole
components, which is the most that any tool can do that gives a component one device (``components``); equal bytes of
weights in order on each of the GPUs (``equal``); and the best single device. A plan that is worse than one of them, or
a lower bound above one, ends the run.

Run ``python -m benchmarks.quality.diffusion -o rows.jsonl [--budget 4] [--page PAGE.md]``. What ``-o`` has is not done
again.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.quality.language_models import CLOSE, CLUSTERS, EXAMPLES, read_rows

from placewright.cluster import Cluster
from placewright.costs import analytic
from placewright.costs.weight_formats import weight_format
from placewright.diffusion import PictureAsked, pose_pipeline, read_pipeline
from placewright.evaluate import evaluate
from placewright.io import read_cluster
from placewright.language import Formats
from placewright.objective import Makespan, MaxLoad, Objective
from placewright.problem import Problem
from placewright.solve import solve

PIPELINES = {
    "stable-diffusion-1.5": ("stable-diffusion-1.5", None),
    "stable-diffusion-xl": ("stable-diffusion-xl", None),
    "stable-diffusion-3-medium": ("stable-diffusion-3-medium", None),
    "flux-1-dev": ("flux-1-dev", None),
    "flux-1-dev, q8_0": ("flux-1-dev", "q8_0"),
}
"""By name the example, and the format of its weights; ``None``: 16 bits."""

WAYS = ("diffusers", "components", "equal", "one device")
DOES_NOT_FIT, DOES_NOT_APPLY = "does not fit", ""


def posed(name: str, cluster: Cluster, objective: Objective) -> Problem:
    """Pose one picture of the size and in the steps that the pipeline has by default."""
    example, bits = PIPELINES[name]
    pipeline = read_pipeline(f"hf:{EXAMPLES / 'configs' / example}")
    kind, (height, width) = pipeline.denoiser, pipeline.usual_size()
    formats = Formats(kind.dtype, None if bits is None else weight_format(bits))
    asked = PictureAsked(height, width, kind.steps, guided=kind.guided, formats=formats)
    return pose_pipeline(pipeline, cluster, asked, objective, analytic).problem


def component_of(problem: Problem) -> list[str]:
    """Name the component that each operator is of."""
    return [v.name.partition(".")[0] for v in problem.graph.operators]


def judged(problem: Problem, device_of: list[int]) -> float | str:
    """Seconds, or why not."""
    found = evaluate(problem, device_of)
    return found.value_s if found.feasible and np.isfinite(found.value_s) else DOES_NOT_FIT


def diffusers_balanced(problem: Problem) -> float | str:
    """Ask diffusers' own function: the largest component first, over GPUs by their memory; the rest on the CPU."""
    from diffusers.pipelines.pipeline_loading_utils import _assign_components_to_devices

    devices = problem.cluster.devices
    gpus = [i for i, d in enumerate(devices) if d.kind != "cpu"]
    cpus = [i for i, d in enumerate(devices) if d.kind == "cpu"]
    if len({d.host for d in devices}) > 1 or not gpus:
        return DOES_NOT_APPLY
    of, sizes = component_of(problem), dict[str, int]()
    for v, name in zip(problem.graph.operators, of, strict=True):
        sizes[name] = sizes.get(name, 0) + v.weight_bytes
    ordered = dict(sorted(sizes.items(), key=lambda item: item[1], reverse=True))
    room = dict(sorted(((i, devices[i].capacity_bytes) for i in gpus), key=lambda item: item[1], reverse=True))
    assigned = _assign_components_to_devices(ordered, room)
    where = {name: i for i, names in assigned.items() if i != "cpu" for name in names}
    if len(where) < len(sizes) and not cpus:
        return DOES_NOT_FIT
    return judged(problem, [where.get(name, cpus[0] if cpus else -1) for name in of])


def best_of_components(problem: Problem) -> float | str:
    """Judge every placement of whole components."""
    of = component_of(problem)
    names = list(dict.fromkeys(of))
    every = product(range(len(problem.cluster)), repeat=len(names))
    values = (judged(problem, [dict(zip(names, at, strict=True))[n] for n in of]) for at in every)
    return min((v for v in values if not isinstance(v, str)), default=DOES_NOT_FIT)


def equal(problem: Problem) -> float | str:
    """Give each GPU, or each CPU where there are CPUs alone, the same bytes of weights, in order."""
    kinds = [d.kind for d in problem.cluster.devices]
    over = [i for i, kind in enumerate(kinds) if kind != "cpu"] or list(range(len(kinds)))
    weights = np.array([v.weight_bytes for v in problem.graph.operators], dtype=float)
    middle = (np.cumsum(weights) - weights / 2) / weights.sum()
    return judged(problem, [over[min(int(m * len(over)), len(over) - 1)] for m in middle])


def one_device(problem: Problem) -> float | str:
    """Put all on the device that is best alone."""
    values = [judged(problem, [i] * len(problem.graph)) for i in range(len(problem.cluster))]
    return min((v for v in values if not isinstance(v, str)), default=DOES_NOT_FIT)


def row_of(name: str, where: str, objective: Objective, budget_s: float) -> dict[str, Any]:
    """Our plan, its bound, and the other placements on one problem."""
    problem = posed(name, read_cluster(EXAMPLES / f"{where}.yaml"), objective)
    result = solve(problem, budget=budget_s)
    row: dict[str, Any] = {"model": name, "cluster": where, "objective": objective.name}
    row["value_s"] = result.value_s if result.plan is not None else None
    row["gap"] = 1 - result.lower_bound_s / result.value_s if result.plan is not None else None
    row["devices"] = 0 if result.plan is None else len(result.plan.devices_used)
    splits = (diffusers_balanced, best_of_components, equal, one_device)
    row |= {way: split(problem) for way, split in zip(WAYS, splits, strict=True)}
    known = [row[way] for way in WAYS if not isinstance(row[way], str)]
    assert not known or (result.plan is not None and result.value_s <= min(known) * (1 + CLOSE)), row
    assert result.plan is None or all(result.lower_bound_s <= value * (1 + CLOSE) for value in known), row
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """One line a cell: ours in seconds, devices used and gap, and how much longer the others take."""
    lines = [f"| pipeline | cluster | ours | devices | gap | {' | '.join(WAYS)} |", "|---" * (5 + len(WAYS)) + "|"]
    for row in rows:
        if row["value_s"] is None:
            lines.append(f"| {row['model']} | {row['cluster']} | {DOES_NOT_FIT} |" + " |" * (2 + len(WAYS)))
            continue
        others = [
            found
            if isinstance(found := row[way], str)
            else f"{_figure(found)} ({100 * (found / row['value_s'] - 1):+.0f} %)"
            for way in WAYS
        ]
        ours = f"{_figure(row['value_s'])} s | {row['devices']} | {100 * row['gap']:.1f} %"
        lines.append(f"| {row['model']} | {row['cluster']} | {ours} | {' | '.join(others)} |")
    return "\n".join(lines)


def _figure(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 1000 else f"{seconds:.3g}"


def gains(rows: list[dict[str, Any]]) -> str:
    """How much less time ours take than each other, and where the other has no plan."""
    lines = ["| against | cells | median | least | most | does not fit |", "|---" * 6 + "|"]
    for way in WAYS:
        known = [100 * (1 - row["value_s"] / row[way]) for row in rows if not isinstance(row[way], str)]
        if not known:
            continue
        without = sum(row[way] == DOES_NOT_FIT and row["value_s"] is not None for row in rows)
        shares = " | ".join(f"{share:.1f} %" for share in (median(known), min(known), max(known)))
        lines.append(f"| {way} | {len(known)} | {shares} | {without} |")
    return "\n".join(lines)


def page(rows: list[dict[str, Any]], budget: float) -> str:
    """Markdown of all rows."""
    one = [row for row in rows if row["objective"] == "makespan"]
    many = [row for row in rows if row["objective"] == "max-load"]
    text = Path(__file__).with_name("diffusion_explained.md").read_text()
    return text.format(
        budget=f"{budget:g}",
        cells=len(rows),
        one=table(one),
        one_gains=gains(one),
        many=table(many),
        many_gains=gains(many),
    )


def main() -> None:
    """Do the cells that are not done; ``--page`` writes tables and text of them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=4.0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    rows = read_rows(given.output)
    done = {(row["model"], row["cluster"], row["objective"]) for row in rows}
    objectives: tuple[Objective, ...] = (Makespan(per="picture"), MaxLoad(contiguity="any"))
    for name, where, objective in product(PIPELINES, CLUSTERS, objectives):
        if (name, where, objective.name) in done:
            continue
        rows.append(row_of(name, where, objective, given.budget))
        with given.output.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if given.page is not None:
        given.page.write_text(page(rows, given.budget))


if __name__ == "__main__":
    main()
