"""The command line: read, one call, write. Only this file prints, and there is no logic in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console, RenderableType
from typer.exceptions import TyperException

from placewright import __version__
from placewright.errors import PlacewrightError
from placewright.left_running import any_left
from placewright.options import (
    AsJson,
    BudgetText,
    CataloguePath,
    Coarsen,
    Description,
    DeviceCount,
    Distributed,
    ExpertPath,
    Fold,
    Fuse,
    MeetingPlace,
    Model,
    PlanPath,
    Posing,
    ProblemPath,
    Rank,
    ReportPath,
    Seed,
    TracePath,
    WorkerCount,
    takes_problem,
)

if TYPE_CHECKING:
    from placewright.report.progress import ProgressLine
    from placewright.result import Result

__all__ = ["app", "main"]

app = typer.Typer(
    name="placewright",
    help="Decide where each operator of a neural network runs on unlike devices, prove how good that is, and run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}
EXIT_REJECTED = 3
EXIT_INTERRUPTED = 130


def _show(renderable: RenderableType) -> None:
    Console(soft_wrap=False, width=None if sys.stdout.isatty() else 80, highlight=False).print(renderable)


def _progress() -> ProgressLine:
    from placewright.report.progress import ProgressLine

    return ProgressLine(sys.stderr)


def _print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


@app.command()
@takes_problem
def plan(
    posing: Posing,
    solver: Annotated[str, typer.Option("--solver", help="auto, or a name from 'placewright solvers'.")] = "auto",
    expert: ExpertPath = None,
    budget: BudgetText = "60s",
    seed: Seed = 0,
    coarsen: Coarsen = "none",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    report: ReportPath = None,
    trace: TracePath = None,
    as_json: AsJson = False,
) -> int:
    """Place a network on a cluster and prove how good the placement is."""
    from placewright.comparison import check_expert, known_solvers, without_plan
    from placewright.evaluate import judge
    from placewright.io import check_writable, result_to_json, write_atomic, write_plan
    from placewright.posing import given_solvers
    from placewright.report import explain, html_report, plan_report, trace_json
    from placewright.solve import solve
    from placewright.units import parse_seconds

    progress = _progress()
    seconds = parse_seconds(budget, "--budget", "60s")
    known_solvers([solver])
    check_expert(solver, expert)
    check_writable(output, report, trace)
    problem = posing.problem(progress)
    given = given_solvers(expert, problem)
    result = solve(
        problem, solver=solver, budget=seconds, seed=seed, on_progress=progress, given=given, coarsen=coarsen
    )
    progress.close()
    found = result.plan
    judged = judge(problem, found) if found is not None else None
    sentences = explain(problem, result, judged)
    if found is not None:
        if output is not None:
            write_plan(output, problem, result, judged, seed=seed, explanation=sentences)
        if report is not None:
            write_atomic(report, html_report(problem, result, judged))
        if trace is not None:
            write_atomic(trace, trace_json(problem, found))
    if as_json:
        _print_json(result_to_json(problem, result, judged, seed=seed, explanation=sentences))
    elif found is not None:
        _show(plan_report(problem, result, judged))
    if found is None:
        _complain(without_plan(result, budget))
    return _exit_code(result)


@app.command()
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
    from placewright.posing import given_solvers
    from placewright.report import comparison_table
    from placewright.units import parse_seconds

    progress = _progress()
    seconds = parse_seconds(budget, "--budget", "60s")
    names = known_solvers([*solvers.split(","), *(["expert"] if expert else [])]) if solvers is not None else None
    problem = posing.problem(progress)
    given = given_solvers(expert, problem)
    rows = run_all(problem, names, budget_s=seconds, seed=seed, on_progress=progress, given=given, coarsen=coarsen)
    progress.close()
    if as_json:
        judged = [None if r.plan is None else judge(problem, r.plan) for _, r in rows]
        shown = [
            {**result_to_json(problem, r, e, seed=seed), "solver": name}
            for (name, r), e in zip(rows, judged, strict=True)
        ]
        _print_json({"results": shown})
    else:
        _show(comparison_table(rows, left_out(problem, rows, given) if names is None else {}))
    best = best_of(rows)
    if best.plan is None:
        _complain(without_plan(best, budget))
    return _exit_code(best)


@app.command()
def run(
    plan_path: PlanPath,
    model: Annotated[str | None, typer.Option("--model", help="The network, where it is not beside the plan.")] = None,
    runs: Annotated[int, typer.Option("--runs", help="Counted runs.", min=1)] = 20,
    alone: Annotated[
        bool, typer.Option("--alone/--no-alone", help="Also run the network on each device alone.")
    ] = True,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest that one run may take.")] = "60s",
    processes: Annotated[
        bool, typer.Option("--processes", help="PyTorch: a process for each device, as torchrun starts them.")
    ] = False,
    weights: Annotated[
        str | None, typer.Option("--weights", help="With --processes: safetensors file or folder, or 'random'.")
    ] = None,
    report: ReportPath = None,
    trace: TracePath = None,
    as_json: AsJson = False,
) -> int:
    """Run a plan, check its outputs against the unsplit network, and compare measured with predicted time."""
    from placewright.evaluate import judge
    from placewright.execute import run_plan
    from placewright.io import check_writable, read_plan, runs_to_json, write_atomic
    from placewright.report import html_report, plan_report, trace_json
    from placewright.units import parse_seconds

    progress = _progress()
    longest = parse_seconds(timeout, "--timeout", "60s")
    check_writable(report, trace)
    file = read_plan(plan_path)
    measured = run_plan(
        file.problem,
        file.plan,
        folder=plan_path.parent,
        model=model,
        runs=runs,
        alone=alone,
        timeout_s=longest,
        processes=plan_path if processes else None,
        weights=weights,
        on_progress=progress.tell,
    )
    judged = judge(file.problem, file.plan)
    if report is not None:
        write_atomic(report, html_report(file.problem, file.result, judged, measured))
    if trace is not None:
        write_atomic(trace, trace_json(file.problem, file.plan, measured))
    if as_json:
        _print_json(runs_to_json(file.problem, measured))
    else:
        _show(plan_report(file.problem, file.result, judged, measured))
    return 0


@app.command()
def show(plan_path: PlanPath, report: ReportPath = None, trace: TracePath = None) -> int:
    """Show a plan: value and proof, what each device does and holds, alternatives, and why."""
    from placewright.evaluate import judge
    from placewright.io import read_plan, write_atomic
    from placewright.report import html_report, plan_report, trace_json

    file = read_plan(plan_path)
    judged = judge(file.problem, file.plan)
    if report is not None:
        write_atomic(report, html_report(file.problem, file.result, judged))
    if trace is not None:
        write_atomic(trace, trace_json(file.problem, file.plan))
    _show(plan_report(file.problem, file.result, judged))
    return 0


@app.command()
def explain(
    plan_path: PlanPath,
    budget: BudgetText = "20s",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> int:
    """Say why a plan is as it is, and how far each figure may be off before another plan is better."""
    from placewright.evaluate import judge
    from placewright.io import read_plan
    from placewright.report import explain as sentences_for
    from placewright.report import sensitivity_report, sensitivity_to_json
    from placewright.sensitivity import sensitivity
    from placewright.units import parse_seconds

    progress = _progress()
    seconds = parse_seconds(budget, "--budget", "20s")
    file = read_plan(plan_path)
    why = sentences_for(file.problem, file.result, judge(file.problem, file.plan))
    found = sensitivity(file.problem, file.result, budget=seconds, seed=seed, on_progress=progress.step)
    progress.close()
    if as_json:
        _print_json({"why": why, **sensitivity_to_json(found)})
    else:
        _show(sensitivity_report(found, why))
    return 0


@app.command()
def evaluate(problem_path: ProblemPath, plan_path: PlanPath, as_json: AsJson = False) -> int:
    """Compute a plan's value, schedule and memory on a problem. Exit code 3 when it breaks a rule."""
    from placewright.evaluate import judge
    from placewright.io import evaluation_to_json
    from placewright.posing import posed_plan
    from placewright.report import evaluation_report

    problem, file = posed_plan(problem_path, plan_path)
    judged = judge(problem, file.plan)
    if as_json:
        _print_json(evaluation_to_json(problem, judged))
    else:
        _show(evaluation_report(problem, judged))
    return 0 if judged.feasible else 3


