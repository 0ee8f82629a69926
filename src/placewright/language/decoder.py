"""The parts of a decoder that generates text, family by family: embedding, layers, head."""

from __future__ import annotations

from dataclasses import replace

from placewright.costs import LayerCache, layer_caches
from placewright.errors import InvalidInput
from placewright.language.configuration import Configuration
from placewright.language.families import Experts, Family
from placewright.language.part import Part, Parts, Share

__all__ = ["add_decoder", "attention_named"]

MOST_EXPERTS = 4096
MOST_PARTS = 1_000_000


def attention_named(module: str) -> str:
    """Name of the product of queries and keys in a module, as it is captured too."""
    return f"{module}.scaled_dot_product_attention"


def add_decoder(parts: Parts, config: Configuration, family: Family, root: str, reads: tuple[str, ...] = ()) -> None:
    """Add a decoder with its head.

    Parameters
    ----------
    parts : Parts
    config : Configuration
        Of the text.
    family : Family
    root : str
        Path of the module that holds the layers; the head stands beside it.
    reads : tuple of str
        What the first layer reads besides the embedded tokens: what a vision tower made.

    Raises
    ------
    InvalidInput
        If a number is missing or out of range, or an option is set that isn't known.
    """
    for option, value in family.only.items():
        if config.value(option) not in (None, value):
            raise InvalidInput(f"{option} {config.value(option)!r} is not known; only {value} is", what=config.what)
    model = _Decoder(parts, config, family)
    hidden, vocabulary = model.hidden, config.count("vocab_size")
    parts.within(f"{root}.{family.embed}")
    x = parts.add(
        Part(
            *(parts.layer, "embedding", parts.module, parts.layer),
            parameters=vocabulary * hidden,
            width=hidden,
            quantised=True,
        )
    )
    if family.positions:
        known = config.count("max_position_embeddings")
        name = f"{root}.{family.positions}"
        x = parts.add(
            Part(name, "embedding", parts.module, parts.layer, reads=(x,), parameters=known * hidden, width=hidden)
        )
    if reads:
        x = parts.elementwise(f"{root}.merge", "copy", (x, *reads), hidden)
    for k, cache in enumerate(model.caches):
        x = model.layer(f"{root}.{family.layers}.{k}", k, cache, x)
    parts.within("lm_head")
    x = parts.norm(f"{root}.{family.final_norm}", (x,), hidden, weights=model.norm_weights(hidden))
    tied = f"{root}.{family.embed}" if config.flag("tie_word_embeddings", family.tied) else ""
    parts.stream = "last"
    parts.linear("lm_head", (x,), hidden, vocabulary, bias=family.head_bias, tied=tied)


