"""One step of a language model, prefill or decode: what each part computes, reads and makes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from placewright.costs.weight_formats import WeightFormat, is_head
from placewright.graph import GrowingCache, Operator, OperatorGraph, Tensor
from placewright.language.model import LanguageModel
from placewright.language.part import Part, Stream

__all__ = ["Formats", "Step", "cache_bytes", "step_graph", "weight_bytes"]

BITS: Mapping[str, int] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8}
"""Of a number, by dtype."""

KINDS: Mapping[str, str] = {"expert": "grouped_mm"}
"""Kinds of parts whose operators are costed as another kind."""

FLOPS: Mapping[str, int] = {"norm": 4, "embedding": 0, "copy": 0}
"""For each number that is made; 1 for other element-wise parts."""


@dataclass(frozen=True, slots=True)
class Formats:
    """How numbers are kept.

    Attributes
    ----------
    dtype : str
        Of the arithmetic, of activations, and of weights that are not quantised.
    weights : WeightFormat or None
        Of the weights that it covers; ``None``: ``dtype``.
    cache_bits : float or None
        Of each number in the key-value cache; ``None``: those of ``dtype``.
    components : mapping of str to WeightFormat
        Of the weights of parts whose names begin with this word, in place of ``weights``.
    """

    dtype: str = "bf16"
    weights: WeightFormat | None = None
    cache_bits: float | None = None
    components: Mapping[str, WeightFormat] = field(default_factory=dict)

    @property
    def bits(self) -> int:
        """Of an activation."""
        return BITS[self.dtype]

    def bits_of(self, part: Part) -> int:
        """Of an activation that a part makes."""
        return BITS[part.dtype or self.dtype]

    def size_bytes(self, part: Part, parameters: int) -> int:
        """Bytes of so many weights of a part; rounded up."""
        format = self.components.get(part.name.partition(".")[0], self.weights)
        covered = format is not None and self._covers(part, format)
        bits = format.bits if format is not None and covered else self.bits_of(part)
        return ceil(parameters * bits / 8)

    def _covers(self, part: Part, format: WeightFormat) -> bool:
        if format.covers == "all":
            return True
        products_only = format.covers == "products" and (part.kind == "embedding" or is_head(part.name))
        return part.quantised and not products_only


@dataclass(frozen=True, slots=True)
class Step:
    """How much goes through a model at once.

    Attributes
    ----------
    batch : int
        Sequences.
    new : mapping of stream to int
        Rows of each stream for each sequence; parts of a stream that has none don't run.
    context : int
        Tokens of each sequence that the cache holds when the step is done.
    source : int
        Rows of the encoder's input that the cache holds.
    samples : mapping of stream to int
        How many there are of each sequence, such as the two of a guided picture; 1 where nothing is said.
    standing : mapping of stream to int
        Rows of what an earlier step made and this one reads again, for each sequence.
    """

    batch: int
    new: Mapping[Stream, int]
    context: int
    source: int = 0
    samples: Mapping[Stream, int] = field(default_factory=dict)
    standing: Mapping[Stream, int] = field(default_factory=dict)

    def sequences(self, stream: Stream) -> int:
        """Sequences in a stream, of which each has rows of its own."""
        return self.batch * self.samples.get(stream, 1)

    def rows(self, stream: Stream) -> int:
        """Rows of all sequences."""
        return self.sequences(stream) * self.new.get(stream, 0)

    def runs(self, part: Part) -> bool:
        """Whether a part has anything to do."""
        return self.new.get(part.stream, 0) > 0

    def active(self, part: Part) -> float:
        """Return the expected part of such steps in which a part runs: 1, or less for an expert."""
        if not self.runs(part):
            return 0.0
        return 1.0 if part.share is None else part.share.active(self.rows(part.stream))

    def kept(self, part: Part) -> int:
        """Rows that the cache of a part holds of each sequence; all that a window lets it."""
        held = self.source if part.cached == "source" else self.context
        window = part.cache.window if part.cache is not None else None
        return held if window is None else min(held, window)

    def pairs(self, part: Part) -> int:
        """Pairs of a query and a key that an attention compares, for each sequence."""
        new = self.new.get(part.stream, 0)
        if part.against:
            return new * self.new.get(part.against, 0)
        if part.keys == "all":
            return new * (self.source if part.cached == "source" else new)
        window = self.context if part.cache is None or part.cache.window is None else part.cache.window
        growing = max(0, min(new, window - (self.context - new)))
        # Token t of the new ones sees past + t tokens until the window is full, then as many as that holds.
        return growing * (self.context - new) + growing * (growing + 1) // 2 + (new - growing) * window

    def flops(self, part: Part) -> int:
        """Floating-point operations of a part that runs."""
        rows = self.rows(part.stream)
        if part.kind == "attention":
            one = self.new.get(part.stream, 0) == 1 and self.context > 1 and part.latent_pairs
            return 2 * self.sequences(part.stream) * self.pairs(part) * (part.latent_pairs if one else part.pairs)
        if part.share is not None:
            return round(2 * part.share.tokens(rows) * part.inner * part.width)
        if part.inner:
            return 2 * rows * part.inner * part.width
        return rows * part.width * FLOPS.get(part.kind, 1)


def weight_bytes(model: LanguageModel, formats: Formats) -> int:
    """Bytes of all weights of a model."""
    return sum(_held(model, p, formats) for p in model.parts)


def _held(model: LanguageModel, part: Part, formats: Formats) -> int:
    known = model.weight_bytes.get(part.name)
    return formats.size_bytes(part, part.parameters) if known is None else known


def cache_bytes(part: Part, held: Step, formats: Formats) -> int:
    """Bytes that a part keeps of what has gone through it."""
    bits = formats.bits if formats.cache_bits is None else formats.cache_bits
    return 0 if part.cache is None else part.cache.size_bytes(held.batch, held.kept(part), bits)


def _growing(part: Part, held: Step, formats: Formats) -> tuple[GrowingCache, ...]:
    """List what a part keeps of the text; what it keeps of an encoder does not follow the context."""
    if part.cache is None or part.cached == "source":
        return ()
    bits = formats.bits if formats.cache_bits is None else formats.cache_bits
    return (GrowingCache(part.cache.numbers * held.batch * bits, held.context, part.cache.window or 0),)


def step_graph(
    model: LanguageModel, step: Step, formats: Formats, *, held: Step | None = None, apart: bool = False
) -> OperatorGraph:
    """Make the operator graph of one step; parts that don't run are operators without work.

    Parameters
    ----------
    model : LanguageModel
    step : Step
    formats : Formats
    held : Step or None
        The sequences and tokens that the cache has room for; ``None``: those of the step.
    apart : bool
        Whether parts that share weights hold a copy each, and may be placed apart.

    Returns
    -------
    OperatorGraph
        One operator a part, in the same order; the work of an expert is that of one that has a token.
    """
    index = {p.name: v for v, p in enumerate(model.parts)}
    weights = {p.name: _held(model, p, formats) for p in model.parts}
    made = [step.rows(p.stream) * p.width * formats.bits_of(p) // 8 for p in model.parts]
    readers: list[list[int]] = [[] for _ in model.parts]
    operators = []
    room = held or step
    for v, part in enumerate(model.parts):
        runs = step.runs(part)
        read = weights[part.tied or part.name]
        own = read if apart else weights[part.name]
        if part.kind == "embedding":
            read = min(read, formats.size_bytes(part, step.rows(part.stream) * part.width))
        traffic, cache, grows = read, 0, _growing(part, room, formats)
        for name in part.reads:
            u = index[name]
            if runs and step.runs(model.parts[u]):
                readers[u].append(v)
                traffic += _part_of(made[u], part, step)
            elif runs:
                traffic += _standing(model.parts[u], step, formats)
        traffic += _part_of(made[v], part, step)
        if part.cache is not None:
            cache = cache_bytes(part, room, formats)
            traffic += cache_bytes(part, step, formats)
        operators.append(
            Operator(
                part.name,
                KINDS.get(part.kind, part.kind),
                step.flops(part) if runs else 0,
                traffic if runs else 0,
                own,
                cache,
                part.dtype or formats.dtype,
                caches=grows,
            )
        )
    tensors = [
        Tensor(
            f"{part.name}.out",
            v,
            tuple(readers[v]),
            made[v],
            _shape(part, step),
            part.dtype or formats.dtype,
            output=v == len(model.parts) - 1,
        )
        for v, part in enumerate(model.parts)
        if readers[v] or v == len(model.parts) - 1
    ]
    classes = [(index[p.tied], v) for v, p in enumerate(model.parts) if p.tied and not apart]
    return OperatorGraph(operators, tensors, classes, model.name)


def _standing(part: Part, step: Step, formats: Formats) -> int:
    """Bytes of what a part made in an earlier step."""
    rows = step.sequences(part.stream) * step.standing.get(part.stream, 0)
    return rows * part.width * formats.bits_of(part) // 8


def _part_of(size: int, part: Part, step: Step) -> int:
    """Bytes of a tensor that an expert has to do with: those of its own tokens."""
    if part.share is None:
        return size
    rows = step.rows(part.stream)
    return round(size * part.share.tokens(rows) / rows)


def _shape(part: Part, step: Step) -> tuple[int, ...]:
    """Of what a part makes; by heads for an attention."""
    new, sequences = step.new.get(part.stream, 0), step.sequences(part.stream)
    if part.kind == "attention":
        return (sequences, part.heads, new, part.width // part.heads)
    return (sequences, new, part.width)
