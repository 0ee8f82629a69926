"""The U-Net of Stable Diffusion 1 and 2 and of SDXL (``UNet2DConditionModel``)."""

from __future__ import annotations

from placewright.diffusion.blocks import (
    Made,
    Text,
    add_attention,
    add_convolution,
    add_embedder,
    add_feed_forward,
    add_resnet,
    add_scheduler,
    time_stream,
)
from placewright.errors import InvalidInput
from placewright.language.configuration import Configuration
from placewright.language.part import Parts

__all__ = ["add_unet"]

DOWN = ("DownBlock2D", "CrossAttnDownBlock2D")
UP = ("UpBlock2D", "CrossAttnUpBlock2D")
MIDDLE = "UNetMidBlock2DCrossAttn"
USUAL_DOWN = ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",)
USUAL_UP = ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3
SIZES = 6
"""Sizes and offsets that SDXL's pictures come with (Podell et al. 2023, arXiv 2307.01952, section 2.2)."""
PLAIN = (
    *("encoder_hid_dim_type", "class_embed_type", "time_embedding_dim", "timestep_post_act", "time_cond_proj_dim"),
    *("only_cross_attention", "dual_cross_attention", "class_embeddings_concat"),
)
"""Options that are read where they are unset or false alone."""


def add_unet(parts: Parts, root: str, config: Configuration, text: Text, latent: tuple[int, int]) -> Made:
    """Add a U-Net (Rombach et al. 2022, arXiv 2112.10752), its scheduler last.

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

    Raises
    ------
    InvalidInput
        If it has blocks or options that are not known.
    """
    return _Net(parts, root, config, text, latent).made()


