"""From the name of a model on a command line to its parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from placewright.capture.diffusers_config import denoiser_file
from placewright.errors import InvalidInput
from placewright.graph import Source
from placewright.language.configuration import read_configuration
from placewright.language.families import FAMILIES
from placewright.language.gguf_file import read_gguf
from placewright.language.gguf_model import configuration_of
from placewright.language.model import LanguageModel, model_of
from placewright.language.safetensors_head import safetensors_sizes
from placewright.language.true_sizes import TrueSizes, checkpoint_paths, gguf_paths, true_sizes
from placewright.units import format_bytes

__all__ = ["ReadModel", "is_language_model", "read_language_model"]

PREFIX = "hf:"


def is_language_model(model: str) -> bool:
    """Whether a model is named as one that is read here: ``hf:DIR``, ``hf:config.json`` or a ``.gguf`` file.

    A denoiser of diffusion, which is captured, is named by ``hf:`` too.
    """
    return (model.startswith(PREFIX) and denoiser_file(model) is None) or model.lower().endswith(".gguf")


@dataclass(frozen=True, slots=True)
class ReadModel:
    """A model as it was found.

    Attributes
    ----------
    model : LanguageModel
    source : Source
    notes : tuple of str
        What of its files doesn't fit its configuration.
    """

    model: LanguageModel
    source: Source
    notes: tuple[str, ...] = ()


def read_language_model(model: str) -> ReadModel:
    """Read a model's shapes, and the true bytes of its weights where its files are there; no weights are loaded.

    Parameters
    ----------
    model : str
        ``hf:`` and a folder with a ``config.json``, or such a file; or a ``.gguf`` file.

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
    if path.name.lower().endswith(".gguf"):
        return _of_gguf(path)
    given = read_configuration(path)
    file = path / "config.json" if path.is_dir() else path
    name = path.resolve().name if path.is_dir() else path.stem
    read = model_of(given, name)
    tensors = safetensors_sizes(path) if path.is_dir() else {}
    notes: list[str] = []
    if not tensors and "quantization_config" in given:
        said = (
            f"as {read.weight_format}"
            if read.weight_format
            else "as if not, as its format is not known: give --weight-format"
        )
        notes.append(f"its files are not there, and its configuration says that weights are quantised; taken {said}")
    if tensors:
        root = read.parts[0].name.rpartition(".")[0]
        read = _sized(read, true_sizes(read.parts, tensors, checkpoint_paths(root)), notes)
    return ReadModel(read, Source("hf", str(path), hashlib.sha256(file.read_bytes()).hexdigest()), tuple(notes))


def _of_gguf(path: Path) -> ReadModel:
    head = read_gguf(path)
    given = configuration_of(head, f"GGUF {str(path)!r}")
    read = replace(model_of(given, path.stem), dtype="fp16")
    notes: list[str] = []
    sizes = true_sizes(read.parts, head.tensors, gguf_paths(FAMILIES[given["model_type"]]))
    return ReadModel(_sized(read, sizes, notes), Source("gguf", str(path)), tuple(notes))


def _sized(model: LanguageModel, sizes: TrueSizes, notes: list[str]) -> LanguageModel:
    """Take true sizes, and note what of the files is no part of the model, or the reverse."""
    if left := sum(sizes.unknown.values()):
        shown = ", ".join(list(sizes.unknown)[:3]) + (", ..." if len(sizes.unknown) > 3 else "")
        notes.append(
            f"left out, as no operator has them: {len(sizes.unknown)} tensors of {format_bytes(left)} ({shown})"
        )
    if sizes.missing:
        shown = ", ".join(sizes.missing[:3]) + (", ..." if len(sizes.missing) > 3 else "")
        notes.append(f"not in the files, so taken by their shapes: weights of {len(sizes.missing)} operators ({shown})")
    return replace(model, weight_bytes=sizes.weight_bytes)
