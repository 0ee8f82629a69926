"""Encoder-decoder models: T5, Whisper, BART. The decoder keeps keys and values of what the encoder made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from placewright.language.attend import Attention, add_attention, add_pair
from placewright.language.configuration import Configuration
from placewright.language.part import Part, Parts, Stream

__all__ = ["ENCODER_DECODERS", "add_bart", "add_t5", "add_whisper"]

T5_BUCKETS = 32


def add_t5(parts: Parts, config: Configuration) -> dict[Stream, int]:
    """Add T5 (Raffel et al. 2020, arXiv 1910.10683); rows of its streams, of which none is fixed."""
    hidden, width, heads = config.count("d_model"), config.count("d_kv"), config.count("num_heads")
    wide, layers = config.count("d_ff"), config.layers("num_layers")
    buckets = config.count("relative_attention_num_buckets", T5_BUCKETS)
    gated = str(config.value("feed_forward_proj") or "relu").startswith("gated")
    ups = ("wi_0", "wi_1") if gated else ("wi",)
    parts.within("shared")
    parts.stream = "source"
    x = _table(parts, "shared", config.count("vocab_size"), hidden)
    for stack, depth in (("encoder", layers), ("decoder", config.layers("num_decoder_layers", layers))):
        if stack == "decoder":
            source, parts.stream = x, "text"
            parts.within("decoder.embed_tokens")
            x = _table(parts, "decoder.embed_tokens", 0, hidden, tied="shared")
        for k in range(depth):
            block = f"{stack}.block.{k}"
            kinds = ("SelfAttention", "EncDecAttention") if stack == "decoder" else ("SelfAttention",)
            for at, kind in enumerate(kinds):
                inside = f"{block}.layer.{at}"
                parts.within(block, inside)
                a = parts.norm(f"{inside}.layer_norm", (x,), hidden)
                shape = Attention(
                    *(hidden, heads, width, ("q", "k", "v"), "o", (False,) * 4),
                    weights=buckets * heads if k == at == 0 else 0,
                )
                causal = stack == "decoder" and at == 0
                x = add_attention(
                    *(parts, f"{inside}.{kind}", shape, a, (x,)),
                    keys="causal" if causal else "all",
                    cached=stack == "decoder",
                    source=source if at else "",
                )
            inside = f"{block}.layer.{len(kinds)}"
            parts.within(block, inside)
            a = parts.norm(f"{inside}.layer_norm", (x,), hidden)
            names = tuple(f"{inside}.DenseReluDense.{n}" for n in (*ups, "wo"))
            x = add_pair(parts, names, a, (x,), hidden, wide, bias=False, act=f"{inside}.DenseReluDense.act")
        parts.within(f"{stack}.final_layer_norm" if stack == "encoder" else "lm_head")
        x = parts.norm(f"{stack}.final_layer_norm", (x,), hidden)
    _head(parts, "lm_head", x, hidden, config, "shared")
    return {}


def add_whisper(parts: Parts, config: Configuration) -> dict[Stream, int]:
    """Add Whisper (Radford et al. 2022, arXiv 2212.04356), which hears 30 s; rows of its streams."""
    hidden, mel, rows = config.count("d_model"), config.count("num_mel_bins"), config.count("max_source_positions")
    parts.within("model.encoder.conv1")
    parts.stream = "patches"
    x = _convolution(parts, "model.encoder.conv1", (), 3 * mel, hidden)
    parts.stream = "source"
    x = _convolution(parts, "model.encoder.conv2", (x,), 3 * hidden, hidden)
    x = _added(parts, "model.encoder.embed_positions", (x,), rows * hidden, hidden)
    source = _bart_stack(parts, config, "encoder", x, "", k_bias=False, before=True)
    x = _texts(parts, config, "model.decoder.embed_tokens", config.count("max_target_positions"), "")
    x = _bart_stack(parts, config, "decoder", x, source, k_bias=False, before=True)
    _head(parts, "proj_out", x, hidden, config, "model.decoder.embed_tokens")
    return {"patches": 2 * rows, "source": rows}


def add_bart(parts: Parts, config: Configuration) -> dict[Stream, int]:
    """Add BART (Lewis et al. 2019, arXiv 1910.13461), whose norms come after what they normalise; rows: none fixed."""
    hidden, places = config.count("d_model"), config.count("max_position_embeddings") + 2
    parts.within("model.shared")
    parts.stream = "source"
    x = _table(parts, "model.shared", config.count("vocab_size"), hidden)
    x = _added(parts, "model.encoder.embed_positions", (x,), places * hidden, hidden)
    x = parts.norm("model.encoder.layernorm_embedding", (x,), hidden, weights=2 * hidden)
    source = _bart_stack(parts, config, "encoder", x, "", k_bias=True, before=False)
    x = _texts(parts, config, "model.decoder.embed_tokens", places, "model.shared")
    x = parts.norm("model.decoder.layernorm_embedding", (x,), hidden, weights=2 * hidden)
    x = _bart_stack(parts, config, "decoder", x, source, k_bias=True, before=False)
    _head(parts, "lm_head", x, hidden, config, "model.shared")
    return {}


def _bart_stack(
    parts: Parts, config: Configuration, stack: str, x: str, source: str, *, k_bias: bool, before: bool
) -> str:
    """Add the layers of an encoder or decoder, with norms before what they normalise or after it."""
    hidden, heads = config.count("d_model"), config.count(f"{stack}_attention_heads")
    shape = Attention(hidden, heads, max(1, hidden // heads), biases=(True, k_bias, True, True))
    wide = config.count(f"{stack}_ffn_dim")

    def normed(name: str, reads: tuple[str, ...]) -> str:
        return parts.norm(name, reads, hidden, weights=2 * hidden)

    for k in range(config.layers(f"{stack}_layers")):
        layer = f"model.{stack}.layers.{k}"
        for kind in ("self_attn", "encoder_attn") if source else ("self_attn",):
            parts.within(layer, f"{layer}.{kind}")
            a = normed(f"{layer}.{kind}_layer_norm", (x,)) if before else x
            y = add_attention(
                *(parts, f"{layer}.{kind}", shape, a, (x,)),
                keys="causal" if stack == "decoder" and kind == "self_attn" else "all",
                cached=stack == "decoder",
                source=source if kind == "encoder_attn" else "",
            )
            x = y if before else normed(f"{layer}.{kind}_layer_norm", (y,))
        parts.within(layer, f"{layer}.fc")
        a = normed(f"{layer}.final_layer_norm", (x,)) if before else x
        y = add_pair(parts, (f"{layer}.fc1", f"{layer}.fc2"), a, (x,), hidden, wide, act=f"{layer}.activation_fn")
        x = y if before else normed(f"{layer}.final_layer_norm", (y,))
    if before:
        parts.within(f"model.{stack}.layer_norm")
        x = normed(f"model.{stack}.layer_norm", (x,))
    return x


def _texts(parts: Parts, config: Configuration, name: str, places: int, tied: str) -> str:
    parts.within(name)
    parts.stream = "text"
    hidden = config.count("d_model")
    x = _table(parts, name, 0 if tied else config.count("vocab_size"), hidden, tied=tied)
    return _added(parts, "model.decoder.embed_positions", (x,), places * hidden, hidden)


def _table(parts: Parts, name: str, rows: int, width: int, tied: str = "") -> str:
    return parts.add(
        Part(
            *(name, "embedding", parts.module, parts.layer, parts.stream),
            parameters=rows * width,
            width=width,
            tied=tied,
            quantised=not tied,
        )
    )


def _added(parts: Parts, name: str, reads: tuple[str, ...], weights: int, width: int) -> str:
    return parts.add(
        Part(*(name, "add", parts.module, parts.layer, parts.stream, reads), parameters=weights, width=width)
    )


def _convolution(parts: Parts, name: str, reads: tuple[str, ...], inner: int, width: int) -> str:
    return parts.add(
        Part(
            *(name, "conv", parts.module, parts.layer, parts.stream, reads),
            parameters=inner * width + width,
            inner=inner,
            width=width,
        )
    )


def _head(parts: Parts, name: str, x: str, hidden: int, config: Configuration, tied: str) -> None:
    if parts.layer != name:
        parts.within(name)
    parts.stream = "last"
    shares = config.flag("tie_word_embeddings", True)
    parts.linear(name, (x,), hidden, config.count("vocab_size"), tied=tied if shares else "")


ENCODER_DECODERS: Mapping[str, Any] = MappingProxyType({"t5": add_t5, "whisper": add_whisper, "bart": add_bart})
"""By ``model_type``."""
