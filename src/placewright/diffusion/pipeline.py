"""From the configurations of a diffusers pipeline to the parts of all of its networks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placewright.diffusion.autoencoder import add_autoencoder
from placewright.diffusion.kinds import DENOISERS, PROMPT, Denoiser, told
from placewright.diffusion.text import TEXT_ENCODERS
from placewright.errors import InvalidInput
from placewright.graph import Source
from placewright.io.reading import decode_json, read_bounded
from placewright.language.configuration import Configuration, read_configuration
from placewright.language.model import LanguageModel
from placewright.language.part import Parts, Stream
from placewright.language.quantised import named_format

__all__ = ["Pipeline", "PipelineModel", "is_pipeline", "read_pipeline"]

PREFIX = "hf:"
INDEX = "model_index.json"
LARGEST_BYTES = 2**20
ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")
DENOISER_NAMES = ("unet", "transformer")
AUTOENCODER = "vae"
CAPTURED = ("UNet2DConditionModel",)
"""Denoisers that are captured where their own configuration is named, and not a pipeline's."""
USUAL_SCALE = 8
"""Pixels on a side of a latent, where no autoencoder says it."""
UPCAST = "StableDiffusionXL"
"""How classes of pipelines begin that decode in fp32 where ``force_upcast`` is set and latents are fp16."""


