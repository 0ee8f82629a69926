"""Text encoders of diffusion pipelines: CLIP and T5, as transformers builds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from placewright.language.attend import Attention, add_attention, add_pair
from placewright.language.configuration import Configuration
from placewright.language.part import Part, Parts

__all__ = ["TEXT_ENCODERS", "Encoded"]

T5_BUCKETS = 32


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder makes of a prompt.

    Attributes
    ----------
    last, before : str
        Parts that make its states; those before the last layer, which have no norm.
    pooled : str
        The part that makes one row for the whole prompt, or that has it among others.
    width : int
        Of a state.
    rows : int
        Tokens that it reads; 0: as many as the pipeline gives it.
    """

    last: str
    before: str
    pooled: str
    width: int
    rows: int = 0


def add_clip(parts: Parts, root: str, config: Configuration, *, projects: bool) -> Encoded:
    """Add CLIP's text tower (Radford et al. 2021, arXiv 2103.00020), with its projection or without.

    Without it transformers 5 has the tower itself as the model; earlier releases have a module ``text_model`` in it.
    """
    hidden, heads, wide = (config.count(n) for n in ("hidden_size", "num_attention_heads", "intermediate_size"))
    rows = config.count("max_position_embeddings", 77)
    parts.stream = root
    top = f"{root}.text_model" if projects else root
    parts.within(f"{top}.embeddings")
    x = _table(parts, f"{top}.embeddings.token_embedding", config.count("vocab_size", 49408), hidden)
    x = parts.add(
        Part(
            *(f"{top}.embeddings.position_embedding", "add", parts.module, parts.layer, root, (x,)),
            parameters=rows * hidden,
            width=hidden,
        )
    )
    shape, before = Attention(hidden, heads, max(1, hidden // heads)), x
    for k in range(config.layers("num_hidden_layers")):
        layer, before = f"{top}.encoder.layers.{k}", x
        parts.within(layer, f"{layer}.self_attn")
        a = parts.norm(f"{layer}.layer_norm1", (x,), hidden, weights=2 * hidden)
        x = add_attention(parts, f"{layer}.self_attn", shape, a, (x,), keys="all")
        parts.within(layer, f"{layer}.mlp")
        a = parts.norm(f"{layer}.layer_norm2", (x,), hidden, weights=2 * hidden)
        x = add_pair(parts, (f"{layer}.mlp.fc1", f"{layer}.mlp.fc2"), a, (x,), hidden, wide)
    parts.within(f"{top}.final_layer_norm")
    pooled = last = parts.norm(f"{top}.final_layer_norm", (x,), hidden, weights=2 * hidden)
    if projects:
        parts.within(f"{root}.text_projection")
        parts.stream = f"{root}.pooled"
        pooled = parts.linear(f"{root}.text_projection", (last,), hidden, config.count("projection_dim"))
    return Encoded(last, before, pooled, hidden, rows)


def add_t5_encoder(parts: Parts, root: str, config: Configuration) -> Encoded:
    """Add the encoder of T5 (Raffel et al. 2020, arXiv 1910.10683)."""
    hidden, width, heads = config.count("d_model"), config.count("d_kv"), config.count("num_heads")
    wide, buckets = config.count("d_ff"), config.count("relative_attention_num_buckets", T5_BUCKETS)
    gated = str(config.value("feed_forward_proj") or "relu").startswith("gated")
    parts.stream = root
    parts.within(f"{root}.shared")
    before = x = _table(parts, f"{root}.shared", config.count("vocab_size"), hidden)
    for k in range(config.layers("num_layers")):
        block, before = f"{root}.encoder.block.{k}", x
        parts.within(block, f"{block}.layer.0")
        a = parts.norm(f"{block}.layer.0.layer_norm", (x,), hidden)
        shape = Attention(
            *(hidden, heads, width, ("q", "k", "v"), "o", (False,) * 4), weights=buckets * heads if k == 0 else 0
        )
        x = add_attention(parts, f"{block}.layer.0.SelfAttention", shape, a, (x,))
        parts.within(block, f"{block}.layer.1")
        a = parts.norm(f"{block}.layer.1.layer_norm", (x,), hidden)
        dense = f"{block}.layer.1.DenseReluDense"
        names = tuple(f"{dense}.{n}" for n in (*(("wi_0", "wi_1") if gated else ("wi",)), "wo"))
        x = add_pair(parts, names, a, (x,), hidden, wide, bias=False, act=f"{dense}.act")
    parts.within(f"{root}.encoder.final_layer_norm")
    last = parts.norm(f"{root}.encoder.final_layer_norm", (x,), hidden)
    return Encoded(last, before, last, hidden)


def _table(parts: Parts, name: str, rows: int, width: int) -> str:
    return parts.add(
        Part(
            *(name, "embedding", parts.module, parts.layer, parts.stream),
            parameters=rows * width,
            width=width,
            quantised=True,
        )
    )


TEXT_ENCODERS: Mapping[str, Callable[[Parts, str, Configuration], Encoded]] = MappingProxyType(
    {
        "CLIPTextModel": lambda parts, root, config: add_clip(parts, root, config, projects=False),
        "CLIPTextModelWithProjection": lambda parts, root, config: add_clip(parts, root, config, projects=True),
        "T5EncoderModel": add_t5_encoder,
    }
)
"""By the class in transformers."""
