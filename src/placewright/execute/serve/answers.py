"""Requests that continue prompts: what they may ask for, the run of one of them, and its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from placewright.errors import InvalidInput
from placewright.execute.generate.generation import Generation, check_prompts, greedy
from placewright.execute.serve.engine import Engine
from placewright.execute.serve.messages import Decoder

__all__ = ["LARGEST_TEXT", "Continuation", "Texts", "Wanted", "continuation_of", "event"]

LARGEST_TEXT = 8 << 20
"""Bytes of a request to continue prompts."""

DEFAULT_TOKENS = 16


class Texts(Protocol):
    """From text to tokens and back."""

    def tokens(self, text: str) -> list[int]:
        """Tokens of a prompt."""

    def text(self, tokens: Sequence[int]) -> str:
        """Text of tokens."""


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    prompt_ids: list[list[int]] | None = None
    prompt: str | list[str] | None = None
    max_tokens: int = DEFAULT_TOKENS
    stop_ids: list[int] | None = None
    stream: bool = False


@dataclass(frozen=True)
class Wanted:
    """A request, checked."""

    prompts: tuple[tuple[int, ...], ...]
    tokens: int
    ends: frozenset[int]
    stream: bool


def continuation_of(body: bytes, decoder: Decoder, texts: Texts | None) -> Wanted:
    """Read ``{"prompt_ids": [[...]], "max_tokens": 16}``.

    Raises
    ------
    InvalidInput
        If it is something else, or the decoder can't continue it.
    """
    try:
        request = msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is no request to continue prompts: {error}") from None
    if (request.prompt_ids is None) == (request.prompt is None):
        raise InvalidInput("give either 'prompt_ids', lists of tokens, or 'prompt', text")
    if request.prompt_ids is not None:
        prompts = request.prompt_ids
    elif texts is None:
        raise InvalidInput("this server has no tokenizer; give 'prompt_ids', or start it with --tokenizer FOLDER")
    else:
        assert request.prompt is not None
        given = [request.prompt] if isinstance(request.prompt, str) else request.prompt
        prompts = [texts.tokens(text) for text in given]
    check_prompts(prompts, request.max_tokens, decoder)
    ends = decoder.ends if request.stop_ids is None else request.stop_ids
    return Wanted(tuple(map(tuple, prompts)), request.max_tokens, frozenset(ends), request.stream)


class Continuation:
    """One request under way: run in a thread of its own, since each step waits for the one before.

    Parameters
    ----------
    engine : Engine
    wanted : Wanted
    until : float
        When it must be over, by ``time.monotonic``.
    on_token : callable
        Called with each row's next token, in the thread that runs it.
    """

    def __init__(
        self, engine: Engine, wanted: Wanted, until: float, on_token: Callable[[list[int | None]], object]
    ) -> None:
        self._engine, self._wanted, self._until, self._on_token = engine, wanted, until, on_token
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Take no further step: nobody waits for it."""
        self._stopped.set()

    def run(self) -> Generation:
        """Generate.

        Raises
        ------
        TimeoutError
            If it is not over in time, or has been stopped.
        ExecutionError
            If the engine fails.
        """
        stream = self._engine.new_stream()

        def step(rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Sequence[int]:
            if self._stopped.is_set():
                raise TimeoutError
            future = self._engine.step(stream, rows, pads)
            try:
                return future.result(max(0.0, self._until - time.monotonic()))
            except FutureTimeout:
                raise TimeoutError from None

        wanted = self._wanted
        try:
            return greedy(step, wanted.prompts, wanted.tokens, wanted.ends, self._on_token)
        finally:
            self._engine.forget(stream)

    def answer(self, made: Generation, texts: Texts | None) -> dict[str, Any]:
        """Content of the answer."""
        ended = ["stop" if row and row[-1] in self._wanted.ends else "length" for row in made.tokens]
        return {
            "token_ids": [list(row) for row in made.tokens],
            **({"texts": [texts.text(row) for row in made.tokens]} if texts is not None else {}),
            "finish": ended,
            "first_token_s": made.first_s,
            "per_token_s": None if not made.steps_s else made.per_token_s,
        }


def event(content: dict[str, Any]) -> bytes:
    """Write one event of a stream."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
