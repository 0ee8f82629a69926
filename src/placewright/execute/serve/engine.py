"""What answers the requests of a server: ranks that stay up, or the workers of ONNX Runtime, behind one face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Protocol, TypeVar

from placewright.errors import ExecutionError
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.serve.group import ResidentGroup
from placewright.execute.serve.messages import Arrays, Decoder, Reply, TensorSpec, array_of, tensors_of

__all__ = ["Engine", "OnnxEngine", "RankEngine"]


A = TypeVar("A")
B = TypeVar("B")


class Engine(Protocol):
    """Runs samples, or steps of generations, several of which may be under way.

    Attributes
    ----------
    devices : tuple of str
    inputs : tuple of TensorSpec
        What a sample must give; empty for a decoder.
    decoder : Decoder or None
    at_once : int
        How many requests are worth having under way.
    """

    devices: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    decoder: Decoder | None
    at_once: int

    @property
    def failure(self) -> str:
        """Why nothing can be run any more; empty while it can."""

    def run(self, inputs: Arrays) -> Future[Arrays]:
        """Run one sample, whose inputs have been checked."""

    def new_stream(self) -> int:
        """Give a new generation a number."""

    def step(self, stream: int, rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Future[tuple[int, ...]]:
        """Take a step of a generation; see :data:`placewright.execute.generate.generation.Step`."""

    def forget(self, stream: int) -> None:
        """Drop the caches of a generation."""

    def watch(self, longest_s: float) -> None:
        """Look whether what runs has died, or has been silent for too long while something is asked of it."""


class RankEngine:
    """Ranks of a PyTorch network: samples follow each other through them as in a pipeline.

    Parameters
    ----------
    group : ResidentGroup
        Started.
    """

    def __init__(self, group: ResidentGroup) -> None:
        self._group, self._streams = group, count()
        self.devices = tuple(group.names)
        self.inputs = group.ready[0].inputs
        self.decoder = next((r.decoder for r in group.ready if r.decoder is not None), None)
        self.at_once = len(group.names) + 1  # one in each device, and one on its way to the first

    @property
    def failure(self) -> str:
        """Why the ranks have ended."""
        return self._group.failure

    def run(self, inputs: Arrays) -> Future[Arrays]:
        """Give the sample to every rank; what each of them made are the outputs."""
        return _then(self._group.tell(kind="run", tensors=tensors_of(inputs)), _outputs)

    def new_stream(self) -> int:
        """Give a new generation a number."""
        return next(self._streams)

    def step(self, stream: int, rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Future[tuple[int, ...]]:
        """Give the step to every rank; the one with the last unit has the tokens."""
        tokens = tuple(map(tuple, rows))
        return _then(self._group.tell(kind="step", stream=stream, tokens=tokens, pads=tuple(pads)), _tokens)

    def forget(self, stream: int) -> None:
        """Let every rank drop its caches."""
        self._group.tell(kind="forget", stream=stream)

    def watch(self, longest_s: float) -> None:
        """End ranks that have not replied for so long."""
        if not self.failure and self._group.stalled_s() > longest_s:
            self._group.fail(f"the ranks did not reply within {longest_s:g} s; give more time with --timeout")


class OnnxEngine:
    """Workers of ONNX Runtime, which run one sample after the other.

    Parameters
    ----------
    runner : OnnxRunner
        Started.
    """

    def __init__(self, runner: OnnxRunner) -> None:
        import onnx

        self._runner = runner
        self._thread = ThreadPoolExecutor(1)
        self.devices = tuple(runner.problem.cluster.devices[i].name for i in runner.devices)
        self.inputs = tuple(
            TensorSpec(v.name, str(onnx.helper.tensor_dtype_to_np_dtype(v.element_type)), v.shape)
            for v in runner.inputs
        )
        self.decoder: Decoder | None = None
        self.at_once = 2  # one runs, and one is there when it has ended
        self.failure = ""

    def run(self, inputs: Arrays) -> Future[Arrays]:
        """Run the sample when those before it have been run."""
        return self._thread.submit(self._run, inputs)

    def new_stream(self) -> int:
        """Refuse: an ONNX network does not generate."""
        raise ExecutionError("an ONNX network does not generate")

    def step(self, stream: int, rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Future[tuple[int, ...]]:
        """Refuse: an ONNX network does not generate."""
        raise ExecutionError("an ONNX network does not generate")

    def forget(self, stream: int) -> None:
        """Do nothing."""

    def watch(self, longest_s: float) -> None:
        """See whether a worker has died while nothing was asked of it."""
        self.failure = self.failure or self._runner.lost

    def close(self) -> None:
        """Wait for the sample that runs."""
        self._thread.shutdown(cancel_futures=True)

    def _run(self, inputs: Arrays) -> Arrays:
        if self.failure:
            raise ExecutionError(self.failure)
        try:
            return self._runner.run(inputs)
        except ExecutionError as error:
            self.failure = str(error)
            raise


def _outputs(replies: list[Reply]) -> Arrays:
    """Gather the outputs of all ranks, in the network's order."""
    made = {tensor.name: array_of(tensor) for reply in replies for tensor in reply.tensors}
    return {name: made[name] for name in sorted(made, key=lambda name: int(name.removeprefix("output")))}


def _tokens(replies: list[Reply]) -> tuple[int, ...]:
    return next(reply.tokens for reply in replies if reply.tokens is not None)


def _then(first: Future[A], change: Callable[[A], B]) -> Future[B]:
    """Make a future of what follows from another's result."""
    second: Future[B] = Future()

    def done(ended: Future[A]) -> None:
        if not second.set_running_or_notify_cancel():
            return
        try:
            second.set_result(change(ended.result()))
        except Exception as error:
            second.set_exception(error)

    first.add_done_callback(done)
    return second
