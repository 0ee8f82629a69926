"""Measuring ONNX models on ONNX Runtime, in the worker process.

An operator that is cut out of its network differs from itself inside it in three ways, and each is undone:

- The session call costs something: that of a model with one tiny operator is measured the same way and subtracted, less
  the dispatch of that operator.
- ONNX Runtime keeps activations in a blocked layout from one convolution to the next; alone, a convolution pays for the
  conversion at both ends. Conversions at the ends are taken off the optimised model, which then reads and makes blocked
  tensors as it does within the network.
- Inside the network its weights have left the core's own caches since the last run, its inputs were just written, and
  its outputs go where others have just been freed. So before every timed call the caches are driven out, and then the
  inputs and the outputs are read.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from placewright.costs.tasks import Answer, Input, OnnxPieces, OnnxUnit, OnnxValues, Task
from placewright.costs.timing import EVICTED_BYTES, measure

__all__ = ["OnnxBench"]

CHAIN = 65
"""Operators in the chain that dispatch is measured with."""

WHOLE_S = 1.0
"""Seconds that runs of a whole network are timed for."""

Array = npt.NDArray[Any]


class OnnxBench:
    """ONNX Runtime with so many threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        if (
            threads > 1
        ):  # one pool for all sessions: the idle threads of another pool would spin against a session's own
            onnxruntime.set_global_thread_pool_sizes(threads, 1)
        self.rng = np.random.default_rng(0)
        self._filler = np.ones(EVICTED_BYTES // 8, dtype=np.int64)  # written: else all its pages are one page of zeros
        self._tiny = self._bound(_chain(1), [Input("x", "float32", (1,))])
        one = measure(self._tiny.run, threads=threads)
        many = measure(self._bound(_chain(CHAIN), [Input("x", "float32", (1,))]).run, threads=threads)
        self.call_s = one.seconds
        self.dispatch_s = min(one.seconds, max(0.0, (many.seconds - one.seconds) / (CHAIN - 1)))
        before = self._before(self._tiny)
        self._cold_call_s = min(measure(self._tiny.run, threads=threads, before=before).seconds for _ in range(3))
        self._wholes: dict[str, _Bound] = {}

    def answer(self, task: Task) -> Answer:
        """Do a task."""
        if isinstance(task, OnnxUnit):
            return self._whole(task) if task.whole else self._unit(task)
        if isinstance(task, OnnxPieces):
            return self._pieces(task)
        if isinstance(task, OnnxValues):
            return self._values(task)
        raise TypeError(f"{type(task).__name__} is no task for ONNX Runtime")

    def _unit(self, task: OnnxUnit) -> Answer:
        model, inputs = _without_conversions(task.model, task.inputs, self)
        bound = self._bound(model, inputs, optimise=model is task.model)
        sample = measure(bound.run, threads=self.threads, before=self._before(bound))
        seconds = max(0.0, sample.seconds - self._cold_call_s) + self.dispatch_s
        return Answer(seconds, self.call_s, sample.runs)

    def _whole(self, task: OnnxUnit) -> Answer:
        if task.path not in self._wholes:
            self._wholes = {task.path: self._bound(task.path, task.inputs)}
        sample = measure(self._wholes[task.path].run, threads=self.threads, enough_s=WHOLE_S)
        return Answer(max(0.0, sample.seconds - self.call_s), self.call_s, sample.runs)

    def _pieces(self, task: OnnxPieces) -> Answer:
        """Time the pieces and the whole in turn; the median of the differences, so that slow drift cancels."""
        whole = self._wholes.get(task.path) or self._bound(task.path, task.inputs)
        made = {i.name: self._array(i) for i in task.inputs}
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in made.items()}
        pieces = []
        for model in task.pieces:
            piece = _Bound(self._session(model, optimise=True), values)
            values |= piece.outputs
            pieces.append(piece)
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        differences: list[float] = []
        opened = time.monotonic()
        while len(differences) < 7 or (len(differences) < 50 and time.monotonic() - opened < 3 * WHOLE_S):
            start = clock()
            whole.run()
            middle = clock()
            for piece in pieces:
                piece.run()
            differences.append((clock() - middle) - (middle - start))
        return Answer(statistics.median(differences), self.call_s, len(differences))

    def _values(self, task: OnnxValues) -> Answer:
        session = self._session(task.model, optimise=True)
        wanted = {i.name for i in session.get_inputs()}
        results = session.run(None, {i.name: self._array(i) for i in task.inputs if i.name in wanted})
        return Answer(
            values=tuple(
                Input(o.name, str(r.dtype), r.shape, values=np.ascontiguousarray(r).tobytes())
                for o, r in zip(session.get_outputs(), results, strict=True)
            )
        )

    def _before(self, bound: _Bound) -> Callable[[], None]:
        filler, tiny, arrays = self._filler, self._tiny, bound.arrays

        def before() -> None:
            filler.sum()
            tiny.run()  # the runtime's own code and data are in the caches while a network runs
            for array in arrays:
                array.sum()

        return before

    def _bound(self, model: bytes | str, inputs: Sequence[Input], optimise: bool = True) -> _Bound:
        session = self._session(model, optimise=optimise)
        wanted = {i.name for i in session.get_inputs()}
        arrays = {i.name: self._array(i) for i in inputs if i.name in wanted}
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
        return _Bound(session, values)

    def _array(self, given: Input) -> Array:
        dtype = np.dtype(given.dtype)
        if given.values:
            return np.frombuffer(given.values, dtype).reshape(given.shape)
        if dtype.kind == "f":
            return self.rng.random(given.shape, dtype=np.float32).astype(dtype)
        return self.rng.integers(0, max(1, given.below), given.shape).astype(dtype)

    def _session(self, model: bytes | str, *, optimise: bool, optimised_path: str = "") -> Any:
        options = onnxruntime.SessionOptions()
        level = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.use_per_session_threads = self.threads == 1
        options.log_severity_level = 4
        if optimised_path:
            options.optimized_model_filepath = optimised_path
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class _Bound:
    """A session whose inputs and outputs stay where they are: a run copies nothing."""

    def __init__(self, session: Any, values: dict[str, Any]) -> None:
        self._session, self._binding = session, session.io_binding()
        names = [i.name for i in session.get_inputs()]
        self.arrays: list[Array] = []
        for name in names:
            self._binding.bind_ortvalue_input(name, values[name])
            array = values[name].numpy()
            if array.dtype.kind in "fiu":
                self.arrays.append(array)
        self._kept = [values[name] for name in names]
        for o in session.get_outputs():
            self._binding.bind_output(o.name, "cpu")
        session.run_with_iobinding(self._binding)
        self.outputs: dict[str, Any] = dict(
            zip((o.name for o in session.get_outputs()), self._binding.get_outputs(), strict=True)
        )
        self._binding.clear_binding_outputs()
        for name, value in self.outputs.items():
            self._binding.bind_ortvalue_output(name, value)
            if (array := value.numpy()).dtype.kind in "fiu":
                self.arrays.append(array)

    def run(self) -> None:
        """Run once."""
        self._session.run_with_iobinding(self._binding)


