"""Colours of a ``console`` block: what is typed behind ``$`` stands out, what a program printed is no shell's."""

from __future__ import annotations

from pygments.lexer import RegexLexer, bygroups
from pygments.lexers import LEXERS
from pygments.token import Generic, Text

__all__ = ["Session"]


class Session(RegexLexer):
    """Lines that begin with ``$`` are commands, and no others: a line of output may begin with a hash sign."""

    name = "Session"
    aliases = ("console",)
    tokens = {"root": [(r"(\$ )(.*\n)", bygroups(Generic.Prompt, Text)), (r".*\n", Generic.Output)]}  # noqa: RUF012


def use() -> None:
    """Take the place of the lexer of sessions that Pygments has."""
    LEXERS["BashSessionLexer"] = (__name__, Session.name, Session.aliases, (), ())
