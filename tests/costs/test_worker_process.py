"""The measuring process: what it answers, and what its death or silence costs."""

from pathlib import Path

import pytest

from placewright.costs.tasks import Input, OnnxUnit, OnnxValues, Setup
from placewright.costs.worker_process import MeasuringProcess

SETUP = Setup("cpu0", (), 1)
TASK = OnnxValues((Input("x", "float32", (1,)),), b"no model")
READ = "import sys; from placewright.costs.tasks import *; receive(sys.stdin.buffer); "


def test_a_task_that_fails_is_answered_and_the_process_lives_on() -> None:
    """Bytes that are no model give the runtime's reason in one line, twice from the same process."""
    with MeasuringProcess(SETUP) as process:
        first = process.ask(TASK, timeout_s=60)
        worker = process._process
        second = process.ask(OnnxUnit((), b"neither"), timeout_s=60)
        assert process._process is worker
    assert first.error and second.error and "\n" not in first.error + second.error


def test_a_silent_process_is_stopped_in_time() -> None:
    """A process that never answers costs its timeout, is killed, and the next task gets a new one."""
    with MeasuringProcess(SETUP, entry="import time; time.sleep(1000)") as process:
        answer = process.ask(TASK, timeout_s=0.2)
        assert "longer than 0.2 s" in answer.error
        assert process._process is None
        assert "longer than" in process.ask(TASK, timeout_s=0.2).error


def test_a_dead_process_is_told_by_how_it_ended() -> None:
    """An exit code and a signal are both named, and neither hangs."""
    with MeasuringProcess(SETUP, entry=READ + "receive(sys.stdin.buffer); sys.exit(7)") as process:
        assert "exit code 7" in process.ask(TASK, timeout_s=60).error
    kill = "receive(sys.stdin.buffer); import os; os.kill(os.getpid(), 9)"
    with MeasuringProcess(SETUP, entry=READ + kill) as process:
        assert "signal 9" in process.ask(TASK, timeout_s=60).error


def test_a_half_written_answer_is_a_death() -> None:
    """A message whose length promises more than comes is not taken for an answer."""
    half = "sys.stdout.buffer.write((99).to_bytes(8, 'little') + b'half'); sys.stdout.flush()"
    with MeasuringProcess(SETUP, entry=READ + half) as process:
        assert "ended" in process.ask(TASK, timeout_s=60).error


def test_leaving_ends_the_process() -> None:
    """After the block nothing is left running, though the process would wait for ever."""
    with MeasuringProcess(SETUP, entry="import time; time.sleep(1000)") as process:
        worker = process._start()
    assert worker.poll() is not None


def test_temporary_files_of_a_killed_process_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs with a temporary folder of its own: killed in time, and the folder goes with the block."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    hang = "import tempfile, time; tempfile.mkdtemp(); print(flush=True); time.sleep(1000)"
    with MeasuringProcess(SETUP, entry=hang) as process:
        started = process._start()
        assert started.stdout is not None
        started.stdout.readline()
        assert len(list(tmp_path.glob("*/*"))) == 1
    assert list(tmp_path.iterdir()) == []
