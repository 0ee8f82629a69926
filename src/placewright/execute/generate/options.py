"""What a rank that ``torchrun`` has started is asked to generate, and how it writes what it has generated."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

from placewright.execute.generate.generation import Generation
from placewright.execute.generate.text import parse_token_ids

__all__ = ["Asked", "add_generation", "asked_of", "generated_text"]


@dataclass(frozen=True)
class Asked:
    """Prompts as tokens, at most how many follow each, and what ends a text (``None``: as the model says)."""

    prompts: tuple[tuple[int, ...], ...]
    tokens: int
    ends: tuple[int, ...] | None


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--prompt-ids", action="append", help="continue this prompt, e.g. 464,2068; repeatable")
    parser.add_argument("--tokens", type=int, default=32, help="with --prompt-ids: at most so many for each")
    parser.add_argument("--stop-ids", help="with --prompt-ids: tokens that end a text")


def asked_of(options: argparse.Namespace) -> Asked | None:
    """Return what is asked for; ``None`` where no prompt is given."""
    if not options.prompt_ids:
        return None
    prompts = tuple(tuple(parse_token_ids(text, "--prompt-ids")) for text in options.prompt_ids)
    ends = None if options.stop_ids is None else tuple(parse_token_ids(options.stop_ids, "--stop-ids"))
    return Asked(prompts, options.tokens, ends)


def generated_text(made: Generation) -> str:
    """Write what was generated as JSON."""
    return json.dumps(asdict(made)) + "\n"
