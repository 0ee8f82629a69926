"""Text for a decoder: the tokenizer of a folder, and prompts as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placewright.errors import InvalidInput, MissingExtra

__all__ = ["Tokenizer", "parse_token_ids", "prompts_of", "tokenizer_of"]

LARGEST_TOKENIZER_BYTES = 256 << 20


class Tokenizer:
    """From text to tokens and back, as a ``tokenizer.json`` says.

    Parameters
    ----------
    folder : Path
        That holds it, or the file itself.

    Raises
    ------
    InvalidInput
        If there is none, or it can't be read.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json" if folder.is_dir() else folder
        if not file.is_file():
            raise InvalidInput(f"{str(folder)!r} holds no tokenizer.json; give --tokenizer FOLDER, or --prompt-ids")
        if file.stat().st_size > LARGEST_TOKENIZER_BYTES:
            raise InvalidInput(f"{str(file)!r} is larger than {LARGEST_TOKENIZER_BYTES} B; it is no tokenizer")
        try:
            import tokenizers
        except ImportError:
            raise MissingExtra("tokenizers", "hf", "reading a prompt as text") from None
        try:
            self._own = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises Exception itself
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InvalidInput(f"{str(file)!r} can't be read as a tokenizer: {first}") from None

    def tokens(self, text: str) -> list[int]:
        """Split a prompt into tokens, with those that the tokenizer puts around it."""
        return [int(token) for token in self._own.encode(text).ids]

    def text(self, tokens: Sequence[int]) -> str:
        """Put tokens together, without special ones."""
        return str(self._own.decode(list(tokens), skip_special_tokens=True))


def tokenizer_of(folder: Path | None, model: str | None) -> Tokenizer | None:
    """Find the tokenizer: of the folder that is named, else of an ``hf:`` model's, where that has one."""
    if folder is not None:
        return Tokenizer(folder)
    if model is not None and model.startswith("hf:"):
        beside = Path(model.removeprefix("hf:"))
        if (beside / "tokenizer.json").is_file():
            return Tokenizer(beside)
    return None


def parse_token_ids(text: str, option: str) -> list[int]:
    """Read tokens between commas or spaces.

    Raises
    ------
    InvalidInput
        If one is no number.

    Examples
    --------
    >>> parse_token_ids("464, 2068 7586", "--prompt-ids")
    [464, 2068, 7586]
    """
    words = text.replace(",", " ").split()
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) <= 9)]
    if wrong:
        raise InvalidInput(f"{option}: {wrong[0][:50]!r} is no token; write numbers between commas, as 464,2068")
    return [int(word) for word in words]


def prompts_of(texts: Sequence[str], ids: Sequence[str], tokenizer: Tokenizer | None) -> list[list[int]]:
    """Read prompts: those given as text first.

    Raises
    ------
    InvalidInput
        If there is none, or text without a tokenizer.
    """
    if not texts and not ids:
        raise InvalidInput("there is no prompt; give --prompt TEXT or --prompt-ids 464,2068")
    if texts and tokenizer is None:
        raise InvalidInput("a prompt as text needs a tokenizer; give --tokenizer FOLDER, or --prompt-ids 464,2068")
    split = [tokenizer.tokens(text) for text in texts] if tokenizer is not None else []
    return [*split, *(parse_token_ids(text, "--prompt-ids") for text in ids)]
