"""Commands about a plan that is there: run, show, explain, evaluate, verify, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli.console import present, print_json, progress_line
from placewright.cli.options import AsJson, BudgetText, PlanPath, ProblemPath, ReportPath, Seed, TracePath

if TYPE_CHECKING:
    from placewright.execute.pipeline.options import Many
    from placewright.measurement import Measurement
    from placewright.plan import Plan
    from placewright.problem import Problem

__all__ = ["evaluate", "explain", "export", "run", "show", "verify"]


def run(
    plan_path: PlanPath,
    model: Annotated[str | None, typer.Option("--model", help="The network, where it is not beside the plan.")] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", help="Counted runs: 20, of many micro-batches 3.", min=1)
    ] = None,
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
    micro_batches: Annotated[
        int | None, typer.Option("--micro-batches", help="With --processes: run so many samples as a pipeline.")
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option("--in-flight", help="Most micro-batches that are under way at a time.")
    ] = None,
    train: Annotated[
        str | None, typer.Option("--train", help="sgd or adam: backward too, with a step of it after each run.")
    ] = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="Of training: 1f1b (default), gpipe.")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", help="Of the optimiser: 0.01.")] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", help="py:package.module:function, where forward() returns no loss.")
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="torch: torch.distributed.pipelining, where the plan is a plain chain.")
    ] = "placewright",
    replan: Annotated[
        bool, typer.Option("--replan", help="When a device is lost: plan again without it, and go on.")
    ] = False,
    budget: Annotated[str | None, typer.Option("--budget", help="With --replan: how long to search, 60s.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="With --replan: the new plan's file, not beside the old one.")
    ] = None,
    report: ReportPath = None,
    trace: TracePath = None,
    as_json: AsJson = False,
) -> int:
    """Run a plan, check its outputs against the unsplit network, and compare measured with predicted time."""
    from placewright.errors import InvalidInput
    from placewright.evaluate import judge
    from placewright.execute import run_plan
    from placewright.execute.pipeline.options import asked_many
    from placewright.execute.replan import beside, run_replanning
    from placewright.io import check_writable, read_plan, runs_to_json, write_atomic
    from placewright.prediction_errors import prediction_errors
    from placewright.report import html_report, plan_report, prediction_errors_to_json, trace_json
    from placewright.units import parse_seconds

    progress = progress_line()
    longest = parse_seconds(timeout, "--timeout", "60s")
    many = asked_many(
        micro_batches,
        in_flight=in_flight,
        schedule=schedule,
        engine=engine,
        optimiser=train,
        learning_rate=learning_rate,
        loss=loss,
    )
    for name, value in (("--budget", budget), ("--output", output)):
        if value is not None and not replan:
            raise InvalidInput(f"{name} is for the plan that --replan makes; add that, or leave it out")
    if many is not None:
        if not processes:
            raise InvalidInput("--micro-batches needs --processes; one process for each device runs the pipeline")
        if report is not None or trace is not None:
            raise InvalidInput(
                "--micro-batches has neither --report nor --trace, which draw the run of one sample; leave them out"
            )
        if replan:
            raise InvalidInput("--replan is for runs of one sample; leave out --micro-batches, or that")
        return _run_many(plan_path, many, model, weights, runs or 3, longest, as_json)
    seconds = parse_seconds(budget or "60s", "--budget", "60s")
    new_path = output or beside(plan_path)
    check_writable(report, trace, new_path if replan else None)
    file = read_plan(plan_path)

    def once(problem: Problem, plan: Plan, path: Path) -> list[Measurement]:
        return run_plan(
            problem,
            plan,
            folder=plan_path.parent,
            model=model,
            runs=runs or 20,
            alone=alone,
            timeout_s=longest,
            processes=path if processes else None,
            weights=weights,
            replanning=replan,
            on_progress=progress.tell,
        )

    again = new_path if replan else None
    ran = run_replanning(file.problem, file.result, plan_path, once, output=again, budget_s=seconds, tell=progress.tell)
    problem, result, measured, plan = ran.problem, ran.result, ran.outcome, ran.result.require_plan()
    judged = judge(problem, plan)
    if report is not None:
        write_atomic(report, html_report(problem, result, judged, measured))
    if trace is not None:
        write_atomic(trace, trace_json(problem, plan, measured))
    if as_json:
        off = prediction_errors_to_json(prediction_errors(problem, plan, measured[0]))
        lost = [{"device": e.device, "cause": str(e)} for e in ran.lost]
        print_json({**runs_to_json(problem, measured), "prediction": off, "plan": str(ran.path), "lost": lost})
    else:
        present(plan_report(problem, result, judged, measured))
    return 0


def _run_many(
    plan_path: Path, many: Many, model: str | None, weights: str | None, runs: int, timeout_s: float, as_json: bool
) -> int:
    from placewright.execute.pipeline.outcome import many_to_json
    from placewright.execute.pipeline.run import run_many
    from placewright.io import read_plan
    from placewright.report import many_samples_report

    file, progress = read_plan(plan_path), progress_line()
    outcome = run_many(
        file.problem,
        file.plan,
        plan_path,
        many,
        model=model,
        weights=weights,
        runs=runs,
        timeout_s=timeout_s,
        on_progress=progress.tell,
    )
    if as_json:
        print_json(many_to_json(outcome))
    else:
        present(many_samples_report(outcome))
    return 0


def show(plan_path: PlanPath, report: ReportPath = None, trace: TracePath = None) -> int:
    """Show a plan: value and proof, what each device does and holds, alternatives, and why."""
    from placewright.answers import sentences_by_question
    from placewright.evaluate import judge
    from placewright.io import read_plan, write_atomic
    from placewright.report import html_report, plan_report, trace_json

    file = read_plan(plan_path)
    judged = judge(file.problem, file.plan)
    if report is not None:
        asked = sentences_by_question(file.problem, file.result, judged)
        write_atomic(report, html_report(file.problem, file.result, judged, asked=asked))
    if trace is not None:
        write_atomic(trace, trace_json(file.problem, file.plan))
    present(plan_report(file.problem, file.result, judged))
    return 0


def explain(
    plan_path: PlanPath,
    budget: BudgetText = "20s",
    seed: Seed = 0,
    report: ReportPath = None,
    as_json: AsJson = False,
) -> int:
    """Say why a plan is as it is, what people ask of it, and how far figures may be off before another is better."""
    from placewright.answers import answers_of, answers_to_json, asked_report
    from placewright.evaluate import judge
    from placewright.io import check_writable, read_plan, write_atomic
    from placewright.report import explain as sentences_for
    from placewright.report import explain_value, html_report, sensitivity_report, sensitivity_to_json
    from placewright.sensitivity import sensitivity
    from placewright.units import parse_seconds

    progress = progress_line()
    seconds = parse_seconds(budget, "--budget", "20s")
    check_writable(report)
    file = read_plan(plan_path)
    judged = judge(file.problem, file.plan)
    why = sentences_for(file.problem, file.result, judged)
    answers = answers_of(file.problem, file.result, judged)
    found = sensitivity(file.problem, file.result, budget=seconds, seed=seed, on_progress=progress.step)
    progress.close()
    if report is not None:
        asked = {a.question: a.sentences for a in answers}
        write_atomic(report, html_report(file.problem, file.result, judged, sensitivity=found, asked=asked))
    if as_json:
        print_json({"why": why, **answers_to_json(answers), **sensitivity_to_json(found)})
    else:
        value, gap = explain_value(file.problem, file.result, judged)
        present(asked_report([*value, *gap], answers, sensitivity_report(found)))
    return 0


def evaluate(problem_path: ProblemPath, plan_path: PlanPath, as_json: AsJson = False) -> int:
    """Compute a plan's value, schedule and memory on a problem. Exit code 3 when it breaks a rule."""
    from placewright.evaluate import judge
    from placewright.io import evaluation_to_json
    from placewright.posing.plan import posed_plan
    from placewright.report import evaluation_report

    problem, file = posed_plan(problem_path, plan_path)
    judged = judge(problem, file.plan)
    if as_json:
        print_json(evaluation_to_json(problem, judged))
    else:
        present(evaluation_report(problem, judged))
    return 0 if judged.feasible else 3


