"""The command line: read, one call, write. Only this file prints, and there is no logic in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, RenderableType
from typer.exceptions import TyperException

from placewright import __version__
from placewright.errors import PlacewrightError
from placewright.report.progress import ProgressLine

__all__ = ["app", "main"]

app = typer.Typer(
    name="placewright",
    help="Decide where each operator of a neural network runs on unlike devices, prove how good that is, and run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}
EXIT_INTERRUPTED = 130

Model = Annotated[
    str,
    typer.Argument(help=".onnx or .pt2 file, py:package.module:function, or a problem file (.json)", metavar="MODEL"),
]
PlanPath = Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")]
ProblemPath = Annotated[Path, typer.Argument(help="A problem file, or a plan file that carries its problem.")]
ClusterPath = Annotated[Path | None, typer.Option("--cluster", "-c", help="Cluster file, YAML or JSON.")]
ObjectiveName = Annotated[str | None, typer.Option("--objective", help="makespan: time for one sample.")]
ContentionName = Annotated[
    str | None, typer.Option("--contention", help="How transfers exclude each other: none, link or port.")
]
BudgetText = Annotated[str, typer.Option("--budget", help="How long to search, e.g. 60s or 2min.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the random numbers; recorded in the plan.", min=0)]
Pins = Annotated[list[str] | None, typer.Option("--pin", help="PATTERN=DEVICE: these run only there. Repeatable.")]
Forbids = Annotated[
    list[str] | None, typer.Option("--forbid", help="PATTERN=DEVICE: these never run there. Repeatable.")
]
CostsName = Annotated[
    str, typer.Option("--costs", help="auto, profile (measure what is here) or roofline (from the devices' figures).")
]
Fuse = Annotated[bool, typer.Option("--fuse/--no-fuse", help="Place what back-ends fuse as one operator.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
ReportPath = Annotated[Path | None, typer.Option("--report", help="Write an HTML page.")]
TracePath = Annotated[Path | None, typer.Option("--trace", help="Write a trace for Perfetto or chrome://tracing.")]


def _show(renderable: RenderableType) -> None:
    Console(soft_wrap=False, width=None if sys.stdout.isatty() else 80, highlight=False).print(renderable)


def _print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


def _pose(
    model: str,
    cluster: Path | None,
    progress: ProgressLine,
    *,
    objective: str | None = None,
    contention: str | None = None,
    pin: list[str] | None = None,
    forbid: list[str] | None = None,
    costs: str = "auto",
    fuse: bool = True,
) -> Any:
    from placewright.posing import as_costs, as_wishes, named_objective, pose

    return pose(
        model,
        cluster,
        objective=named_objective(objective, contention),
        wishes=as_wishes(pin or [], forbid or []),
        costs=as_costs(costs),
        fuse=fuse,
        on_progress=progress.tell,
        on_step=progress.step,
    )


@app.command()
def plan(
    model: Model,
    cluster: ClusterPath = None,
    objective: ObjectiveName = None,
    contention: ContentionName = None,
    solver: Annotated[str, typer.Option("--solver", help="auto, or a name from 'placewright solvers'.")] = "auto",
    budget: BudgetText = "60s",
    seed: Seed = 0,
    pin: Pins = None,
    forbid: Forbids = None,
    costs: CostsName = "auto",
    fuse: Fuse = True,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    report: ReportPath = None,
    trace: TracePath = None,
    as_json: AsJson = False,
) -> int:
    """Place a network on a cluster and prove how good the placement is."""
    from placewright.comparison import known_solvers, without_plan
    from placewright.evaluate import evaluate
    from placewright.io import check_writable, result_to_json, write_atomic, write_plan
    from placewright.report import explain, html_report, plan_report, trace_json
    from placewright.solve import solve
    from placewright.units import parse_seconds

    progress = ProgressLine(sys.stderr)
    seconds = parse_seconds(budget, "--budget", "60s")
    known_solvers([solver])
    check_writable(output, report, trace)
    problem = _pose(
        model,
        cluster,
        progress,
        objective=objective,
        contention=contention,
        pin=pin,
        forbid=forbid,
        costs=costs,
        fuse=fuse,
    )
    result = solve(problem, solver=solver, budget=seconds, seed=seed, on_progress=progress)
    progress.close()
    found = result.plan
    judged = evaluate(problem, found.device_of, schedule=found.schedule) if found is not None else None
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
    return EXIT_CODES[result.status.value]


@app.command()
def compare(
    model: Model,
    cluster: ClusterPath = None,
    solvers: Annotated[
        str | None, typer.Option("--solvers", help="Names, separated by commas; all by default.")
    ] = None,
    objective: ObjectiveName = None,
    contention: ContentionName = None,
    budget: BudgetText = "10s",
    seed: Seed = 0,
    pin: Pins = None,
    forbid: Forbids = None,
    costs: CostsName = "auto",
    fuse: Fuse = True,
    as_json: AsJson = False,
) -> int:
    """Run several solvers on one problem, the same budget each, and compare value, bound, gap and time."""
    from placewright.comparison import best_of, known_solvers, without_plan
    from placewright.comparison import compare as run_all
    from placewright.evaluate import evaluate
    from placewright.io import result_to_json
    from placewright.report import comparison_table
    from placewright.units import parse_seconds

    progress = ProgressLine(sys.stderr)
    seconds = parse_seconds(budget, "--budget", "60s")
    names = known_solvers(solvers.split(",")) if solvers is not None else None
    problem = _pose(
        model,
        cluster,
        progress,
        objective=objective,
        contention=contention,
        pin=pin,
        forbid=forbid,
        costs=costs,
        fuse=fuse,
    )
    rows = run_all(problem, names, budget_s=seconds, seed=seed, on_progress=progress)
    progress.close()
    if as_json:
        judged = [
            None if r.plan is None else evaluate(problem, r.plan.device_of, schedule=r.plan.schedule) for _, r in rows
        ]
        shown = [
            {**result_to_json(problem, r, e, seed=seed), "solver": name}
            for (name, r), e in zip(rows, judged, strict=True)
        ]
        _print_json({"results": shown})
    else:
        _show(comparison_table(rows))
    best = best_of(rows)
    if best.plan is None:
        _complain(without_plan(best, budget))
    return EXIT_CODES[best.status.value]


@app.command()
def run(
    plan_path: PlanPath,
    model: Annotated[str | None, typer.Option("--model", help="The network, where it is not beside the plan.")] = None,
    runs: Annotated[int, typer.Option("--runs", help="Counted runs.", min=1)] = 20,
    alone: Annotated[
        bool, typer.Option("--alone/--no-alone", help="Also run the network on each device alone.")
    ] = True,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest that one run may take.")] = "60s",
    report: ReportPath = None,
    trace: TracePath = None,
    as_json: AsJson = False,
) -> int:
    """Run a plan, check its outputs against the unsplit network, and compare measured with predicted time."""
    from placewright.evaluate import evaluate
    from placewright.execute import run_plan
    from placewright.io import check_writable, read_plan, runs_to_json, write_atomic
    from placewright.report import html_report, plan_report, trace_json
    from placewright.units import parse_seconds

    progress = ProgressLine(sys.stderr)
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
        on_progress=progress.tell,
    )
    judged = evaluate(file.problem, file.plan.device_of, schedule=file.plan.schedule)
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
    from placewright.evaluate import evaluate
    from placewright.io import read_plan, write_atomic
    from placewright.report import html_report, plan_report, trace_json

    file = read_plan(plan_path)
    judged = evaluate(file.problem, file.plan.device_of, schedule=file.plan.schedule)
    if report is not None:
        write_atomic(report, html_report(file.problem, file.result, judged))
    if trace is not None:
        write_atomic(trace, trace_json(file.problem, file.plan))
    _show(plan_report(file.problem, file.result, judged))
    return 0


@app.command()
def evaluate(problem_path: ProblemPath, plan_path: PlanPath, as_json: AsJson = False) -> int:
    """Compute a plan's value, schedule and memory on a problem. Exit code 3 when it breaks a rule."""
    from placewright.evaluate import evaluate as judge
    from placewright.io import evaluation_to_json, read_plan
    from placewright.posing import read_posed
    from placewright.report import evaluation_report

    problem = read_posed(problem_path)
    file = read_plan(plan_path, problem)
    judged = judge(problem, file.plan.device_of, schedule=file.plan.schedule)
    if as_json:
        _print_json(evaluation_to_json(problem, judged))
    else:
        _show(evaluation_report(problem, judged))
    return 0 if judged.feasible else 3