@app.command()
def verify(problem_path: ProblemPath, plan_path: PlanPath, as_json: AsJson = False) -> int:
    """Check a plan by code that shares nothing with the solvers. Exit code 3 when it breaks a rule."""
    from placewright.io import verdict_to_json
    from placewright.posing import posed_plan
    from placewright.report import verify_report
    from placewright.verify import verify as check

    problem, file = posed_plan(problem_path, plan_path)
    violations = check(problem, file.plan)
    if as_json:
        _print_json(verdict_to_json(problem, violations))
    else:
        _show(verify_report(violations))
    return 3 if violations else 0


@app.command()
def probe(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the cluster file here.")] = None,
    devices: DeviceCount = None,
    workers: WorkerCount = None,
    distributed: Distributed = False,
    at: MeetingPlace = None,
    rank: Rank = None,
    description: Description = None,
) -> int:
    """Describe this machine as unlike devices, or several machines as one device a worker, every figure measured."""
    from placewright.execute.probing import measured_cluster
    from placewright.io import check_writable, cluster_to_text, write_cluster
    from placewright.report import cluster_report, links_report

    progress = _progress()
    check_writable(output)
    probed = measured_cluster(devices, distributed, at, rank, workers, description, on_progress=progress.tell)
    if probed is None:  # the worker with rank 0 writes
        return 0
    if output is not None:
        write_cluster(output, probed.cluster)
        _show(cluster_report(probed.cluster))
        _show(links_report(probed.fits, probed.notes))
    else:
        sys.stdout.write(cluster_to_text(probed.cluster))
    return 0


