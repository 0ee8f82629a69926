"""A server that a page starts, asked what the page asks, and ended."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENTRY = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);from placewright.cli import main; main()"
)


@contextmanager
def served(words: Sequence[str], folder: Path) -> Iterator[str]:
    """Start ``placewright serve`` on a port that is free, give its address, and end it as a terminal does."""
    at = words.index("--port") if "--port" in words else len(words)
    command = [sys.executable, "-c", ENTRY, *words[:at], *words[at + 2 :], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if line.startswith("listening on "):
                    break
            else:
                raise AssertionError("".join(said))
            yield line.removeprefix("listening on ").strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def asked(curl: str, address: str) -> Any:
    """Ask what a line of curl asks, at this address in place of the page's own; curl sends data as urllib does."""
    url, *rest = shlex.split(curl)[1:]
    assert rest[0::2] in ([], ["-d"]), curl
    path = url[url.index("/", url.index(":")) :]
    with urllib.request.urlopen(address + path, rest[1].encode() if rest else None, timeout=60) as answer:
        return json.load(answer)
