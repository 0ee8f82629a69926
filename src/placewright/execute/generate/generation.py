"""Greedy generation: prompts of unequal lengths as one block, a step for each token, an end for each row."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from placewright.errors import InvalidInput
from placewright.execute.serve.messages import Decoder

__all__ = ["MOST_ROWS", "Generation", "Step", "check_prompts", "greedy", "padded"]

MOST_ROWS = 256
"""Prompts that are continued side by side."""

Step = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[int]]
"""From the tokens that each row goes on with, and at first how many of them stand for nothing, to each row's next."""


@dataclass(frozen=True)
class Generation:
    """What was generated, and how long it took.

    Attributes
    ----------
    tokens : tuple of tuple of int
        Of each prompt the tokens that follow it, that which ends it included.
    first_s : float
        From the start to the first token: reading the prompts.
    steps_s : tuple of float
        Of each further token.
    """

    tokens: tuple[tuple[int, ...], ...]
    first_s: float
    steps_s: tuple[float, ...]

    @property
    def per_token_s(self) -> float:
        """Median time of a further token; NaN where there was none."""
        ordered = sorted(self.steps_s)
        return ordered[(len(ordered) - 1) // 2] if ordered else float("nan")


def check_prompts(prompts: Sequence[Sequence[int]], most: int, decoder: Decoder) -> None:
    """Refuse prompts that a decoder can't continue by so many tokens.

    Raises
    ------
    InvalidInput
        With all that is wrong.
    """
    if not 1 <= len(prompts) <= MOST_ROWS:
        raise InvalidInput(f"{len(prompts)} prompts were given; give 1 to {MOST_ROWS}")
    wrong = []
    if most < 1:
        wrong.append(f"{most} tokens can't be generated; ask for at least 1")
    for k, prompt in enumerate(prompts):
        if not prompt:
            wrong.append(f"prompt {k} has no token; give at least one")
        elif len(prompt) + most > decoder.longest:
            wrong.append(
                f"prompt {k} has {len(prompt)} tokens, which with {most} more is above the {decoder.longest} that the "
                "model takes; shorten it"
            )
        outside = [t for t in prompt if not 0 <= t < decoder.vocabulary]
        if outside:
            wrong.append(f"prompt {k} has the token {outside[0]}; tokens are 0 to {decoder.vocabulary - 1}")
    if wrong:
        raise InvalidInput(wrong)


def padded(prompts: Sequence[Sequence[int]], pad: int = 0) -> tuple[list[list[int]], tuple[int, ...]]:
    """Fill prompts up at their start to the length of the longest.

    Examples
    --------
    >>> padded([[5, 6, 7], [8]])
    ([[5, 6, 7], [0, 0, 8]], (0, 2))
    """
    length = max(map(len, prompts))
    pads = tuple(length - len(prompt) for prompt in prompts)
    return [[pad] * short + list(prompt) for short, prompt in zip(pads, prompts, strict=True)], pads


def greedy(
    step: Step,
    prompts: Sequence[Sequence[int]],
    most: int,
    ends: Collection[int] = (),
    on_token: Callable[[list[int | None]], object] | None = None,
) -> Generation:
    """Continue prompts by the most likely token, again and again.

    Parameters
    ----------
    step : callable
        See :data:`Step`.
    prompts : sequence of sequence of int
    most : int
        Tokens for each prompt.
    ends : collection of int
        Tokens that end a row. All end when each row has, or has ``most`` tokens.
    on_token : callable, optional
        Called with each row's next token, ``None`` where it has ended.

    Examples
    --------
    >>> count = lambda rows, pads: [row[-1] + 1 for row in rows]
    >>> greedy(count, [[1, 2], [7]], 3, ends=[9]).tokens
    ((3, 4, 5), (8, 9))
    """
    clock = time.perf_counter
    rows, pads = padded(prompts)
    made: list[list[int]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    times: list[float] = []
    while True:
        began = clock()
        chosen = step(rows, pads if not times else ())
        times.append(clock() - began)
        told: list[int | None] = [None if over else int(token) for token, over in zip(chosen, ended, strict=True)]
        for k, token in enumerate(told):
            if token is not None:
                made[k].append(token)
                ended[k] = token in ends
        if on_token is not None:
            on_token(told)
        if all(ended) or len(times) == most:
            return Generation(tuple(map(tuple, made)), times[0], tuple(times[1:]))
        rows = [[int(token)] for token in chosen]
