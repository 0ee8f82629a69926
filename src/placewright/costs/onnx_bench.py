"""Measuring ONNX models on ONNX Runtime, in the worker process.

An operator that is cut out of its network differs from itself inside it in four ways, and each is undone:

- The session call costs something: that of a model with one tiny operator is measured the same way and subtracted, less
  the dispatch of that operator.
- ONNX Runtime keeps activations in a blocked layout from one convolution to the next; alone, a convolution pays for the
  conversion at both ends. Conversions at the ends are taken off the optimised model, which then reads and makes blocked
  tensors as it does within the network. They are timed apart: that is what the operator loses beside a cut.
- Nothing is fused with what makes an output, and sums of two branches are fused in the blocked layout alone. So a fused
  operator is optimised with readers behind it and that layout before it, which are taken off afterwards.
- Inside the network its weights have left the caches since the last run, its inputs were just written, its outputs go
  where others have just been freed, and operators like it have just run. So before every timed call half of the last
  level's bytes are read, a twin with weights of its own runs, and then the inputs and the outputs are read. With 2 MiB
  and no twin, sums of operators were 2 to 19 % below whole networks; with all of the last level up to 46 % above.

A view only hands on what it reads, where the network goes on: it takes a dispatch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from placewright.costs.onnx_layout import Ends, ends_apart, filled_bytes, optimised_inside, surrounded
from placewright.costs.onnx_within import conversions_within
from placewright.costs.tasks import Answer, Conversion, Input, OnnxPieces, OnnxUnit, OnnxValues, Task
from placewright.costs.timing import measure
from placewright.host import cache_bytes

__all__ = ["OnnxBench"]

CHAIN = 65
"""Operators in the chain that dispatch is measured with."""

CONVERSIONS_S = 0.02
"""Seconds that conversions of layout are timed for: they are short, and don't depend on arithmetic."""

WHOLE_S = 1.0
"""Seconds that runs of a whole network are timed for."""

