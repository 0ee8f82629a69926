"""The transformer of PixArt (``PixArtTransformer2DModel``), which reads the text by an attention of its own."""

from __future__ import annotations

from placewright.diffusion.blocks import (
    TIMES,
    Made,
    Text,
    add_attention,
    add_convolution,
    add_embedder,
    add_feed_forward,
    add_scheduler,
    time_stream,
)
from placewright.language.configuration import Configuration
from placewright.language.part import Part, Parts

__all__ = ["add_pixart"]

SIZED = 128
"""Latents on a side of the networks that are told the size of the picture."""


def add_pixart(parts: Parts, root: str, config: Configuration, text: Text, latent: tuple[int, int]) -> Made:
    """Add the transformer of PixArt-alpha or PixArt-Sigma (arXiv 2310.00426, 2403.04692), its scheduler last.

    Parameters
    ----------
    parts : Parts
    root : str
        Under which the pipeline has it.
    config : Configuration
        Of diffusers.
    text : Text
    latent : tuple of int
        Height and width of the latents.
    """
    heads, each = config.count("num_attention_heads", 16), config.count("attention_head_dim", 72)
    width, patch, latents = heads * each, config.count("patch_size", 2), config.count("in_channels", 4)
    sized = config.count("sample_size", SIZED) == SIZED
    if config.value("use_additional_conditions") is not None:
        sized = config.flag("use_additional_conditions")
    image, words, time = f"{root}.image", f"{root}.text", time_stream(root)
    parts.stream = image
    parts.within(f"{root}.pos_embed")
    x = add_convolution(parts, f"{root}.pos_embed.proj", (), latents, width, patch * patch)
    parts.stream = time
    path = f"{root}.adaln_single"
    parts.within(path)
    reads = [add_embedder(parts, f"{path}.emb.timestep_embedder", (), TIMES, width)]
    if sized:
        third = width // 3
        reads.append(add_embedder(parts, f"{path}.emb.aspect_ratio_embedder", (), TIMES, third))
        parts.stream = f"{root}.sides"
        reads.append(add_embedder(parts, f"{path}.emb.resolution_embedder", (), TIMES, third))
        parts.stream = time
    temb = parts.elementwise(f"{path}.emb.add", "add", reads, width)
    shifts = parts.linear(f"{path}.linear", (temb,), width, 6 * width, bias=True)
    parts.stream = words
    c = text.states
    if config.value("caption_channels") is not None:
        parts.within(f"{root}.caption_projection")
        c = (add_embedder(parts, f"{root}.caption_projection", c, config.count("caption_channels"), width),)
    for k in range(config.layers("num_layers", 28)):
        block = f"{root}.transformer_blocks.{k}"
        parts.within(block, f"{block}.attn1")
        parts.stream = time
        own = parts.add(
            Part(
                *(f"{block}.scale_shift_table", "add", parts.module, parts.layer, time, (shifts,)),
                parameters=6 * width,
                width=6 * width,
            )
        )
        parts.stream = image
        a = parts.norm(f"{block}.norm1", (x, own), width, weights=0)
        x = _attention(parts, f"{block}.attn1", a, (a,), (x, own), heads, width, image)
        parts.within(block, f"{block}.attn2")
        x = _attention(parts, f"{block}.attn2", x, c, (x,), heads, width, words)
        parts.within(block, f"{block}.ff")
        a = parts.norm(f"{block}.norm2", (x, own), width, weights=0)
        x = add_feed_forward(parts, f"{block}.ff", a, (x, own), width)
    parts.within(f"{root}.proj_out")
    parts.stream = time
    table = f"{root}.scale_shift_table"
    own = parts.add(
        Part(*(table, "add", parts.module, parts.layer, time, (temb,)), parameters=2 * width, width=2 * width)
    )
    parts.stream = image
    a = parts.norm(f"{root}.norm_out", (x, own), width, weights=0)
    made = patch * patch * config.count("out_channels", 8)
    x = parts.linear(f"{root}.proj_out", (a,), width, made, bias=True)
    tokens = (latent[0] // patch) * (latent[1] // patch)
    rows = {time: 1, f"{root}.sides": 2, image: tokens, words: text.rows, f"{root}.latent": tokens}
    # It predicts a variance too, which is dropped.
    return Made(add_scheduler(parts, x, f"{root}.latent", patch * patch * latents), rows)


def _attention(
    parts: Parts,
    path: str,
    x: str,
    source: tuple[str, ...],
    skips: tuple[str, ...],
    heads: int,
    width: int,
    against: str,
) -> str:
    stream = parts.stream
    q = parts.linear(f"{path}.to_q", (x,), width, width, bias=True)
    parts.stream = against
    k, v = (parts.linear(f"{path}.{n}", source, width, width, bias=True) for n in ("to_k", "to_v"))
    parts.stream = stream
    y = add_attention(parts, path, (q, k, v), width, heads, against)
    return parts.linear(f"{path}.to_out.0", (y, *skips), width, width, bias=True)
