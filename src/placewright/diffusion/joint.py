"""Transformers of which text and picture attend to each other: Stable Diffusion 3 and Flux."""

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
from placewright.errors import InvalidInput
from placewright.language.configuration import Configuration
from placewright.language.part import Parts

__all__ = ["add_flux", "add_stable_diffusion_3"]


def add_stable_diffusion_3(parts: Parts, root: str, config: Configuration, text: Text, latent: tuple[int, int]) -> Made:
    """Add the transformer of Stable Diffusion 3 and 3.5 (Esser et al. 2024, arXiv 2403.03206), its scheduler last.

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
        If a number is missing, or queries are normalised in a way that is not known.
    """
    heads, each = config.count("num_attention_heads", 18), config.count("attention_head_dim", 64)
    patch, latents = config.count("patch_size", 2), config.count("in_channels", 16)
    layers, dual = config.layers("num_layers", 18), config.value("dual_attention_layers") or ()
    normed = config.value("qk_norm")
    if normed not in (None, "rms_norm"):
        raise InvalidInput(f"qk_norm {normed!r} is not known; rms_norm is", what=config.what)
    net = _Joint(parts, root, text, latent, patch, heads, each, bool(normed))
    width, pooled = heads * each, config.count("pooled_projection_dim", 2048)
    net.embed_time(pooled, guided=False)
    context = config.count("caption_projection_dim", 1152)
    c = net.embed_text(config.count("joint_attention_dim", 4096), context)
    parts.stream = net.image
    parts.within(f"{root}.pos_embed")
    x = add_convolution(parts, f"{root}.pos_embed.proj", (), latents, width, patch * patch)
    for k in range(layers):
        last, twice = k == layers - 1, k in dual
        x, c = net.block(f"{root}.transformer_blocks.{k}", x, c, ends=last, twice=twice)
    made = config.count("out_channels", 16)
    return net.out(x, patch, made)


def add_flux(parts: Parts, root: str, config: Configuration, text: Text, latent: tuple[int, int]) -> Made:
    """Add the transformer of Flux (Black Forest Labs 2024; ``FluxTransformer2DModel``), its scheduler last.

    Parameters, raises: as of :func:`add_stable_diffusion_3`. Its latents come as rows of 2 x 2 positions.
    """
    heads, each = config.count("num_attention_heads", 24), config.count("attention_head_dim", 128)
    net = _Joint(parts, root, text, latent, 2, heads, each, normed=True)
    width, latents = heads * each, config.count("in_channels", 64)
    net.embed_time(config.count("pooled_projection_dim", 768), guided=config.flag("guidance_embeds"))
    c = net.embed_text(config.count("joint_attention_dim", 4096), width)
    parts.stream = net.image
    parts.within(f"{root}.x_embedder")
    x = parts.linear(f"{root}.x_embedder", (), latents, width, bias=True)
    for k in range(config.layers("num_layers", 19)):
        x, c = net.block(f"{root}.transformer_blocks.{k}", x, c)
    for k in range(config.layers("num_single_layers", 38)):
        x, c = net.single(f"{root}.single_transformer_blocks.{k}", x, c)
    return net.out(x, 1, latents if config.value("out_channels") is None else config.count("out_channels"))


