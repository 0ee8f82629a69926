"""Small PyTorch networks with random weights, and random placements of them that obey colocation and wishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from placewright.cluster import Cluster, Device, Link
from placewright.graph import OperatorGraph
from placewright.plan import Plan, Schedule
from placewright.problem import Problem

Network = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


class Branches(torch.nn.Module):
    """A CNN: branches, batch norm, an in-place sum, a split, an expanded mask, and a buffer that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.left = torch.nn.Conv2d(8, 8, 1)
        self.right = torch.nn.Conv2d(8, 8, 5, padding=2)
        self.head = torch.nn.Linear(16, 5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.norm(self.stem(x)))
        left, right = self.left(x), self.right(x)
        top = left[:, :4]
        before = left + right.tanh().sin().cos()
        left.add_(x)
        upper, lower = torch.cat([left, right], 1).split(8, 1)
        mask = torch.ones(8, 1, 1).tril().expand(8, 6, 6)
        self.calls.add_(1)
        pooled = torch.cat([upper * mask, lower / self.calls], 1).mean((2, 3))
        return self.head(pooled), (before * left).mean() + top.sum()


def branches() -> Network:
    return Branches().eval(), (torch.randn(2, 3, 6, 6),), {}


class Returns(torch.nn.Module):
    """A chain that returns what no operator makes, too: a weight, a constant, a size and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(8))
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
        y = x
        for layer in self.layers:
            y = torch.tanh(layer(y))
        return y, self.table * 2, self.layers[0].weight, x.shape[0], x


def returns() -> Network:
    return Returns().eval(), (torch.randn(3, 4),), {}


def tiny_bert() -> Network:
    import transformers

    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    inputs = {"input_ids": torch.randint(0, 50, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    return transformers.BertModel(config).eval(), (), inputs


def tiny_gpt2() -> Network:
    import transformers

    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False)
    return transformers.GPT2LMHeadModel(config).eval(), (), {"input_ids": torch.randint(0, 50, (2, 7))}


def tiny_t5() -> Network:
    import transformers

    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, use_cache=False
    )
    tokens = torch.randint(0, 50, (2, 7))
    return (
        transformers.T5ForConditionalGeneration(config).eval(),
        (),
        {"input_ids": tokens, "decoder_input_ids": tokens},
    )


def tiny_mixtral() -> Network:
    import transformers

    config = transformers.MixtralConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        use_cache=False,
    )
    config._experts_implementation = "batched_mm"
    return transformers.MixtralForCausalLM(config).eval(), (), {"input_ids": torch.randint(0, 50, (2, 7))}


NETWORKS: dict[str, Callable[[], Network]] = {
    f.__name__: f for f in (branches, returns, tiny_bert, tiny_gpt2, tiny_t5, tiny_mixtral)
}


def problem_of(graph: OperatorGraph, devices: int, rng: np.random.Generator) -> Problem:
    """Random times; now and then a device that can't run an operator, but the last device can run all."""
    cluster = Cluster([Device(f"d{i}") for i in range(devices)], [Link(1e-5, 1e9, link_class="same-host")])
    times = rng.random((len(graph), devices))
    times[:, :-1][rng.random((len(graph), devices - 1)) < 0.05] = np.inf
    return Problem(graph, cluster, times)


def random_plan(problem: Problem, rng: np.random.Generator) -> Plan:
    """Each unit on a device drawn among those that it may run on."""
    unit_of = problem.graph.unit_of
    chosen = {}
    for k, unit in enumerate(unit_of):
        if unit not in chosen:
            chosen[unit] = int(rng.choice(np.flatnonzero(problem.allowed[k])))
    n = len(problem.graph)
    return Plan(np.array([chosen[unit] for unit in unit_of], dtype=np.int32), Schedule(np.zeros(n), np.zeros(n)), 0.0)
