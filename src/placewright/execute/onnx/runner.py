"""Run a plan on ONNX Runtime: one worker process for each device that it uses, tensors handed over in shared memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from placewright.capture.onnx_file import load_model
from placewright.cluster import Device
from placewright.errors import DeviceLost, ExecutionError, MissingExtra
from placewright.execute.onnx.process import WorkerProcess
from placewright.execute.onnx.shared import GO, SENT, CallSpec, Job, Layout, Shared, ValueSpec
from placewright.execute.onnx.split import Call, Split, Value, split_model
from placewright.host import available_cores, memory_bytes
from placewright.measurement import Span
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.units import format_bytes

__all__ = ["OnnxRunner"]

Arrays = dict[str, npt.NDArray[Any]]


class OnnxRunner:
    """Workers that stay up and run one sample after another.

    A tensor that several devices need is written once, by the session that makes it, where all of them read it: a
    transfer is a flag that is raised. Each worker runs its operators in the order of the plan's schedule, those between
    two transfers as one session call.

    Parameters
    ----------
    model_path : str or Path
        The model that the problem was captured from. External data must lie in its folder.
    problem : Problem
    plan : Plan
    timeout_s : float
        Of one run, in seconds.
    start_timeout_s : float
        For the workers to load their parts.
    input_shapes : mapping of str to tuple of int, optional
        Where the model leaves sizes of its inputs open.
    dim_overrides : mapping of str to int, optional
        Sizes of open dimensions by name, as at capture; typical sizes else, the same as the capture takes.
    cut_after : collection of int
        Operators that end a call though no transfer asks for it; for measuring what a cut costs.
    give_out : bool
        All that operators make counts as handed over; for looking for a difference.

    Raises
    ------
    ExecutionError
        If a worker can't start, dies, hangs, or gives a tensor with another shape than was captured. All workers are
        ended first; the shared memory has no name and goes with them.

    Examples
    --------
    ::

        with OnnxRunner("model.onnx", problem, plan) as runner:
            outputs = runner.run({"input": array})
    """

    def __init__(
        self,
        model_path: str | Path,
        problem: Problem,
        plan: Plan,
        *,
        timeout_s: float = 60.0,
        start_timeout_s: float = 300.0,
        input_shapes: Mapping[str, tuple[int, ...]] | None = None,
        dim_overrides: Mapping[str, int] | None = None,
        cut_after: Collection[int] = (),
        give_out: bool = False,
    ) -> None:
        self.problem, self.plan, self.timeout_s, self.start_timeout_s = problem, plan, timeout_s, start_timeout_s
        self._folder = Path(model_path).resolve().parent
        model, _ = load_model(model_path)
        self.split: Split = split_model(
            model,
            problem,
            plan,
            input_shapes=input_shapes,
            dim_overrides=dim_overrides,
            cut_after=cut_after,
            give_out=give_out,
        )
        self.devices: list[int] = sorted({c.device for c in self.split.calls})
        self._workers: list[WorkerProcess] = []
        self._shared: Shared | None = None
        self._constant: Arrays = {}
        self._number = 0
        self._last_s = 0.0

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and free the shared memory. Closing twice does no harm."""
        while self._workers:
            self._workers.pop().end()
        if self._shared is not None:
            self._slots: Arrays = {}
            self._shared.close()
            self._shared = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Inputs of the network."""
        return tuple(self.split.values[name] for name in self.split.inputs)

    @property
    def lost(self) -> str:
        """How a worker died that has died; empty while all live."""
        dead = next((w for w in self._workers if not w.alive), None)
        return dead.death() if dead is not None else ""

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        """Run one sample.

        Parameters
        ----------
        inputs : mapping of input name to array

        Returns
        -------
        dict of output name to array

        Raises
        ------
        ExecutionError
            If an input is absent or has another type or shape, or a worker fails; then all workers are ended.
        """
        self.load(inputs)
        self.go()
        return self.outputs(inputs)

    def load(self, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write a sample's inputs to where the workers read them."""
        self._running()
        for value in self.inputs:
            if value.name not in inputs:
                raise ExecutionError(f"input {value.name!r} of the network is not given; give it by that name")
            given = np.asarray(inputs[value.name])
            dtype = _dtype(value.element_type)
            if given.shape != value.shape or given.dtype != dtype:
                raise ExecutionError(
                    f"input {value.name!r} is {given.dtype} {list(given.shape)} but was planned for as "
                    f"{dtype} {list(value.shape)}; give it so, or plan again for the new shape"
                )
            if value.name in self._slots:
                self._slots[value.name][...] = given

    def go(self) -> float:
        """Run the sample that is loaded; seconds from the go signal to the finish of the last operator."""
        shared = self._running()
        self._number += 1
        words, done = shared.words, self._layout.done
        sent = time.monotonic_ns()
        words[SENT] = sent
        words[GO] = self._number
        until = time.monotonic() + self.timeout_s
        # Asleep for most of the time that the last run took: the driver has no core of its own.
        pause = 0.8 * min(self._last_s, 0.25)
        step = min(max(self._last_s / 50, 2e-5), 2e-3)
        try:
            while True:
                if all(words[at] >= self._number for at in done):
                    break
                time.sleep(pause or step)
                pause = 0.0
                dead = next((k for k, w in enumerate(self._workers) if not w.alive), None)
                if dead is not None:
                    raise self._workers[dead].failure(self._call_name(self._calls[dead][words[self._layout.at[dead]]]))
                if time.monotonic() > until:
                    raise self._hung()
        except BaseException:
            self.close()
            raise
        finished = [words[at + 3 * len(self._calls[k]) - 1] for k, at in enumerate(self._layout.marks)]
        self._last_s = max(0.0, (max(finished) - sent) * 1e-9)
        return self._last_s

    def outputs(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        """Copy the outputs of the last run."""
        self._running()
        given = {name: np.array(inputs[name]) for name in self.split.outputs if name in self.split.inputs}
        made = {**given, **self._constant}
        return {name: made[name] if name in made else self._slots[name].copy() for name in self.split.outputs}

    def handed_over(self) -> Arrays:
        """Copy what went from one device to another in the last run, but for types that numpy lacks."""
        self._running()
        sent = (name for call in self.split.calls for name in call.sends)
        return {name: self._slots[name].copy() for name in sent if self._slots[name].dtype.isbuiltin == 1}

    def timeline(self) -> list[tuple[Call, float, float, float]]:
        """List the calls of the last run, each with the seconds when it began to wait, started, and finished."""
        words = self._running().words
        sent, made = words[SENT], []
        for first, calls in zip(self._layout.marks, self._calls, strict=True):
            for c, call in enumerate(calls):
                waited, began, ended = (words[first + 3 * c + m] - sent for m in range(3))
                made.append((call, waited * 1e-9, began * 1e-9, ended * 1e-9))
        return made

    def spans(self) -> tuple[Span, ...]:
        """Tell what each device did in the last run: calls, waits for the tensor that came last, and transfers.

        A tensor is there when the call that makes it has ended; who waited for it has it when it goes on.
        """
        rows, names = self.timeline(), [d.name for d in self.problem.cluster.devices]
        made = {name: (names[call.device], ended) for call, _, _, ended in rows for name in call.sends}
        spans = []
        for call, waited, began, ended in rows:
            device = names[call.device]
            if call.waits:
                last = max(call.waits, key=lambda name: made[name][1])
                spans.append(Span(device, last, "wait", waited, began, made[last][0]))
                for name in call.waits:
                    source, at = made[name]
                    found = name != last or at <= waited
                    spans.append(Span(source, name, "transfer", at, at if found else began, device, found=found))
            operators = tuple(self.problem.graph.operators[v].name for v in call.operators)
            spans.append(Span(device, self._call_name(call), "compute", began, ended, operators=operators))
        return tuple(spans)

    def _start(self) -> None:
        try:
            import onnxruntime  # noqa: F401
        except ImportError as absent:
            raise MissingExtra("onnxruntime", "onnx", "running a plan on ONNX Runtime") from absent
        split = self.split
        self._calls: list[list[Call]] = [[c for c in split.calls if c.device == i] for i in self.devices]
        sent = list(dict.fromkeys(name for c in split.calls for name in c.sends))
        shared_names = [*split.inputs, *sent, *(o for o in split.outputs if o in split.values)]
        slots = {name: split.values[name].size_bytes for name in dict.fromkeys(shared_names)}
        total, limit = sum(slots.values()), memory_bytes()
        if total > limit:
            raise ExecutionError(
                f"the tensors between devices need {format_bytes(total)}, this machine has {format_bytes(limit)}; "
                "place their readers with their makers"
            )
        self._layout = Layout.make([len(c) for c in self._calls], sent, slots)
        self._shared = Shared.create(self._layout.size_bytes)
        self._slots = {name: self._view(split.values[name], offset) for name, offset in self._layout.offset_of.items()}
        self._constant = self._unplaced()
        for k in range(len(self.devices)):
            self._workers.append(WorkerProcess(self._device(k), self._shared.fd))
        for k, worker in enumerate(self._workers):  # all are starting while the jobs are made
            worker.send(self._job(k))
        until = time.monotonic() + self.start_timeout_s
        for worker in self._workers:
            worker.await_ready(until)

    def _job(self, k: int) -> Job:
        assert self._shared is not None
        device, calls = self._device(k), self._calls[k]
        names = list(dict.fromkeys(name for c in calls for name in (*c.inputs, *c.outputs)))
        index = {name: n for n, name in enumerate(names)}
        values = tuple(
            ValueSpec(v.name, v.element_type, v.shape, v.size_bytes, self._layout.offset_of.get(v.name, -1))
            for v in map(self.split.values.__getitem__, names)
        )
        flag_of = self._layout.flag_of
        specs = tuple(
            CallSpec(
                self.split.call_model(c) if c.outputs else b"",
                tuple(index[name] for name in c.inputs),
                tuple(index[name] for name in c.outputs),
                tuple(flag_of[name] for name in c.waits),
                tuple(flag_of[name] for name in c.sends),
            )
            for c in calls
        )
        return Job(
            device=device.name,
            cores=device.cores,
            threads=device.threads,
            pace=device.cpu_share,
            spin_s=1.0 if self._cores_to_spare() else 5e-5,
            external_folder=str(self._folder),
            shared_fd=self._shared.fd,
            shared_bytes=self._layout.size_bytes,
            values=values,
            calls=specs,
            done=self._layout.done[k],
            at=self._layout.at[k],
            marks=self._layout.marks[k],
        )

    def _cores_to_spare(self) -> bool:
        """Whether each worker has cores of its own, so that one that spins holds nobody up."""
        devices = [self._device(k) for k in range(len(self.devices))]
        pinned = Counter(core for d in devices for core in d.cores)
        threads = sum(max(d.threads, len(d.cores), 1) for d in devices)
        return threads <= len(available_cores()) and max(pinned.values(), default=1) == 1

    def _unplaced(self) -> Arrays:
        """Make the outputs that depend on nothing, once."""
        wanted = [name for name in self.split.unplaced_outputs if name not in self.split.inputs]
        if not wanted:
            return {}
        import onnxruntime

        from placewright.execute.onnx.worker import session_options

        options = session_options(1, str(self._folder))
        session = onnxruntime.InferenceSession(self.split.unplaced_model(), options, ["CPUExecutionProvider"])
        return dict(zip(wanted, session.run(wanted, {}), strict=True))

    def _view(self, value: Value, offset: int) -> npt.NDArray[Any]:
        assert self._shared is not None
        return (
            self._shared.bytes[offset : offset + value.size_bytes].view(_dtype(value.element_type)).reshape(value.shape)
        )

    def _device(self, k: int) -> Device:
        return self.problem.cluster.devices[self.devices[k]]

    def _running(self) -> Shared:
        if self._shared is None or not self._workers:
            raise ExecutionError("the workers are not running; use the runner in a 'with' block")
        return self._shared

    def _hung(self) -> DeviceLost:
        """Name the devices that have not finished; those that only wait for others are not to blame."""
        words = self._running().words
        late = [k for k, at in enumerate(self._layout.done) if words[at] < self._number]
        stuck = []
        for k in late:
            call = self._calls[k][words[self._layout.at[k]]]
            if all(words[self._layout.flag_of[name]] >= self._number for name in call.waits):
                stuck.append((k, call))
        k, call = stuck[0] if stuck else (late[0], self._calls[late[0]][0])
        name = self._device(k).name
        return DeviceLost(
            f"device {name!r} did not finish {self._call_name(call)} within {self.timeout_s:g} s; give more time, or "
            "place less on it",
            device=name,
        )

    def _call_name(self, call: Call) -> str:
        names = [self.problem.graph.operators[v].name for v in call.operators]
        return names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]} ({len(names)})"


def _dtype(element_type: int) -> np.dtype[Any]:
    import onnx

    dtype: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    return dtype
