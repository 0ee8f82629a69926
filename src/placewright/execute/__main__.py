"""``torchrun --nproc-per-node N -m placewright.execute plan.json``: one process of a distributed run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from placewright.errors import PlacewrightError
from placewright.execute.checks import check_timeout
from placewright.execute.generate.options import Asked, add_generation, asked_of, generated_text
from placewright.execute.generate.rank import generate_rank
from placewright.execute.pipeline.main import run_many_rank
from placewright.execute.pipeline.options import Many, add_many, many_of
from placewright.execute.pipeline.outcome import many_text
from placewright.execute.ranks.faults import line_of
from placewright.execute.ranks.main import measurement_text, run_rank
from placewright.io import write_atomic
from placewright.units import format_seconds, parse_seconds


def main() -> int:
    """Run this rank; rank 0 tells the outcome."""
    parser = argparse.ArgumentParser(prog="placewright.execute", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--model", help="py:package.module:function or a .pt2 file, where it is not beside the plan")
    parser.add_argument("--weights", help="a .safetensors file, a folder of shards, or 'random'")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--timeout", default="60s")
    add_many(parser)
    add_generation(parser)
    parser.add_argument("-o", "--output", type=Path, help="write what was measured here, as JSON")
    options = parser.parse_args()
    rank = os.environ.get("RANK", "0")
    try:
        if "RANK" not in os.environ:
            raise PlacewrightError("start it by torchrun: torchrun --nproc-per-node N -m placewright.execute plan.json")
        if options.runs < 1:
            raise PlacewrightError(f"--runs {options.runs} is not at least 1")
        timeout_s = parse_seconds(options.timeout, "--timeout", "60s")
        check_timeout(timeout_s)
        asked = asked_of(options)
        if asked is not None:
            return _generation(options, asked, timeout_s)
        many = many_of(options)
        if many is not None:
            return _many(options, many, timeout_s)
        measured = run_rank(
            options.plan, model=options.model, weights=options.weights, runs=options.runs, timeout_s=timeout_s
        )
    except PlacewrightError as error:
        sys.stderr.write(f"placewright: rank {rank}: {line_of(error)}\n")
        return error.exit_code
    if measured is not None and options.output is not None:
        write_atomic(options.output, measurement_text(measured))
    elif measured is not None:
        predicted, median = format_seconds(measured.predicted_s), format_seconds(measured.median_s)
        sys.stdout.write(f"plan: median {median}, predicted {predicted}, error {measured.max_relative_error:.2g}\n")
    return 0


def _many(options: argparse.Namespace, many: Many, timeout_s: float) -> int:
    outcome = run_many_rank(
        options.plan, many, model=options.model, weights=options.weights, runs=options.runs, timeout_s=timeout_s
    )
    if outcome is not None and options.output is not None:
        write_atomic(options.output, many_text(outcome))
    elif outcome is not None:
        predicted, median = format_seconds(outcome.predicted_s), format_seconds(outcome.median_s)
        trained = outcome.trained
        error = outcome.max_relative_error if trained is None else trained.gradient_error
        sys.stdout.write(f"{outcome.samples} samples: {median} a sample, predicted {predicted}, error {error:.2g}\n")
    return 0


def _generation(options: argparse.Namespace, asked: Asked, timeout_s: float) -> int:
    made = generate_rank(options.plan, asked, model=options.model, weights=options.weights, timeout_s=timeout_s)
    if made is not None and options.output is not None:
        write_atomic(options.output, generated_text(made))
    elif made is not None:
        for tokens in made.tokens:
            sys.stdout.write(f"{' '.join(map(str, tokens))}\n")
        first, each = format_seconds(made.first_s), format_seconds(made.per_token_s) if made.steps_s else "-"
        sys.stdout.write(f"first token {first}, each further {each}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
