"""Vision-language models: a tower that sees, a projector, and the decoder that reads both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from placewright.language.attend import Attention, add_attention, add_pair
from placewright.language.configuration import Configuration
from placewright.language.part import Part, Parts, Stream

__all__ = ["SEEING", "add_vision"]

Rows: TypeAlias = dict[Stream, int]

USUAL_PIXELS = 448
"""On a side, for towers that take images of any size."""

TOWER, PROJECTOR = "model.vision_tower", "model.multi_modal_projector"


def add_vision(parts: Parts, config: Configuration, hidden: int) -> tuple[str, Rows]:
    """Add what a vision-language model does before its decoder.

    Parameters
    ----------
    parts : Parts
    config : Configuration
        Of the whole.
    hidden : int
        Numbers of a row of the decoder.

    Returns
    -------
    str
        The part that makes what the decoder reads.
    dict
        Rows of the streams of one image.
    """
    kind = str(config.given.get("model_type"))
    vision = Configuration(config.part("vision_config"), what="vision_config")
    parts.stream = "patches"
    return SEEING[kind](parts, config, vision, hidden)


def _grid(vision: Configuration) -> int:
    return vision.count("image_size") // vision.count("patch_size")


def _vit(parts: Parts, vision: Configuration, *, clip: bool) -> tuple[str, int]:
    """Add CLIP's or SigLIP's tower; the part that makes its rows, and how many."""
    hidden, heads, wide = (vision.count(n) for n in ("hidden_size", "num_attention_heads", "intermediate_size"))
    colours, patch, grid = vision.count("num_channels", 3), vision.count("patch_size"), _grid(vision)
    rows = grid * grid + clip
    parts.within(f"{TOWER}.embeddings")
    inner = colours * patch * patch
    x = parts.add(
        Part(
            *(f"{TOWER}.embeddings.patch_embedding", "conv", parts.module, parts.layer, parts.stream),
            parameters=inner * hidden + (0 if clip else hidden),
            inner=inner,
            width=hidden,
        )
    )
    if clip:
        x = _added(parts, f"{TOWER}.embeddings.class_embedding", x, hidden, hidden)
    x = _added(parts, f"{TOWER}.embeddings.position_embedding", x, rows * hidden, hidden)

    def normed(name: str, x: str) -> str:
        return parts.norm(name, (x,), hidden, weights=2 * hidden)

    if clip:
        x = normed(f"{TOWER}.pre_layrnorm", x)
    shape = Attention(hidden, heads, max(1, hidden // heads))
    for k in range(vision.layers("num_hidden_layers")):
        layer = f"{TOWER}.encoder.layers.{k}"
        parts.within(layer, f"{layer}.self_attn")
        x = add_attention(parts, f"{layer}.self_attn", shape, normed(f"{layer}.layer_norm1", x), (x,))
        parts.within(layer, f"{layer}.mlp")
        a = normed(f"{layer}.layer_norm2", x)
        x = add_pair(parts, (f"{layer}.mlp.fc1", f"{layer}.mlp.fc2"), a, (x,), hidden, wide)
    parts.within(f"{TOWER}.post_layernorm")
    x = normed(f"{TOWER}.post_layernorm", x)
    if not clip and vision.flag("vision_use_head", True):
        parts.add(
            Part(
                *(f"{TOWER}.head", "pooling", parts.module, parts.layer, parts.stream, (x,)),
                parameters=hidden * (4 * hidden + 4) + hidden + 2 * hidden + 2 * hidden * wide + wide + hidden,
                width=hidden,
            )
        )
    return x, rows


def _llava(parts: Parts, config: Configuration, vision: Configuration, hidden: int) -> tuple[str, Rows]:
    """Add LLaVA's tower, CLIP's, and its projector of two products (Liu et al. 2023, arXiv 2310.03744)."""
    x, rows = _vit(parts, vision, clip=True)
    width, bias = vision.count("hidden_size"), config.flag("multimodal_projector_bias", True)
    parts.within(PROJECTOR)
    parts.stream = "image"
    x = parts.linear(f"{PROJECTOR}.linear_1", (x,), width, hidden, bias=bias)
    x = parts.elementwise(f"{PROJECTOR}.act", "activation", (x,), hidden)
    return parts.linear(f"{PROJECTOR}.linear_2", (x,), hidden, hidden, bias=bias), {"patches": rows, "image": rows - 1}


def _gemma3(parts: Parts, config: Configuration, vision: Configuration, hidden: int) -> tuple[str, Rows]:
    """Add Gemma 3's tower, SigLIP's, and what pools its rows (arXiv 2503.19786, section 2.1)."""
    x, rows = _vit(parts, vision, clip=False)
    width = vision.count("hidden_size")
    parts.within(PROJECTOR)
    parts.stream = "image"
    x = parts.norm(f"{PROJECTOR}.mm_soft_emb_norm", (x,), width)
    name = f"{PROJECTOR}.mm_input_projection_weight"
    return parts.linear(name, (x,), width, hidden), {"patches": rows, "image": config.count("mm_tokens_per_image")}


def _paligemma(parts: Parts, config: Configuration, vision: Configuration, hidden: int) -> tuple[str, Rows]:
    """Add PaliGemma's tower, SigLIP's, and its projector of one product (arXiv 2407.07726, section 3)."""
    x, rows = _vit(parts, vision, clip=False)
    parts.within(PROJECTOR)
    parts.stream = "image"
    x = parts.linear(f"{PROJECTOR}.linear", (x,), vision.count("hidden_size"), hidden, bias=True)
    return x, {"patches": rows, "image": rows}


def _qwen(parts: Parts, config: Configuration, vision: Configuration, hidden: int) -> tuple[str, Rows]:
    """Add the tower of Qwen2-VL (arXiv 2409.12191) or Qwen2.5-VL (2502.13923), which attends within an image."""
    newer = config.given.get("model_type") == "qwen2_5_vl"
    width, heads, depth = (
        vision.count("hidden_size" if newer else "embed_dim"),
        vision.count("num_heads"),
        vision.layers("depth"),
    )
    wide = vision.count("intermediate_size") if newer else width * vision.count("mlp_ratio")
    patch, merged = vision.count("patch_size"), vision.count("spatial_merge_size", 2) ** 2
    inner = vision.count("in_channels", 3) * vision.count("temporal_patch_size", 2) * patch * patch
    rows = (USUAL_PIXELS // patch) ** 2
    norm_weights = width if newer else 2 * width
    parts.within("model.visual.patch_embed")
    x = parts.add(
        Part(
            *("model.visual.patch_embed.proj", "conv", parts.module, parts.layer, parts.stream),
            parameters=inner * width,
            inner=inner,
            width=width,
        )
    )
    shape = Attention(width, heads, max(1, width // heads), ("qkv",), "proj", (True, True))
    for k in range(depth):
        block = f"model.visual.blocks.{k}"
        parts.within(block, f"{block}.attn")
        a = parts.norm(f"{block}.norm1", (x,), width, weights=norm_weights)
        x = add_attention(parts, f"{block}.attn", shape, a, (x,))
        parts.within(block, f"{block}.mlp")
        a = parts.norm(f"{block}.norm2", (x,), width, weights=norm_weights)
        names = ("gate_proj", "up_proj", "down_proj") if newer else ("fc1", "fc2")
        x = add_pair(parts, tuple(f"{block}.mlp.{n}" for n in names), a, (x,), width, wide)
    merger = "model.visual.merger"
    parts.within(merger)
    x = parts.norm(f"{merger}.ln_q", (x,), width, weights=norm_weights)
    parts.stream = "image"
    x = parts.linear(f"{merger}.mlp.0", (x,), merged * width, merged * width, bias=True)
    x = parts.elementwise(f"{merger}.mlp.1", "activation", (x,), merged * width)
    x = parts.linear(f"{merger}.mlp.2", (x,), merged * width, hidden, bias=True)
    return x, {"patches": rows, "image": rows // merged}


def _added(parts: Parts, name: str, x: str, weights: int, width: int) -> str:
    return parts.add(
        Part(*(name, "add", parts.module, parts.layer, parts.stream, (x,)), parameters=weights, width=width)
    )


SEEING: Mapping[str, Callable[[Parts, Configuration, Configuration, int], tuple[str, Rows]]] = MappingProxyType(
    {"llava": _llava, "gemma3": _gemma3, "paligemma": _paligemma, "qwen2_vl": _qwen, "qwen2_5_vl": _qwen}
)
"""By ``model_type``."""