def _chain(length: int) -> bytes:
    """Serialise a model of so many negations of one number."""
    names = [f"x{k}" for k in range(1, length)]
    nodes = [onnx.helper.make_node("Neg", [a], [b]) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    opset = onnx.helper.make_opsetid("", 13)
    return bytes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


def _without_conversions(model: bytes, inputs: Sequence[Input], bench: OnnxBench) -> tuple[bytes, Sequence[Input]]:
    """Optimised model without the layout conversions at its ends, and its inputs; as given where there are none."""
    if not any(len(i.shape) == 4 for i in inputs):
        return model, inputs
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        bench._session(model, optimise=True, optimised_path=str(path))
        optimised = onnx.load(path)
    graph = optimised.graph
    ends = {i.name for i in graph.input}, {o.name for o in graph.output}
    first = [n for n in graph.node if n.op_type == "ReorderInput" and n.input[0] in ends[0]]
    last = [n for n in graph.node if n.op_type == "ReorderOutput" and n.output[0] in ends[1]]
    readers = {name for n in graph.node for name in n.input}
    last = [n for n in last if n.output[0] not in readers]
    if not first and not last:
        return model, inputs
    shapes = _blocked_shapes(optimised, [n.output[0] for n in first], inputs, bench)
    element = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.output]}
    for n in first:
        graph.input.append(onnx.helper.make_tensor_value_info(n.output[0], element[n.input[0]], shapes[n.output[0]]))
    for n in last:
        if n.input[0] not in {o.name for o in graph.output}:
            graph.output.append(onnx.helper.make_tensor_value_info(n.input[0], element[n.output[0]], None))
        graph.output.remove(next(o for o in graph.output if o.name == n.output[0]))
    for n in [*first, *last]:
        graph.node.remove(n)
    made = {name for n in graph.node for name in n.output} | {i.name for i in graph.input}
    for o in [o for o in graph.output if o.name not in made]:
        graph.output.remove(o)
    read = {name for n in graph.node for name in n.input}
    for i in [i for i in graph.input if i.name not in read]:
        graph.input.remove(i)
    del graph.value_info[:]
    blocked = [Input(name, "float32", shape) for name, shape in shapes.items()]
    return optimised.SerializeToString(), [*inputs, *blocked]


def _blocked_shapes(
    optimised: onnx.ModelProto, names: Sequence[str], inputs: Sequence[Input], bench: OnnxBench
) -> dict[str, tuple[int, ...]]:
    """Shapes of the converted inputs: the runtime is asked, since the size of a block is the processor's."""
    if not names:
        return {}
    probe = onnx.ModelProto()
    probe.CopyFrom(optimised)
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names)
    session = bench._session(probe.SerializeToString(), optimise=False)
    wanted = {i.name for i in session.get_inputs()}
    results = session.run(list(names), {i.name: bench._array(i) for i in inputs if i.name in wanted})
    return {name: tuple(r.shape) for name, r in zip(names, results, strict=True)}
