"""What the README shows works as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The example's last comment is what it prints."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.strip() == "2.0 [0 1 0]"


def test_the_cluster_example_is_the_shipped_one() -> None:
    """The YAML in the README is a cluster that reads, and equals examples/two-gpus-and-cpu.yaml."""
    from placewright.io import cluster_from_text, read_cluster

    (text,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    shown, shipped = cluster_from_text(text), read_cluster(README.parent / "examples/two-gpus-and-cpu.yaml")
    assert shown.devices == shipped.devices
    assert shown.links == shipped.links


def test_every_command_of_the_readme_exists() -> None:
    """Each ``placewright COMMAND`` in the README is a command of the program."""
    from placewright.cli.application import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback is not None}
    blocks = "".join(re.findall(r"^```\w*\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE))
    shown = set(re.findall(r"(?<!import )\bplacewright ([a-z]+)\b", blocks))
    assert shown == known
