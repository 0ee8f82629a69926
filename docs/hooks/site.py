"""What the site has beyond the files in ``docs``: pages made from the program, and the testbed's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import algorithm_pages

TESTBED = Path(__file__).parents[2] / "benchmarks/testbed/README.md"


def testbed() -> str:
    """Text of the testbed's page, with links that hold on the site; files beside it are named and no links."""
    text = TESTBED.read_text().replace("(../../docs/", "(")
    return re.sub(r"\[([^]]*)\]\(([\w.-]+\.(?:yaml|py))\)", r"\1", text)


def on_config(config: Any) -> Any:
    """Put the pages of the algorithms into the navigation."""
    for entry in config.nav:
        if "Algorithms" in entry:
            entry["Algorithms"] = algorithm_pages.navigation()
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that no file in ``docs`` holds."""
    from mkdocs.structure.files import File

    for path, text in algorithm_pages.pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "testbed.md", content=testbed()))
    return files


def on_page_markdown(text: str, *, page: Any, config: Any, files: Any) -> str:
    """Links that leave ``docs`` go to the page made from what they name."""
    return text.replace("(../benchmarks/testbed/README.md)", "(testbed.md)")
