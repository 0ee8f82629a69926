"""What a transformers decoder is made of: its layers in their order, and the modules with weights around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from placewright.errors import InvalidInput

__all__ = ["Relay", "Unit", "check_decoder", "hidden_of", "relayed", "units_of"]

Relay = Callable[[torch.Tensor], torch.Tensor]
"""From the hidden state that enters a unit on this rank to the one that really does."""


@dataclass(frozen=True)
class Unit:
    """A module that runs on one device: a layer, or one that has weights and stands before or after all layers.

    Attributes
    ----------
    path : str
    module : torch.nn.Module
    layer : int or None
    before : bool
        Whether it runs before the first layer.
    as_tuple : bool
        Whether it returns its hidden state in a tuple.
    reads_tokens : bool
        Whether it is the first one: the table of tokens.
    members : tuple of (str, torch.nn.Module)
        Modules that hold its weights, by path: itself, or those of a half of a layer.
    call : (tuple, dict) or None
        What the decoder calls a layer with.
    """

    path: str
    module: torch.nn.Module
    layer: int | None
    before: bool
    as_tuple: bool
    reads_tokens: bool
    members: tuple[tuple[str, torch.nn.Module], ...]
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = field(default=None, compare=False, repr=False)


def check_decoder(model: torch.nn.Module, origin: str) -> None:
    """Refuse what is no transformers decoder with a cache of keys and values.

    Raises
    ------
    InvalidInput
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "generate"):
        raise InvalidInput(
            f"{origin} is {type(model).__name__}, not a transformers decoder with a language-model head; give one, as "
            "GPT2LMHeadModel or LlamaForCausalLM"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise InvalidInput(f"{origin} has an encoder beside its decoder; only decoders generate over several devices")
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        raise InvalidInput(
            f"{origin} has layers of the kind {min(kinds)!r}, which keep another state than keys and values; "
            "use a model of full and sliding attention"
        )


def units_of(model: Any, origin: str) -> list[Unit]:
    """Find the units in the order in which they run.

    The order of those around the layers is seen in a forward pass in which no unit computes. Modules without weights
    (positions, masks) run on every rank and are no units.

    Raises
    ------
    InvalidInput
        If there is no list of layers, or weights stand in no module that could be a unit.
    """
    count = getattr(model.config, "num_hidden_layers", 0)
    lists = (
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList)
        and len(module) == count > 0
        and any(True for _ in module.parameters())
    )
    layers_at, layers = next(lists, ("", None))
    if layers is None:
        raise InvalidInput(f"{origin} ({type(model).__name__}) has no list of {count} layers; use another model class")
    around = dict(_around(model, "", layers_at))
    named = {**around, **{f"{layers_at}.{k}": layer for k, layer in enumerate(layers)}}
    look = _Look()
    for path, module in named.items():
        module.forward = look.at(path, module, layer=path not in around, first=path == f"{layers_at}.0")
    try:
        with torch.no_grad():
            model(input_ids=torch.zeros(1, 2, dtype=torch.int64), use_cache=False)
    finally:
        for module in named.values():
            del module.forward
    unseen = [path for path in named if path not in look.seen]
    if unseen:
        raise InvalidInput(f"{unseen[0]!r} of {origin} has weights but does not run when tokens are read; remove it")
    first = look.seen.index(f"{layers_at}.0")
    number = {f"{layers_at}.{k}": k for k in range(count)}
    return [
        Unit(
            path,
            named[path],
            number.get(path),
            k < first,
            path in number and look.as_tuple,
            k == 0,
            ((path, named[path]),),
            look.calls.get(path),
        )
        for k, path in enumerate(look.seen)
    ]


class _Look:
    """A forward pass in which no unit computes: which ones run, in what order, and what is done with their results."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.as_tuple = False
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._asking = False

    def at(self, path: str, module: torch.nn.Module, *, layer: bool, first: bool) -> Callable[..., Any]:
        """Make what runs in a module's place."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            if path not in self.seen:
                self.seen.append(path)
            if not layer and not self._asking:
                return _nothing_of(module, args, kwargs, tokens=path == self.seen[0])
            hidden = hidden_of(args, kwargs)
            if self._asking:
                self._asking, self.as_tuple = False, hidden.dim() == 3
                hidden = hidden if self.as_tuple else hidden[0]
            if layer:
                self.calls[path] = ((hidden, *args[1:]), kwargs) if args else ((), {**kwargs, "hidden_states": hidden})
            if first:  # whoever takes the first of what a layer returns finds the hidden state in it
                self._asking = True
                return hidden[None]
            if layer:
                return (hidden,) if self.as_tuple else hidden
            return _nothing_of(module, (hidden,), {}, tokens=False)

        return forward


def _around(module: torch.nn.Module, path: str, layers_at: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """Outermost modules with weights beside the layers."""
    own = [name for name, _ in module.named_parameters(recurse=False)]
    if own:
        name = f"{path}.{own[0]}" if path else own[0]
        raise InvalidInput(
            f"weight {name!r} is in a module that holds the layers; it can't be placed, use another class"
        )
    for name, child in module.named_children():
        below = f"{path}.{name}" if path else name
        if below == layers_at:
            continue
        if layers_at.startswith(f"{below}."):
            yield from _around(child, below, layers_at)
        elif any(True for _ in child.parameters()):
            yield below, child


def relayed(unit: Unit, relay: Relay, instead: Callable[..., None] | None) -> None:
    """Let a unit's hidden state come from, and go, where it belongs.

    Parameters
    ----------
    unit : Unit
    relay : callable
        Called with the hidden state of every unit but those before the layers, before the unit runs.
    instead : callable, optional
        The unit runs elsewhere: this is called with its arguments in its place.
    """
    module = unit.module
    own = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not unit.before:
            moved = relay(hidden_of(args, kwargs))
            args, kwargs = ((moved, *args[1:]), kwargs) if args else ((), {**kwargs, "hidden_states": moved})
        if instead is None:
            return own(*args, **kwargs)
        instead(*args, **kwargs)
        if unit.layer is None:
            return _nothing_of(module, args, kwargs, tokens=unit.reads_tokens)
        return (hidden_of(args, kwargs),) if unit.as_tuple else hidden_of(args, kwargs)

    module.forward = forward


def hidden_of(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """Find the hidden state among the arguments of a unit."""
    found: torch.Tensor = args[0] if args else kwargs["hidden_states"]
    return found


def _nothing_of(module: Any, args: Sequence[Any], kwargs: dict[str, Any], *, tokens: bool) -> torch.Tensor:
    """Make a tensor of the shape that a module around the layers would return, of no memory."""
    given = args[0] if args else next(v for v in kwargs.values() if isinstance(v, torch.Tensor))
    if isinstance(module, torch.nn.Embedding):
        shape = given.shape if tokens else (1, 1)  # other tables are added to that of tokens: spread over it
        return torch.zeros((), dtype=module.weight.dtype).expand(*shape, module.embedding_dim)
    if isinstance(module, torch.nn.Linear):
        return torch.zeros((), dtype=module.weight.dtype).expand(*given.shape[:-1], module.out_features)
    return given
