"""Generate by a plan: its ranks are started, continue the prompts token by token, and end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.checks import check_timeout
from placewright.execute.generate.generation import Generation, Step, check_prompts, greedy
from placewright.execute.generate.placement import Judged, decoder_placement, judged_units
from placewright.execute.serve.engine import RankEngine
from placewright.execute.serve.group import ResidentGroup
from placewright.execute.serve.messages import ResidentJob
from placewright.io import PlanFile, read_plan

__all__ = ["Generated", "decoder_job", "generate_plan", "step_of"]


@dataclass(frozen=True)
class Generated:
    """What a plan generated.

    Attributes
    ----------
    generation : Generation
    judged : Judged
        What is predicted for what ran.
    layers_at : str
        Path of the list of layers.
    modules : tuple of (str, tuple of str)
        Of each device its name and the paths of the modules that ran there.
    equal : bool or None
        Whether the unsplit decoder generates the same; ``None`` where it was not asked.
    """

    generation: Generation
    judged: Judged
    layers_at: str
    modules: tuple[tuple[str, tuple[str, ...]], ...]
    equal: bool | None


def generate_plan(
    plan_path: Path,
    *,
    model: str | None,
    weights: str | None,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    ends: Collection[int] | None = None,
    timeout_s: float = 60.0,
    check: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Generated:
    """Continue prompts by a decoder whose layers run where a plan places them, each with its part of the KV cache.

    Parameters
    ----------
    plan_path : Path
    model : str, optional
        ``py:package.module:function``, which returns a transformers decoder, or ``hf:FOLDER`` with its configuration.
    weights : str, optional
        A ``.safetensors`` file, a folder of shards or ``random``, for a decoder that is built on meta; by default the
        folder of ``hf:``.
    prompts : sequence of sequence of int
        Tokens of each.
    tokens : int
        At most so many for each prompt.
    ends : collection of int, optional
        Tokens that end a text; the model's own by default.
    timeout_s : float
        Of one step.
    check : bool
        Also generate by the unsplit decoder, in this process, and compare.

    Raises
    ------
    InvalidInput
        If the plan, the model or a prompt can't be used.
    ExecutionError
        If a rank fails, dies or hangs, or the unsplit decoder generates something else.
    """
    check_timeout(timeout_s)
    tell = on_progress or (lambda line: None)
    file = read_plan(plan_path)
    placement = decoder_placement(file.problem, file.plan)
    job = decoder_job(file, plan_path, model, weights, timeout_s)
    tell(f"starting a process for each device in use ({len(file.plan.devices_used)})")
    with ResidentGroup(file.problem, file.plan, job) as group:
        decoder = RankEngine(group).decoder
        assert decoder is not None, "ranks that generate say what their decoder is"
        stops = tuple(decoder.ends if ends is None else ends)
        check_prompts(prompts, tokens, decoder)
        tell(f"generating at most {tokens} tokens for each prompt ({len(prompts)})")
        made = greedy(step_of(group, 0, timeout_s), prompts, tokens, stops)
        modules = tuple((name, ready.modules) for name, ready in zip(group.names, group.ready, strict=True))
    places = {path: i for i, (_, paths) in zip(file.plan.devices_used, modules, strict=True) for path in paths}
    equal = None
    if check:
        from placewright.execute.generate.model import unsplit_tokens

        tell("generating by the unsplit decoder")
        wanted = unsplit_tokens(job.model or "", job.weights, prompts, tokens, stops)
        equal = wanted == made.tokens
        if not equal:
            raise ExecutionError(_difference(made.tokens, wanted))
    return Generated(made, judged_units(file.problem, file.plan, places), placement.layers_at, modules, equal)


def decoder_job(
    file: PlanFile, plan_path: Path, model: str | None, weights: str | None, timeout_s: float
) -> ResidentJob:
    """Say what the ranks of a decoder are started for.

    Raises
    ------
    InvalidInput
        If no model is named, or its weights are no file and no folder.
    """
    source = file.problem.graph.source
    if model is None:
        named = source is not None and source.format in ("py", "hf")
        remedy = f"give --model {source.format}:{source.location}" if named and source is not None else "give --model"
        raise InvalidInput(f"a decoder is built by its transformers class, and none is named; {remedy}")
    if weights is None and model.startswith("hf:") and any(Path(model.removeprefix("hf:")).glob("*.safetensors")):
        weights = model.removeprefix("hf:")
    if weights is not None and weights != "random" and not (weights and Path(weights).exists()):
        raise InvalidInput(f"--weights {weights!r} is no file and no folder; correct it, or write 'random'")
    return ResidentJob(str(plan_path), model, weights, timeout_s, generate=True)


def step_of(group: ResidentGroup, stream: int, timeout_s: float) -> Step:
    """Make the step of one generation, which ends the ranks when it takes too long."""
    engine = RankEngine(group)

    def step(rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Sequence[int]:
        try:
            return engine.step(stream, rows, pads).result(timeout_s)
        except FutureTimeout:
            group.fail(f"the ranks did not finish a step within {timeout_s:g} s; give more time with --timeout")
            raise ExecutionError(group.failure) from None

    return step


def _difference(made: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> str:
    """Name the first token that differs."""
    for k, (a, b) in enumerate(zip(made, wanted, strict=True)):
        at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        if a != b:
            return (
                f"token {at} of prompt {k} is {a[at] if at < len(a) else 'absent'}, and the unsplit decoder's is "
                f"{b[at] if at < len(b) else 'absent'}; the plan's run is wrong unless two tokens are as likely, "
                "please report it with the model"
            )
    return "the unsplit decoder generates something else"
