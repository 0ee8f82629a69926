"""``device_map`` of the models of a diffusers pipeline, one a component.

``from_pretrained`` of a diffusers model takes a mapping of module paths to devices as accelerate's
(https://huggingface.co/docs/diffusers/main/en/tutorials/inference_with_big_models); a pipeline as a whole takes the
name of a strategy alone (``DiffusionPipeline.from_pretrained``: "`device_map` must be a string"), so components are
loaded one by one and given to it. A block on the way up of a U-Net puts what comes from the way down beside its own
input itself, and the U-Net adds up the embeddings of time and sizes: accelerate moves nothing there, so each of these
is on one device (``_no_split_modules`` of ``UNet2DConditionModel``).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from placewright.export.accelerate import device_map, order_notes
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules(
    "diffusers",
    "whole blocks on devices of one host",
    ordered=False,
    one_host=True,
    pipelined=False,
    tied_twice=False,
    together=(
        re.compile(r"(?:unet\.)?up_blocks\.(\d+)\."),
        re.compile(r"(?:unet\.)?(?:time|add)_embedding$"),
        re.compile(r"(text_encoder\w*)\.encoder\.block\.(\d+)\."),
    ),
)

SECOND_NAME = {"shared": "encoder.embed_tokens"}
"""Of the table of T5, which transformers looks up by one and loads by both."""

COMPONENTS = ("unet", "transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3", "image_encoder")
"""Names under which pipelines hold their models."""


def write(found: Nearest, folder: Path) -> Exported:
    """Write a JSON object: component -> device map; one network that is no pipeline is the component ``model``."""
    made: dict[str, dict[str, int | str]] = {}
    for path, device in device_map(found).items():
        first, _, rest = path.partition(".")
        component, inner = (first, rest) if first in COMPONENTS else ("model", path)
        made.setdefault(component, {})[inner] = device
    for component, row in made.items():
        row.update({second: row[first] for first, second in SECOND_NAME.items() if first in row})
        if len(set(row.values())) == 1:
            made[component] = {"": next(iter(row.values()))}
    text = msgspec.json.format(msgspec.json.encode(made), indent=1).decode() + "\n"
    return Exported(text, order_notes(found))
