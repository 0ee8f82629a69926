"""Randomly wired networks: they run, have the published size, and are captured and planned."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from placewright import Cluster, Device, Link, Problem, capture, roofline
from placewright.algorithm import Budget
from placewright.capture.torch_export import capture_module
from placewright.errors import InvalidInput
from placewright.networks import Wiring, randomly_wired
from placewright.networks.random_stages import RandomlyWired
from placewright.networks.randomly_wired import RANGES
from placewright.solve import solve
from placewright.verify import verify

SMALL: dict[str, Any] = {"nodes": 8, "channels": 4, "pixels": 64, "classes": 10}


@pytest.mark.parametrize(("graph", "regime"), list(itertools.product(["er", "ba", "ws"], ["small", "regular"])))
def test_runs_forward_and_backward(graph: Any, regime: Any) -> None:
    """A batch of three gives three rows of scores, and every weight a finite gradient; those of sums are used too."""
    m = {"m": 3} if graph == "ba" else {"k": 2} if graph == "ws" else {}
    module, inputs = randomly_wired(graph, regime=regime, batch=3, **m, **SMALL)
    assert not module.training
    scores = module.train()(torch.randn_like(inputs["x"]))
    assert scores.shape == (3, 10)
    scores.square().sum().backward()
    for name, weight in module.named_parameters():
        assert weight.grad is not None and bool(torch.isfinite(weight.grad).all()), name
    sums = [w.grad for name, w in module.named_parameters() if name.endswith(".weights")]
    assert sums and any(bool(g.abs().max() > 0) for g in sums if g is not None)


@pytest.mark.parametrize(
    ("regime", "channels", "weights_m", "products_m"), [("small", 78, 5.6, 583), ("regular", 154, 61.5, 7900)]
)
def test_is_as_large_as_published(regime: Any, channels: int, weights_m: float, products_m: float) -> None:
    """WS(4, 0.75): 5.6 M weights, 583 M products with 78 channels; 61.5 M and 7.9 G with 154.

    The paper's figures are means of wirings; how many nodes read a stage's input moves both by a few percent.
    """
    module, inputs = randomly_wired(regime=regime, channels=channels, device="meta")
    with FlopCounterMode(display=False) as counted:
        module(**inputs)
    assert sum(w.numel() for w in module.parameters()) / 1e6 == pytest.approx(weights_m, rel=0.03)
    assert counted.get_total_flops() / 2e6 == pytest.approx(products_m, rel=0.03)


def test_a_stage_computes_what_its_wiring_says() -> None:
    """Node 2 reads s(0) y0 + s(1) y1 = (y0 + 3 y1) / 4, node 3 nobody's but y2 and the mean of its readers goes out.

    With sigmoid weights 1/4 and 3/4, that is logits -log 3 and log 3; nodes are replaced by easy functions.
    """
    module = RandomlyWired([Wiring(((), (), (0, 1), (2,), (0,)))], 4, 10, second_convolution=True).eval()
    stage: Any = module.stages[0]
    with torch.no_grad():
        stage.nodes[2].weights.copy_(torch.tensor([1 / 3, 3.0]).log())
        x = torch.randn(1, 4, 8, 8)
        y0, y1 = stage.nodes[0]([x]), stage.nodes[1]([x])
        assert y0.shape == (1, 4, 4, 4)  # stride 2 where the stage's input is read
        after: Any = torch.nn.Sequential(*list(stage.nodes[2].children()))  # ReLU, two convolutions, normalisation
        y2 = after((y0 + 3 * y1) / 4)
        expected = (stage.nodes[3]([y2]) + stage.nodes[4]([y0])) / 2
        torch.testing.assert_close(stage(x), expected)
    assert [n.weights is None for n in stage.nodes] == [True, True, False, True, True]


def test_stages_double_their_channels_and_halve_their_pixels() -> None:
    """Small: 64 pixels become 16 by two convolutions, then 8, 4, 2; regular: 32, then 16, 8, 4, 2."""
    for regime, channels, heights in (("small", [4, 8, 16], [8, 4, 2]), ("regular", [4, 8, 16, 32], [16, 8, 4, 2])):
        module, inputs = randomly_wired(regime=regime, k=2, **SMALL)  # type: ignore[arg-type]
        shapes: list[torch.Size] = []
        for stage in module.stages:  # type: ignore[union-attr]
            stage.register_forward_hook(lambda _, __, out, shapes=shapes: shapes.append(out.shape))
        module(**inputs)
        assert shapes == [(1, c, h, h) for c, h in zip(channels, heights, strict=True)]


def test_the_seed_alone_decides() -> None:
    """Wirings and weights are equal for equal seeds, whatever the caller's generator, which is left as it was."""
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    one, _ = randomly_wired("ws", seed=3, **SMALL)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(6)
    same, _ = randomly_wired("ws", seed=3, **SMALL)
    other, _ = randomly_wired("ws", seed=4, **SMALL)
    assert [s.wiring for s in one.stages] == [s.wiring for s in same.stages]  # type: ignore[union-attr]
    assert [s.wiring for s in one.stages] != [s.wiring for s in other.stages]  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))


