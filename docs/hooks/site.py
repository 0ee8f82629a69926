"""What the site has beyond the files in ``docs``: pages made from the program, and the testbed's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import algorithm_pages
import session_lexer
from unbroken import unbroken

TESTBED = Path(__file__).parents[2] / "benchmarks/testbed/README.md"


def testbed() -> str:
    """Text of the testbed's page, with links that hold on the site; files beside it are named and no links."""
    text = TESTBED.read_text().replace("(../../docs/", "(")
    return re.sub(r"\[([^]]*)\]\(([\w.-]+\.(?:yaml|py))\)", r"\1", text)


def on_config(config: Any) -> Any:
    """Put the pages of the algorithms into the navigation, and colour what is typed at a prompt."""
    session_lexer.use()
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


def with_pages(text: str) -> str:
    """Link the names in the tables of algorithms to their pages; each stands under the heading of its objective."""
    found = {(p.objective, p.name, p.kind): p.path for p in algorithm_pages.algorithms()}
    objective, lines = "", []
    for line in text.splitlines():
        heading = re.match(r"## The ([\w-]+)", line)
        objective = heading[1] if heading else objective
        if line.startswith("| `"):
            _, names, rest = line.split("|", 2)
            kind = "bounds" if "`bounds/" in rest else "solvers"

            def link(name: re.Match[str], objective: str = objective, kind: str = kind) -> str:
                path = found.get((objective, name[1], kind))
                return f"[{name[0]}]({path})" if path else name[0]

            line = f"|{re.sub('`([^`]*)`', link, names)}|{rest}"
        lines.append(line)
    return "\n".join(lines)


def on_page_markdown(text: str, *, page: Any, config: Any, files: Any) -> str:
    """Links that leave ``docs`` go to the page made from what they name, names of algorithms to theirs."""
    text = text.replace("(../benchmarks/testbed/README.md)", "(testbed.md)")
    return unbroken(with_pages(text) if page.file.src_uri == "architecture.md" else text)
