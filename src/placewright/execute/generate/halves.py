"""Layers that a plan cuts between their attention and the rest: found by their data flow, run as two units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from placewright.execute.generate.units import Relay, Unit, hidden_of

__all__ = ["Halves", "halves_of", "relayed_halves"]


@dataclass(frozen=True)
class Halves:
    """A layer as two units.

    Attributes
    ----------
    whole : Unit
    first, second : Unit
        All that the second reads of what was computed before it is the hidden state that enters its first module.
    results : dict of str to object
        What each module of the layer returns, with a tensor's place taken by ``True`` where the hidden state stands,
        and by ``None`` elsewhere.
    """

    whole: Unit
    first: Unit
    second: Unit
    results: dict[str, Any]


def halves_of(unit: Unit, args: Sequence[Any], kwargs: dict[str, Any]) -> Halves | None:
    """Find where a layer can be cut with one tensor across; ``None`` where it can't.

    The layer is run without values, and every operator is looked at: at a module's entry the layer can be cut if
    nothing that is computed later reads a tensor made before, other than the one that enters. A decoder that adds what
    a half computes to what it read, as most do, is cut before the norm of its second half; one that runs both halves
    side by side can't be.

    Parameters
    ----------
    unit : Unit
        A layer.
    args, kwargs
        What its decoder calls it with.
    """
    layer = unit.module
    children = {name: child for name, child in layer.named_children() if any(True for _ in child.parameters())}
    if any(True for _ in layer.parameters(recurse=False)):
        return None
    look = _Look()
    for name, child in children.items():
        child.forward = look.at(name, child.forward)
    bare = {name: t.to("meta") for name, t in (*layer.named_parameters(), *layer.named_buffers())}
    try:
        args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to("meta"), (tuple(args), dict(kwargs)))
        look.born(hidden_of(args, kwargs))
        with torch.no_grad(), look:
            torch.func.functional_call(layer, bare, args, kwargs)
    except Exception:  # a class that doesn't run without values is not cut
        return None
    finally:
        for child in children.values():
            del child.forward
    order = list(look.entries)
    clean = [name for name in order[1:] if not look.entries[name].read_behind]
    if not clean or set(order) != children.keys():
        return None
    at = order.index(clean[0])
    first, second = (
        Unit(
            f"{unit.path}.{names[0]}" + (f" to {names[-1]}" if len(names) > 1 else ""),
            layer if k == 0 else children[names[0]],
            unit.layer,
            False,
            unit.as_tuple,
            False,
            tuple((f"{unit.path}.{name}", children[name]) for name in names),
        )
        for k, names in enumerate((order[:at], order[at:]))
    )
    return Halves(unit, first, second, {f"{unit.path}.{name}": look.results[name] for name in order})


def relayed_halves(
    halves: Halves, relays: tuple[Relay, Relay], mine: tuple[bool, bool], count: Callable[..., None]
) -> None:
    """Let the hidden state come to each half from where it belongs, and pass over the modules of a foreign half.

    Parameters
    ----------
    halves : Halves
    relays : pair of callable
        See :func:`placewright.execute.generate.units.relayed`.
    mine : pair of bool
        Which half runs here; one of them at least.
    count : callable
        Called in place of a foreign first half.
    """
    for half, own in zip((halves.first, halves.second), mine, strict=True):
        for path, module in half.members:
            if not own:
                module.forward = _instead(halves.results[path])
    layer, entry = halves.first.module, halves.second.module
    run, enter = layer.forward, entry.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        moved = relays[0](hidden_of(args, kwargs))
        if not mine[0]:
            count(*args, **kwargs)
            # To be written to by the second half.
            moved = torch.zeros_like(moved, memory_format=torch.contiguous_format)
        args, kwargs = ((moved, *args[1:]), kwargs) if args else ((), {**kwargs, "hidden_states": moved})
        return run(*args, **kwargs)

    def second(*args: Any, **kwargs: Any) -> Any:
        hidden = hidden_of(args, kwargs)
        moved = relays[1](hidden)
        if moved is not hidden:
            hidden.copy_(moved)  # in place: it is what the layer adds the second half's result to
        return enter(*args, **kwargs)

    layer.forward, entry.forward = forward, second


def _instead(result: Any) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        hidden = hidden_of(args, kwargs)
        return tree_map(lambda leaf: hidden if leaf is True else None, result)

    return forward


@dataclass
class _Entry:
    """When a module was entered, with what, and whether anything else that was there then has been read since."""

    time: int
    hidden: int
    read_behind: bool = False


class _Look(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Which tensors are read after each entry of a module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: dict[str, _Entry] = {}
        self.results: dict[str, Any] = {}
        self._born: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no storage's address is used twice
        self._time = 0

    def at(self, name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        """Make what runs in a module's place."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            hidden = hidden_of(args, kwargs)
            self.born(hidden)
            self._time += 1
            self.entries.setdefault(name, _Entry(self._time, _storage(hidden)))
            try:
                made = own(*args, **kwargs)
            except Exception:  # not without values: as if it returned one tensor like what it reads
                made = torch.empty_like(hidden)
            marked = iter([True])
            self.results[name] = tree_map(
                lambda leaf: next(marked, None) if isinstance(leaf, torch.Tensor) else None, made
            )
            return made

        return forward

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._time += 1
        for tensor in tree_leaves((args, kwargs or {})):
            if isinstance(tensor, torch.Tensor):
                self._read(tensor)
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.born(tensor)
        return made

    def born(self, tensor: torch.Tensor) -> None:
        """Remember that a tensor is there from now on."""
        self._kept.append(tensor)
        self._born.setdefault(_storage(tensor), self._time)

    def _read(self, tensor: torch.Tensor) -> None:
        """Note a reading; a weight, a mask or a position was not made in here, so it is there on every rank."""
        key = _storage(tensor)
        born = self._born.get(key)
        if born is None:
            return
        for entry in self.entries.values():
            if born < entry.time and key != entry.hidden:
                entry.read_behind = True


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
