"""Denoisers of diffusion by their own configurations: built by diffusers on meta, then captured."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import InvalidInput, MissingExtra
from placewright.graph import OperatorGraph, Source
from placewright.io.reading import decode_json, read_bounded

if TYPE_CHECKING:
    import torch

__all__ = ["capture_denoiser", "denoiser_file"]

PREFIX = "hf:"
LARGEST_BYTES = 2**20
GUIDED = 2
"""Samples that a denoiser takes at once: one that follows the text, and one that doesn't."""
TEXT_TOKENS = 77
"""That CLIP's text encoders make."""


def denoiser_file(model: str) -> Path | None:
    """Find the configuration of the denoiser that ``hf:DIR`` names: of its folder, or the file itself.

    ``None`` where it is something else: a denoiser's configuration has a ``_class_name``. A pipeline's folder is none.
    """
    if not model.startswith(PREFIX):
        return None
    path = Path(model.removeprefix(PREFIX))
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file() or file.suffix != ".json":
        return None
    return file if "_class_name" in _read(file) else None


def capture_denoiser(file: Path, *, fold: bool = False) -> OperatorGraph:
    """Capture one step of a denoiser in half precision, guided: both halves of the guidance as one batch of two.

    The text encoders and the decoder of the pictures, which run once a picture, are no part of it; those are in the
    pipeline's folder (:mod:`placewright.diffusion`).

    Parameters
    ----------
    file : Path
        Its configuration, of the class ``UNet2DConditionModel``: Stable Diffusion 1 and 2, and SDXL.
    fold : bool
        As for :func:`placewright.capture.torch_export.capture_module`.

    Raises
    ------
    InvalidInput
        If it is of another class, or can't be built or exported.
    MissingExtra
        If torch or diffusers is not installed.
    """
    given = _read(file)
    what = f"configuration {str(file)!r}"
    if given.get("_class_name") != "UNet2DConditionModel":
        raise InvalidInput(
            f"_class_name {given.get('_class_name')!r} is not known; UNet2DConditionModel is. Another network can be "
            "captured: py:package.module:function",
            what=what,
        )
    try:
        import torch
        from diffusers import UNet2DConditionModel
    except ImportError:
        raise MissingExtra("diffusers", "hf", "building a denoiser") from None
    from placewright.capture.torch_export import capture_program, export_module

    try:
        with torch.device("meta"):
            # Not its own way of casting, which warns of modules that it would keep in full precision.
            built: torch.nn.Module = UNet2DConditionModel.from_config(given)  # type: ignore[no-untyped-call]
            module: Any = torch.nn.Module.to(built, torch.float16).eval()
            inputs = _inputs(module.config)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(f"diffusers can't build it: {first}", what=what) from None
    name = file.parent.name if file.stem == "config" else file.stem
    source = Source("hf", str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    return capture_program(export_module(module, (), inputs), name=name, source=source, fold=fold)


def _inputs(config: Any) -> dict[str, torch.Tensor | dict[str, torch.Tensor]]:
    """Latents of the usual size, a time, text; and for SDXL pooled text with sizes."""
    import torch

    half = torch.float16
    side = config.sample_size
    inputs: dict[str, Any] = {
        "sample": torch.zeros(GUIDED, config.in_channels, side, side, dtype=half),
        "timestep": torch.zeros(GUIDED, dtype=torch.int64),
        "encoder_hidden_states": torch.zeros(GUIDED, TEXT_TOKENS, config.cross_attention_dim, dtype=half),
    }
    if config.addition_embed_type == "text_time":
        times = 6
        text = config.projection_class_embeddings_input_dim - times * config.addition_time_embed_dim
        inputs["added_cond_kwargs"] = {
            "text_embeds": torch.zeros(GUIDED, text, dtype=half),
            "time_ids": torch.zeros(GUIDED, times, dtype=half),
        }
    return inputs


def _read(file: Path) -> dict[str, Any]:
    return decode_json(
        read_bounded(file, "configuration", LARGEST_BYTES), dict[str, Any], f"configuration {str(file)!r}"
    )