@app.command()
def verify(problem_path: ProblemPath, plan_path: PlanPath, as_json: AsJson = False) -> int:
    """Check a plan by code that shares nothing with the solvers. Exit code 3 when it breaks a rule."""
    from placewright.io import read_plan, verdict_to_json
    from placewright.posing import read_posed
    from placewright.report import verify_report
    from placewright.verify import verify as check

    problem = read_posed(problem_path)
    violations = check(problem, read_plan(plan_path, problem).plan)
    if as_json:
        _print_json(verdict_to_json(problem, violations))
    else:
        _show(verify_report(violations))
    return 3 if violations else 0


@app.command()
def probe(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the cluster file here.")] = None,
    devices: Annotated[int | None, typer.Option("--devices", help="How many workers.", min=1)] = None,
) -> int:
    """Describe this machine as unlike CPU devices, every figure measured between their workers."""
    from placewright.execute.probe import probe as measure
    from placewright.io import check_writable, cluster_to_text, write_cluster
    from placewright.report import cluster_report

    progress = ProgressLine(sys.stderr)
    check_writable(output)
    cluster = measure(devices=devices, on_progress=progress.tell)
    if output is not None:
        write_cluster(output, cluster)
        _show(cluster_report(cluster))
    else:
        sys.stdout.write(cluster_to_text(cluster))
    return 0


