"""Commands that make plans: plan, compare, convert, solvers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli.console import complain, exit_code, present, print_json, progress_line, tell_of_compiling
from placewright.cli.options import (
    AsJson,
    BudgetText,
    Coarsen,
    ExpertPath,
    ReportPath,
    Seed,
    TracePath,
)
from placewright.cli.posed import Posing, takes_problem

__all__ = ["compare", "convert", "plan", "solvers"]


@takes_problem
def plan(
    posing: Posing,
    solver: Annotated[str, typer.Option("--solver", help="auto, or a name from 'placewright solvers'.")] = "auto",
    expert: ExpertPath = None,
    budget: BudgetText = "60s",
    seed: Seed = 0,
    coarsen: Coarsen = "none",
    max_devices: Annotated[
        int | None, typer.Option("--max-devices", help="Use at most so many devices, the best ones.", min=1)
    ] = None,
    min_gain: Annotated[
        str, typer.Option("--min-gain", help="Use a further device only where it saves so much, e.g. 5%.")
    ] = "0%",
    device_map: Annotated[
        Path | None, typer.Option("--from", help="Start from a device_map of accelerate (JSON).")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Hold what this file places: a device_map of some modules (JSON), or a plan file."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    report: ReportPath = None,
    trace: TracePath = None,
    as_json: AsJson = False,
) -> int:
    """Place a network on a cluster and prove how good the placement is."""
    from placewright.answers import sentences_by_question
    from placewright.comparison import check_expert, known_solvers, without_plan
    from placewright.evaluate import judge
    from placewright.export.given_map import read_device_map
    from placewright.export.kept_map import kept_as_file
    from placewright.few_devices import solve_on_few
    from placewright.io import check_writable, result_to_json, write_atomic, write_plan
    from placewright.posing.plan import given_solvers
    from placewright.report import answers_report, explain, html_report, plan_report, trace_json
    from placewright.units import parse_seconds, parse_share

    progress = progress_line()
    seconds = parse_seconds(budget, "--budget", "60s")
    least = parse_share(min_gain, "--min-gain")
    known_solvers([solver])
    check_expert(solver, expert)
    check_writable(output, report, trace)
    problem = posing.problem(progress)
    if keep is not None:
        problem = kept_as_file(keep, problem)
    given = given_solvers(expert, problem)
    with tell_of_compiling(progress):
        chosen = solve_on_few(
            problem,
            max_devices,
            min_gain=least,
            solver=solver,
            budget=seconds,
            seed=seed,
            on_progress=progress,
            given=given,
            coarsen=coarsen,
            start=read_device_map(device_map, problem) if device_map is not None else None,
        )
    problem, result = chosen.problem, chosen.result
    progress.close()
    if chosen.sentence:
        progress.tell(chosen.sentence)
    found = result.plan
    judged = judge(problem, found) if found is not None else None
    answers = posing.answers(found, judged) if found is not None and judged is not None else []
    sentences = [*answers, *explain(problem, result, judged)]
    if found is not None:
        if output is not None:
            write_plan(output, problem, result, judged, seed=seed, explanation=sentences)
        if report is not None and judged is not None:
            asked = sentences_by_question(problem, result, judged)
            write_atomic(report, html_report(problem, result, judged, asked=asked, said=answers))
        if trace is not None:
            write_atomic(trace, trace_json(problem, found))
    if as_json:
        print_json(result_to_json(problem, result, judged, seed=seed, explanation=sentences))
    elif found is not None:
        present(plan_report(problem, result, judged))
        if answers:
            present(answers_report(answers))
    if found is None:
        complain(without_plan(result, budget))
    return exit_code(result)


@takes_problem
def compare(
    posing: Posing,
    solvers: Annotated[
        str | None, typer.Option("--solvers", help="Names, separated by commas; all by default.")
    ] = None,
    expert: ExpertPath = None,
    budget: BudgetText = "10s",
    seed: Seed = 0,
    coarsen: Coarsen = "none",
    as_json: AsJson = False,
) -> int:
    """Run several solvers on one problem, the same budget each, and compare value, bound, gap and time."""
    from placewright.comparison import best_of, known_solvers, left_out, without_plan
    from placewright.comparison import compare as run_all
    from placewright.evaluate import judge
    from placewright.io import result_to_json
    from placewright.posing.plan import given_solvers
    from placewright.report import comparison_table
    from placewright.units import parse_seconds

    progress = progress_line()
    seconds = parse_seconds(budget, "--budget", "60s")
    names = known_solvers([*solvers.split(","), *(["expert"] if expert else [])]) if solvers is not None else None
    problem = posing.problem(progress)
    given = given_solvers(expert, problem)
    with tell_of_compiling(progress):
        rows = run_all(problem, names, budget_s=seconds, seed=seed, on_progress=progress, given=given, coarsen=coarsen)
    progress.close()
    if as_json:
        judged = [None if r.plan is None else judge(problem, r.plan) for _, r in rows]
        shown = [
            {**result_to_json(problem, r, e, seed=seed), "solver": name}
            for (name, r), e in zip(rows, judged, strict=True)
        ]
        print_json({"results": shown})
    else:
        present(comparison_table(rows, left_out(problem, rows, given) if names is None else {}))
    best = best_of(rows)
    if best.plan is None:
        complain(without_plan(best, budget))
    return exit_code(best)


@takes_problem
def convert(
    posing: Posing,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the problem file here.")],
    format: Annotated[
        str, typer.Option("--format", help="problem, or dnn-partitioning: its workload JSON, where that can say it.")
    ] = "problem",
) -> int:
    """Write a network, its cluster, times and wishes as one problem file that reproduces a plan."""
    from placewright.export import PROBLEM_FORMATS, check_format, write_problem_as
    from placewright.io import check_writable

    progress = progress_line()
    check_format(format, PROBLEM_FORMATS)
    check_writable(output)
    problem = posing.problem(progress)
    write_problem_as(output, problem, format)
    progress.tell(f"wrote {output}: {len(problem.graph)} operators, {len(problem.cluster)} devices")
    return 0


def solvers(as_json: AsJson = False) -> int:
    """List the solvers and bounds."""
    from placewright.comparison import catalogue_of_solvers
    from placewright.report import solvers_table

    rows = catalogue_of_solvers()
    if as_json:
        print_json({"solvers": [{"name": n, "kind": k, "summary": s} for n, k, s in rows]})
    else:
        present(solvers_table(rows))
    return 0
