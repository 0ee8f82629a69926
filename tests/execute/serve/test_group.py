"""Real ranks that stay up: what they generate, side by side, and how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.generate.generation import greedy
from placewright.execute.generate.model import unsplit_tokens
from placewright.execute.generate.run import decoder_job, generate_plan, step_of
from placewright.execute.serve.engine import RankEngine
from placewright.execute.serve.group import ResidentGroup
from placewright.execute.serve.messages import Decoder, Reply, ResidentJob
from placewright.io import read_plan

from ..small_decoders import written_plan

MODEL = "py:tests.execute.small_decoders:llama"
PROMPTS = [[5, 6, 7, 8, 9], [12, 4]]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_plan(tmp_path_factory.mktemp("plan"))


@pytest.fixture(scope="module")
def group(plan: Path) -> Iterator[ResidentGroup]:
    """Layers 0 and 3 on one rank, half of 1 and 2 on the other; the last test kills one of them."""
    file = read_plan(plan)
    with ResidentGroup(file.problem, file.plan, decoder_job(file, plan, MODEL, "random", 60.0)) as started:
        yield started


def test_two_ranks_generate_what_the_unsplit_decoder_does(group: ResidentGroup) -> None:
    """The hidden state goes there and back; each rank says which modules it has, and what the decoder is."""
    assert [ready.modules for ready in group.ready] == [
        (
            *("model.embed_tokens", "model.layers.0", "model.layers.1.input_layernorm", "model.layers.1.self_attn"),
            *("model.layers.3", "model.norm", "lm_head"),
        ),
        ("model.layers.1.post_attention_layernorm", "model.layers.1.mlp", "model.layers.2"),
    ]
    assert RankEngine(group).decoder == Decoder(vocabulary=97, ends=(), longest=64)
    made = greedy(step_of(group, 0, 60.0), PROMPTS, 6)
    assert made.tokens == unsplit_tokens(MODEL, "random", PROMPTS, 6, ())


def test_generations_are_under_way_at_once(group: ResidentGroup) -> None:
    """Eight first steps asked for before the first is answered give what each gives alone."""
    engine = RankEngine(group)
    assert engine.at_once == 3 and engine.inputs == ()
    streams = [100 + k for k in range(8)]
    asked = [engine.step(s, [[5 + k, 6]], ()) for k, s in enumerate(streams)]
    together = [future.result(60)[0] for future in asked]
    alone = [greedy(step_of(group, 200 + k, 60.0), [[5 + k, 6]], 1).tokens[0][0] for k in range(8)]
    assert together == alone
    for stream in streams:
        engine.forget(stream)
    engine.watch(60.0)
    assert engine.failure == ""
    group.tell(kind="forget", stream=0).result(60)  # the last of all that was asked
    group._last_reply -= 1e6  # the ranks were asked nothing for so long: that is not silence
    group.tell(kind="forget", stream=0)
    assert group.stalled_s() < 1e5


def test_silence_is_that_on_the_oldest_command(plan: Path) -> None:
    """A first rank that answers whatever comes later hides no last rank that answers nothing."""
    file = read_plan(plan)
    group = ResidentGroup(file.problem, file.plan, ResidentJob(str(plan), MODEL, "random", 60.0, generate=True))
    group._processes = [SimpleNamespace(commands=SimpleQueue()) for _ in range(2)]  # type: ignore[misc]
    first, second = (group.tell(kind="forget", stream=k) for k in range(2))
    for rank, number, silent in ((0, 1, False), (0, 2, True), (1, 1, False), (1, 2, False)):
        group._last_reply -= 100.0
        group._replied(rank, msgspec.msgpack.encode(Reply(number)))
        assert (group.stalled_s() > 99.0) == silent
        group._last_reply += 100.0 * silent
    assert len(first.result(0)) == len(second.result(0)) == 2


def test_a_rank_that_dies_is_named_and_no_process_is_left(group: ResidentGroup) -> None:
    """Whoever waits is told, the other rank is ended too, and what is asked later fails at once."""
    pids = [process._process.pid for process in group._processes]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(ExecutionError, match="rank of device 'right' was killed by SIGKILL"):
        greedy(step_of(group, 1, 60.0), PROMPTS, 50)
    with pytest.raises(ExecutionError, match="'right' was killed"):
        group.tell(kind="forget", stream=0).result(10)
    group.close()
    group.close()
    assert "'right' was killed" in group.failure
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_a_decoder_can_not_be_made_of_is_refused_before_anything_is_started(plan: Path) -> None:
    """No model, and weights that are nowhere."""
    file = read_plan(plan)
    given: dict[str, Any] = {"plan_path": plan, "prompts": PROMPTS, "tokens": 1}
    with pytest.raises(InvalidInput, match="and none is named; give --model"):
        generate_plan(**given, model=None, weights=None)
    with pytest.raises(InvalidInput, match="is no file and no folder"):
        decoder_job(file, plan, MODEL, str(plan.parent / "none"), 60.0)
    with pytest.raises(InvalidInput, match="--timeout"):
        generate_plan(**given, model=MODEL, weights="random", timeout_s=0.0)
