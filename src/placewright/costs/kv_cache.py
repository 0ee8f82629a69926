"""Bytes of each attention layer's key-value cache, by its shapes: grouped queries, sliding windows, latent (MLA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from placewright.errors import InvalidInput

__all__ = ["LayerCache", "layer_caches"]

_OTHER_NAMES = {
    "num_hidden_layers": ("n_layer", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "hidden_size": ("n_embd", "d_model"),
}
"""Of older families: GPT-2, BLOOM, GPT-J, MPT."""


class LayerCache(NamedTuple):
    """What one layer keeps of each token.

    Attributes
    ----------
    numbers : int
        Per token: 2 x heads of keys and values x width, or the latent vector and the rotary key of MLA.
    window : int or None
        Tokens that are kept at most.
    """

    numbers: int
    window: int | None = None

    def size_bytes(self, batch: int, context: int, bits: float = 16.0) -> int:
        """Bytes for so many sequences of so many tokens, each number in so many bits; rounded up.

        Examples
        --------
        A layer of Mistral 7B, 8 heads of 128, 4,096 tokens at most, in 16 bits: 16 MiB from there on.

        >>> LayerCache(2 * 8 * 128, window=4096).size_bytes(1, 32768) / 2**20
        16.0
        """
        kept = context if self.window is None else min(context, self.window)
        return -int(-self.numbers * batch * kept * bits // 8)


def layer_caches(config: Mapping[str, Any]) -> tuple[LayerCache, ...]:
    """Read the layers of a decoder from its Hugging Face configuration.

    MLA where there is a ``kv_lora_rank``; one head of keys and values with ``multi_query`` (but not in Falcon's newer
    architecture, whose keys and values transformers keeps for every head); a window for the layers that ``layer_types``
    calls ``sliding_attention``, or for all where there is no such list and ``use_sliding_window`` is not false.

    Raises
    ------
    InvalidInput
        If a number is missing or below 1, or a layer is of another type than full or sliding attention.
    """

    def number(name: str, default: Any = None) -> int:
        spelt = (name, *_OTHER_NAMES.get(name, ()))
        value = next((config[n] for n in spelt if config.get(n) is not None), default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise InvalidInput(
                f"{name} {value!r} is not a whole number from 1 to 2^31; correct it", what="configuration"
            )
        return value

    layers = number("num_hidden_layers")
    if layers > 10_000:
        raise InvalidInput(f"has {layers} layers, more than the 10000 that are read", what="configuration")
    if config.get("kv_lora_rank") is not None:
        return (LayerCache(number("kv_lora_rank") + number("qk_rope_head_dim")),) * layers
    heads = number("num_attention_heads")
    width = number("head_dim", number("hidden_size") // heads if config.get("head_dim") is None else None)
    alone = config.get("multi_query") is True and not config.get("new_decoder_architecture")
    numbers = 2 * (1 if alone else number("num_key_value_heads", heads)) * width
    slides = config.get("sliding_window") is not None and config.get("use_sliding_window") is not False
    types = config.get("layer_types") or ["sliding_attention" if slides else "full_attention"] * layers
    if not isinstance(types, list | tuple):
        raise InvalidInput(f"layer_types {types!r} is no list of a word for each layer", what="configuration")
    unknown = [t for t in types if t not in ("sliding_attention", "full_attention")]
    if unknown or len(types) != layers:
        raise InvalidInput(
            f"layer_types has {len(types)} entries for {layers} layers, and {unknown[:3]} are not known; "
            "use full_attention and sliding_attention",
            what="configuration",
        )
    return tuple(LayerCache(numbers, number("sliding_window") if t == "sliding_attention" else None) for t in types)
