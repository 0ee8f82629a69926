"""Predicted against allocated memory of networks that torch runs and trains on the CPU, one operator after the other.

    python benchmarks/quality/memory.py

First inference, then training (:mod:`memory_training`). Allocated is the peak over torch's own allocator (its
profiler's memory events), less what was there before; *module itself* is the same of the module called by Python, whose
variables outlive their last use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cost_networks
import memory_training
import torch
import transformers
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves, tree_map_only

from placewright.capture.torch_export import export_module
from placewright.costs.torch_memory import program_memory


def _made(cls: Any, config: Any, **inputs: tuple[int, ...]) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        module = cls(config).eval()
        dtype = torch.float32 if "pixel_values" in inputs else torch.int64
        return module, {name: torch.zeros(shape, dtype=dtype) for name, shape in inputs.items()}


def llama_4() -> Any:
    """Llama of 4 layers with grouped queries, 2 x 128 tokens."""
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, intermediate_size=688, vocab_size=2000, use_cache=False)
    return _made(transformers.LlamaForCausalLM, config, input_ids=(2, 128))


def vit_4() -> Any:
    """ViT of 4 layers of width 192 on two pictures."""
    sizes = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
    return _made(transformers.ViTModel, transformers.ViTConfig(**sizes), pixel_values=(2, 3, 224, 224))


def t5_encoder_4() -> Any:
    """T5's encoder of 4 layers, 2 x 128 tokens."""
    config = transformers.T5Config(d_model=256, num_layers=4, num_heads=4, d_ff=1024, vocab_size=2000)
    return _made(transformers.T5EncoderModel, config, input_ids=(2, 128))


NETWORKS = (
    cost_networks.bert_4,
    cost_networks.gpt2_small,
    llama_4,
    t5_encoder_4,
    vit_4,
    cost_networks.resnet_50,
    cost_networks.mobilenet_v2,
    cost_networks.densenet_121,
)


def interpreted(module: torch.nn.Module, flat: list[torch.Tensor]) -> None:
    """Run a program and let every value go after its last reader."""
    torch.fx.Interpreter(module, garbage_collect_values=True).run(*flat, enable_io_processing=False)


def allocated_bytes(run: Callable[[], object]) -> int:
    """Peak of what the allocator gave out while it ran."""
    with torch.no_grad():
        run()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            run()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def main() -> None:
    """Print a row for each network, and a row for each that is trained."""
    torch.manual_seed(0)
    print("| network | weights | live | workspace | predicted | allocated | error | module itself |")
    print("|---|---|---|---|---|---|---|---|")
    for network in NETWORKS:
        module, example = network()
        module = module.to_empty(device="cpu")
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.zero_()
        real = tree_map_only(torch.Tensor, lambda t: torch.zeros(t.shape, dtype=t.dtype), example)
        args, kwargs = ((), real) if isinstance(real, dict) else (real, {})
        program = export_module(module, args, kwargs)
        found = program_memory(program)
        unlifted, flat = program.module(), tree_leaves((args, kwargs))
        allocated = allocated_bytes(partial(interpreted, unlifted, flat))
        itself = allocated_bytes(partial(module, *args, **kwargs))
        cells = (sum(found.weight_bytes.values()), found.live_bytes, found.workspace_bytes, found.activation_bytes)
        shown = " | ".join(f"{x / 2**20:.2f}" for x in (*cells, allocated))
        error = f"{100 * (found.activation_bytes / allocated - 1):+.1f} %"
        print(f"| {network.__name__} | {shown} | {error} | {itself / 2**20:.2f} |", flush=True)
    print()
    for line in memory_training.table():
        print(line, flush=True)


if __name__ == "__main__":
    main()
