"""One operator of a language model before it is said how many tokens go through it, and a list of them that grows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from placewright.costs import LayerCache

__all__ = ["Keys", "Part", "Parts", "Share", "Stream"]

Stream: TypeAlias = str
"""What goes through a part. Of language models ``text``, the tokens that are new; ``last``, the last of them alone;
``source``, the encoder's input; ``image``, the positions that a vision tower keeps of an image; ``patches``, those that
it starts from. Other networks name theirs as they like."""

Keys: TypeAlias = Literal["causal", "all"]
"""What an attention reads: tokens up to its own, or everything there is."""


@dataclass(frozen=True, slots=True)
class Share:
    """One of several experts, of which each token takes some.

    Attributes
    ----------
    experts, taken : int
    """

    experts: int
    taken: int

    def active(self, tokens: int) -> float:
        """Return the expected part of the steps in which one expert has a token: 1 - (1 - k/E)^b.

        Tokens choose their experts independently of each other, and each expert is as likely as any other.

        Examples
        --------
        >>> Share(8, 2).active(1), round(Share(8, 2).active(8), 3)
        (0.25, 0.9)
        """
        return 1.0 - (1.0 - self.taken / self.experts) ** tokens

    def tokens(self, tokens: int) -> float:
        """Tokens of an expert that has one, expected."""
        active = self.active(tokens)
        return tokens * self.taken / self.experts / active if active else 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """An operator, named by the path of its module in transformers.

    Attributes
    ----------
    name, kind : str
        ``linear``, ``conv``, ``embedding``, ``norm``, ``attention``, ``expert``, or another, which works element-wise.
    module, layer : str
        What it is placed with at these grains; the path of the module, or of the layer.
    stream : Stream
        What it makes a row of numbers for.
    reads : tuple of str
        Parts whose results it reads.
    parameters : int
        Of its own; none where they are those of ``tied``.
    inner, width : int
        Numbers of a row that it reads and makes: a product's k and n, or those of each key of an attention.
    pairs, latent_pairs : int
        Multiply-adds of an attention for a query and a key, all heads: of many new tokens; of one, where that differs.
    heads : int
    keys : Keys
    against : Stream
        Whose rows the keys are made of where they are not its own, and not kept; empty: they are.
    cache : LayerCache or None
        What it keeps of each row of ``cached``.
    cached : Stream
    share : Share or None
        Of an expert.
    tied : str
        The part whose weights it has too.
    quantised : bool
        Whether its weights follow a quantised format; norms and biases never do.
    dtype : str
        Of its weights, its arithmetic and what it makes, where it has one of its own; empty: the model's.
    """

    name: str
    kind: str
    module: str
    layer: str
    stream: Stream = "text"
    reads: tuple[str, ...] = ()
    parameters: int = 0
    inner: int = 0
    width: int = 0
    pairs: int = 0
    latent_pairs: int = 0
    heads: int = 0
    keys: Keys = "causal"
    against: Stream = ""
    cache: LayerCache | None = None
    cached: Stream = "text"
    share: Share | None = None
    tied: str = ""
    quantised: bool = False
    dtype: str = ""


@dataclass
class Parts:
    """Parts in the order in which they run; those that are added get the module and the layer that are set."""

    parts: list[Part] = field(default_factory=list)
    module: str = ""
    layer: str = ""
    stream: Stream = "text"

    def within(self, layer: str, module: str = "") -> None:
        """Set where the next parts belong; the module is the layer where none is named."""
        self.layer, self.module = layer, module or layer

    def add(self, part: Part) -> str:
        """Add a part; its name."""
        self.parts.append(part)
        return part.name

    def linear(
        self, name: str, reads: Iterable[str], inner: int, width: int, *, bias: bool = False, tied: str = ""
    ) -> str:
        """Add a product with a matrix of inner x width weights."""
        own = 0 if tied else inner * width
        return self.add(
            Part(
                *(name, "linear", self.module, self.layer, self.stream, tuple(reads)),
                parameters=own + (width if bias else 0),
                inner=inner,
                width=width,
                tied=tied,
                quantised=not tied,
            )
        )

    def norm(self, name: str, reads: Iterable[str], width: int, *, weights: int | None = None) -> str:
        """Add a normalisation; ``weights`` where they are not one for each number of a row."""
        kept = width if weights is None else weights
        return self.add(
            Part(*(name, "norm", self.module, self.layer, self.stream, tuple(reads)), parameters=kept, width=width)
        )

    def elementwise(self, name: str, kind: str, reads: Iterable[str], width: int) -> str:
        """Add an operator without weights that makes each number of its result from one of each thing it reads."""
        return self.add(Part(name, kind, self.module, self.layer, self.stream, tuple(reads), width=width))
