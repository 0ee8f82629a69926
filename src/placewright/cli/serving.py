"""Commands that run a plan for others: generate, serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli.console import present, print_json, progress_line
from placewright.cli.options import AsJson, PlanPath

__all__ = ["generate", "serve"]

ModelName = Annotated[
    str | None,
    typer.Option("--model", help="py:package.module:function, or hf:FOLDER with a transformers configuration."),
]
Weights = Annotated[
    str | None, typer.Option("--weights", help="A safetensors file or folder, or 'random'; of hf:FOLDER its own.")
]
TokenizerPath = Annotated[
    Path | None, typer.Option("--tokenizer", help="Folder with a tokenizer.json, for prompts as text.")
]


def generate(
    plan_path: PlanPath,
    model: ModelName = None,
    weights: Weights = None,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="Text to continue. Repeatable.")] = None,
    prompt_ids: Annotated[
        list[str] | None, typer.Option("--prompt-ids", help="The same as tokens, e.g. 464,2068. Repeatable.")
    ] = None,
    tokenizer: TokenizerPath = None,
    tokens: Annotated[int, typer.Option("--tokens", help="At most so many for each prompt.")] = 32,
    stop_ids: Annotated[
        str | None, typer.Option("--stop-ids", help="Tokens that end a text; the model's own by default.")
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest that one step may take.")] = "60s",
    check: Annotated[bool, typer.Option("--check", help="Also generate by the unsplit decoder, and compare.")] = False,
    as_json: AsJson = False,
) -> int:
    """Continue prompts token by token by a decoder whose layers, and their KV cache, are where a plan places them."""
    from placewright.execute.generate.run import generate_plan
    from placewright.execute.generate.text import parse_token_ids, prompts_of, tokenizer_of
    from placewright.io import read_plan
    from placewright.report import generation_report, generation_to_json
    from placewright.units import parse_seconds

    progress = progress_line()
    texts = tokenizer_of(tokenizer, model)
    made = generate_plan(
        plan_path,
        model=model,
        weights=weights,
        prompts=prompts_of(prompt or [], prompt_ids or [], texts),
        tokens=tokens,
        ends=None if stop_ids is None else parse_token_ids(stop_ids, "--stop-ids"),
        timeout_s=parse_seconds(timeout, "--timeout", "60s"),
        check=check,
        on_progress=progress.tell,
    )
    problem, text = read_plan(plan_path).problem, None if texts is None else texts.text
    if as_json:
        print_json(generation_to_json(problem, made, text))
    else:
        present(generation_report(problem, made, text))
    return 0


def serve(
    plan_path: PlanPath,
    model: ModelName = None,
    weights: Weights = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="The network is a decoder: answer POST /v1/generate, not /v1/run.")
    ] = False,
    tokenizer: TokenizerPath = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: any that is free.", min=0, max=65535)] = 8000,
    queue: Annotated[int, typer.Option("--queue", help="Requests that wait; more are answered 429.", min=0)] = 32,
    at_once: Annotated[
        int | None, typer.Option("--at-once", help="Requests under way; by default one more than devices.", min=1)
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest from a request to its answer.")] = "60s",
) -> int:
    """Keep what runs a plan up and answer requests over HTTP, until Ctrl-C, SIGTERM or SIGHUP."""
    from placewright.execute.generate.text import tokenizer_of
    from placewright.execute.serve.run import Address, serve_plan
    from placewright.units import parse_seconds

    serve_plan(
        plan_path,
        Address(host, port, queue, at_once),
        model=model,
        weights=weights,
        generate=generate,
        texts=tokenizer_of(tokenizer, model) if generate else None,
        timeout_s=parse_seconds(timeout, "--timeout", "60s"),
        on_progress=progress_line().tell,
    )
    return 0
