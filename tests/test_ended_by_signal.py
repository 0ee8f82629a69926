"""SIGTERM and SIGHUP while something is held: an exception, once; and nothing is changed elsewhere."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from placewright.ended_by_signal import EndedBySignal, cleared_when_ended

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="signals of POSIX")

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", NUMBERS)
def test_it_is_an_exception_inside_and_the_default_again_outside(number: signal.Signals) -> None:
    """What is raised has the exit code of a shell; a second signal does not cut the clearing short."""
    cleared = False
    with pytest.raises(EndedBySignal, match=f"ended by {number.name}") as raised, cleared_when_ended():
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)
            cleared = True
    assert cleared and raised.value.code == 128 + number
    assert [signal.getsignal(each) for each in NUMBERS] == [signal.SIG_DFL] * 2


def test_what_is_ignored_stays_so() -> None:
    """Under ``nohup`` a terminal that closes ends nothing."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cleared_when_ended(), cleared_when_ended():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_change_nothing() -> None:
    """Only the main thread can take signals."""
    seen = []

    def work() -> None:
        with cleared_when_ended():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def test_the_command_line_says_it_in_one_line() -> None:
    """A command that is ended while it holds something: the cause on standard error, and 143."""
    script = (
        "import signal; import placewright.cli.application as cli\n"
        "from placewright.ended_by_signal import cleared_when_ended\n"
        "def command(*arguments, **options):\n"
        "    with cleared_when_ended():\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "cli.app = command\n"
        "cli.run([])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "placewright: ended by SIGTERM\n")