@app.command()
def profile(
    model: Model,
    cluster: Annotated[Path, typer.Option("--cluster", "-c", help="Cluster file, YAML or JSON.")],
    fuse: Fuse = None,
    fold: Fold = None,
    as_json: AsJson = False,
) -> int:
    """Measure each distinct operator of a network once on every device that is here; times are kept for 'plan'."""
    from placewright.capture import capture
    from placewright.costs import profile as measure
    from placewright.io import read_cluster, times_to_json
    from placewright.posing import as_fold
    from placewright.report import profile_report

    progress = _progress()
    devices = read_cluster(cluster)
    graph = capture(model, fuse=fuse or "auto", fold=as_fold(fold) is not False)
    measured = measure(model, graph, devices, on_progress=progress.step)
    progress.close()
    if as_json:
        _print_json(times_to_json(graph, devices, measured.times))
    else:
        _show(profile_report(graph, devices, measured))
    return 0


@app.command()
def calibrate(
    cluster: Annotated[Path, typer.Option("--cluster", "-c", help="Cluster file, YAML or JSON.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Catalogue that the device's entry is added to.")],
    device: Annotated[str | None, typer.Option("--device", help="By default the first that is here.")] = None,
    runtime: Annotated[str, typer.Option("--runtime", help="torch or onnxruntime.")] = "torch",
    name: Annotated[str | None, typer.Option("--name", help="Of the entry: a cluster file's model.")] = None,
) -> int:
    """Measure ten operators on a device, correct its curve, and add it to a catalogue."""
    from placewright.costs.calibrate import calibrate_named, catalogue_text
    from placewright.io import check_writable, read_cluster, write_atomic
    from placewright.report import calibration_report

    check_writable(output)
    found = calibrate_named(read_cluster(cluster), device, runtime, _progress().tell)
    write_atomic(output, catalogue_text(found, name, output))
    _show(calibration_report(found))
    return 0


@app.command()
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

    progress = _progress()
    check_format(format, PROBLEM_FORMATS)
    check_writable(output)
    problem = posing.problem(progress)
    write_problem_as(output, problem, format)
    progress.tell(f"wrote {output}: {len(problem.graph)} operators, {len(problem.cluster)} devices")
    return 0


@app.command()
def export(
    plan_path: PlanPath,
    format: Annotated[str, typer.Option("--format", help="dnn-partitioning: its split JSON.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it here, not to the terminal.")] = None,
) -> int:
    """Write a plan in the words of another program."""
    from placewright.export import PLAN_FORMATS, check_format, plan_text
    from placewright.io import check_writable, read_plan, write_atomic

    check_format(format, PLAN_FORMATS)
    check_writable(output)
    file = read_plan(plan_path)
    text = plan_text(file.problem, file.plan, format)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomic(output, text)
    return 0


@app.command()
def solvers(as_json: AsJson = False) -> int:
    """List the solvers and bounds."""
    from placewright.comparison import catalogue_of_solvers
    from placewright.report import solvers_table

    rows = catalogue_of_solvers()
    if as_json:
        _print_json({"solvers": [{"name": n, "kind": k, "summary": s} for n, k, s in rows]})
    else:
        _show(solvers_table(rows))
    return 0


@app.command()
def doctor() -> int:
    """Check the installation and this machine."""
    from placewright.execute.doctor import doctor as examine
    from placewright.report import doctor_table

    _show(doctor_table([(c.name, "ok" if c.ok else "missing", c.detail) for c in examine()]))
    return 0


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    catalogue: CataloguePath = None,
) -> None:
    if version:
        sys.stdout.write(f"placewright {__version__}\n")
        raise typer.Exit(0)


def _exit_code(result: Result) -> int:
    if result.plan is None and result.rejected:
        return EXIT_REJECTED
    return EXIT_CODES[result.status.value]


def _complain(message: str) -> None:
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    sys.stderr.write(f"placewright: {line}\n")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 a run failed, 2 bad input, 3 infeasible, 4 budget spent, 130 Ctrl-C."""
    import logging

    logging.basicConfig(level=logging.WARNING, format="placewright: %(message)s", stream=sys.stderr)
    try:
        code = app(arguments, prog_name="placewright", standalone_mode=False)
        sys.stdout.flush()
    except PlacewrightError as error:
        _complain(str(error))
        code = error.exit_code
    except TyperException as error:
        if error.format_message():  # without arguments the help was shown
            _complain(f"{error.format_message()} (see 'placewright --help')")
        code = 2
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (OSError, MemoryError) as error:
        _complain(f"{type(error).__name__}: {error}")
        code = 2
    if code == EXIT_INTERRUPTED:  # from here, or from the command line's library
        _complain("interrupted")
    if any_left():  # all is written, and nobody waits for them
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)
    sys.exit(code if isinstance(code, int) else 0)
