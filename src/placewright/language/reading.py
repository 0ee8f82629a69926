"""From the name of a model on a command line to its parts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from placewright.errors import InvalidInput
from placewright.graph import Source
from placewright.language.configuration import read_configuration
from placewright.language.model import LanguageModel, model_of

__all__ = ["is_language_model", "read_language_model"]

PREFIX = "hf:"


def is_language_model(model: str) -> bool:
    """Whether a model is named as one that is read here: ``hf:DIR``, ``hf:config.json`` or a ``.gguf`` file."""
    return model.startswith(PREFIX) or model.lower().endswith(".gguf")


def read_language_model(model: str) -> tuple[LanguageModel, Source]:
    """Read a model's shapes; no weights are loaded.

    Parameters
    ----------
    model : str
        ``hf:`` and a folder with a ``config.json``, or such a file.

    Raises
    ------
    InvalidInput
        If nothing is there, or it can't be read.
    """
    path = Path(model.removeprefix(PREFIX))
    if not path.exists():
        raise InvalidInput(
            f"model {model!r}: {str(path)!r} is not there; give a folder with a config.json, or such a file. Nothing "
            "is downloaded: 'hf download ID config.json --local-dir DIR' fetches the configuration of a Hub model"
        )
    given = read_configuration(path)
    file = path / "config.json" if path.is_dir() else path
    name = (
        path.resolve().name if path.is_dir() else (path.stem if path.stem != "config" else path.resolve().parent.name)
    )
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return model_of(given, name), Source("hf", str(path), digest)
