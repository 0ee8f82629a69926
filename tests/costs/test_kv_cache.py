"""Key-value caches by the shapes of attention, against sums by hand from published configurations."""

from __future__ import annotations

from typing import Any

import pytest

from placewright.costs import layer_caches
from placewright.errors import InvalidInput

LLAMA_2_7B = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
MISTRAL_7B = LLAMA_2_7B | {"num_key_value_heads": 8, "sliding_window": 4096}
DEEPSEEK_V2 = {"num_hidden_layers": 60, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64}


@pytest.mark.parametrize(
    ("config", "batch", "context", "bits", "size_bytes"),
    [
        (LLAMA_2_7B, 1, 4096, 16, 2 * 32 * 4096 * 4096 * 2),  # 2 GiB
        (LLAMA_2_7B | {"num_key_value_heads": 4, "head_dim": 64}, 3, 10, 8, 32 * 2 * 4 * 64 * 30),
        (MISTRAL_7B, 1, 32768, 16, 32 * 2 * 8 * 128 * 4096 * 2),  # the window
        (MISTRAL_7B | {"use_sliding_window": False}, 1, 32768, 16, 32 * 2 * 8 * 128 * 32768 * 2),
        (MISTRAL_7B, 1, 100, 16, 32 * 2 * 8 * 128 * 100 * 2),
        (DEEPSEEK_V2, 1, 1, 16, 60 * 576 * 2),  # 69,120 B a token
        (
            MISTRAL_7B | {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
            1, 5000, 16, 2 * 8 * 128 * (4096 + 5000) * 2,
        ),
        (DEEPSEEK_V2 | {"num_hidden_layers": 1, "kv_lora_rank": 1, "qk_rope_head_dim": 2}, 1, 1, 4.5, 2),  # 13.5 bits
    ],
)  # fmt: skip
def test_caches_of_published_shapes(
    config: dict[str, Any], batch: int, context: int, bits: float, size_bytes: int
) -> None:
    """Every head's, a group's, a window's and a latent vector's."""
    assert sum(layer.size_bytes(batch, context, bits) for layer in layer_caches(config)) == size_bytes


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
OLDER = {"n_layer": 2, "n_head": 4, "vocab_size": 50}


@pytest.mark.parametrize(
    ("family", "numbers"),
    [
        ("Llama", SMALL | {"num_key_value_heads": 2, "intermediate_size": 32}),
        ("GPT2", OLDER | {"n_embd": 32}),
        ("GPTBigCode", OLDER | {"n_embd": 32, "multi_query": True}),
        ("Bloom", OLDER | {"hidden_size": 32}),
        ("Falcon", SMALL | {"multi_query": True, "new_decoder_architecture": False}),
        ("Falcon", SMALL | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ],
)
def test_as_much_as_transformers_keeps(family: str, numbers: dict[str, Any]) -> None:
    """The bytes of the cache that a small model of random weights returns for 2 x 7 tokens in fp32."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(**numbers)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        kept = model(torch.zeros(2, 7, dtype=torch.int64), use_cache=True).past_key_values
    real = sum(t.nbytes for layer in kept.layers for t in (layer.keys, layer.values))
    assert sum(layer.size_bytes(2, 7, 32) for layer in layer_caches(config.to_dict())) == real


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers None is not a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads 0 is not a whole number"),
        ({"num_hidden_layers": 10**6}, "has 1000000 layers, more than the 10000"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        ({"num_hidden_layers": 1, "layer_types": ["mamba"]}, r"\['mamba'\] are not known"),
    ],
)
def test_configurations_that_are_refused(change: dict[str, Any], message: str) -> None:
    """Thing, value, limit."""
    with pytest.raises(InvalidInput, match=message):
        layer_caches(LLAMA_2_7B | change)
