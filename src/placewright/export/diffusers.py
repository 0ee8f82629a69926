"""``device_map`` of the models of a diffusers pipeline, one a component.

``from_pretrained`` of a diffusers model takes a mapping of module paths to devices as accelerate's
(https://huggingface.co/docs/diffusers/main/en/tutorials/inference_with_big_models); a pipeline as a whole takes the
name of a strategy alone (``DiffusionPipeline.from_pretrained``: "`device_map` must be a string"), so components are
loaded one by one and given to it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from placewright.export.accelerate import device_map, order_notes
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules(
    "diffusers", "whole blocks on devices of one host", ordered=False, one_host=True, pipelined=False, tied_twice=False
)

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
        if len(set(row.values())) == 1:
            made[component] = {"": next(iter(row.values()))}
    text = msgspec.json.format(msgspec.json.encode(made), indent=1).decode() + "\n"
    return Exported(text, order_notes(found))
