"""Small transformers decoders on meta, and a plan for one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from placewright.capture.torch_export import capture_program, export_module
from placewright.cluster import Cluster, Device, Link
from placewright.evaluate import evaluate
from placewright.io import write_plan
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.result import Result

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "use_cache": False,
}


Example = tuple[Any, dict[str, torch.Tensor]]


def _on_meta(cls: Any, config: Any) -> Example:
    with torch.device("meta"):
        return cls(config).eval(), {"input_ids": torch.zeros(1, 6, dtype=torch.int64)}


def llama() -> Example:
    """Rotary positions, two heads for each head of keys."""
    return _on_meta(transformers.LlamaForCausalLM, transformers.LlamaConfig(num_hidden_layers=4, **SHAPE))


def mistral() -> Example:
    """A window of 5 tokens in every layer."""
    config = transformers.MistralConfig(num_hidden_layers=3, sliding_window=5, **SHAPE)
    return _on_meta(transformers.MistralForCausalLM, config)


def qwen() -> Example:
    """Normed heads, tied embeddings, and full attention in some layers, a window in others."""
    config = transformers.Qwen3Config(
        num_hidden_layers=4,
        head_dim=8,
        tie_word_embeddings=True,
        use_sliding_window=True,
        sliding_window=5,
        max_window_layers=2,
        **SHAPE,
    )
    return _on_meta(transformers.Qwen3ForCausalLM, config)


def gpt2() -> Example:
    """A table of positions, tied embeddings."""
    config = transformers.GPT2Config(
        n_embd=32, n_layer=3, n_head=4, vocab_size=97, n_positions=64, bos_token_id=None, eos_token_id=None
    )
    return _on_meta(transformers.GPT2LMHeadModel, config)


def bloom() -> Example:
    """Positions in the mask, layers that return tuples, a norm before them."""
    config = transformers.BloomConfig(
        hidden_size=32, n_layer=3, n_head=4, vocab_size=97, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    return _on_meta(transformers.BloomForCausalLM, config)


def neox() -> Example:
    """Attention and the rest of a layer side by side."""
    config = transformers.GPTNeoXConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        vocab_size=97,
        bos_token_id=None,
        eos_token_id=None,
    )
    return _on_meta(transformers.GPTNeoXForCausalLM, config)


def written_plan(folder: Path) -> Path:
    """Write a plan of :func:`llama`: layers 0 and 3 on one device, of 1 the second half and 2 on the other."""
    module, kwargs = llama()
    graph = capture_program(export_module(module, (), kwargs))
    devices = [Device("left", memory_bytes=1 << 30), Device("right", memory_bytes=1 << 30)]
    cluster = Cluster(devices, [Link(1e-5, 1e9, link_class="same-host")])
    problem = Problem(graph, cluster, [[1e-4, 2e-4]] * len(graph))
    right = ("model.layers.1.post_attention_layernorm", "model.layers.1.mlp", "model.layers.2.")
    at = [int(v.name.startswith(right)) for v in graph.operators]
    judged = evaluate(problem, at)
    assert judged.feasible
    path = folder / "plan.json"
    write_plan(path, problem, Result(Plan(at, judged.schedule, judged.value_s)), judged)
    return path