@dataclass(frozen=True)
class PipelineModel:
    """A pipeline's networks for pictures of one size.

    Attributes
    ----------
    model : LanguageModel
        The parts of all of them, in an order in which they can run.
    rows : mapping of str to mapping of stream to int
        Of one sample, by what runs together: ``encode``, ``step``, ``decode``.
    latents : tuple of stream
        Streams of the denoiser that guidance does not double.
    """

    model: LanguageModel
    rows: Mapping[str, Mapping[Stream, int]]
    latents: tuple[Stream, ...]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as its files describe it.

    Attributes
    ----------
    name : str
    denoiser : Denoiser
    root : str
        Component that the denoiser is.
    components : mapping of str to (str, mapping)
        Class and configuration of each network, by the name of the component, in the order in which they run.
    source : Source
    notes : tuple of str
        What of it is left out.
    upcast : bool
        Whether pictures are decoded in fp32 where the rest is fp16.
    """

    name: str
    denoiser: Denoiser
    root: str
    components: Mapping[str, tuple[str, Mapping[str, Any]]]
    source: Source
    notes: tuple[str, ...] = ()
    upcast: bool = False

    @property
    def scale(self) -> int:
        """Pixels on a side of a latent."""
        if AUTOENCODER not in self.components:
            return USUAL_SCALE
        widths = self.configuration(AUTOENCODER).listed("block_out_channels", (64,))
        return int(2 ** (len(widths) - 1))

    @property
    def formats(self) -> dict[str, str]:
        """Formats of weights that configurations say, by component."""
        return {name: said for name, (_, given) in self.components.items() if (said := named_format(given))}

    def configuration(self, component: str) -> Configuration:
        """Return the configuration of a component."""
        return Configuration(self.components[component][1], what=f"{self.name}, {component}")

    def usual_size(self) -> tuple[int, int]:
        """Height and width in pixels that it is made for."""
        config = self.configuration(self.root)
        height, width = config.listed("sample_size", self.denoiser.latents, 2)
        return height * self.scale, width * self.scale

    def model(self, height: int, width: int, dtype: str) -> PipelineModel:
        """Make the parts of all networks for pictures of a size in pixels.

        Raises
        ------
        InvalidInput
            If the size is no multiple of what the networks take, or a configuration can't be read.
        """
        multiple = self.scale * self.denoiser.multiple
        if height % multiple or width % multiple or not 0 < height * width <= 2**28:
            raise InvalidInput(
                f"pictures of {width}x{height} pixels don't fit {self.name!r}; give multiples of {multiple} on both "
                "sides, at most 268 million pixels"
            )
        latent = (height // self.scale, width // self.scale)
        parts, encode, decode = Parts(), dict[Stream, int](), dict[Stream, int]()
        encoders = {}
        for name in ENCODERS:
            if name in self.components:
                made = encoders[name] = TEXT_ENCODERS[self.components[name][0]](parts, name, self.configuration(name))
                encode[name], encode[f"{name}.pooled"] = made.rows or self.denoiser.tokens, 1
        text = told(parts, self.root, self.denoiser, encoders)
        encode[PROMPT] = text.rows
        step = self.denoiser.add(parts, self.root, self.configuration(self.root), text, latent)
        if AUTOENCODER in self.components:
            first = len(parts.parts)
            config = self.configuration(AUTOENCODER)
            decode = dict(add_autoencoder(parts, AUTOENCODER, config, step.result, latent).rows)
            wide = "fp32" if self.upcast and dtype == "fp16" and config.flag("force_upcast", True) else ""
            parts.parts[first:] = [replace(p, quantised=False, dtype=wide) for p in parts.parts[first:]]
        rows = {"encode": encode, "step": step.rows, "decode": decode}
        return PipelineModel(LanguageModel(self.name, tuple(parts.parts)), rows, (f"{self.root}.latent",))


def is_pipeline(model: str) -> bool:
    """Whether ``hf:`` names a diffusers pipeline: its folder, with an index or without, or a denoiser alone."""
    if not model.startswith(PREFIX):
        return False
    path = Path(model.removeprefix(PREFIX))
    if path.is_dir() and not (path / "config.json").is_file():
        return (path / INDEX).is_file() or any((path / n / "config.json").is_file() for n in DENOISER_NAMES)
    file = path / "config.json" if path.is_dir() else path
    if file.name == INDEX:
        return file.is_file()
    return file.suffix == ".json" and file.is_file() and _class_of(read_configuration(file)) in _ALONE


_ALONE = tuple(name for name in DENOISERS if name not in CAPTURED)


def _class_of(given: Mapping[str, Any]) -> str:
    """Name the class of a configuration, of diffusers or of transformers."""
    named = given.get("architectures")
    first = named[0] if isinstance(named, list) and named else ""
    return str(given.get("_class_name") or first)


def read_pipeline(model: str) -> Pipeline:
    """Read a pipeline's configurations; no weights are loaded, and only files of the components' own names are opened.

    Parameters
    ----------
    model : str
        ``hf:`` and the folder of a pipeline, its ``model_index.json``, or the configuration of a denoiser.

    Raises
    ------
    InvalidInput
        If a configuration is missing or malformed, or a network's class is not known.
    """
    path = Path(model.removeprefix(PREFIX))
    file = path / "config.json" if path.is_dir() else path
    if file.is_file() and file.name != INDEX:
        given = read_configuration(file)
        name = file.parent.name if file.name == "config.json" else file.stem
        root = "transformer"
        source = Source("hf", str(file), hashlib.sha256(file.read_bytes()).hexdigest())
        return Pipeline(name, _denoiser(_class_of(given), file), root, {root: (_class_of(given), given)}, source)
    folder = path if path.is_dir() else path.parent
    index = _index(folder)
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    digest = hashlib.sha256()
    for name in (*ENCODERS, *DENOISER_NAMES, AUTOENCODER):
        own, listed = folder / name / "config.json", _listed(index, name)
        if listed is None or (not own.is_file() and name not in index):
            continue
        given = read_configuration(own)  # names the file where it is listed and not there
        digest.update(own.read_bytes())
        found[name] = (listed or _class_of(given), given)
    roots = [name for name in DENOISER_NAMES if name in found]
    if len(roots) != 1:
        raise InvalidInput(
            f"pipeline {str(folder)!r} has {len(roots)} denoisers; give a folder with a unet/config.json or a "
            "transformer/config.json ('hf download ID --include \"*.json\" --local-dir DIR' fetches them)"
        )
    for name in ENCODERS:
        if name in found and found[name][0] not in TEXT_ENCODERS:
            raise InvalidInput(
                f"{name} is of class {found[name][0]!r}, which is not known; these are: {', '.join(TEXT_ENCODERS)}",
                what=f"pipeline {str(folder)!r}",
            )
    if AUTOENCODER in found and found[AUTOENCODER][0] != "AutoencoderKL":
        raise InvalidInput(
            f"{AUTOENCODER} is of class {found[AUTOENCODER][0]!r}, which is not known; AutoencoderKL is",
            what=f"pipeline {str(folder)!r}",
        )
    left = sorted(
        n
        for n in index
        if n not in found and not n.startswith("_") and (folder / Path(n).name / "config.json").is_file()
    )
    notes = [f"left out, as it is no part of making a picture here: {', '.join(left)}"] if left else []
    if AUTOENCODER not in found:
        notes.append("it has no vae, so nothing decodes the pictures")
    return Pipeline(
        folder.resolve().name,
        _denoiser(found[roots[0]][0], folder / roots[0] / "config.json"),
        roots[0],
        MappingProxyType(found),
        Source("hf", str(folder), digest.hexdigest()),
        tuple(notes),
        str(index.get("_class_name", "")).startswith(UPCAST),
    )


def _index(folder: Path) -> dict[str, Any]:
    file = folder / INDEX
    if not file.is_file():
        return {}
    return decode_json(read_bounded(file, "index", LARGEST_BYTES), dict[str, Any], f"index {str(file)!r}")


def _listed(index: Mapping[str, Any], name: str) -> str | None:
    """Class of a component in the index; empty where it says nothing of it, ``None`` where it says there is none."""
    if name not in index:
        return ""
    entry = index[name]
    said = entry[1] if isinstance(entry, list) and len(entry) == 2 else None
    return said if isinstance(said, str) else None


def _denoiser(kind: str, file: Path) -> Denoiser:
    if kind not in DENOISERS:
        raise InvalidInput(
            f"_class_name {kind!r} is not known; these are: {', '.join(DENOISERS)}. Another network can be captured: "
            "py:package.module:function",
            what=f"configuration {str(file)!r}",
        )
    return DENOISERS[kind]
