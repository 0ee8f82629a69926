"""Memory of exported torch programs, against sums by hand and against what torch's allocator gives out."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from placewright.capture.torch_export import export_module  # noqa: E402
from placewright.costs import program_memory  # noqa: E402

KB = 4 * 256
"""Bytes of a row of 256 numbers of fp32."""


class Views(torch.nn.Module):
    """A sum that is kept, a view of it, one in place on it, and a tensor that dies at once."""

    def forward(self, x: Any) -> Any:
        """Give back the view and a product."""
        kept = x + 1.0
        seen = kept.reshape(-1)
        short = kept * 2.0
        ended = short.sum()
        kept.mul_(3.0)
        return seen, kept.exp() * ended


class Convolution(torch.nn.Module):
    """3 x 3 on 4 channels, without padding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(4, 2, 3, bias=False)

    def forward(self, x: Any) -> Any:
        """Convolve."""
        return self.layer(x)


class Attention(torch.nn.Module):
    """Attention of each token to each, after a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 192)
        self.tied = torch.nn.Linear(64, 192)
        self.tied.weight = self.layer.weight

    def forward(self, x: Any) -> Any:
        """Two heads of width 32."""
        parts = (self.layer(x) + self.tied(x)).reshape(2, 50, 3, 2, 32).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])


def test_views_and_writes_in_place_take_nothing() -> None:
    """Most is held when the last product is made: kept, exp, the product (1 KiB each) and the sum (4 B)."""
    found = program_memory(export_module(Views(), (torch.zeros(4, 64),)))
    assert (found.live_bytes, found.workspace_bytes) == (3 * KB + 4, 0)
    assert found.peak_at.startswith("mul") and found.weight_bytes == {}


def test_a_convolution_holds_its_operands_or_its_result_twice() -> None:
    """Operands 4 x 10 x 10 and 2 x 4 x 3 x 3 are 400 + 72 numbers, the result 2 x 8 x 8 = 128."""
    found = program_memory(export_module(Convolution(), (torch.zeros(1, 4, 10, 10),)))
    assert (found.live_bytes, found.workspace_bytes) == (4 * 128, 4 * 472)
    assert found.weight_bytes == {"fp32": 4 * 72} and found.activation_bytes == 4 * 600


def test_weights_that_are_tied_count_once() -> None:
    """192 x 64 shared and two biases of 192."""
    found = program_memory(export_module(Attention(), (torch.zeros(2, 50, 64),)))
    assert found.weight_bytes == {"fp32": 4 * (192 * 64 + 2 * 192)}


@pytest.mark.parametrize(
    ("module", "shape"), [(Views(), (4, 64)), (Attention(), (2, 50, 64)), (torch.nn.Softmax(-1), (8, 64))]
)
def test_as_much_as_the_allocator_gives_out(module: torch.nn.Module, shape: tuple[int, ...]) -> None:
    """Within 5 % of the peak of torch's own memory events."""
    program = export_module(module.eval(), (torch.zeros(shape),))
    runner = torch.fx.Interpreter(program.module(), garbage_collect_values=True)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        runner.run(torch.zeros(shape), enable_io_processing=False)
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    given = 4 * torch.Size(shape).numel()  # the input itself is made within
    assert peak - given == pytest.approx(program_memory(program).activation_bytes, rel=0.05)
