"""The worker process of one device: session calls on ONNX Runtime, over memory that it shares with the others.

It is started by :mod:`placewright.execute.onnx.runner` and reads one message, the job, from its standard input; the
end of that stream means that the driver is gone, and ends the worker whatever it is doing. It answers on its standard
output: ``ready``, or what went wrong. Runs are signalled through shared memory alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from placewright.cluster import Device
from placewright.execute.onnx.shared import GO, Job, Shared, ValueSpec, wait_for
from placewright.host import confine, rest

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["Answer", "main", "read_message", "write_message"]

_PR_SET_TIMERSLACK = 29
IDLE_SPIN_S = 0.02
"""How long a worker that has cores of its own spins for the next run before it naps."""


class Answer(msgspec.Struct, frozen=True):
    """What a worker tells the driver: an empty ``error`` means ready."""

    error: str = ""


def write_message(stream: BinaryIO, message: msgspec.Struct) -> None:
    """Write a message with its length before it."""
    body = msgspec.msgpack.encode(message)
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def read_message(stream: BinaryIO) -> bytes:
    """Read a message; ``b""`` at the end of the stream."""
    head = stream.read(8)
    return stream.read(int.from_bytes(head, "little")) if len(head) == 8 else b""


def main() -> None:
    """Entry of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's, which ends its workers
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    job = msgspec.msgpack.decode(read_message(sys.stdin.buffer), type=Job)
    threading.Thread(target=_end_with_driver, args=(os.getppid(),), daemon=True).start()
    try:
        confine(Device(job.device, cores=job.cores, threads=job.threads))
        worker = Worker(job)
        write_message(answers, Answer())
        worker.loop()
    except Exception as error:
        write_message(answers, Answer(error=" ".join(str(error).split()) or type(error).__name__))
        sys.exit(1)


def _end_with_driver(driver: int) -> None:
    while os.getppid() == driver:
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 1):
            break
    os._exit(1)


class Worker:
    """The calls of one device, bound to memory once and run again and again."""

    def __init__(self, job: Job) -> None:
        import onnxruntime

        self.job = job
        self.shared = Shared(job.shared_fd, job.shared_bytes)
        self._private = [bytearray(max(v.size_bytes, 1) + 64) if v.offset < 0 else None for v in job.values]
        self.runs: list[Any] = []
        self._bindings: list[onnxruntime.IOBinding | None] = []
        threads = job.threads or max(1, len(job.cores))
        if threads > 1:  # one pool for all calls: a pool each would spin against the others
            onnxruntime.set_global_thread_pool_sizes(threads, 1)
        for call in job.calls:
            if not call.outputs:  # nobody reads what it makes
                self._bindings.append(None)
                continue
            session = onnxruntime.InferenceSession(
                call.model, session_options(threads, job.external_folder), providers=["CPUExecutionProvider"]
            )
            binding = session.io_binding()
            for k in call.inputs:
                v = job.values[k]
                binding.bind_input(v.name, "cpu", 0, v.element_type, list(v.shape), self._address(k))
            self._bindings.append(binding)
            self.runs.append(session)
        with contextlib.suppress(OSError, AttributeError):  # naps as short as they are asked for
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)

    def loop(self) -> None:
        """Serve runs for ever: the first to learn and check the outputs' shapes, all others in place."""
        job, words = self.job, self.shared.words
        sessions = iter(self.runs)
        calls = [
            (c, call.waits, call.sends, None if binding is None else next(sessions), binding, job.marks + 3 * c)
            for c, (call, binding) in enumerate(zip(job.calls, self._bindings, strict=True))
        ]
        clock, pace, at, spin_s = time.monotonic_ns, job.pace, job.at, job.spin_s
        idle_s = IDLE_SPIN_S if spin_s >= IDLE_SPIN_S else spin_s
        number = 0
        while True:
            number += 1
            wait_for(words, GO, number, idle_s)
            for c, waits, sends, session, binding, mark in calls:
                words[at] = c
                words[mark] = clock()
                for flag in waits:
                    wait_for(words, flag, number, spin_s)
                began = clock()
                if session is not None:
                    if number == 1:
                        self._rehearse(session, binding, job.calls[c].outputs)
                    else:
                        self._call(session, binding, c)
                    if pace < 1.0:
                        rest(began * 1e-9, pace)
                ended = clock()
                # The call above has released and taken the interpreter's lock, so its stores come before these.
                for flag in sends:
                    words[flag] = number
                words[mark + 1] = began
                words[mark + 2] = ended
            words[at] = 0  # where it will stand, should it never hear of the next run
            words[job.done] = number
            if number == 1:  # from here on nothing is made that could need collecting
                gc.collect()
                gc.freeze()
                gc.disable()

    def _call(self, session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding, c: int) -> None:
        try:
            session.run_with_iobinding(binding)
        except Exception:  # the runtime refuses a slot of another shape than this run's
            self._rehearse(session, binding, self.job.calls[c].outputs)
            raise

    def _address(self, k: int) -> int:
        value, private = self.job.values[k], self._private[k]
        if private is None:
            return self.shared.address(value.offset)
        start = ctypes.addressof(ctypes.c_char.from_buffer(private))
        return -(-start // 64) * 64

    def _rehearse(
        self, session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding, outputs: tuple[int, ...]
    ) -> None:
        """Run once into memory of the runtime's own, compare with what was captured, then bind the slots."""
        values = [self.job.values[k] for k in outputs]
        for v in values:
            binding.bind_output(v.name, "cpu")
        session.run_with_iobinding(binding)
        for k, v, made in zip(outputs, values, binding.get_outputs(), strict=True):
            check_shape(v, tuple(made.shape()), made.element_type())
            ctypes.memmove(self._address(k), made.data_ptr(), v.size_bytes)
        binding.clear_binding_outputs()
        for k, v in zip(outputs, values, strict=True):
            binding.bind_output(v.name, "cpu", 0, v.element_type, list(v.shape), self._address(k))


def session_options(threads: int, external_folder: str = "") -> onnxruntime.SessionOptions:
    """Full graph optimisation, one operator at a time, on so many threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.use_per_session_threads = threads == 1
    if external_folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", external_folder)
    return options


def check_shape(value: ValueSpec, shape: tuple[int, ...], element_type: int) -> None:
    """Compare what a run gave with what was captured."""
    if shape != value.shape:
        raise ValueError(
            f"tensor {value.name!r} was captured with the shape {list(value.shape)} but has the shape {list(shape)} "
            "when run; correct the shapes that the model file states, and plan again"
        )
    if element_type != value.element_type:
        raise ValueError(
            f"tensor {value.name!r} was captured with element type {value.element_type} but has {element_type} when "
            "run; correct the types that the model file states, and plan again"
        )


if __name__ == "__main__":
    main()