class _Decoder:
    """Layers of one decoder."""

    def __init__(self, parts: Parts, config: Configuration, family: Family) -> None:
        self.parts, self.config, self.family = parts, config, family
        self.hidden = config.count("hidden_size")
        self.heads = config.count("num_attention_heads")
        self.mla = config.value("kv_lora_rank") is not None
        self.caches = layer_caches(self._cached())
        self.key_heads = self.heads if self.mla else config.count("num_key_value_heads", self.heads)
        self.head_width = config.count("head_dim", max(1, self.hidden // self.heads))
        self.parallel = config.has(family.parallel)
        self.experts = family.experts
        self.experts_from = config.count("first_k_dense_replace", 0, least=0)
        self.experts_every = config.count("decoder_sparse_step", 1)
        self.dense_only = config.value("mlp_only_layers") or []
        if not isinstance(self.dense_only, list):
            raise InvalidInput(
                f"mlp_only_layers {self.dense_only!r} is no list of numbers of layers; correct it", what=config.what
            )
        if self.experts is not None and config.value(self.experts.count) is None:
            self.experts = None

    def _cached(self) -> dict[str, object]:
        """Gather what the caches of its layers depend on."""
        config, family = self.config, self.family
        names = ("num_hidden_layers", "num_attention_heads", "hidden_size", "num_key_value_heads", "head_dim")
        found = {name: config.value(name) for name in (*names, "kv_lora_rank", "qk_rope_head_dim")}
        found["num_hidden_layers"] = layers = config.layers("num_hidden_layers")
        types, window = config.value("layer_types"), config.value("sliding_window")
        if config.flag("use_sliding_window", True) and window is not None:
            found["sliding_window"] = window
            every = config.count("full_every", family.full_every, least=0)
            if types is None and every:
                types = [("full" if (k + 1) % every == 0 else "sliding") + "_attention" for k in range(layers)]
            found["layer_types"] = types
        return found

    def norm_weights(self, width: int) -> int:
        return 0 if self.family.norms == ("", "", "", "") else width * (2 if self.family.layer_norm else 1)

    def _norm(self, name: str, reads: tuple[str, ...], width: int) -> str:
        return self.parts.norm(name, reads, width, weights=self.norm_weights(width))

    def layer(self, path: str, k: int, cache: LayerCache, x: str) -> str:
        """Add a layer; the name of what it makes."""
        family, parts = self.family, self.parts
        before, after, before_more, after_more = (f"{path}.{n}" if n else "" for n in family.norms)
        attention, more = f"{path}.{family.attention}", f"{path}.{family.feed_forward}"
        parts.within(path, attention)
        a = self._norm(before, (x,), self.hidden) if before else x
        skips: tuple[str, ...] = () if self.parallel else (x,)
        y = self._attention(attention, cache, a, () if after else skips)
        if after:
            y = self._norm(after, (y, *skips), self.hidden)
        parts.within(path, more)
        skips = (y, x) if self.parallel else (y,)
        is_sparse = self._is_sparse(k)
        if is_sparse:
            assert self.experts is not None
            parts.within(path, f"{more}.{self.experts.router}")
        source = x if self.parallel else y
        b = self._norm(before_more, (source,), self.hidden) if before_more else a if self.parallel else source
        if is_sparse:
            assert self.experts is not None
            z = self._sparse(path, more, self.experts, b, () if after_more else skips)
        else:
            width = self.config.count("intermediate_size", 4 * self.hidden if family.positions else None)
            z = self._dense(more, b, width, () if after_more else skips)
        return self._norm(after_more, (z, *skips), self.hidden) if after_more else z

    def _is_sparse(self, k: int) -> bool:
        return (
            self.experts is not None
            and k >= self.experts_from
            and k not in self.dense_only
            and (k + 1) % self.experts_every == 0
        )

    def _attention(self, path: str, cache: LayerCache, x: str, skips: tuple[str, ...]) -> str:
        config, family, parts = self.config, self.family, self.parts
        if self.mla:
            return self._latent(path, cache, x, skips)
        bias, heads, width = config.has(family.query_bias), self.heads, self.head_width
        widths: tuple[int, ...] = (heads * width, self.key_heads * width, self.key_heads * width)
        if len(family.queries) == 1:
            widths = (sum(widths),)
        made = [
            parts.linear(f"{path}.{name}", (x,), self.hidden, to, bias=bias)
            for name, to in zip(family.queries, widths, strict=True)
        ]
        if family.query_norm and (not family.query_norm_if or config.flag(family.query_norm_if)):
            for k, name in enumerate(("q_norm", "k_norm")):
                weights = width if family.query_norm == "head" else widths[k]
                made[k] = parts.norm(f"{path}.{name}", (made[k],), widths[k], weights=weights)
        pairs = 2 * heads * width
        y = self._scores(path, made, cache, pairs, pairs, heads * width)
        return parts.linear(
            f"{path}.{family.output}", (y, *skips), heads * width, self.hidden, bias=config.has(family.output_bias)
        )

    def _scores(self, path: str, reads: list[str], cache: LayerCache, pairs: int, latent: int, width: int) -> str:
        parts = self.parts
        return parts.add(
            Part(
                *(attention_named(path), "attention", parts.module, parts.layer, parts.stream, tuple(reads)),
                parameters=self.heads if self.family.sinks else 0,
                width=width,
                pairs=pairs,
                latent_pairs=latent,
                heads=self.heads,
                cache=cache,
            )
        )

    def _latent(self, path: str, cache: LayerCache, x: str, skips: tuple[str, ...]) -> str:
        """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

        One new token is compared with the latent vectors themselves, the up-projection of keys and values being taken
        into query and result; the products that ``kv_b_proj`` costs are the same either way.
        """
        config, parts, hidden, heads = self.config, self.parts, self.hidden, self.heads
        latent, rotary = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
        plain, values = config.count("qk_nope_head_dim"), config.count("v_head_dim")
        bias = config.flag("attention_bias")
        if config.value("q_lora_rank") is None:
            q = parts.linear(f"{path}.q_proj", (x,), hidden, heads * (plain + rotary))
        else:
            rank = config.count("q_lora_rank")
            q = parts.linear(f"{path}.q_a_proj", (x,), hidden, rank, bias=bias)
            q = parts.norm(f"{path}.q_a_layernorm", (q,), rank)
            q = parts.linear(f"{path}.q_b_proj", (q,), rank, heads * (plain + rotary))
        both = parts.linear(f"{path}.kv_a_proj_with_mqa", (x,), hidden, latent + rotary, bias=bias)
        kv = parts.norm(f"{path}.kv_a_layernorm", (both,), latent)
        kv = parts.linear(f"{path}.kv_b_proj", (kv,), latent, heads * (plain + values))
        pairs, absorbed = heads * (plain + rotary + values), heads * (2 * latent + rotary)
        y = self._scores(path, [q, both, kv], cache, pairs, absorbed, heads * values)
        return parts.linear(f"{path}.o_proj", (y, *skips), heads * values, hidden, bias=bias)

    def _dense(self, path: str, x: str, width: int, skips: tuple[str, ...], bias: bool | None = None) -> str:
        """Add a feed-forward part: up, with a gate or without, and down."""
        family, parts, hidden = self.family, self.parts, self.hidden
        bias = self.config.has(family.product_bias) if bias is None else bias
        *ups, down = family.products
        to = 2 * width if family.gated and len(ups) == 1 else width
        made = [parts.linear(f"{path}.{name}", (x,), hidden, to, bias=bias) for name in ups]
        act = parts.elementwise(f"{path}.act_fn", "multiply" if family.gated else "activation", made, width)
        return parts.linear(f"{path}.{down}", (act, *skips), width, hidden, bias=bias)

    def _sparse(self, layer: str, path: str, experts: Experts, x: str, skips: tuple[str, ...]) -> str:
        """Add router, experts, what all tokens take, and their sum."""
        config, parts, hidden = self.config, self.parts, self.hidden
        count, width = config.count(experts.count), config.count(experts.width)
        taken = config.count("num_experts_per_tok")
        if count > MOST_EXPERTS or count * len(self.caches) > MOST_PARTS:
            raise InvalidInput(
                f"{experts.count} {count} is more than the {MOST_EXPERTS} experts that are read", what=config.what
            )
        if taken > count:
            raise InvalidInput(f"num_experts_per_tok {taken} is more than {experts.count} {count}", what=config.what)
        router = parts.linear(f"{path}.{experts.router}", (x,), hidden, count, bias=experts.biases)
        parts.parts[-1] = replace(parts.parts[-1], quantised=False)
        parts.within(layer, f"{path}.experts")
        share = Share(count, taken)
        biases = 2 * width + hidden if experts.biases else 0
        made = [
            parts.add(
                Part(
                    *(f"{path}.experts.{e}", "expert", parts.module, layer, parts.stream, (x, router)),
                    parameters=3 * hidden * width + biases,
                    inner=3 * width,
                    width=hidden,
                    share=share,
                    quantised=True,
                )
            )
            for e in range(count)
        ]
        made = [parts.elementwise(f"{path}.experts.sum", "add", made, hidden)]
        if experts.shared:
            parts.within(layer, f"{path}.{experts.shared}")
            own = experts.shared_width
            wide = config.count(own) if own else width * config.count("n_shared_experts")
            shared = self._dense(f"{path}.{experts.shared}", x, wide, (), bias=False)
            if experts.shared_gate:
                gate = parts.linear(f"{path}.{experts.shared_gate}", (x,), hidden, 1)
                shared = parts.elementwise(f"{path}.{experts.shared}.gated", "multiply", (shared, gate), hidden)
            made.append(shared)
        parts.within(layer, path)
        return parts.elementwise(f"{path}.sum", "add", (*made, *skips), hidden)
