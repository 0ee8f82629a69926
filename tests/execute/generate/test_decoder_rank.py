"""Decoders layer by layer: over any placement of their units they generate what the unsplit one generates."""

from __future__ import annotations

import queue
import random
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.errors import InvalidInput  # noqa: E402
from placewright.execute.generate.decoder_rank import DecoderRank  # noqa: E402
from placewright.execute.generate.generation import greedy  # noqa: E402
from placewright.execute.generate.halves import Halves, halves_of  # noqa: E402
from placewright.execute.generate.model import load_decoder, prepared, unsplit_tokens  # noqa: E402
from placewright.execute.generate.units import check_decoder, units_of  # noqa: E402

from ..small_decoders import llama  # noqa: E402

WORLD = 3
PROMPTS = [[5, 6, 7, 8, 9, 3, 2, 11], [12, 4, 77]]
LENGTH = 9


class Queues:
    """Hidden states between threads in place of processes; the shape that the receiver expects is what it gets."""

    def __init__(self, queues: dict[tuple[int, int], queue.Queue[Any]], own: int) -> None:
        self.queues, self.own = queues, own

    def send(self, tensor: Any, target: int) -> None:
        self.queues[self.own, target].put(tensor.clone())

    def receive(self, like: Any, source: int) -> Any:
        tensor = self.queues[source, self.own].get(timeout=10)
        assert tensor.shape == like.shape and tensor.dtype == like.dtype
        return tensor


def ranks_of(name: str, seed: int) -> list[DecoderRank]:
    """Make the ranks of a decoder: its layers, halves of every other layer, and what stands after placed at random."""
    rng = random.Random(seed)
    queues: dict[tuple[int, int], queue.Queue[Any]] = {
        (i, j): queue.Queue() for i in range(WORLD) for j in range(WORLD)
    }
    at: dict[str, int] = {}
    made = []
    for rank in range(WORLD):
        parts: list[Any] = []
        own: list[Any] = []
        others: list[Any] = []

        def shared_out(units: Any, rank: int = rank, parts: Any = parts, own: Any = own, others: Any = others) -> Any:
            for unit in units:
                cut = halves_of(unit, *unit.call) if unit.layer is not None and unit.layer % 2 == 0 else None
                parts.append(cut or unit)
                for small in (cut.first, cut.second) if cut else (unit,):
                    start = at[units[0].path] if small.before and at else rng.randrange(WORLD)
                    here = at.setdefault(small.path, start)
                    (own if here == rank else others).extend(small.members)
            return own, others

        model = prepared(f"py:tests.execute.small_decoders:{name}", "random", shared_out)
        assert not any(t.is_meta for _, module in own for t in module.parameters())
        assert all(t.is_meta for _, module in others for t in module.parameters())
        made.append(DecoderRank(model, parts, at, rank, Queues(queues, rank)))
    assert (name != "neox") == any(isinstance(part, Halves) for part in parts)
    return made