@app.command()
def profile(
    model: Model,
    cluster: Annotated[Path, typer.Option("--cluster", "-c", help="Cluster file, YAML or JSON.")],
    fuse: Fuse = True,
    as_json: AsJson = False,
) -> int:
    """Measure each distinct operator of a network once on every device that is here; times are kept for 'plan'."""
    from placewright.capture import capture
    from placewright.costs import profile as measure
    from placewright.io import read_cluster, times_to_json
    from placewright.report import profile_report

    progress = ProgressLine(sys.stderr)
    devices = read_cluster(cluster)
    graph = capture(model, fuse=fuse)
    measured = measure(model, graph, devices, on_progress=progress.step)
    progress.close()
    if as_json:
        _print_json(times_to_json(graph, devices, measured.times))
    else:
        _show(profile_report(graph, devices, measured))
    return 0


@app.command()
def convert(
    file: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the problem file here.")],
    cluster: ClusterPath = None,
    objective: ObjectiveName = None,
    contention: ContentionName = None,
    pin: Pins = None,
    forbid: Forbids = None,
    costs: CostsName = "auto",
    fuse: Fuse = True,
) -> int:
    """Write a network, its cluster, times and wishes as one problem file that reproduces a plan."""
    from placewright.io import check_writable, write_problem

    progress = ProgressLine(sys.stderr)
    check_writable(output)
    problem = _pose(
        file,
        cluster,
        progress,
        objective=objective,
        contention=contention,
        pin=pin,
        forbid=forbid,
        costs=costs,
        fuse=fuse,
    )
    write_problem(output, problem)
    progress.tell(f"wrote {output}: {len(problem.graph)} operators, {len(problem.cluster)} devices")
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
def _top(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        sys.stdout.write(f"placewright {__version__}\n")
        raise typer.Exit(0)


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
    sys.exit(code if isinstance(code, int) else 0)
