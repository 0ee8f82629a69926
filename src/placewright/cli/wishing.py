"""Command about what a cluster could be: whatif."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from placewright.cli.console import print_json, progress_line
from placewright.cli.options import AsJson, BudgetText, PlanPath, Seed

__all__ = ["whatif"]


def whatif(
    plan_path: PlanPath,
    add: Annotated[
        list[str],
        typer.Option(
            "--add", help="Entry of the hardware catalogue, or several joined by '+'. Repeatable: each by itself."
        ),
    ],
    host: Annotated[str | None, typer.Option("--host", help="That gets the device; the first accelerator's.")] = None,
    budget: BudgetText = "20s",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Say what one more device would bring: the network placed again, from this plan, with a bound."""
    from placewright.io import read_plan
    from placewright.units import parse_seconds
    from placewright.whatif import sentences, what_ifs, what_ifs_to_json

    progress = progress_line()
    seconds = parse_seconds(budget, "--budget", "20s")
    file = read_plan(plan_path)
    rows = what_ifs(
        file.problem,
        file.plan,
        add,
        host=host,
        budget_s=seconds,
        seed=seed,
        on_progress=progress,
        lower_bound_s=file.result.lower_bound_s,
    )
    progress.close()
    if as_json:
        print_json(what_ifs_to_json(rows))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in sentences(rows, file.plan.value_s)))
    return 0
