"""Time per token of language models on clusters of unlike devices, split by placewright and as other programs split.

Run: ``python benchmarks/quality/device_maps.py [--budget 10] [--context 4k] [--only NAME] [-o PAGE.md]``.
Everything is predicted, by one judge on one problem: the plan of any operators; the best maps for accelerate and flags
for llama.cpp that say it nearest (docs/exporters.md); and what others come to by themselves: accelerate's
``infer_auto_device_map`` (called, on the model without weights; ``sequential`` as it is, ``auto`` after
``get_balanced_memory``), llama.cpp without ``--tensor-split``, and exo's split by memory.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from device_map_models import MODELS
from device_map_rivals import accelerate_plan, exo_plan, llama_cpp_plan, on_meta

from placewright.errors import InvalidInput
from placewright.export import PLAN_FORMATS, nearest
from placewright.host import cpu_name
from placewright.io import write_atomic
from placewright.language_flags import LanguageFlags
from placewright.memory_flags import MemoryFlags
from placewright.objective_flags import ObjectiveFlags
from placewright.plan import Plan
from placewright.posing import pose
from placewright.problem import Problem
from placewright.solve import solve

EXAMPLES = Path(__file__).parents[2] / "examples"

CLUSTERS = ("3090-3060", "4090-3090-64gb", "24-12-8-gb", "two-v100-and-a100", "four-mini-pcs", "mac-and-pc")

FORMATS = {"Whisper large v3": ("bf16", 16.0)}
"""Of weights, with their bits, where it is not the first one of this."""
USUAL = ("q4_k_m", 4.84)

COLUMNS = ("plan", "gap", "for accelerate", "its sequential", "its auto", "for llama.cpp", "its own", "exo")


def said(problem: Problem, plan: Plan, format: str, budget_s: float) -> float:
    """Value of the nearest plan that a format can say; ``inf`` where it can say none."""
    rules = PLAN_FORMATS[format].rules
    assert rules is not None
    try:
        return nearest(problem, plan, rules, budget=budget_s).plan.value_s
    except InvalidInput:
        return float("inf")


def row_of(problem: Problem, name: str, bits: float, budget_s: float) -> list[float]:
    """Seconds by column; the gap of the plan as a share."""
    result = solve(problem, budget=budget_s)
    if result.plan is None:
        return [float("inf")] * len(COLUMNS)
    model = on_meta(MODELS[name]())
    rivals = [
        accelerate_plan(problem, model, bits, balanced=False),
        accelerate_plan(problem, model, bits, balanced=True),
        llama_cpp_plan(problem),
        exo_plan(problem),
    ]
    auto, balanced, split, ring = (float("inf") if plan is None else plan.value_s for plan in rivals)
    ours = [said(problem, result.plan, format, budget_s) for format in ("accelerate", "llama.cpp")]
    return [result.plan.value_s, result.gap, ours[0], auto, balanced, ours[1], split, ring]


def milliseconds(seconds: float) -> str:
    """Write a time; a dash for what does not fit or can't be said."""
    return "-" if seconds == float("inf") else f"{1e3 * seconds:.3g}"


def gains(rows: Sequence[Sequence[float]], ours: int, theirs: int) -> str:
    """Say by how much our column is faster than theirs."""
    both = [row[theirs] / row[ours] for row in rows if row[theirs] < float("inf") and row[ours] < float("inf")]
    alone = sum(row[theirs] == float("inf") and row[ours] < float("inf") for row in rows)
    worse = sum(ratio < 1 - 1e-9 for ratio in both)
    if not both:
        return f"none of {len(rows)} fits by itself"
    return (
        f"{median(both):.2f} times as fast in the median of {len(both)}, at most {max(both):.2f} times, "
        f"slower in {worse}; {alone} fit that the other does not split"
    )


def main() -> None:
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # of devices that are not here
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--context", default="4k")
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    lines = [
        "# Splits of language models, compared",
        "",
        f"Made by `python benchmarks/quality/device_maps.py --budget {options.budget:g} --context {options.context}` "
        f"on {os.cpu_count()} cores ({cpu_name()}), seed 0, on {time.strftime('%Y-%m-%d')}. Milliseconds for a "
        "generated token, batch 1, predicted by one judge.",
        "",
        f"| model | cluster | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---:|' * len(COLUMNS)}",
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            config = make()
            config.dtype = "bfloat16"
            config.save_pretrained(Path(folder) / name)
            format, bits = FORMATS.get(name, USUAL)
            for cluster in CLUSTERS:
                if options.only not in f"{name} {cluster}":
                    continue
                path = EXAMPLES / f"{cluster}.yaml"
                posed = pose(
                    f"hf:{Path(folder) / name}",
                    path,
                    flags=ObjectiveFlags("token-latency"),
                    memory=MemoryFlags(weight_format=format, context=options.context),
                    language=LanguageFlags(),
                )
                row = row_of(posed, name, bits, options.budget)
                rows.append(row)
                cells = [f"{value:.1%}" if k == 1 and value < 2 else milliseconds(value) for k, value in enumerate(row)]
                lines.append(f"| {name}, {format} | {cluster} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    at = dict(zip(COLUMNS, range(len(COLUMNS)), strict=True))
    lines += [
        "",
        f"- For accelerate, against its `sequential`: {gains(rows, at['for accelerate'], at['its sequential'])}.",
        f"- Against its `auto`, which is `balanced`: {gains(rows, at['for accelerate'], at['its auto'])}.",
        f"- The flags for llama.cpp against its own split: {gains(rows, at['for llama.cpp'], at['its own'])}.",
        f"- The plan against exo's split: {gains(rows, at['plan'], at['exo'])}.",
    ]
    print("\n".join(lines[-4:]))
    if options.output is not None:
        write_atomic(options.output, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
