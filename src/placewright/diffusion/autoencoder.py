"""The decoder of the pictures, and the encoder that is loaded with it (``AutoencoderKL``)."""

from __future__ import annotations

from placewright.diffusion.blocks import Made, add_attention, add_convolution, add_resnet
from placewright.errors import InvalidInput
from placewright.language.configuration import Configuration
from placewright.language.part import Parts

__all__ = ["add_autoencoder"]

DOWN, UP = "DownEncoderBlock2D", "UpDecoderBlock2D"


def add_autoencoder(parts: Parts, root: str, config: Configuration, latents: str, latent: tuple[int, int]) -> Made:
    """Add an autoencoder (Rombach et al. 2022, arXiv 2112.10752, section 3.1): its decoder runs, its encoder is held.

    Parameters
    ----------
    parts : Parts
    root : str
        Under which the pipeline has it.
    config : Configuration
        Of diffusers.
    latents : str
        The part that makes them; empty: nothing does.
    latent : tuple of int
        Their height and width.

    Raises
    ------
    InvalidInput
        If it has blocks that are not known.
    """
    for name, known in (("down_block_types", DOWN), ("up_block_types", UP)):
        if any(kind != known for kind in config.given.get(name) or ()):
            raise InvalidInput(f"{name} {config.given[name]!r} is not known; {known} is", what=config.what)
    widths, layers = config.listed("block_out_channels", (64,)), config.layers("layers_per_block", 1)
    channels = config.count("latent_channels", 4)
    parts.within(f"{root}.encoder")
    parts.stream = f"{root}.idle"
    _encode(parts, f"{root}.encoder", config, widths, layers, channels)
    if config.flag("use_quant_conv", True):
        add_convolution(parts, f"{root}.quant_conv", (), 2 * channels, 2 * channels, 1)

    height, width = latent
    rows = {f"{root}/{2 ** (len(widths) - 1 - k)}": height * width * 4**k for k in range(len(widths))}
    levels = list(rows)
    parts.stream = levels[0]
    top, x = f"{root}.decoder", (latents,) if latents else ()
    parts.within(f"{top}.conv_in")
    if config.flag("use_post_quant_conv", True):
        parts.within(f"{root}.post_quant_conv")
        x = (add_convolution(parts, f"{root}.post_quant_conv", x, channels, channels, 1),)
        parts.within(f"{top}.conv_in")
    y = add_convolution(parts, f"{top}.conv_in", x, channels, widths[-1])
    y = _middle(parts, f"{top}.mid_block", y, widths[-1], config.flag("mid_block_add_attention", True))
    before = widths[-1]
    for k, wide in enumerate(reversed(widths)):
        block = f"{top}.up_blocks.{k}"
        for j in range(layers + 1):
            parts.within(f"{block}.resnets.{j}")
            y = add_resnet(parts, f"{block}.resnets.{j}", y, before, wide)
            before = wide
        if k < len(widths) - 1:
            parts.stream = levels[k + 1]
            parts.within(f"{block}.upsamplers.0")
            y = parts.elementwise(f"{block}.upsamplers.0.interpolate", "copy", (y,), wide)
            y = add_convolution(parts, f"{block}.upsamplers.0.conv", (y,), wide, wide)
    parts.within(f"{top}.conv_out")
    return Made(_out(parts, top, y, widths[0], config.count("out_channels", 3)), rows)


def _encode(parts: Parts, top: str, config: Configuration, widths: list[int], layers: int, channels: int) -> None:
    y = add_convolution(parts, f"{top}.conv_in", (), config.count("in_channels", 3), widths[0])
    before = widths[0]
    for k, wide in enumerate(widths):
        for j in range(layers):
            y = add_resnet(parts, f"{top}.down_blocks.{k}.resnets.{j}", y, before, wide)
            before = wide
        if k < len(widths) - 1:
            y = add_convolution(parts, f"{top}.down_blocks.{k}.downsamplers.0.conv", (y,), wide, wide)
    y = _middle(parts, f"{top}.mid_block", y, before, config.flag("mid_block_add_attention", True), within=False)
    _out(parts, top, y, before, 2 * channels)


def _out(parts: Parts, top: str, y: str, channels: int, width: int) -> str:
    y = parts.norm(f"{top}.conv_norm_out", (y,), channels, weights=2 * channels)
    y = parts.elementwise(f"{top}.conv_act", "activation", (y,), channels)
    return add_convolution(parts, f"{top}.conv_out", (y,), channels, width)


def _middle(parts: Parts, path: str, y: str, width: int, attends: bool, within: bool = True) -> str:
    """Add two residual blocks and an attention of one head between them."""
    for j in range(2):
        if within:
            parts.within(f"{path}.resnets.{j}")
        y = add_resnet(parts, f"{path}.resnets.{j}", y, width, width)
        if j == 0 and attends:
            if within:
                parts.within(f"{path}.attentions.0")
            y = _attention(parts, f"{path}.attentions.0", y, width)
    return y


def _attention(parts: Parts, path: str, x: str, width: int) -> str:
    a = parts.norm(f"{path}.group_norm", (x,), width, weights=2 * width)
    q, k, v = (parts.linear(f"{path}.{n}", (a,), width, width, bias=True) for n in ("to_q", "to_k", "to_v"))
    y = add_attention(parts, path, (q, k, v), width, 1)
    return parts.linear(f"{path}.to_out.0", (y, x), width, width, bias=True)
