"""A decoder of a language model with exact shapes: ten operators a layer, and another ten backwards for training."""

from __future__ import annotations

from dataclasses import dataclass

import placewright as pw

__all__ = ["SHAPES", "Shape", "model_of"]

BYTES = 2
"""Of a value: weights and activations are bf16."""

STATE_BYTES = 14
"""Held for each weight in training besides its two bytes: gradient (2), master copy and Adam's two moments (fp32)."""


@dataclass(frozen=True)
class Shape:
    """What a configuration of transformers' ``LlamaConfig`` says."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int = 128_256


SHAPES = {
    "8b": Shape(32, 4096, 32, 8, 14_336),
    "70b": Shape(80, 8192, 64, 8, 28_672),
    "100-layers": Shape(100, 8192, 64, 8, 28_672),
    "405b": Shape(126, 16_384, 128, 8, 53_248),
}
"""Llama 3.1 by its published configurations, and its 70 B model with 100 layers."""


@dataclass
class _Graph:
    """Operators and tensors as they are added; every operator has a backward one in training, added at the end."""

    tokens: int
    training: bool

    def __post_init__(self) -> None:
        self.operators: list[pw.Operator] = []
        self.made: list[tuple[int, int]] = []  # producer and bytes of each tensor
        self.readers: list[list[int]] = []

    def add(self, name: str, kind: str, flops: int, weights: int, reads: list[int], makes: int) -> int:
        """Add an operator that makes one tensor of ``makes`` values; its index, which is also that of the tensor."""
        v = len(self.operators)
        for u in reads:
            self.readers[u].append(v)
        traffic = BYTES * (weights + makes) + sum(self.made[u][1] for u in reads)
        self.operators.append(pw.Operator(name, kind, flops, traffic, BYTES * weights, dtype="bf16"))
        self.made.append((v, BYTES * makes))
        self.readers.append([])
        return v

    def graph(self, name: str) -> pw.OperatorGraph:
        """With each operator's backward one: it reads what the forward one read, and the gradients of what it made."""
        n = len(self.operators)
        tensors = [
            pw.Tensor(f"{self.operators[v].name}.out", v, tuple(self.readers[v]), size, output=v == n - 1)
            for v, size in self.made
        ]
        if not self.training:
            return pw.OperatorGraph(self.operators, tensors, name=name)
        operators = list(self.operators)
        reads: list[list[int]] = [[] for _ in range(n)]
        for u in range(n):
            for v in self.readers[u]:
                reads[v].append(u)
        back = {v: 2 * n - 1 - v for v in range(n)}
        for v in range(n - 1, -1, -1):
            forward = self.operators[v]
            state = forward.weight_bytes // BYTES * STATE_BYTES
            operators.append(
                pw.Operator(
                    f"{forward.name}.backward", forward.kind, 2 * forward.flops, 2 * forward.traffic_bytes,
                    kv_cache_bytes=state, dtype="bf16", backward=True,
                )
            )  # fmt: skip
        # What the forward operators made is read by the backward operators of its readers too.
        tensors = [
            pw.Tensor(t.name, t.producer, (*t.readers, *sorted(back[v] for v in t.readers)), t.size_bytes)
            for t in tensors
        ]
        # Of each tensor a reader's backward operator makes the gradient, and the producer's reads it.
        tensors += [
            pw.Tensor(f"{self.operators[v].name}.gradient.{u}", back[v], (back[u],), self.made[u][1])
            for v in range(n)
            for u in reads[v]
        ]
        classes = [(v, back[v]) for v in range(n)]
        return pw.OperatorGraph(operators, tensors, colocation=classes, name=name)


def model_of(shape: Shape, tokens: int = 4096, *, training: bool = False, name: str = "") -> pw.OperatorGraph:
    """One sequence of ``tokens`` through the model (causal: half of the products of attention)."""
    g, h, t = _Graph(tokens, training), shape.hidden, tokens
    kv = h // shape.heads * shape.kv_heads

    def linear(name: str, source: int, width: int, to: int, *more: int) -> int:
        return g.add(name, "linear", 2 * t * width * to, width * to, [source, *more], t * to)

    x = g.add("embed", "embedding", 0, shape.vocabulary * h, [], t * h)
    for k in range(shape.layers):
        layer = f"layers.{k}."
        a = g.add(layer + "norm_1", "norm", 4 * t * h, h, [x], t * h)
        q, key, value = (linear(layer + which, a, h, to) for which, to in (("q", h), ("k", kv), ("v", kv)))
        o = g.add(layer + "attention", "attention", 2 * t * t * h, 0, [q, key, value], t * h)
        x = linear(layer + "o_add", o, h, h, x)
        a = g.add(layer + "norm_2", "norm", 4 * t * h, h, [x], t * h)
        gate, up = (linear(layer + which, a, h, shape.feed_forward) for which in ("gate", "up"))
        x = linear(layer + "down_add", gate, shape.feed_forward, h, up, x)
    linear("head", g.add("norm", "norm", 4 * t * h, h, [x], t * h), h, shape.vocabulary)
    return g.graph(name or f"decoder-{shape.layers}-layers{'-training' if training else ''}")
