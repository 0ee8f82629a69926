"""Kernels are compiled when they are first needed, each once, by whichever process comes to it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import placewright
from placewright._kernel import compiling

KERNELS = Path(compiling.__file__).parent
ROOT = Path(placewright.__file__).parent

SOURCE = """
import numpy as np
from placewright._kernel.compiling import inner, kernel

@inner
def twice(x):
    return 2.0 * x

@kernel
def total(values):
    s = 0.0
    for v in np.sort(values):
        s += twice(v)
    return s

@kernel
def impossible(values):
    return values.no_such_thing
"""

PROGRAM = """
import sys
import numpy as np
from numba.core import event
from placewright._kernel.compiling import at_first_compiling
import kernels_of_a_test as k

class Seen(event.Listener):
    names = []
    def on_start(self, e):
        self.names.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e):
        pass

event.register("numba:compile", Seen())
print("ready", flush=True)
sys.stdin.readline()
told = []
with at_first_compiling(lambda: told.append(1)):
    assert k.total(np.array([3.0, 1.0])) == 8.0
print(sum(name in ("total", "twice") for name in Seen.names), len(told))
"""

CHAIN = """
import json, sys
import numpy as np
import placewright as pw
from placewright.algorithm import Budget

tensors = [pw.Tensor(f"t{k}", k, (k + 1,), 8) for k in range(3)]
graph = pw.OperatorGraph([pw.Operator(f"v{k}") for k in range(4)], tensors)
cluster = pw.Cluster([pw.Device("a"), pw.Device("b")], [pw.Link(1.0, 1.0, link_class="same-host")])
result = pw.solve(pw.Problem(graph, cluster, [[1.0, 2.0]] * 4), budget=Budget(iterations=10))
used = [
    f"{name.rpartition('.')[2]}.{key}"
    for name, module in sorted(sys.modules.items())
    if name.startswith("placewright._kernel.")
    for key, value in vars(module).items()
    if getattr(value, "signatures", None) and value.py_func.__module__ == name
]
print(json.dumps([result.status.value, used]))
"""


def _functions(path: Path, *kinds: str) -> set[str]:
    """Return the names of a module's functions under one of some decorators."""
    return {
        f"{path.stem}.{statement.name}"
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.FunctionDef)
        and {ast.unparse(decorator) for decorator in statement.decorator_list} & set(kinds)
    }


def _kernels_named(tree: ast.AST) -> dict[str, str]:
    """Return what a module imports from those of kernels: name there, and name with its module."""
    return {
        alias.asname or alias.name: f"{statement.module.rpartition('.')[2]}.{alias.name}"
        for statement in ast.walk(tree)
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("placewright._kernel.")
        for alias in statement.names
        if statement.module
    }


HIDDEN = {name for path in sorted(KERNELS.glob("*.py")) for name in _functions(path, "inner", "uncounted_inner")}


def test_what_has_no_face_for_python_is_imported_by_kernels_only() -> None:
    """Python would jump to address 0."""
    assert "makespan_search._propose" in HIDDEN
    for path in (*sorted(ROOT.rglob("*.py")), *sorted(Path(__file__).parents[1].rglob("*.py"))):
        if path.parent != KERNELS:
            assert not set(_kernels_named(ast.parse(path.read_text())).values()) & HIDDEN, path


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.stem)
def test_what_has_no_face_for_python_is_called_within_kernels_only(path: Path) -> None:
    """Modules of kernels have functions that are Python, too: what makes arrays, and what warms up."""
    tree = ast.parse(path.read_text())
    compiled = _functions(path, "inner", "uncounted_inner", "kernel", "uncounted", "kernel(inline='always')")
    names = {**_kernels_named(tree), **{name.partition(".")[2]: name for name in compiled}}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and f"{path.stem}.{statement.name}" in compiled:
            continue
        used = {names[node.id] for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id in names}
        assert not used & HIDDEN


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give a place for compiled functions that is empty, and a module of three."""
    (tmp_path / "kernels_of_a_test.py").write_text(SOURCE)
    path = os.pathsep.join([str(tmp_path), *(folder for folder in sys.path if folder)])
    return {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path, "NUMBA_DISABLE_JIT": "0"}


@pytest.mark.skipif(not compiling.can_lock(), reason="no locks on files")
def test_two_processes_that_start_together_compile_each_function_once(environment: dict[str, str]) -> None:
    """Two functions, compiled once each by one or the other; a third process finds both and has nothing to say."""

    def begin() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True, env=environment)

    both = [begin(), begin()]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    counts = []
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        out, _ = process.communicate()
        assert process.returncode == 0
        counts.append([int(word) for word in out.split()])
    assert sum(compiled for compiled, _ in counts) == 2
    assert all(told == 1 for compiled, told in counts if compiled)
    last = begin()
    assert last.communicate("go\n")[0] == "ready\n0 0\n"


@pytest.fixture
def of_a_test(tmp_path: Path) -> Iterator[object]:
    """Load the module of three functions here."""
    path = tmp_path / "kernels_of_a_test.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("kernels_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


def test_what_can_not_be_compiled_is_left_to_nobody(of_a_test: object) -> None:
    """Its lock is given back, or another process would wait for what never comes."""
    import numba
    import numpy as np

    function = of_a_test.impossible  # type: ignore[attr-defined]
    with pytest.raises(numba.TypingError):
        function(np.ones(2))
    assert function._cache._held is False


def test_a_plan_that_the_first_bounds_prove_needs_no_kernel_of_search_or_proof() -> None:
    """Four operators in a row, half as long on a: 4 s there is the critical path. A newcomer waits for little."""
    done = subprocess.run([sys.executable, "-c", CHAIN], capture_output=True, text=True, check=True)
    status, used = json.loads(done.stdout)
    modules = {name.partition(".")[0] for name in used}
    assert status == "optimal"
    assert {"schedule.decode", "list_schedule.heft", "path.heads"} <= set(used)
    assert modules <= {"clusters", "divided", "energy", "list_schedule", "memory", "path", "schedule", "span_search"}
