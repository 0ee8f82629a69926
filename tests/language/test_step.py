"""The work of one step, from closed forms: rows, pairs of an attention, experts, bytes read."""

from __future__ import annotations

import random

import pytest

from placewright.costs import LayerCache
from placewright.costs.weight_formats import weight_format
from placewright.errors import InvalidInput
from placewright.language import Formats, Part, Step, model_of, step_graph
from placewright.language.part import Share
from placewright.objective import Makespan
from placewright.posing.language_flags import LanguageFlags
from placewright.posing.memory_flags import MemoryFlags

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


WHISPER = {
    **dict.fromkeys(("d_model", "num_mel_bins", "max_source_positions", "max_target_positions", "encoder_layers"), 8),
    **dict.fromkeys(("encoder_attention_heads", "encoder_ffn_dim", "decoder_attention_heads", "decoder_ffn_dim"), 8),
}


def decode(context: int, batch: int = 1) -> Step:
    return Step(batch, {"text": 1, "last": 1}, context)


def test_llama_8b_has_the_published_size_and_cache():
    """Llama 3.1 8B: 8.03 B parameters; 131,072 bytes of cache a token (32 layers x 2 x 8 heads x 128 x 2 bytes)."""
    model = model_of(LLAMA_8B, "llama")
    assert model.parameters == 8_030_261_248
    graph = step_graph(model, decode(8192), Formats())
    assert sum(v.weight_bytes for v in graph.operators) == 2 * 8_030_261_248
    assert sum(v.kv_cache_bytes for v in graph.operators) == 8192 * 131_072


def test_a_decode_step_reads_every_matrix_once_and_one_row_of_the_embedding():
    """What operators read and write is the weights, less the embedding but for a row, the cache, and small tensors."""
    graph = step_graph(model_of(LLAMA_8B), decode(8192), Formats())
    matrices = 2 * (8_030_261_248 - 128_256 * 4096)
    traffic = sum(v.traffic_bytes for v in graph.operators)
    tensors = traffic - matrices - 8192 * 131_072
    assert graph.operators[0].traffic_bytes == 2 * 2 * 4096  # a row is read and written
    assert 0 < tensors < 0.001 * traffic


def test_prefill_costs_two_flops_a_weight_and_token_but_for_the_head():
    """All products but the head run over all tokens; the head over the last one of each sequence."""
    graph = step_graph(model_of(LLAMA_8B), Step(2, {"text": 512, "last": 1}, 512), Formats())
    flops = {v.name: v.flops for v in graph.operators}
    assert flops["lm_head"] == 2 * 2 * 4096 * 128_256
    assert flops["model.layers.7.mlp.up_proj"] == 2 * 2 * 512 * 4096 * 14_336


@pytest.mark.parametrize("seed", range(60))
def test_pairs_are_counted_as_one_by_one(seed):
    """Each new token sees itself, the new ones before it and the cache, up to the window."""
    rng = random.Random(seed)
    new, past, window = rng.randint(1, 20), rng.randint(0, 20), rng.choice([None, *range(1, 30)])
    part = Part("a", "attention", "a", "a", cache=LayerCache(1, window))
    pairs = sum(min(past + t, window or 10**9) for t in range(1, new + 1))
    assert Step(3, {"text": new}, past + new).pairs(part) == pairs


def test_experts_are_active_as_often_as_in_a_draw():
    """1 - (1 - k/E)^b, against 20,000 draws of 3 tokens that take 2 of 8 experts each; all tokens end up somewhere."""
    share, rng = Share(8, 2), random.Random(0)
    hits = sum(any(0 in rng.sample(range(8), 2) for _ in range(3)) for _ in range(20_000))
    assert share.active(3) == pytest.approx(hits / 20_000, abs=0.01)
    assert 8 * share.active(3) * share.tokens(3) == pytest.approx(3 * 2)


