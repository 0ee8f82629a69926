"""What runtimes can be told of plans of language models, and what they do when they are told nothing.

Models, clusters and the tools' own splits are those of ``benchmarks.quality.language_models``; here the plan is put in
the words of accelerate, llama.cpp and vLLM (docs/exporters.md), and each is compared with what that program comes to by
itself: accelerate's ``infer_auto_device_map`` after ``get_balanced_memory``, which is ``device_map="auto"`` of
transformers, and without, which is ``sequential``; llama.cpp without ``--tensor-split``; vLLM with as many layers in
each stage.

Run ``python -m benchmarks.quality.exporters [--objective max-load] [--budget 5] [--only NAME] [-o PART.md]``.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.quality.language_models import CLUSTERS, EXAMPLES, MODELS, SPLITS, Case, case_of, together

from placewright.errors import InvalidInput, NoPlan
from placewright.evaluate import evaluate
from placewright.export import PLAN_FORMATS, nearest
from placewright.export.modules import main_stack, units_of
from placewright.host import cpu_name
from placewright.io import read_cluster, write_atomic
from placewright.objective import as_objective
from placewright.solve import solve
from placewright.solvers.chain_split import placed

NONE = float("inf")

COLUMNS = {
    "token-latency": ("plan", "gap", "for accelerate", "sequential", "auto", "for llama.cpp", "its own"),
    "max-load": ("plan", "gap", "for vllm", "even"),
}

COMPARED = {
    "token-latency": (
        ("The map for accelerate against its `auto`", "for accelerate", "auto"),
        ("The map for accelerate against its `sequential`", "for accelerate", "sequential"),
        ("The flags for llama.cpp against its own split", "for llama.cpp", "its own"),
    ),
    "max-load": (("The partition for vLLM against an even one", "for vllm", "even"),),
}
"""For each objective a sentence, our column, and theirs."""

SAID = {
    "token-latency": "Milliseconds for a generated token, batch 1",
    "max-load": "Milliseconds a token in steady state, as many sequences under way as there are devices",
}

SPLIT_OF = {"sequential": "auto", "auto": "balanced", "its own": "llama.cpp"}
"""Columns and the splits of ``language_models`` that they show, whose ``auto`` transformers calls sequential."""


NOT_RUN_BY = dict.fromkeys(("for llama.cpp", "its own", "for vllm", "even"), "whisper")
"""llama.cpp does not run this model, and vLLM not as a pipeline."""


def even(case: Case) -> list[int] | None:
    """Put as many layers on each accelerator, as vLLM does; those left over go before the last stage, from its end."""
    stages = [i for i, d in enumerate(case.cluster.devices) if d.kind != "cpu"]
    units = units_of(case.problem.graph)
    numbered = [k for k, unit in enumerate(units) if unit.stack == main_stack(units)]
    if not stages or len(numbered) < len(stages):
        return None
    counts = [len(numbered) // len(stages)] * len(stages)
    for k in range(len(numbered) % len(stages)):
        counts[-2 - k] += 1
    layers = [i for i, count in zip(stages, counts, strict=True) for _ in range(count)]
    at = [layers[max(0, int(np.searchsorted(numbered, k, side="right")) - 1)] for k in range(len(units))]
    return placed(case.problem, [unit.operators for unit in units], at).tolist()  # type: ignore[no-any-return]


def judged(case: Case, device_of: Sequence[int] | str | None) -> float:
    """Seconds of a placement; ``inf`` for none or the reason why not, and for one that does not fit."""
    if device_of is None or isinstance(device_of, str):
        return NONE
    found = evaluate(case.problem, together(case, list(device_of)))
    return found.value_s if found.feasible else NONE


def row_of(case: Case, apart: Case, columns: Sequence[str], budget_s: float) -> dict[str, float]:
    """Seconds by column; the gap of the plan as a share.

    accelerate keeps tied weights on one device; the others hold them twice, which is the case ``apart``.
    """
    whole = case if "auto" in columns else apart
    result = solve(whole.problem, budget=budget_s)
    row = {"plan": result.value_s, "gap": result.gap}
    for column in columns[2:]:
        if column in NOT_RUN_BY and NOT_RUN_BY[column] in case.problem.name:
            row[column] = NONE
        elif column in SPLIT_OF:
            on = apart if column == "its own" else case
            row[column] = judged(on, SPLITS[SPLIT_OF[column]](on))
        elif column == "even":
            row[column] = judged(apart, even(apart))
        else:
            rules = PLAN_FORMATS[column.removeprefix("for ")].rules
            assert rules is not None
            try:
                plan = result.require_plan()
                row[column] = nearest(whole.problem, plan, rules, budget=budget_s).plan.value_s
            except (InvalidInput, NoPlan):
                row[column] = NONE
    return row


def gains(rows: Sequence[Mapping[str, float]], ours: str, theirs: str) -> str:
    """Say by how much our column is faster than theirs."""
    both = [row[theirs] / row[ours] for row in rows if row[theirs] < NONE and row[ours] < NONE]
    alone = sum(row[theirs] == NONE and row[ours] < NONE for row in rows)
    if not both:
        return f"none of {len(rows)} fits by itself"
    return (
        f"{median(both):.2f} times as fast in the median of {len(both)}, at most {max(both):.2f} times, slower in "
        f"{sum(ratio < 1 - 1e-6 for ratio in both)}; {alone} more fit that it does not split by itself"
    )


def shown(column: str, value: float) -> str:
    """Write a time or a gap; a dash for what does not fit or can't be said."""
    return "-" if value == NONE else f"{value:.1%}" if column == "gap" else f"{1e3 * value:.3g}"


def main() -> None:
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # of devices that are not here
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objective", default="token-latency", choices=list(COLUMNS))
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    columns, compared = COLUMNS[options.objective], COMPARED[options.objective]
    lines = [
        f"Made by `python -m benchmarks.quality.exporters --objective {options.objective} --budget {options.budget:g}` "
        f"on {os.cpu_count()} cores ({cpu_name()}), seed 0, on {time.strftime('%Y-%m-%d')}.",
        f"{SAID[options.objective]}, predicted by one judge.",
        "",
        f"| model | cluster | {' | '.join(columns)} |",
        f"|---|---|{'---:|' * len(columns)}",
    ]
    rows = []
    for name in MODELS:
        for where in CLUSTERS:
            if options.only not in f"{name} {where}" or name == "sdxl-unet":
                continue
            cluster, objective = read_cluster(EXAMPLES / f"{where}.yaml"), as_objective(options.objective)
            case, apart = (case_of(name, cluster, objective, tied) for tied in ("together", "apart"))
            rows.append(row_of(case, apart, columns, options.budget))
            lines.append(f"| {name} | {where} | {' | '.join(shown(c, rows[-1][c]) for c in columns)} |")
            print(lines[-1], flush=True)
    said = [f"- {text}: {gains(rows, ours, theirs)}." for text, ours, theirs in compared]
    print("\n".join(said))
    if options.output is not None:
        write_atomic(options.output, "\n".join([*lines, "", *said]) + "\n")


if __name__ == "__main__":
    main()