def together(ranks: list[DecoderRank], prompts: list[list[int]], length: int, stream: int = 0) -> Any:
    """Take the steps of a generation on all ranks at once."""

    def step(rows: Any, pads: Any) -> Any:
        chosen: list[Any] = [None] * WORLD
        threads = [
            threading.Thread(target=lambda k=k: chosen.__setitem__(k, ranks[k].step(stream, torch.tensor(rows), pads)))
            for k in range(WORLD)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(15)
        return [int(t) for t in next(c for c in chosen if c is not None)]

    return greedy(step, prompts, length).tokens


@pytest.mark.parametrize(
    ("name", "seed"), [("llama", 0), ("mistral", 1), ("qwen", 2), ("gpt2", 3), ("bloom", 4), ("neox", 6)]
)
def test_any_placement_of_layers_generates_what_the_unsplit_decoder_does(name: str, seed: int) -> None:
    """Two prompts of unequal length, more tokens than a window holds; attention here, the rest of its layer there."""
    ranks = ranks_of(name, seed)
    wanted = unsplit_tokens(f"py:tests.execute.small_decoders:{name}", "random", PROMPTS, LENGTH, ())
    assert together(ranks, PROMPTS, LENGTH) == wanted
    if name in ("llama", "mistral"):  # tied tables of random numbers say the same token again and again
        assert len({token for row in wanted for token in row}) > 5
    assert sum(rank.gives_tokens for rank in ranks) == 1


def cache_bytes(rank: DecoderRank) -> int:
    layers = [layer for stream in rank._streams.values() for layer in stream.cache.layers]
    return sum(t.numel() * t.element_size() for layer in layers for t in (layer.keys, layer.values))


def test_each_rank_holds_the_cache_of_its_own_layers_and_drops_it_when_told() -> None:
    """One layer of Llama holds 2 x 2 heads x 8 numbers of 4 B for a token; a foreign one counts by 2 numbers of 4 B."""
    ranks = ranks_of("llama", 0)
    together(ranks, PROMPTS[:1], 3)
    tokens = len(PROMPTS[0]) + 2  # the last one that was made has not been read
    own = [sum(layer.keys.shape[-1] != 1 for layer in rank._streams[0].cache.layers) for rank in ranks]
    assert sum(own) == 4
    assert [cache_bytes(rank) for rank in ranks] == [tokens * (n * 2 * 2 * 8 * 4 + (4 - n) * 2 * 4) for n in own]
    for rank in ranks:
        rank.forget(0)
        rank.forget(7)
    assert [cache_bytes(rank) for rank in ranks] == [0, 0, 0]


def test_generations_side_by_side_do_not_disturb_each_other() -> None:
    """Steps of two generations in turn give what each gives alone."""
    ranks = ranks_of("llama", 5)
    first, second = [PROMPTS[0]], [PROMPTS[1]]
    alone = together(ranks, first, 4, stream=1), together(ranks, second, 4, stream=2)
    rows = {3: first, 4: second}
    made: dict[int, list[int]] = {3: [], 4: []}
    for _ in range(4):
        for stream in (3, 4):
            token = together(ranks, rows[stream], 1, stream)[0][0]
            made[stream].append(token)
            rows[stream] = [[token]]
    assert ((tuple(made[3]),), (tuple(made[4]),)) == alone


def test_what_is_no_decoder_is_refused() -> None:
    """A plain module, an encoder and decoder, and layers that keep another state are each named."""
    with pytest.raises(InvalidInput, match="is Linear, not a transformers decoder"):
        check_decoder(torch.nn.Linear(2, 2), "py:x")
    model, _ = llama()
    model.config.is_encoder_decoder = True
    with pytest.raises(InvalidInput, match="has an encoder beside its decoder"):
        check_decoder(model, "py:x")
    model, _ = llama()
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(InvalidInput, match="layers of the kind 'linear_attention'"):
        check_decoder(model, "py:x")
    for location, said in (("net.onnx", "can't be run token by token"), ("hf:/nowhere", "holds no config.json")):
        with pytest.raises(InvalidInput, match=said):
            load_decoder(location)


def test_weights_that_are_nowhere_are_named() -> None:
    """On meta, and neither files nor 'random': the weight is named with the remedy."""
    with pytest.raises(InvalidInput, match=r"weight 'model\.embed_tokens\.weight' has no values .* --weights"):
        prepared("py:tests.execute.small_decoders:llama", None, lambda units: (units[0].members, []))


def test_units_stand_in_the_order_in_which_they_run() -> None:
    """Tables first, then layers, then the norm and the head; which are before the layers is told."""
    units: list[Any] = []
    model = prepared("py:tests.execute.small_decoders:bloom", "random", lambda found: (units.extend(found) or [], []))
    assert [u.path for u in units] == [
        "transformer.word_embeddings",
        "transformer.word_embeddings_layernorm",
        *(f"transformer.h.{k}" for k in range(3)),
        "transformer.ln_f",
        "lm_head",
    ]
    assert [u.before for u in units] == [True, True, False, False, False, False, False]
    assert [u.as_tuple for u in units] == [False, False, True, True, True, False, False]
    assert units_of(model, "again") == units


def test_a_layer_is_cut_where_one_tensor_crosses() -> None:
    """Llama before its second norm; a layer that computes both halves from what it reads nowhere."""
    cut: list[Any] = []

    def first_layer(units: Any) -> Any:
        unit = next(u for u in units if u.layer == 0)
        cut.append(halves_of(unit, *unit.call))
        return [], []

    for name in ("llama", "neox"):
        prepared(f"py:tests.execute.small_decoders:{name}", "random", first_layer)
    llama_cut, neox_cut = cut
    assert neox_cut is None
    assert [path for path, _ in llama_cut.first.members] == [
        f"model.layers.0.{m}" for m in ("input_layernorm", "self_attn")
    ]
    assert llama_cut.second.path == "model.layers.0.post_attention_layernorm to mlp"
    assert llama_cut.results["model.layers.0.self_attn"] == (True, None)


def test_a_folder_gives_configuration_and_weights(tmp_path: Path) -> None:
    """What transformers has saved is read back without being told where the weights are, but for what is not asked."""
    model, _ = llama()
    real = type(model)(model.config).eval()
    real.save_pretrained(tmp_path)
    wanted = real.generate(torch.tensor(PROMPTS[:1]), max_new_tokens=4, do_sample=False)[0, len(PROMPTS[0]) :]
    assert unsplit_tokens(f"hf:{tmp_path}", str(tmp_path), PROMPTS[:1], 4, ()) == (tuple(wanted.tolist()),)
    half = prepared(f"hf:{tmp_path}", str(tmp_path), lambda units: (units[1].members, []))
    assert torch.equal(half.model.layers[0].mlp.up_proj.weight, real.model.layers[0].mlp.up_proj.weight)
    assert half.model.layers[1].mlp.up_proj.weight.is_meta
    (tmp_path / "config.json").write_text('{"model_type": "none"}')
    with pytest.raises(InvalidInput, match="describes no decoder that transformers knows"):
        load_decoder(f"hf:{tmp_path}")
