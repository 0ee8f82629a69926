"""Every code block of the README and the docs does what it shows.

Python blocks run, clusters and catalogues are read, commands run in this process. Where that would take minutes, GPUs
or files of the reader's, a command is parsed by the program's own parser instead, for a reason in ``PARSED_ONLY``.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import typer.main
import yaml

from placewright import catalogue
from placewright.cli.application import app
from placewright.export import PLAN_FORMATS
from placewright.io import cluster_from_text
from placewright.solvers import SOLVERS
from tests.cli.commands import call
from tests.docs.blocks import PAGES, ROOT, Block, blocks

PARSED_ONLY = {
    r"placewright \w+ .*\b(MODEL|PLAN|PROBLEM|FILE|DIR|C)\b": "a placeholder",
    r"(box|both)\.yaml|my_models|py:nets|vgg16|GoogLeNet|workload\.json|hf:llama-3b|model\.gguf": "the reader's file",
    r"placewright (probe|profile|calibrate|run|serve|generate|doctor)\b": "measures, or starts processes",
    r"py:": "captures a network of torch, which takes as long as all the rest",
    r"--objective throughput|llama-3\.1-70b|flux-1-dev|stable-diffusion-xl": "a second and more at any budget",
}
"""What a command has that isn't run -> why."""

COMPILED_ONLY = {
    "docs/diffusion.md": "loads the reader's weights",
    "docs/exporters.md": "loads the reader's weights",
    "docs/servers.md": "a problem of 1,024 devices: tests/test_modules_benchmark.py and its like have small ones",
    "docs/randomly-wired.md": "makes a network of torch",
    "docs/tutorials/training.md": "makes a network of torch",
}
"""Page with Python that isn't run -> why."""

SEARCHES = ("plan", "compare", "explain", "export", "whatif")
BLOCKS = list(blocks())
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def of_kind(*kinds: str) -> list[tuple[str, list[Block]]]:
    """Pages with their blocks of these kinds."""
    chosen = [block for block in BLOCKS if block.kind in kinds]
    return [(page, list(those)) for page, those in groupby(chosen, lambda block: block.page)]


def is_grammar(command: str) -> bool:
    """Whether a line lists options in brackets, and is no command itself."""
    return " [" in re.sub(r"'[^']*'", "", command)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder beside the examples, where nobody's own catalogue counts."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv(catalogue.ENVIRONMENT, "")  # so that what a block sets is put back
    return tmp_path


def printed(code: str) -> Iterator[str]:
    """What the comments behind calls of print say that these print."""
    for line in code.splitlines():
        shown = re.match(r"print\(.*\)  # (.*)", line)
        if shown:
            yield shown[1]


@pytest.mark.parametrize(("page", "those"), of_kind("python"), ids=lambda v: v if isinstance(v, str) else "")
def test_python_runs_and_prints_what_it_says(
    page: str, those: list[Block], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page run one after the other as one program; each print prints the comment behind it."""
    names: dict[str, object] = {}
    for block in those:
        code = compile(block.text, block.where, "exec")
        if page in COMPILED_ONLY:
            continue
        exec(code, names)
        out = capsys.readouterr().out
        assert out.splitlines() == list(printed(block.text)), block.where


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.kind == "yaml"], ids=lambda b: b.where)
def test_clusters_and_catalogues_are_read(block: Block, folder: Path) -> None:
    """A file with a list of devices is a cluster, one with devices by name a catalogue; links alone join two."""
    content = yaml.safe_load(block.text)
    if isinstance(content.get("devices"), dict):
        (folder / "own.yaml").write_text(block.text)
        assert set(content["devices"]) <= set(catalogue.load(folder / "own.yaml"))
        return
    text = block.text if "devices" in content else f"devices: [{{name: a}}, {{name: b}}]\n{block.text}"
    assert len(cluster_from_text(text).devices) >= 2


def test_shown_clusters_of_the_tutorials_are_shipped_ones() -> None:
    """What a tutorial shows of a file in ``examples`` is what stands there, but for comments and dtypes left out."""
    (shown,) = (b.text for b in BLOCKS if b.page == "docs/tutorials/two-gpus.md" and b.kind == "yaml")
    assert yaml.safe_load(shown) == yaml.safe_load((ROOT / "examples/3090-3060.yaml").read_text())


def options_of(name: str) -> set[str]:
    """Every way to write an option of a command."""
    return {word for p in COMMANDS[name].params for word in (*p.opts, *p.secondary_opts) if word.startswith("-")}


def check_parsed(command: str) -> None:
    """Let the program's own parser read a command, and look up the names in it."""
    name, *words = shlex.split(command)[1:]
    if is_grammar(command):
        shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.sub(r"'[^']*'", "", command)))
        assert shown <= options_of(name), command
        return
    COMMANDS[name].make_context(name, list(words))
    given = dict(pairwise(words))
    solvers = SOLVERS[given.get("--objective", "makespan")] if "--solver" in given else {}
    assert given.get("--solver", "auto") in ("auto", *solvers), command
    if name == "export":
        assert given["--format"] in PLAN_FORMATS, command


