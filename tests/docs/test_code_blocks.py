"""Every code block of the README and the docs does what it shows.

Python blocks run, clusters and catalogues are read, commands run in this process. Where that would take minutes, GPUs
or files of the reader's, a command is parsed by the program's own parser instead, for a reason in ``PARSED_ONLY``.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
from tests.docs import readers
from tests.docs.blocks import PAGES, ROOT, Block, blocks, missing
from tests.docs.serving import asked, served

PARSED_ONLY = {
    r"\b(MODEL|PLAN|PROBLEM|FILE|DIR|C)\b": "a placeholder in a list of options",
    r"probe .*--(workers|distributed|at)\b": "several processes or machines: tests/execute/probe has them",
    r"--replan": "a device must be lost: tests/execute/test_replan.py",
    r"execution\.md .*--micro-batches|serve .*py:": "two processes of torch, ten seconds: others like it run",
    r"generate .*py:": "two processes of torch, as the line above it, which runs",
}
"""What a command has, behind its page, that isn't run -> why."""

COMPILED_ONLY = {
    "docs/diffusion.md": "loads the weights of a pipeline: tests/export/test_diffusion_maps.py loads small ones so"
}
"""Page with Python that isn't run -> why."""

PACKAGES = {
    "docs/exporters.md": ("torch", "transformers", "accelerate"),
    "docs/randomly-wired.md": ("torch",),
    "docs/tutorials/training.md": ("torch",),
}
"""Page -> what its Python needs."""

TORCH = ("torch", "transformers", "tokenizers", "safetensors")
ONNX = ("onnx", "onnxruntime")
NEEDED = {
    r"py:|--processes|generate |calibrate |doctor|placeto": TORCH,
    r"probe |profile |run |doctor": ONNX,
    r"serve ": ("starlette", "uvicorn", "prometheus_client", *TORCH, *ONNX),
}
"""What a command has -> the packages that it needs."""

UNSURE = {
    "docs/tutorials/training.md": r"^.*\d.*\n",  # rows of the devices: what these cores are found to be good for
    "docs/diffusion.md": r" - 'gpu1' holds [\s\S]*?GiB\.\n",  # of a plan that a search finds
    "docs/tutorials/two-gpus.md": r" - The bottleneck is [\s\S]*? tensor out\.\n",  # of a plan that a search finds
    "": r" - The plan is proved optimal:[^.]*\.(\n|$)",  # on any page: what takes the time that tests don't give
}
"""Page -> what an output need not have that is shown there."""

NOT_COMPARED = {
    "README.md": "the demo takes minutes",
    "docs/exporters.md": "its network is a smaller one here",
    "docs/sensitivity.md": "its network is a smaller one here",
}
"""Page with an output that isn't compared -> why."""

QUICK = {
    r"(README|index|answers|diffusion|language-models|two-gpus)\.md plan hf:(?!.*--objective)": "celeritas",
    r"edge\.md plan (?!.*--objective)": "heft",
    r"execution\.md plan .*--objective max-load": "max-load-cp-sat",
}
"""Page and command that need a plan of several devices -> which solver finds one without time, or proves one."""

PROVES = {"max-load-cp-sat": "60"}
"""Solver that ends by its proof, long before so many seconds."""

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, where nobody's own catalogue counts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv(catalogue.ENVIRONMENT, "")  # so that what a block sets is put back
    with readers.own_modules():
        yield tmp_path


def printed(code: str) -> Iterator[str]:
    """What the comments behind calls of print say that these print."""
    for line in code.splitlines():
        shown = re.match(r"print\(.*\)  # (.*)", line)
        if shown:
            yield shown[1]


