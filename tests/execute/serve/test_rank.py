"""One rank that stays up, without the process round it: a sample in, outputs out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.capture.torch_export import capture_program, export_module  # noqa: E402
from placewright.cluster import Cluster, Device  # noqa: E402
from placewright.evaluate import evaluate  # noqa: E402
from placewright.execute.onnx.worker import read_message, write_message  # noqa: E402
from placewright.execute.serve.messages import (  # noqa: E402
    Command,
    Reply,
    ResidentJob,
    TensorSpec,
    array_of,
    tensors_of,
)
from placewright.execute.serve.rank import _network, _serve  # noqa: E402
from placewright.io import read_plan, write_plan  # noqa: E402
from placewright.plan import Plan  # noqa: E402
from placewright.problem import Problem  # noqa: E402
from placewright.result import Result  # noqa: E402

SPEC = "tests.execute.serve.test_rank:net"


class Net(torch.nn.Module):  # type: ignore[misc]
    """Two outputs, one of them of bfloat16, and an input that is written to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any, scale: Any) -> Any:
        x.add_(1.0)
        return self.layer(x), scale * 2


def net() -> Any:
    return Net().eval(), (torch.zeros(2, 4), torch.ones(3, dtype=torch.bfloat16))


def test_each_sample_has_its_own_outputs(tmp_path: Path) -> None:
    """Two samples by messages: outputs are the module's; the second is not touched by what the first wrote to."""
    module, args = net()
    graph = capture_program(export_module(module, args, {}))
    problem = Problem(graph, Cluster([Device("alone", memory_bytes=1 << 30)], []), [[1e-3]] * len(graph))
    judged = evaluate(problem, [0] * len(graph))
    path = tmp_path / "plan.json"
    write_plan(path, problem, Result(Plan([0] * len(graph), judged.schedule, judged.value_s)), judged)
    work = _network(ResidentJob(str(path), f"py:{SPEC}", None, 60.0, generate=False), read_plan(path), 0)
    assert work.ready.inputs == (TensorSpec("x", "float32", (2, 4)), TensorSpec("scale", "bfloat16", (3,)))
    samples = [
        {"x": np.full((2, 4), 1.0 + k, np.float32), "scale": np.array([1, 2, 3 + k], np.float32)} for k in range(2)
    ]
    commands, answers = io.BytesIO(), io.BytesIO()
    for k in (0, 1, 0):
        write_message(commands, Command(k, "run", tensors=tensors_of(samples[k])))
    commands.seek(0)
    _serve(work, commands, answers)
    answers.seek(0)
    for k in (0, 1, 0):
        reply = msgspec.msgpack.decode(read_message(answers), type=Reply)
        made = {tensor.name: array_of(tensor) for tensor in reply.tensors}
        with torch.no_grad():
            x, scale = torch.from_numpy(samples[k]["x"].copy()), torch.tensor(samples[k]["scale"], dtype=torch.bfloat16)
            wanted = module(x, scale)
        assert reply.number == k and reply.error == ""
        outputs = [array for array in made.values() if array.shape == (2, 4) or array.shape == (3,)]
        assert any(np.array_equal(array, wanted[0].numpy()) for array in outputs)
        assert any(np.array_equal(array, wanted[1].float().numpy()) for array in outputs)
    assert read_message(answers) == b""
