"""Measuring on a GPU, with a stand-in for CUDA: tensors lie on the CPU, and the GPU's time is what the test says."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch

from placewright.costs.cuda_bench import WARM_UP, CudaBench
from placewright.costs.tasks import Input, OnnxValues, TorchUnit
from placewright.costs.timing import LEAST_RUNS
from placewright.costs.timing import WARM_UP as UNCOUNTED

VECTOR = Input("x", "float32", (3,), strides=(1,))
DOUBLED = TorchUnit((VECTOR,), (["aten::add", "Tensor", [["tensor", "x"], ["tensor", "x"]], {}, "y", []],))


class Fake:
    """A GPU that takes 0.25 s for every call, and writes down what it is asked."""

    def __init__(self, taken_s: float = 0.25) -> None:
        self.taken_s = taken_s
        self.called = self.waited = 0

    def seconds(self, call: Callable[[], object]) -> float:
        call()
        self.called += 1
        return self.taken_s

    def wait(self) -> None:
        self.waited += 1

    def cache_bytes(self) -> int:
        return 4096

    def clock_hz(self) -> float:
        return 1.5e9


def test_an_operator_takes_what_the_events_say() -> None:
    """Five equal calls settle it, after two that don't count; each found the GPU idle; the clock is told."""
    fake = Fake()
    bench = CudaBench("cpu", fake)
    waited = fake.waited
    answer = bench.answer(DOUBLED)
    assert (answer.seconds, answer.runs, answer.clock_hz) == (pytest.approx(0.25), LEAST_RUNS, 1.5e9)
    assert fake.called == UNCOUNTED + LEAST_RUNS and fake.waited - waited == 1 + fake.called


def test_who_submits_more_slowly_than_the_gpu_computes_is_waited_for() -> None:
    """Of a GPU that takes no time at all, the call itself is what is left."""
    assert CudaBench("cpu", Fake(0.0)).answer(DOUBLED).seconds > 0


def test_a_whole_network_is_waited_for() -> None:
    """It is timed from its call to the end of what the GPU does, without events."""
    fake = Fake()
    answer = CudaBench("cpu", fake).answer(TorchUnit(DOUBLED.inputs, DOUBLED.calls, whole=True))
    assert fake.called == 0 and answer.seconds > 0 and answer.runs >= LEAST_RUNS


def test_kernels_are_warm_before_they_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are made some times before the first that is timed."""
    made: list[bool] = []
    fake = Fake()

    def compiled(task: TorchUnit, place: str) -> Callable[..., torch.Tensor]:
        def function(x: torch.Tensor) -> torch.Tensor:
            made.append(fake.called > 0)
            return x

        return function

    monkeypatch.setattr("placewright.costs.cuda_bench.compiled", compiled)
    CudaBench("cpu", fake).answer(DOUBLED)
    assert made.index(True) == WARM_UP + 1  # the first that is timed is called before the fake counts it


def test_a_task_of_another_back_end_is_refused() -> None:
    """ONNX Runtime is not measured on GPUs."""
    with pytest.raises(TypeError, match="no task for torch"):
        CudaBench("cpu", Fake()).answer(OnnxValues((), b""))