def hasty(command: str) -> list[str]:
    """A command that ends with the heuristics that need no time, so that no clock decides what it finds."""
    words = shlex.split(command)[1:]
    if words[0] not in SEARCHES:
        return words
    at = words.index("--budget") if "--budget" in words else len(words)
    return [*words[:at], *words[at + 2 :], "--budget", "0"]


def why_parsed(command: str, made: set[str]) -> str | None:
    """The reason why a command is not run."""
    if is_grammar(command):
        return "a list of options"
    for pattern, reason in PARSED_ONLY.items():
        if re.search(pattern, command):
            return reason
    missing = [w for w in shlex.split(command) if re.fullmatch(r"[\w-]+\.(json|yaml|onnx)", w) and w not in made]
    output = re.findall(r"(?:-o|--report|--trace) (\S+)", command)
    missing = [w for w in missing if w not in output]
    return f"{missing[0]} is not made on this page" if missing else None


def check_other(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a command of another program: what it names of ours is there."""
    program, *words = shlex.split(command)
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"[a-z]+", "".join(re.findall(r"\[(.*)\]", command)))) <= set(extras), command
    elif program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif program == "python":
        assert (ROOT / words[0]).is_file(), command
        assert set(re.findall(r"--[a-z-]+", command)) <= set(named_options(ROOT / words[0])), command
    elif program == "curl":
        path = re.search(r":\d+(/\S+)", command)[1]  # type: ignore[index]
        served = (p.read_text() for p in (ROOT / "src/placewright/execute").rglob("*.py"))
        assert any(f'"{path}"' in text for text in served), command
    elif "placewright.execute" in words:
        from placewright.execute.__main__ import main

        monkeypatch.setattr(sys, "argv", ["placewright.execute", *words[words.index("placewright.execute") + 1 :]])
        monkeypatch.delenv("RANK", raising=False)
        assert main() != 0
        assert "start it by torchrun" in capsys.readouterr().err, command
    else:
        check_parsed(command[command.index("placewright") :])


def named_options(script: Path) -> Iterator[str]:
    """Options that a script, or what it imports of its folder, defines or names."""
    for path in (script, *script.parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
                yield node.value


@pytest.mark.parametrize(
    ("page", "those"), of_kind("commands", "python"), ids=lambda v: v if isinstance(v, str) else ""
)
def test_commands_run_or_are_parsed(
    page: str, those: list[Block], folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a page run one after the other in one folder, where its Python has run before them."""
    made: set[str] = set()
    if page.endswith("edge.md"):
        onnx = pytest.importorskip("onnx")
        shutil.copy(Path(onnx.__file__).parent / "backend/test/data/light/light_inception_v1.onnx", "model.onnx")
        made.add("model.onnx")
    for block in those:
        if block.kind == "python":
            if page.endswith("papers.md"):
                exec(compile(block.text, block.where, "exec"), {})
                made.update(p.name for p in folder.iterdir())
            continue
        for command in block.commands():
            if not command.startswith("placewright "):
                check_other(command, capfd, monkeypatch)
            elif why_parsed(command, made):
                check_parsed(command)
            else:
                outcome = call(capfd, *hasty(command))
                assert outcome.code == 0, f"{block.where}: {command}\n{outcome.err}"
                made.update(p.name for p in folder.iterdir())


def test_each_reason_is_one_of_a_block_that_is_there() -> None:
    """No reason is left over from a block that is gone."""
    every = [c for b in BLOCKS if b.kind == "commands" for c in b.commands()]
    assert [p for p in PARSED_ONLY if not any(re.search(p, c) for c in every)] == []
    assert set(COMPILED_ONLY) <= {b.page for b in BLOCKS if b.kind == "python"}


def test_the_pages_of_the_readme_and_the_docs_are_looked_at() -> None:
    """More than thirty pages, with blocks of every kind."""
    assert len(PAGES) > 30
    assert {b.kind for b in BLOCKS} == {"commands", "python", "yaml", "output"}