@pytest.mark.parametrize(("page", "those"), of_kind("python"), ids=lambda v: v if isinstance(v, str) else "")
def test_python_runs_and_prints_what_it_says(
    page: str, those: list[Block], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page run one after the other as one program; each print prints the comment behind it."""
    for package in PACKAGES.get(page, ()):
        pytest.importorskip(package)
    if page.endswith("servers.md"):  # its 100 layers take half a minute
        from benchmarks.quality.language_model import SHAPES

        monkeypatch.setitem(SHAPES, "100-layers", replace(SHAPES["100-layers"], layers=2))
    readers.lay(page, those, folder)
    names: dict[str, object] = {}
    capsys.readouterr()
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


def hasty(page: str, words: list[str]) -> list[str]:
    """A command that ends with the heuristics that need no time, so that no clock decides what it finds."""
    if words[0] not in SEARCHES:
        return words
    at = words.index("--budget") if "--budget" in words else len(words)
    typed = f"{page} {' '.join(words)}"
    solver = next((name for p, name in QUICK.items() if re.search(p, typed)), "auto")
    return [
        *words[:at],
        *words[at + 2 :],
        "--budget",
        PROVES.get(solver, "0"),
        *(("--solver", solver) * (solver != "auto")),
    ]


def why_parsed(page: str, command: str, words: list[str], folder: Path) -> str | None:
    """The reason why a command is not run."""
    if is_grammar(command):
        return "a list of options"
    for pattern, reason in PARSED_ONLY.items():
        if re.search(pattern, f"{page} placewright {' '.join(words)}"):
            return reason
    for pattern, packages in NEEDED.items():
        if re.search(pattern, " ".join(words)) and not readers.has(*packages):
            return f"not installed: {packages[0]}, or what comes with it"
    output = re.findall(r"(?:-o|--report|--trace) (\S+)", command)
    read = [w for w in words if re.fullmatch(r"[\w-]+\.(json|yaml|onnx|xls|txt|gguf)", w) and w not in output]
    absent = [w for w in read if not (folder / w).exists()]
    assert not absent or not readers.has(*TORCH, *ONNX, "xlwt"), f"{page}: nothing makes {absent[0]} for {command}"
    return f"{absent[0]} can't be made without the extras" if absent else None


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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What measures this machine does so once, and on little."""
    if readers.has(*ONNX):
        from placewright.execute.probe import here

        for name, value in (("RUNS", 2), ("WARMUP", 1), ("MATMUL_SIDE", 64), ("COPY_BYTES", 2**16)):
            monkeypatch.setattr(here, name, value)
        monkeypatch.setattr(here, "SIZES_BYTES", (64, 4096, 65536))
    monkeypatch.setattr("placewright.costs.calibrate.ROUNDS", 1)


@dataclass
class Typing:
    """The commands of a page, one after the other in one folder."""

    page: str
    folder: Path
    capfd: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    stack: ExitStack
    address: str = ""
    small: bool = False
    """Whether the last plan is of a smaller network than the page's."""

    def type(self, command: str) -> str | None:
        """Run a command and give what it printed; nothing of one that is not run, or whose network is a smaller one."""
        words = [readers.NAMES.get(self.page, {}).get(w, w) for w in shlex.split(command)]
        if words[0] == "curl":
            if self.address:
                assert asked(command, self.address), command
            return None
        if words[0] != "placewright":
            check_other(command, self.capfd, self.monkeypatch)
            return None
        for pattern, earlier in readers.EARLIER.items():
            if re.search(pattern, f"{self.page} {command}") and readers.has(*TORCH, *ONNX):
                assert call(self.capfd, *earlier.split()).code == 0, earlier
        if why_parsed(self.page, command, words[1:], self.folder):
            check_parsed(command)
            return None
        if words[1] == "serve":
            self.stack.close()
            self.address = self.stack.enter_context(served(words[1:], self.folder))
            assert asked("curl localhost:8000/health", self.address)["devices"]
            return None
        outcome = call(self.capfd, *hasty(self.page, words[1:]))
        assert outcome.code == 0, f"{self.page}: {command}\n{outcome.err}"
        if words[1] == "plan":
            self.small = "py:examples" in command or words != shlex.split(command)
        return None if self.small else outcome.err + outcome.out


@pytest.mark.parametrize(
    ("page", "those"), of_kind("commands", "python", "yaml", "output"), ids=lambda v: v if isinstance(v, str) else ""
)
def test_commands_run_and_print_what_is_shown(
    page: str,
    those: list[Block],
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    quick: None,
) -> None:
    """The commands of a page run one after the other; what is shown of an output is there, but for its numbers."""
    if not any(block.kind == "commands" for block in those):
        pytest.skip("it shows no commands")
    readers.lay(page, those, folder)
    told: list[str] = []
    before = ""
    with ExitStack() as stack:
        typing = Typing(page, folder, capfd, monkeypatch, stack)
        for block in those:
            if block.kind == "commands":
                told = []
                for commands, shown in block.sessions():
                    told += filter(None, map(typing.type, commands))
                    compare_outputs(f"{block.where}: {commands[0]}", shown, told)
            elif block.kind == "output" and before == "commands":
                compare_outputs(block.where, block.text, told)
            elif block.kind == "python" and page.endswith("papers.md"):
                exec(compile(block.text, block.where, "exec"), {})
            before = block.kind


def compare_outputs(where: str, shown: str, told: list[str]) -> None:
    """What a page shows was told, but for what is not sure; or there is a reason why it can't be."""
    page = where.partition(":")[0]
    for name in ("", page):
        shown = re.sub(UNSURE.get(name, "$^"), "", shown, flags=re.MULTILINE)
    if told:
        assert missing(shown, "\n".join(told)) == [], where
    elif shown.strip() and readers.has(*TORCH, *ONNX):
        assert page in NOT_COMPARED, where


def test_outputs_are_compared_but_for_numbers_and_line_ends() -> None:
    """Units go with their numbers, dots stand for what is left out, and pieces come in the order shown."""
    printed = " value   7.26 ms\n gpu0   5 GiB   0 B\n - It takes 2 s more than\n   'gpu1'.\n"
    assert missing(" value  13 us\n...\n - It takes 31 ms\n   more than 'gpu1'.", printed) == []
    assert missing("gpu0 1 B 2 KiB\n...\n value 1 s", printed) == ["\n value 1 s"]
    assert missing("gpu0 1 B", printed) == [] and missing("gpu0 5 operators", printed) != []


def test_each_reason_is_one_of_a_block_that_is_there() -> None:
    """No reason is left over from a block that is gone."""
    every = [f"{b.page} {c}" for b in BLOCKS if b.kind == "commands" for c in b.commands()]
    for patterns in (PARSED_ONLY, readers.EARLIER, QUICK):
        assert [
            p for p in patterns if not any(re.search(p, c.replace(" placewright plan", " plan")) for c in every)
        ] == []
    assert {*readers.NAMES, *readers.CLUSTERS, *PACKAGES, *NOT_COMPARED, *COMPILED_ONLY} <= {b.page for b in BLOCKS}


def test_the_pages_of_the_readme_and_the_docs_are_looked_at() -> None:
    """More than thirty pages, with blocks of every kind."""
    assert len(PAGES) > 30
    assert {b.kind for b in BLOCKS} == {"commands", "python", "yaml", "output"}
