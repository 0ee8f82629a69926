"""The code blocks of the README and the docs, in their order, and what kind each is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = ("placewright", "pip", "make", "torchrun", "python", "curl")
"""What a line of a block may begin with for the block to be one of commands."""


@dataclass(frozen=True)
class Block:
    """A fenced block: page, first line, language, text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> str:
        """``commands``, ``python``, ``yaml``, or ``output``: what a program printed, or a drawing."""
        if self.language in ("python", "yaml"):
            return self.language
        assert self.language in ("", "console"), f"{self.where}: nothing tests blocks of {self.language!r}"
        return "commands" if self.text.removeprefix("$ ").split(None, 1)[0] in COMMANDS else "output"

    def commands(self) -> list[str]:
        """The commands of the block, continued lines joined, without prompts, comments and what was printed."""
        text = re.sub(r"\s*\\\n\s*|\n {8,}", " ", self.text)
        lines = text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [line for whole in lines for line in re.split(r" {2,}(?=placewright )", bare(whole)) if line.strip()]

    def sessions(self) -> Iterator[tuple[list[str], str]]:
        """Commands one after the other, each with what the block shows below it; without prompts all with nothing."""
        if not re.search(r"^\$ ", self.text, re.MULTILINE):
            yield self.commands(), ""
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield [bare(command)], shown


def shape_of(text: str) -> str:
    """What is left of an output without its numbers, their units, and the places where lines end."""
    text = re.sub(r"[-+]?\d[\d,.]*(?:e[+-]?\d+)?(?:\s*(?:%|[KMGT]?i?B\b(?:/s)?|[num]?s\b|/s\b))?", "#", text)
    text = re.sub(r"the best (found|that it can say)", "the best", text)  # which of them is for the search to say
    return " ".join(re.sub("\u2500+", "\u2500", text).split())


def missing(shown: str, printed: str) -> list[str]:
    """Pieces of a shown output, parted by lines of dots, that are not in a printed one in this order."""
    rest, lost = shape_of(printed), []
    for piece in filter(str.strip, re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)):
        _, found, after = rest.partition(shape_of(piece))
        rest = after if found else rest
        lost += [] if found else [piece]
    return lost


def bare(line: str) -> str:
    """A command line without the comment behind it."""
    words = shlex.shlex(line, posix=False, punctuation_chars=False)
    words.whitespace_split, words.commenters = True, ""
    for word in words:
        if word.startswith("#"):
            return line[: line.index(" #")].rstrip()
    return line.rstrip()


def blocks() -> Iterator[Block]:
    """Every fenced block of every page."""
    for page in PAGES:
        opened: tuple[int, str] | None = None
        inside: list[str] = []
        for number, line in enumerate(page.read_text().splitlines(), 1):
            fence = re.match(r"\s*```(.*)$", line)
            if not fence:
                inside.append(line)
            elif opened is None:
                opened, inside = (number, fence[1].strip()), []
            else:
                yield Block(str(page.relative_to(ROOT)), *opened, "\n".join(inside))
                opened = None
        assert opened is None, f"{page}: a block is not closed"
