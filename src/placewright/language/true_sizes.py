"""From tensors that a file holds to the parts that have them, so that each part has its true bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from placewright.language.families import Family
from placewright.language.gguf_model import module_names
from placewright.language.part import Part

__all__ = ["TrueSizes", "checkpoint_paths", "gguf_paths", "true_sizes"]

_RENAMED = (
    (re.compile(r"^language_model\.model\."), "model.language_model."),
    (re.compile(r"^(?:language_model\.lm_head|embed_out)\."), "lm_head."),
    (re.compile(r"^(?:model\.)?vision_tower\.vision_model\."), "model.vision_tower."),
    (re.compile(r"^multi_modal_projector\."), "model.multi_modal_projector."),
    (re.compile(r"^visual\."), "model.visual."),
    (re.compile(r"\.block_sparse_moe\."), ".mlp."),
)
"""From the names of older checkpoints to those of transformers' modules today, as its own loading renames them."""

_BLOCK = re.compile(r"^blk\.(\d+)\.(.+?)(?:\.weight|\.bias|\.scale)?$")
_PLAIN = re.compile(r"(?:\.weight|\.bias|\.scale)$")


@dataclass(frozen=True, slots=True)
class TrueSizes:
    """Bytes of parts, and what is left over.

    Attributes
    ----------
    weight_bytes : mapping of str to int
    unknown : mapping of str to int
        Tensors that belong to no part.
    missing : tuple of str
        Parts with weights of which no tensor was found.
    """

    weight_bytes: Mapping[str, int]
    unknown: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def true_sizes(parts: Iterable[Part], tensors: Mapping[str, int], paths: Callable[[str], Iterable[str]]) -> TrueSizes:
    """Give each part the bytes of its tensors.

    A tensor is of the part whose name is the longest beginning of its path. One of all experts of a layer is divided
    among them; one of a module that has no part of that name goes to the module's first.

    Parameters
    ----------
    parts : iterable of Part
    tensors : mapping of str to int
        Bytes by name.
    paths : callable
        Paths that a name may stand for.
    """
    parts = list(parts)
    found = {p.name: 0 for p in parts}
    experts: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for p in parts:
        if p.share is not None:
            experts.setdefault(p.name.rpartition(".")[0], []).append(p.name)
        first.setdefault(p.module, p.name)
    unknown: dict[str, int] = {}
    for name, size in tensors.items():
        owners = next((o for path in paths(name) if (o := _owners(path, found, experts, first))), [])
        if not owners:
            unknown[name] = size
            continue
        each, more = divmod(size, len(owners))
        for k, owner in enumerate(owners):
            found[owner] += each + (k < more)
    missing = tuple(p.name for p in parts if p.parameters and not found[p.name])
    return TrueSizes({name: size for name, size in found.items() if size}, unknown, missing)


def _owners(
    path: str, parts: Mapping[str, int], experts: Mapping[str, list[str]], first: Mapping[str, str]
) -> list[str]:
    at = path
    while at:
        if at in parts:
            return [at]
        if at in experts:
            return experts[at]
        if at in first and at != path:
            return [first[at]]
        at = at.rpartition(".")[0]
    return []


def checkpoint_paths(root: str) -> Callable[[str], Iterable[str]]:
    """Return what a tensor of a safetensors file may be called: as today, as in older files, and without its root.

    Examples
    --------
    >>> list(checkpoint_paths("model")("model.layers.0.block_sparse_moe.gate.weight"))[0]
    'model.layers.0.mlp.gate.weight'
    """

    def paths(name: str) -> Iterable[str]:
        for pattern, to in _RENAMED:
            name = pattern.sub(to, name)
        yield name
        yield f"{root}.{name}"
        if name.startswith("model."):
            yield f"{root}.{name.removeprefix('model.')}"

    return paths


def gguf_paths(family: Family) -> Callable[[str], Iterable[str]]:
    """Return what a tensor of a GGUF file is called in transformers.

    Examples
    --------
    >>> from placewright.language.families import FAMILIES
    >>> list(gguf_paths(FAMILIES["llama"])("blk.3.attn_q.weight"))
    ['model.layers.3.self_attn.q_proj']
    """
    names = module_names(family)

    def paths(name: str) -> Iterable[str]:
        if (block := _BLOCK.match(name)) is not None:
            if (inside := names.get(block[2])) is not None:
                yield f"{family.root}.{family.layers}.{block[1]}.{inside}"
        elif (plain := _PLAIN.sub("", name)) == "output":
            yield "lm_head"
        elif plain in names:
            yield f"{family.root}.{names[plain]}"

    return paths