class _Net:
    def __init__(self, parts: Parts, root: str, config: Configuration, text: Text, latent: tuple[int, int]) -> None:
        self.parts, self.root, self.config, self.text = parts, root, config, text
        self.widths = tuple(config.listed("block_out_channels", (320, 640, 1280, 1280)))
        levels = len(self.widths)
        self.down = _names(config, "down_block_types", USUAL_DOWN, DOWN, levels)
        self.up = _names(config, "up_block_types", USUAL_UP, UP, levels)
        self.layers = config.listed("layers_per_block", 2, levels)
        self.depth = config.listed("transformer_layers_per_block", 1, levels)
        heads = "num_attention_heads" if config.value("num_attention_heads") is not None else "attention_head_dim"
        self.heads = config.listed(heads, 8, levels)
        self.cross = config.listed("cross_attention_dim", 1280, levels)
        self.linear = config.flag("use_linear_projection")
        self.time = time_stream(root)
        self.temb = ""
        if unknown := [name for name in PLAIN if config.value(name)]:
            raise InvalidInput(
                f"{unknown[0]} {config.value(unknown[0])!r} is not known; capture the network", what=root
            )
        if config.value("mid_block_type") not in (None, MIDDLE):
            raise InvalidInput(
                f"mid_block_type {config.value('mid_block_type')!r} is not known; {MIDDLE} is", what=root
            )
        self.rows = {self.time: 1, f"{root}.text": text.rows}
        height, width = latent
        for k in range(levels):
            self.rows[self.level(k)] = height * width
            height, width = -(-height // 2), -(-width // 2)
        self.rows[f"{root}.latent"] = latent[0] * latent[1]

    def level(self, k: int) -> str:
        """Stream of the positions that k halvings leave."""
        return f"{self.root}/{2**k}"

    def made(self) -> Made:
        """Add everything."""
        parts, root, config, widths = self.parts, self.root, self.config, self.widths
        latents, levels = config.count("in_channels", 4), len(widths)
        parts.stream = self.time
        self._embed_time()
        parts.stream = self.level(0)
        parts.within(f"{root}.conv_in")
        x = add_convolution(parts, f"{root}.conv_in", (), latents, widths[0])
        skips, channels = [(x, widths[0])], widths[0]
        for k, kind in enumerate(self.down):
            block = f"{root}.down_blocks.{k}"
            for j in range(self.layers[k]):
                x = self._resnet(f"{block}.resnets.{j}", x, channels, widths[k])
                channels = widths[k]
                if kind == DOWN[1]:
                    x = self._transformer(f"{block}.attentions.{j}", x, k, self.depth[k])
                skips.append((x, channels))
            if k < levels - 1:
                parts.stream = self.level(k + 1)
                parts.within(f"{block}.downsamplers.0")
                x = add_convolution(parts, f"{block}.downsamplers.0.conv", (x,), channels, channels)
                skips.append((x, channels))
        middle = f"{root}.mid_block"
        x = self._resnet(f"{middle}.resnets.0", x, channels, channels)
        x = self._transformer(f"{middle}.attentions.0", x, levels - 1, self.depth[-1])
        x = self._resnet(f"{middle}.resnets.1", x, channels, channels)
        for k, kind in enumerate(self.up):
            block, at = f"{root}.up_blocks.{k}", levels - 1 - k
            for j in range(self.layers[at] + 1):
                skip, more = skips.pop()
                x = self._resnet(f"{block}.resnets.{j}", x, channels + more, widths[at], skip)
                channels = widths[at]
                if kind == UP[1]:
                    x = self._transformer(f"{block}.attentions.{j}", x, at, self.depth[at])
            if at:
                parts.stream = self.level(at - 1)
                parts.within(f"{block}.upsamplers.0")
                x = parts.elementwise(f"{block}.upsamplers.0.interpolate", "copy", (x,), channels)
                x = add_convolution(parts, f"{block}.upsamplers.0.conv", (x,), channels, channels)
        parts.within(f"{root}.conv_out")
        x = parts.norm(f"{root}.conv_norm_out", (x,), channels, weights=2 * channels)
        x = parts.elementwise(f"{root}.conv_act", "activation", (x,), channels)
        made = config.count("out_channels", 4)
        x = add_convolution(parts, f"{root}.conv_out", (x,), channels, made)
        return Made(add_scheduler(parts, x, f"{root}.latent", made), self.rows)

    def _embed_time(self) -> None:
        parts, root, config, wide = self.parts, self.root, self.config, 4 * self.widths[0]
        parts.within(f"{root}.time_embedding")
        self.temb = add_embedder(parts, f"{root}.time_embedding", (), self.widths[0], wide)
        kind = config.value("addition_embed_type")
        if kind not in (None, "text_time"):
            raise InvalidInput(f"addition_embed_type {kind!r} is not known; text_time is", what=root)
        if kind is not None:
            inner = config.count("projection_class_embeddings_input_dim")
            sized = add_embedder(parts, f"{root}.add_embedding", self.text.pooled, inner, wide)
            self.temb = parts.elementwise(f"{root}.time_embedding.add", "add", (self.temb, sized), wide)

    def _resnet(self, path: str, x: str, channels: int, width: int, skip: str = "") -> str:
        self.parts.within(path)
        if skip:
            x = self.parts.elementwise(f"{path}.cat", "copy", (x, skip), channels)
        return add_resnet(self.parts, path, x, channels, width, self.temb, 4 * self.widths[0])

    def _transformer(self, path: str, x: str, level: int, depth: int) -> str:
        """Add blocks of attention between products in and out, with a skip around it all (``Transformer2DModel``)."""
        parts, width = self.parts, self.widths[level]
        parts.within(path, f"{path}.proj_in")
        a = parts.norm(f"{path}.norm", (x,), width, weights=2 * width)
        a = self._projection(f"{path}.proj_in", (a,), width)
        for k in range(depth):
            block = f"{path}.transformer_blocks.{k}"
            parts.within(path, block)
            for name, source in (("attn1", False), ("attn2", True)):
                b = parts.norm(f"{block}.norm{name[-1]}", (a,), width, weights=2 * width)
                a = self._attention(f"{block}.{name}", b, a, level, source)
            b = parts.norm(f"{block}.norm3", (a,), width, weights=2 * width)
            a = add_feed_forward(parts, f"{block}.ff", b, (a,), width, gated=True)
        parts.within(path, f"{path}.proj_out")
        return self._projection(f"{path}.proj_out", (a, x), width)

    def _projection(self, name: str, reads: tuple[str, ...], width: int) -> str:
        if self.linear:
            return self.parts.linear(name, reads, width, width, bias=True)
        return add_convolution(self.parts, name, reads, width, width, 1)

    def _attention(self, path: str, x: str, skip: str, level: int, source: bool) -> str:
        """Add an attention over positions, or from positions to the states of the text."""
        parts, width, stream = self.parts, self.widths[level], self.parts.stream
        q = parts.linear(f"{path}.to_q", (x,), width, width)
        if source:
            parts.stream = f"{self.root}.text"
        reads, inner = (self.text.states, self.cross[level]) if source else ((x,), width)
        k, v = (parts.linear(f"{path}.{name}", reads, inner, width) for name in ("to_k", "to_v"))
        against, parts.stream = parts.stream, stream
        y = add_attention(parts, path, (q, k, v), width, self.heads[level], against)
        return parts.linear(f"{path}.to_out.0", (y, skip), width, width, bias=True)


def _names(
    config: Configuration, name: str, usual: tuple[str, ...], known: tuple[str, ...], levels: int
) -> tuple[str, ...]:
    value = config.value(name)
    found = tuple(usual if value is None else value) if isinstance(value, list | tuple | None) else ()
    if len(found) != levels or any(kind not in known for kind in found):
        raise InvalidInput(
            f"{name} {value!r} is not known; give one of {', '.join(known)} for each of {levels} block_out_channels",
            what=config.what,
        )
    return found
