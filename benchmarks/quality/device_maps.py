"""Time per token of language models on unlike devices, split by placewright and as other programs split them.

Run: ``python benchmarks/quality/device_maps.py [--objective max-load] [--budget 10] [--only NAME] [-o PART.md]``.
Everything is predicted, by one judge on one problem: the plan of any operators; the best maps for accelerate and flags
for llama.cpp that say it nearest (docs/exporters.md); and what others come to by themselves: accelerate's
``infer_auto_device_map`` (called, on the model without weights; ``sequential`` as it is, ``auto`` after
``get_balanced_memory``), llama.cpp without ``--tensor-split``, and exo's split by memory. Under ``max-load`` pipelines
are compared: vLLM's own partition has as many layers in each stage.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from device_map_models import MODELS
from device_map_rivals import accelerate_plan, exo_plan, llama_cpp_plan, on_meta, vllm_plan

from placewright.errors import InvalidInput
from placewright.export import PLAN_FORMATS, nearest
from placewright.host import cpu_name
from placewright.io import write_atomic
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

TOKEN = ("plan", "gap", "for accelerate", "its sequential", "its auto", "for llama.cpp", "its own", "exo")
PIPELINE = ("plan", "gap", "for vllm", "its own", "exo")

COMPARED = {
    "token-latency": (
        ("For accelerate, against its `sequential`", "for accelerate", "its sequential"),
        ("Against its `auto`, which is `balanced`", "for accelerate", "its auto"),
        ("The flags for llama.cpp against its own split", "for llama.cpp", "its own"),
        ("The plan against exo's split", "plan", "exo"),
    ),
    "max-load": (
        ("The partition for vLLM against its own", "for vllm", "its own"),
        ("The plan against vLLM's own", "plan", "its own"),
        ("The plan against exo's split", "plan", "exo"),
    ),
}
"""For each objective what is compared: a sentence, our column, theirs."""

SAID = {
    "token-latency": "Milliseconds for a generated token, batch 1",
    "max-load": "Milliseconds a token in steady state, as many sequences under way as there are devices",
}


def said(problem: Problem, plan: Plan, format: str, budget_s: float) -> float:
    """Value of the nearest plan that a format can say; ``inf`` where it can say none."""
    rules = PLAN_FORMATS[format].rules
    assert rules is not None
    try:
        return nearest(problem, plan, rules, budget=budget_s).plan.value_s
    except InvalidInput:
        return float("inf")


def row_of(problem: Problem, name: str, bits: float, budget_s: float) -> dict[str, float]:
    """Seconds by column; the gap of the plan as a share."""
    pipeline = problem.objective.name == "max-load"
    result = solve(problem, budget=budget_s)
    if result.plan is None:
        return dict.fromkeys(PIPELINE if pipeline else TOKEN, float("inf"))
    found = {"plan": result.plan.value_s, "gap": result.gap, "exo": value_of(exo_plan(problem))}
    if pipeline:
        return found | {
            "for vllm": said(problem, result.plan, "vllm", budget_s),
            "its own": value_of(vllm_plan(problem)),
        }
    model = on_meta(MODELS[name]())
    return found | {
        "for accelerate": said(problem, result.plan, "accelerate", budget_s),
        "its sequential": value_of(accelerate_plan(problem, model, bits, balanced=False)),
        "its auto": value_of(accelerate_plan(problem, model, bits, balanced=True)),
        "for llama.cpp": said(problem, result.plan, "llama.cpp", budget_s),
        "its own": value_of(llama_cpp_plan(problem)),
    }


def value_of(plan: Plan | None) -> float:
    """Value of a plan that may not be; ``inf`` then."""
    return float("inf") if plan is None else plan.value_s


def milliseconds(seconds: float) -> str:
    """Write a time; a dash for what does not fit or can't be said."""
    return "-" if seconds == float("inf") else f"{1e3 * seconds:.3g}"


def gains(rows: Sequence[Mapping[str, float]], ours: str, theirs: str) -> str:
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
    parser.add_argument("--objective", default="token-latency", choices=list(COMPARED))
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--context", default="4k")
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    columns = PIPELINE if options.objective == "max-load" else TOKEN
    lines = [
        f"Made by `python benchmarks/quality/device_maps.py --objective {options.objective} --budget "
        f"{options.budget:g} --context {options.context}` on {os.cpu_count()} cores ({cpu_name()}), seed 0, on "
        f"{time.strftime('%Y-%m-%d')}. {SAID[options.objective]}, predicted by one judge.",
        "",
        f"| model | cluster | {' | '.join(columns)} |",
        f"|---|---|{'---:|' * len(columns)}",
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
                posed = pose(
                    f"hf:{Path(folder) / name}",
                    EXAMPLES / f"{cluster}.yaml",
                    flags=ObjectiveFlags(options.objective),
                    memory=MemoryFlags(weight_format=format, context=options.context),
                )
                row = row_of(posed, name, bits, options.budget)
                rows.append(row)
                cells = [f"{row[c]:.1%}" if c == "gap" and row[c] < 2 else milliseconds(row[c]) for c in columns]
                lines.append(f"| {name}, {format} | {cluster} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    lines += ["", *(f"- {text}: {gains(rows, ours, theirs)}." for text, ours, theirs in COMPARED[options.objective])]
    print("\n".join(lines[-len(COMPARED[options.objective]) :]))
    if options.output is not None:
        write_atomic(options.output, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