def verify(problem_path: ProblemPath, plan_path: PlanPath, as_json: AsJson = False) -> int:
    """Check a plan by code that shares nothing with the solvers. Exit code 3 when it breaks a rule."""
    from placewright.io import verdict_to_json
    from placewright.posing.plan import posed_plan
    from placewright.report import verify_report
    from placewright.verify import verify as check

    problem, file = posed_plan(problem_path, plan_path)
    violations = check(problem, file.plan)
    if as_json:
        print_json(verdict_to_json(problem, violations))
    else:
        present(verify_report(violations))
    return 3 if violations else 0


def export(
    plan_path: PlanPath,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="accelerate, diffusers, llama.cpp, vllm, sglang, tensorrt-llm, torch-pipelining, torchtitan, "
            "megatron, deepspeed, onnxruntime, openvino, onnx-models (a folder), or dnn-partitioning.",
        ),
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it here, not to the terminal.")] = None,
    budget: Annotated[
        str, typer.Option("--budget", help="How long to search for the nearest plan that the program can say.")
    ] = "10s",
    seed: Seed = 0,
) -> int:
    """Write a plan in the words of another program, or the nearest plan that it has words for."""
    from placewright.export import check_export, export_plan, write_exported
    from placewright.io import read_plan
    from placewright.units import parse_seconds

    progress = progress_line()
    seconds = parse_seconds(budget, "--budget", "10s")
    output = None if output == Path("-") else output
    check_export(format, output)
    file = read_plan(plan_path)
    made = export_plan(file.problem, file.plan, format, folder=plan_path.parent, budget=seconds, seed=seed)
    on_screen = output is None and sys.stdout.isatty()
    for note in made.notes:
        if not (on_screen and note in made.text):  # which the reader has before him
            progress.tell(note)
    if output is None:
        sys.stdout.write(made.text)
    else:
        write_exported(output, made)
    return 0
