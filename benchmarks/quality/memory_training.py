"""Networks that are trained for one step, and what torch really allocates for each part of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import cost_networks
import torch
import transformers
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from placewright.capture.torch_export import export_module
from placewright.capture.torch_program import take_apart
from placewright.costs.optimizers import optimizer_named
from placewright.costs.recomputation import kept_bytes
from placewright.costs.torch_training import training_memory


class WithLoss(torch.nn.Module):
    """A network and its loss on what it is given."""

    def __init__(self, network: torch.nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Give the loss."""
        return self.loss(self.network, *inputs)


def _predicts_tokens(network: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return network(input_ids=ids, labels=ids).loss


def _names_pictures(network: torch.nn.Module, pictures: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    found = network(pictures)
    return torch.nn.functional.cross_entropy(getattr(found, "logits", found), classes)


Trained = tuple[WithLoss, tuple[torch.Tensor, ...]]


def _language(cls: Any, config: Any, batch: int, length: int) -> Trained:
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        module = WithLoss(cls(config), _predicts_tokens).train()
    return module, (torch.zeros(batch, length, dtype=torch.int64),)


def _pictures(network: torch.nn.Module, batch: int) -> Trained:
    pictures, classes = torch.zeros(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.int64)
    return WithLoss(network, _names_pictures).train(), (pictures, classes)


def gpt2_4() -> Trained:
    """GPT-2 of 4 layers of width 768 without dropout, 2 x 128 tokens."""
    config = transformers.GPT2Config(n_layer=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False)
    return _language(transformers.GPT2LMHeadModel, config, 2, 128)


def bert_4() -> Trained:
    """BERT of 4 layers of width 256 with dropout, 4 x 128 tokens."""
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    return _language(transformers.BertForMaskedLM, transformers.BertConfig(**sizes, vocab_size=5000), 4, 128)


def llama_4() -> Trained:
    """Llama of 4 layers with grouped queries, 4 x 128 tokens."""
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, intermediate_size=688, vocab_size=2000, use_cache=False)
    return _language(transformers.LlamaForCausalLM, config, 4, 128)


def llama_4_bf16() -> Trained:
    """Make llama_4 in 16 bits, but for what it computes in 32."""
    module, inputs = llama_4()
    return module.to(torch.bfloat16), inputs


def vit_4() -> Trained:
    """ViT of 4 layers of width 192 on four pictures."""
    sizes = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
    config = transformers.ViTConfig(**sizes)
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        network = transformers.ViTForImageClassification(config)
    return _pictures(network, 4)


def resnet_50() -> Trained:
    """ResNet-50 on four pictures."""
    return _pictures(cost_networks.resnet_50()[0], 4)


def mobilenet_v2() -> Trained:
    """MobileNet v2 on four pictures."""
    return _pictures(cost_networks.mobilenet_v2()[0], 4)


NETWORKS: tuple[Callable[[], Trained], ...] = (gpt2_4, bert_4, llama_4, llama_4_bf16, vit_4, resnet_50, mobilenet_v2)


class Part(NamedTuple):
    """Bytes of one part, as predicted and as allocated."""

    predicted: int
    allocated: int


def allocations(run: Callable[[], Any]) -> tuple[int, int, Any]:
    """Bytes that a call leaves allocated, its peak over what was there before, and what it returns."""
    gc.collect()  # what is in a cycle would be let go within
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        returned = run()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return now, peak, returned


def parts_of(network: Callable[[], Trained]) -> Iterator[Part]:
    """Gradients, state of AdamW, saved, peak of a step, peak with two micro-batches in flight, saved when recomputed.

    A step as in the second of a run: gradients are there already and added to.
    """
    module, inputs = network()
    module.to_empty(device="cpu")
    if hasattr(module.network, "tie_weights"):
        module.network.tie_weights()
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.zero_()
    program = export_module(module, inputs)
    found = training_memory(program)
    adamw = optimizer_named("adamw")
    run = program.module()
    parameters = [p.requires_grad_() for p in run.parameters()]
    optimizer = torch.optim.AdamW(parameters)

    def loss() -> torch.Tensor:
        made = torch.fx.Interpreter(run, garbage_collect_values=True).run(*inputs, enable_io_processing=False)
        return next(t for t in tree_leaves(made) if isinstance(t, torch.Tensor) and t.requires_grad)

    loss().backward()
    gradients = sum(p.grad.nbytes for p in parameters if p.grad is not None)
    yield Part(found.parameter_bytes, gradients)
    yield Part(adamw.copies * found.parameter_bytes, allocations(optimizer.step)[0])
    optimizer.zero_grad(set_to_none=False)
    saved, forward, first = allocations(loss)
    _, backward, _ = allocations(first.backward)
    yield Part(found.saved_bytes, saved)
    yield Part(found.peak_bytes, max(forward, saved + backward))
    del first
    more, forward, losses = allocations(lambda: [loss(), loss()])
    _, backward, _ = allocations(lambda: [losses.pop(0).backward() for _ in range(2)])
    yield Part(found.saved_bytes + found.peak_bytes, max(forward, more + backward))
    if hasattr(module.network, "activation_checkpointing_enable"):
        module.network.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        for parameter in module.parameters():
            parameter.requires_grad_()
        again, _, kept = allocations(partial(module, *inputs))
        yield Part(sum(kept_bytes(found.storages, "full")[0].values()), again)
        del kept


def shortfall(network: Callable[[], Trained]) -> float:
    """Part of all that is saved that the second of two stages is short of, at the worst cut of the program's order.

    Tensors that operators on both sides save are counted in the first stage alone.
    """
    module, inputs = network()
    program = export_module(module, tuple(t.to("meta") for t in inputs))
    position = {v.name: k for k, v in enumerate(take_apart(program).operators)}
    saved = [s for s in training_memory(program).storages if s.savers]
    short = [0] * (len(position) + 1)
    for tensor in saved:
        ends = [position[v] for v in tensor.savers]
        short[min(ends) + 1] += tensor.size_bytes
        short[max(ends) + 1] -= tensor.size_bytes
    return max(accumulate(short)) / sum(t.size_bytes for t in saved)


def table() -> Iterator[str]:
    """Make a row for each network."""
    parts = ("gradients", "AdamW", "saved", "peak", "peak of two", "saved, recomputed")
    yield "| network | " + " | ".join(f"{part} | error" for part in parts) + " | short |"
    yield "|---" * (2 + 2 * len(parts)) + "|"
    for network in NETWORKS:
        cells = [
            f"{p.predicted / 2**20:.2f} | {100 * (p.predicted / p.allocated - 1):+.1f} %" for p in parts_of(network)
        ]
        cells += ["- | -"] * (len(parts) - len(cells))
        yield f"| {network.__name__} | " + " | ".join(cells) + f" | {100 * shortfall(network):.1f} % |"