def test_formats_cover_what_they_are_said_to():
    """nf4 leaves embedding, head and norms as they are; q8_0 leaves norms alone."""
    model = model_of(LLAMA_8B)
    plain = {v.name: v.weight_bytes for v in step_graph(model, decode(1), Formats()).operators}
    nf4, q8 = (
        {v.name: v.weight_bytes for v in step_graph(model, decode(1), Formats("bf16", weight_format(f))).operators}
        for f in ("nf4", "q8_0")
    )
    for name in ("lm_head", "model.embed_tokens", "model.norm"):
        assert nf4[name] == plain[name]
    assert nf4["model.layers.0.mlp.up_proj"] == plain["model.layers.0.mlp.up_proj"] * 4.5 / 16
    assert q8["lm_head"] == plain["lm_head"] * 8.5 / 16 and q8["model.norm"] == plain["model.norm"]


def test_tied_weights_are_held_once_and_read_twice():
    """The head reads the table of the embedding, and both are placed together."""
    graph = step_graph(model_of({**LLAMA_8B, "tie_word_embeddings": True}), decode(1), Formats())
    head = graph.operators[-1]
    assert head.weight_bytes == 0 and head.traffic_bytes > 2 * 4096 * 128_256
    assert graph.colocation == ((0, len(graph) - 1),)


@pytest.mark.parametrize(
    ("said", "name", "bits"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq", 4 + 20 / 128),
        ({"quant_method": "fp8", "modules_to_not_convert": ["down_proj"]}, "fp8", 8),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.mlp.down_proj"]}, "mxfp4", 4.25),
        ({"load_in_4bit": True}, "nf4", 4.5),
        ({"quant_method": "new"}, "", 16),
    ],
)
def test_a_quantised_configuration_gives_the_format(said, name, bits):
    """Products have the bits of the named format unless they are listed as left out."""
    model = model_of({**LLAMA_8B, "quantization_config": said})
    asked = LanguageFlags().asked(model, MemoryFlags(), 1, Makespan())
    held = {v.name: v.weight_bytes for v in step_graph(model, decode(1), asked.formats).operators}
    kept = "modules_to_not_convert" in said
    assert model.weight_format == name
    assert held["model.layers.3.mlp.up_proj"] == 4096 * 14_336 * bits / 8
    assert held["model.layers.3.mlp.down_proj"] == 4096 * 14_336 * (16 if kept else bits) / 8


LLAVA = {
    "model_type": "llava",
    "vision_config": {
        **dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"), 2),
        **{"image_size": 28, "patch_size": 14},
    },
}


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_a_vision_language_model_has_the_dtype_of_the_whole(name):
    """It stands beside the configurations of its two halves, where that of the text has none of its own."""
    text = {key: value for key, value in LLAMA_8B.items() if key != "dtype"}
    assert model_of({**LLAVA, "text_config": text, name: "float32"}).dtype == "fp32"
    assert model_of({**LLAVA, "text_config": LLAMA_8B, name: "float32"}).dtype == "bf16"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({**LLAVA, "text_config": {**LLAMA_8B, "model_type": "rwkv"}}, "text_config: model_type 'rwkv' is not known"),
        ({"model_type": "rwkv"}, "model_type 'rwkv' is not known"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "large"}, "hidden_size is 'large'; give a whole number from 1 to 2^31"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers 1000000 is more than the 10000 layers that are read"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings is 'long'; give a whole number"),
        ({"layer_types": 1.5, "sliding_window": 8}, "layer_types 1.5 is no list"),
        ({"model_type": "whisper", **WHISPER, "decoder_layers": 2**31}, "decoder_layers 2147483648 is more than the"),
        (
            {"model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": 3},
            "mlp_only_layers 3 is no list of numbers of layers",
        ),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings 'yes' is neither true nor false"),
        ({"model_type": "cohere", "use_qk_norm": True}, "use_qk_norm True is not known; only False is"),
        (
            {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok 9 is more than num_local_experts 8",
        ),
        ({"model_type": "mixtral", "num_local_experts": 10**6, "num_experts_per_tok": 2}, "more than the 4096 experts"),
    ],
)
def test_wrong_configurations_are_told(change, said, monkeypatch):
    """Each names the number, its value and the limit."""
    monkeypatch.setattr("placewright.language.configuration._defaults_of", lambda kind: {})
    with pytest.raises(InvalidInput) as error:
        model_of({**LLAMA_8B, **change})
    assert said in str(error.value)