class _Joint:
    """Blocks of such a transformer; rows of the picture, of the text, and of both."""

    def __init__(
        self,
        parts: Parts,
        root: str,
        text: Text,
        latent: tuple[int, int],
        patch: int,
        heads: int,
        each: int,
        normed: bool,
    ) -> None:
        self.parts, self.root, self.given, self.heads, self.each, self.normed = parts, root, text, heads, each, normed
        self.width, self.temb, self.time = heads * each, "", time_stream(root)
        self.image, self.text, self.both = f"{root}.image", f"{root}.text", f"{root}.both"
        tokens = (latent[0] // patch) * (latent[1] // patch)
        self.rows = {self.time: 1, self.image: tokens, self.text: text.rows, self.both: tokens + text.rows}

    def embed_time(self, pooled: int, *, guided: bool) -> None:
        """Add the embeddings of time, of pooled text, and of the guidance's strength where the network is told it."""
        parts, path = self.parts, f"{self.root}.time_text_embed"
        parts.stream = self.time
        parts.within(path)
        reads = [add_embedder(parts, f"{path}.timestep_embedder", (), TIMES, self.width)]
        if guided:
            reads.append(add_embedder(parts, f"{path}.guidance_embedder", (), TIMES, self.width))
        reads.append(add_embedder(parts, f"{path}.text_embedder", self.given.pooled, pooled, self.width))
        self.temb = parts.elementwise(f"{path}.add", "add", reads, self.width)

    def embed_text(self, inner: int, width: int) -> str:
        """Add the product that the states of the text go through at first."""
        self.parts.within(f"{self.root}.context_embedder")
        self.parts.stream = self.text
        return self.parts.linear(f"{self.root}.context_embedder", self.given.states, inner, width, bias=True)

    def block(self, path: str, x: str, c: str, *, ends: bool = False, twice: bool = False) -> tuple[str, str]:
        """Add a block with own weights for picture and text; one that ends has none for the text after attention.

        Returns
        -------
        str, str
            What the picture and the text leave it with; the text's is empty where it ends.
        """
        parts, width = self.parts, self.width
        parts.within(path, f"{path}.attn")
        a, shifts = self._shifted(f"{path}.norm1", x, self.image, 9 if twice else 6)
        b, text_shifts = self._shifted(f"{path}.norm1_context", c, self.text, 2 if ends else 6)
        image = [self._product(f"{path}.attn.{n}", a, self.image) for n in ("to_q", "to_k", "to_v")]
        text = [self._product(f"{path}.attn.{n}", b, self.text) for n in ("add_q_proj", "add_k_proj", "add_v_proj")]
        if self.normed:
            image[:2] = self._norms(f"{path}.attn", ("norm_q", "norm_k"), image[:2], self.image)
            text[:2] = self._norms(f"{path}.attn", ("norm_added_q", "norm_added_k"), text[:2], self.text)
        y = self._attention(f"{path}.attn", (*image, *text), self.both)
        parts.stream = self.image
        before, x = x, parts.linear(f"{path}.attn.to_out.0", (y, x, shifts), width, width, bias=True)
        if twice:
            parts.within(path, f"{path}.attn2")
            a = parts.norm(f"{path}.norm1.norm2", (before, shifts), width, weights=0)
            own = [self._product(f"{path}.attn2.{n}", a, self.image) for n in ("to_q", "to_k", "to_v")]
            if self.normed:
                own[:2] = self._norms(f"{path}.attn2", ("norm_q", "norm_k"), own[:2], self.image)
            y2 = self._attention(f"{path}.attn2", tuple(own), self.image)
            parts.stream = self.image
            x = parts.linear(f"{path}.attn2.to_out.0", (y2, x, shifts), width, width, bias=True)
        parts.within(path, f"{path}.ff")
        a = parts.norm(f"{path}.norm2", (x, shifts), width, weights=0)
        x = add_feed_forward(parts, f"{path}.ff", a, (x, shifts), width)
        if ends:
            return x, ""
        parts.within(path, f"{path}.ff_context")
        parts.stream = self.text
        c = parts.linear(f"{path}.attn.to_add_out", (y, c, text_shifts), width, width, bias=True)
        b = parts.norm(f"{path}.norm2_context", (c, text_shifts), width, weights=0)
        return x, add_feed_forward(parts, f"{path}.ff_context", b, (c, text_shifts), width)

    def single(self, path: str, x: str, c: str) -> tuple[str, str]:
        """Add a block with the same weights for picture and text; attention and feed-forward part side by side.

        What it makes is of both, so one part stands for both.
        """
        parts, width = self.parts, self.width
        parts.within(path)
        parts.stream = self.both
        if x != c:
            x = parts.elementwise(f"{path}.cat", "copy", (c, x), width)
        a, shifts = self._shifted(f"{path}.norm", x, self.both, 3)
        wide = parts.linear(f"{path}.proj_mlp", (a,), width, 4 * width, bias=True)
        wide = parts.elementwise(f"{path}.act_mlp", "activation", (wide,), 4 * width)
        own = [self._product(f"{path}.attn.{n}", a, self.both) for n in ("to_q", "to_k", "to_v")]
        own[:2] = self._norms(f"{path}.attn", ("norm_q", "norm_k"), own[:2], self.both)
        y = self._attention(f"{path}.attn", tuple(own), self.both)
        parts.stream = self.both
        y = parts.elementwise(f"{path}.cat_1", "copy", (y, wide), 5 * width)
        x = parts.linear(f"{path}.proj_out", (y, x, shifts), 5 * width, width, bias=True)
        return x, x

    def out(self, x: str, patch: int, channels: int) -> Made:
        """Add the last norm and product."""
        parts, root, width = self.parts, self.root, self.width
        parts.within(f"{root}.proj_out")
        a, _ = self._shifted(f"{root}.norm_out", x, self.image, 2)
        made = patch * patch * channels
        x = parts.linear(f"{root}.proj_out", (a,), width, made, bias=True)
        self.rows[f"{root}.latent"] = self.rows[self.image]
        return Made(add_scheduler(parts, x, f"{root}.latent", made), self.rows)

    def _shifted(self, path: str, x: str, stream: str, times: int) -> tuple[str, str]:
        """Add a norm without weights, shifted and scaled by what a product makes of the time; both parts."""
        parts = self.parts
        parts.stream = self.time
        shifts = parts.linear(f"{path}.linear", (self.temb,), self.width, times * self.width, bias=True)
        parts.stream = stream
        return parts.norm(f"{path}.norm", (x, shifts), self.width, weights=0), shifts

    def _product(self, name: str, x: str, stream: str) -> str:
        self.parts.stream = stream
        return self.parts.linear(name, (x,), self.width, self.width, bias=True)

    def _norms(self, path: str, names: tuple[str, str], made: list[str], stream: str) -> list[str]:
        """Add norms of each head of queries and keys, which share their weights."""
        self.parts.stream = stream
        return [
            self.parts.norm(f"{path}.{n}", (x,), self.width, weights=self.each)
            for n, x in zip(names, made, strict=True)
        ]

    def _attention(self, path: str, reads: tuple[str, ...], stream: str) -> str:
        self.parts.stream = stream
        return add_attention(self.parts, path, reads, self.width, self.heads)