MOST_EVICTED_BYTES = 2**26
MOST_TWIN_BYTES = 2**28
"""Of weights: larger ones drive themselves out of the caches."""

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
        evicted = min(cache_bytes() // 2, MOST_EVICTED_BYTES)
        self._filler = np.ones(evicted // 8, dtype=np.int64)  # written: else all its pages are one page of zeros
        self._tiny = self._bound(_chain(1), [Input("x", "float32", (1,))])
        one = measure(self._tiny.run, threads=threads)
        many = measure(self._bound(_chain(CHAIN), [Input("x", "float32", (1,))]).run, threads=threads)
        self.call_s = one.seconds
        self.dispatch_s = min(one.seconds, max(0.0, (many.seconds - one.seconds) / (CHAIN - 1)))
        before = self._before(self._tiny, None)
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
        if task.view:
            return Answer(self.dispatch_s, self.call_s)
        inside = optimised_inside(task.model, task.inputs, self.session, blocked=task.blocked)
        ends = ends_apart(task.model, task.inputs, self.session, self.array, optimised=inside)

        def made() -> _Bound:
            if ends is not None:
                return self._stripped(ends)
            if inside is not None:
                return self._bound(inside.SerializeToString(), task.inputs, optimise=False)
            return self._bound(task.model, task.inputs)

        bound = made()
        twin = made() if len(task.model) + filled_bytes(onnx.load_from_string(task.model)) <= MOST_TWIN_BYTES else None
        sample = measure(bound.run, threads=self.threads, before=self._before(bound, twin))
        seconds = max(0.0, sample.seconds - self._cold_call_s) + self.dispatch_s
        return Answer(seconds, self.call_s, sample.runs, conversions_s=self._conversions(task, ends, bound))

    def _stripped(self, ends: Ends) -> _Bound:
        return self._bound(ends.stripped, ends.inputs, optimise=False)

    def _conversions(self, task: OnnxUnit, ends: Ends | None, bound: _Bound) -> float:
        """Time the layout conversions at the ends of an operator that is called by itself."""
        if ends is None and task.blocked:
            ranks = {name: len(value.shape()) for name, value in bound.outputs.items()}
            wrapped, inputs = surrounded(task.model, task.inputs, [name for name, rank in ranks.items() if rank == 4])
            ends = ends_apart(wrapped, inputs, self.session, self.array)
            if ends is None or ends.inner:
                return 0.0
            bound = self._stripped(ends)
        if ends is None:
            return 0.0
        values = self._values_of(ends.inputs) | bound.outputs
        alone = _Bound(self.session(ends.conversions, optimise=False), values)
        before = self._before(self._tiny, None)  # no buffer is warm: between pieces of a network they are not
        sample = measure(alone.run, threads=self.threads, before=before, enough_s=CONVERSIONS_S)
        return max(0.0, sample.seconds - self._cold_call_s)

    def _whole(self, task: OnnxUnit) -> Answer:
        within: tuple[Conversion, ...] = ()
        if task.path not in self._wholes:
            within = conversions_within(task.path, task.inputs, self.session, self._run_once)
            self._wholes = {task.path: self._bound(task.path, task.inputs)}
        sample = measure(self._wholes[task.path].run, threads=self.threads, enough_s=WHOLE_S)
        return Answer(max(0.0, sample.seconds - self.call_s), self.call_s, sample.runs, within=within)

    def _run_once(self, session: Any, inputs: Sequence[Input]) -> None:
        wanted = {i.name for i in session.get_inputs()}
        session.run(None, {i.name: self.array(i) for i in inputs if i.name in wanted})

    def _pieces(self, task: OnnxPieces) -> Answer:
        """Time the pieces and the whole in turn; the median of the differences, so that slow drift cancels."""
        whole = self._wholes.get(task.path) or self._bound(task.path, task.inputs)
        values = self._values_of(task.inputs)
        pieces = []
        for model in task.pieces:
            piece = _Bound(self.session(model, optimise=True), values)
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
        session = self.session(task.model, optimise=True)
        wanted = {i.name for i in session.get_inputs()}
        results = session.run(None, {i.name: self.array(i) for i in task.inputs if i.name in wanted})
        return Answer(
            values=tuple(
                Input(o.name, str(r.dtype), r.shape, values=np.ascontiguousarray(r).tobytes())
                for o, r in zip(session.get_outputs(), results, strict=True)
            )
        )

    def _before(self, bound: _Bound, twin: _Bound | None) -> Callable[[], None]:
        filler, tiny, arrays = self._filler, self._tiny, bound.arrays

        def before() -> None:
            filler.sum()
            if twin is not None:
                twin.run()
            tiny.run()  # the runtime's own code and data are in the caches while a network runs
            for array in arrays:
                array.sum()

        return before

    def _bound(self, model: bytes | str, inputs: Sequence[Input], optimise: bool = True) -> _Bound:
        session = self.session(model, optimise=optimise)
        wanted = {i.name for i in session.get_inputs()}
        return _Bound(session, self._values_of(i for i in inputs if i.name in wanted))

    def _values_of(self, inputs: Iterable[Input]) -> dict[str, Any]:
        return {i.name: onnxruntime.OrtValue.ortvalue_from_numpy(self.array(i)) for i in inputs}

    def array(self, given: Input) -> Array:
        """Make a tensor up, or take its values."""
        dtype = np.dtype(given.dtype)
        if given.values:
            return np.frombuffer(given.values, dtype).reshape(given.shape)
        if dtype.kind == "f":
            return self.rng.random(given.shape, dtype=np.float32).astype(dtype)
        return self.rng.integers(0, max(1, given.below), given.shape).astype(dtype)

    def session(self, model: bytes | str, *, optimise: bool, optimised_path: str = "", profile_prefix: str = "") -> Any:
        """Open a session; ``optimised_path``: where the optimised model is written, ``profile_prefix``: its profile."""
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
        if profile_prefix:
            options.enable_profiling = True
            options.profile_file_prefix = profile_prefix
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