@pytest.mark.parametrize("graph", ["er", "ba", "ws"])
def test_is_exported_captured_and_planned(graph: Any) -> None:
    """Every node's convolutions are operators of the graph, and a plan for two devices passes the independent check."""
    module, inputs = randomly_wired(graph, **{**SMALL, **({"m": 2} if graph == "ba" else {})}, device="meta")
    network = capture_module(module, (), inputs, fold=True)
    convolutions = [v.name for v in network.operators if v.kind == "aten.conv2d"]
    assert len([c for c in convolutions if c.endswith("depthwise")]) == 3 * 8
    assert len(convolutions) == 2 * 3 * 8 + 3  # two a node, two of the stem, one of the head
    assert not [v.name for v in network.operators if "sigmoid" in v.kind]  # computed once, not for each sample
    pair = Cluster(
        [
            Device(n, memory_bytes=2**30, flops_per_s={"fp32": f}, memory_bandwidth_bytes_per_s=1e11)
            for n, f in (("fast", 1e12), ("slow", 5e11))
        ],
        [Link(1e-6, 1e10, link_class="same-host")],
    )
    problem = Problem(network, pair, roofline(network, pair))
    result = solve(problem, solver="heft", budget=Budget(iterations=1))
    assert result.plan is not None and verify(problem, result.plan) == ()


def test_the_command_line_can_name_it() -> None:
    """``py:placewright.networks:randomly_wired`` is a network of the small regime, in 32 x 3 nodes."""
    graph = capture("py:placewright.networks:randomly_wired", fuse="none")
    assert len([v for v in graph.operators if v.name.endswith("depthwise")]) == 96


def test_importing_it_loads_no_torch() -> None:
    """Torch is loaded when a network is made."""
    told = "import sys, placewright.networks; print(sorted({'torch', 'networkx'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"channels": 1}, "channels = 1 is not a whole number from 2 to 4,096"),
        ({"pixels": 16, "batch": 0}, "batch = 0 is not a whole number from 1 to 65,536; give another one; pixels = 16"),
        ({"classes": RANGES["classes"][1] + 1}, "classes = 1000001 is not"),
        ({"regime": "large"}, "regime 'large' is unknown; use one of small, regular"),
        ({"graph": "ws", "m": 4}, "m = 4 is no parameter of 'ws'"),
        ({"regime": "regular", "graph": "ba", "nodes": 10}, "m = 5 is not from 1 to 4"),  # the first stage has 5 nodes
        ({"device": "abacus"}, "device 'abacus' can't hold it"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], said: str) -> None:
    """What is out of range is named with its value and the limit, before anything is made."""
    with pytest.raises(InvalidInput) as refused:
        randomly_wired(**asked)
    assert said in str(refused.value)
