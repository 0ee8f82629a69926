"""Call the command line in this process and catch what a user sees; files to call it on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from placewright.cli import main
from placewright.io import problem_to_json
from tests.report.two_branches import problem


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of a complaint, without the name of the program."""
        lines = [line for line in self.err.splitlines() if line.startswith("placewright: ")]
        assert len(lines) == 1, self.err
        assert self.err.endswith(f"{lines[0]}\n"), "the complaint is the last thing that is said"
        return lines[0].removeprefix("placewright: ")

    @property
    def json(self) -> Any:
        """The one JSON object of standard output."""
        assert self.out.count("\n") == 1 and self.out.endswith("}\n")
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


Call = Callable[..., Outcome]


def call(capfd: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Run ``placewright ARGUMENTS``; C++ libraries that write past Python are caught too."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return Outcome(ended.value.code, out, err)


def fork(**keys: object) -> dict[str, Any]:
    """The problem of two branches as the content of its file; keys replace its own."""
    return {**problem_to_json(problem()), **keys}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The same with one thing changed."""
    content = copy.deepcopy(fork())
    change(content)
    return content


def written(folder: Path, content: object, name: str = "problem.json") -> Path:
    """Write a problem's content."""
    path = folder / name
    path.write_text(json.dumps(content))
    return path


CLUSTER = """
devices:
  - {name: big, memory: 24 GiB, flops: {fp32: 10 TFLOP/s}, memory_bandwidth: 900 GB/s}
  - {name: small, memory: 8 GiB, flops: {fp32: 5 TFLOP/s}, memory_bandwidth: 300 GB/s}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
"""
