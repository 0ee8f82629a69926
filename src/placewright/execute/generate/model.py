"""A transformers decoder on one rank: built without values, and given those of its own units alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from placewright.errors import InvalidInput, MissingExtra
from placewright.execute.generate.generation import padded
from placewright.execute.generate.units import Unit, check_decoder, units_of
from placewright.execute.ranks.network import RANDOM
from placewright.execute.ranks.weights import drawn, read_tensor, shards_of

__all__ = ["HF", "Members", "Values", "load_decoder", "prepared", "unsplit_tokens"]

Members = Sequence[tuple[str, torch.nn.Module]]
"""Modules by path."""

HF = "hf:"
"""Before a folder with a transformers configuration."""


class Values:
    """Where a decoder's weights come from: all names of each, so that tied ones are one.

    Parameters
    ----------
    model : torch.nn.Module
        Before any of its weights was replaced.
    shards : mapping of str to Path
        File of each tensor.
    random : bool
        Whether weights without values are drawn from their names.
    """

    def __init__(self, model: torch.nn.Module, shards: Mapping[str, Path], *, random: bool) -> None:
        self._shards, self._random = shards, random
        self._names: dict[int, list[str]] = {}
        for name, tensor in _tensors(model):
            self._names.setdefault(id(tensor), []).append(name)
        self._made: dict[str, torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Real values of a weight; a tied one is read once.

        Raises
        ------
        InvalidInput
            If there are none.
        """
        names = self._names.get(id(tensor), [name])
        if names[0] not in self._made:
            found = next((n for n in names if n in self._shards), None)
            if self._random:
                self._made[names[0]] = drawn(names[0], tensor)
            elif found is not None:
                self._made[names[0]] = read_tensor(self._shards[found], found, tensor)
            else:
                raise InvalidInput(
                    f"weight {name!r} has no values and is in none of the safetensors files; give all shards with "
                    "--weights, or 'random' to measure without"
                )
        return self._made[names[0]]


def load_decoder(location: str) -> Any:
    """Build a decoder: what a function of the user's returns, or, of a folder's configuration, one without values.

    Raises
    ------
    InvalidInput
        If it is no decoder, or the folder has no configuration that transformers knows.
    """
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf", "generating text") from None
    if location.startswith("py:"):
        from placewright.capture.torch_spec import load_py

        model, _, _ = load_py(location.removeprefix("py:"))
    elif location.startswith(HF):
        folder = Path(location.removeprefix(HF))
        file = folder / "config.json" if folder.is_dir() else folder
        if not file.is_file():
            raise InvalidInput(f"{str(folder)!r} holds no config.json; give --model hf:FOLDER, a transformers model's")
        try:
            config = transformers.AutoConfig.from_pretrained(str(file), trust_remote_code=False, local_files_only=True)
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
        except (ValueError, KeyError, OSError, TypeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InvalidInput(f"{str(file)!r} describes no decoder that transformers knows: {first}") from None
    else:
        raise InvalidInput(
            f"{location!r} can't be run token by token; give the transformers module: --model "
            "py:package.module:function or --model hf:FOLDER"
        )
    check_decoder(model, location)
    return model.eval()


def prepared(location: str, weights: str | None, shared_out: Callable[[list[Unit]], tuple[Members, Members]]) -> Any:
    """Build a decoder with values in some of its modules, and in what has no weights, and none in all others.

    Parameters
    ----------
    location : str
        See :func:`load_decoder`.
    weights : str or None
        A ``.safetensors`` file, a folder of shards, ``random``, or nothing where the module has values.
    shared_out : callable
        From the units to the modules that get values, and those that lose theirs.
    """
    model = load_decoder(location)
    shards = {} if weights is None or weights == RANDOM else shards_of(Path(weights))
    values = Values(model, shards, random=weights == RANDOM)
    for module in model.modules():
        if not any(True for _ in module.parameters()):
            _fill_tables(model, module)
    own, others = shared_out(units_of(model, location))
    for _, module in others:
        module.to(device="meta")
    for path, module in own:
        _fill(model, path, module, values)
    return model


def unsplit_tokens(
    location: str, weights: str | None, prompts: Sequence[Sequence[int]], most: int, ends: Collection[int]
) -> tuple[tuple[int, ...], ...]:
    """Generate by the unsplit decoder's own ``generate``, without sampling."""
    model = prepared(location, weights, lambda units: ([m for unit in units for m in unit.members], []))
    rows, pads = padded(prompts)
    tokens = torch.tensor(rows)
    mask = torch.tensor([[0] * short + [1] * (len(rows[0]) - short) for short in pads])
    with torch.no_grad():
        made = model.generate(
            tokens,
            attention_mask=mask,
            max_new_tokens=most,
            do_sample=False,
            eos_token_id=sorted(ends) or None,
            pad_token_id=0,
        )
    texts = []
    for row in made[:, len(rows[0]) :].tolist():
        stop = next((k + 1 for k, token in enumerate(row) if token in ends), len(row))
        texts.append(tuple(row[:stop]))
    return tuple(texts)


def _fill(model: Any, path: str, module: torch.nn.Module, values: Values) -> None:
    """Give values to a module."""
    on_meta = [(name, t) for name, t in _tensors(module) if t.is_meta]
    saved = set(module.state_dict(keep_vars=True))
    for inner in module.modules():
        _fill_tables(model, inner)
    for name, tensor in on_meta:
        if name not in saved:
            continue
        owner, _, last = name.rpartition(".")
        inner = module.get_submodule(owner)
        real = values.of(tensor, f"{path}.{name}")
        if isinstance(tensor, torch.nn.Parameter):
            inner._parameters[last] = torch.nn.Parameter(real, requires_grad=False)
        else:
            inner._buffers[last] = real


def _tensors(module: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _fill_tables(model: Any, module: torch.nn.Module) -> None:
    """Compute the tensors of a module's own that are not saved with its weights, as its class does when it is built.

    Raises
    ------
    InvalidInput
        If the class can't be built from the configuration alone.
    """
    missing = [
        name
        for name in module._non_persistent_buffers_set
        if isinstance(module._buffers.get(name), torch.Tensor) and module._buffers[name].is_meta  # type: ignore[union-attr]
    ]
    if not missing:
        return
    config = getattr(module, "config", model.config)
    known: dict[str, Any] = {"config": config, "layer_idx": getattr(module, "layer_idx", None), "device": "cpu"}
    for name in ("num_embeddings", "embedding_dim", "padding_idx"):
        known[name] = getattr(module, name, None)
    known["embed_scale"] = getattr(module, "scalar_embed_scale", None)
    signature = inspect.signature(type(module).__init__).parameters
    try:
        twin = type(module)(**{name: value for name, value in known.items() if name in signature})
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(
            f"{missing[0]!r} of {type(module).__name__} is not among the weights and can't be computed ({first}); let "
            "the function build this module with values"
        ) from None
    for name in sorted(missing):
        module._buffers[name] = twin._buffers[name]
