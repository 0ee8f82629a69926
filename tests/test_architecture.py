"""The house rules that a machine can check: who may import whom, what a facade exports, how long a file is."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import rustworkx

import placewright

ROOT = Path(placewright.__file__).parent

ROWS = (
    ("errors",),
    ("units", "rounding", "ragged", "highs", "left_running", "ended_by_signal", "clock"),
    ("_kernel",),
    ("graph", "cluster", "objective"),
    ("catalogue", "host", "networks"),
    ("ahead",),
    ("problem",),
    ("plan", "measurement"),
    ("result",),
    ("symmetry", "together"),
    ("arrays", "loads", "offloads", "one_copy"),
    ("evaluate",),
    ("verify",),
    ("algorithm",),
    ("coarsen",),
    ("bounds",),
    ("solvers",),
    ("strategy",),
    ("solve",),
    ("comparison", "sensitivity", "prediction_errors", "few_devices"),
    ("io",),
    ("capture",),
    ("costs",),
    ("language",),
    ("diffusion",),
    ("execute",),
    ("export", "whatif"),
    ("posing",),
    ("report",),
    ("answers",),
    ("cli",),
    ("__main__",),
)
"""Data flows down: a module imports from rows above its own, and from its own package."""

ROW_OF = {name: k for k, row in enumerate(ROWS) for name in row}

SHARED_BY_ALGORITHMS = {
    "placewright.solvers.chain_split",
    "placewright.solvers.makespan.modules",
    "placewright.solvers.makespan.window_model",
    "placewright.solvers.makespan.windows",
    "placewright.solvers.makespan.module_chain",
    "placewright.solvers.makespan.module_labels",
    "placewright.solvers.makespan.module_memory",
    "placewright.solvers.makespan.module_prices",
    "placewright.solvers.makespan.module_refute",
    "placewright.solvers.makespan.module_trunk",
    "placewright.solvers.makespan.module_steps",
    "placewright.solvers.makespan.start",
    "placewright.solvers.makespan.with_room",
    "placewright.solvers.makespan.cp_sat_model",
    "placewright.solvers.makespan.cp_sat_symmetry",
    "placewright.solvers.makespan.cp_sat_windows",
    "placewright.solvers.makespan.diagram_layers",
    "placewright.solvers.makespan.placeto_groups",
    "placewright.solvers.makespan.placeto_policy",
    "placewright.solvers.makespan.moirai_model",
    "placewright.solvers.makespan.moirai_program",
    "placewright.bounds.divided_load",
    "placewright.bounds.feasibility",
    "placewright.bounds.makespan.series",
    "placewright.bounds.makespan.span",
    "placewright.bounds.makespan.span_master",
    "placewright.bounds.makespan.span_path",
    "placewright.bounds.makespan.span_prices",
    "placewright.bounds.makespan.span_times",
    "placewright.bounds.max_load.certificate",
    "placewright.bounds.max_load.hypergraph",
    "placewright.bounds.max_load.master",
    "placewright.bounds.max_load.module_network",
    "placewright.bounds.max_load.module_order",
    "placewright.bounds.max_load.module_prices",
    "placewright.bounds.max_load.pricing",
    "placewright.bounds.throughput.servers_stages",
    "placewright.bounds.offload.interval_program",
    "placewright.bounds.offload.intervals",
    "placewright.bounds.offload.relaxed",
    "placewright.bounds.offload.spines",
    "placewright.bounds.throughput.cut_program",
    "placewright.solvers.as_max_load",
    "placewright.solvers.copies",
    "placewright.solvers.cp_sat_run",
    "placewright.solvers.mip_run",
    "placewright.solvers.entry",
    "placewright.solvers.judged",
    "placewright.solvers.max_load.blocks",
    "placewright.solvers.max_load.chain",
    "placewright.solvers.max_load.lattice",
    "placewright.solvers.max_load.load_network",
    "placewright.solvers.max_load.module_walk",
    "placewright.solvers.max_load.orders",
    "placewright.solvers.max_load.pair_moves",
    "placewright.solvers.max_load.counts_program",
    "placewright.solvers.max_load.groups",
    "placewright.solvers.max_load.program",
    "placewright.solvers.max_load.reach",
    "placewright.solvers.max_load.slots",
    "placewright.solvers.offload.blocks",
    "placewright.solvers.offload.call_network",
    "placewright.solvers.offload.deepening",
    "placewright.solvers.offload.program",
    "placewright.solvers.offload.timed_program",
    "placewright.solvers.single_device",
    "placewright.solvers.throughput.mixture",
    "placewright.solvers.throughput.priced",
    "placewright.solvers.throughput.servers_line",
    "placewright.solvers.throughput.servers_pipeline",
    "placewright.solvers.throughput.servers_teams",
}
"""Models and starts in the packages of algorithms that are no algorithms themselves."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
PROGRAMS = sorted(p for f in ("benchmarks", "examples") for p in (ROOT.parents[1] / f).rglob("*.py"))
FACADES = [name for name, path in MODULES.items() if path.name == "__init__.py"]


def imports(module: str, tree: ast.AST) -> Iterator[str]:
    """Modules of placewright that a module names in its imports, those inside functions and for types included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "placewright")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "placewright":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


def part(module: str) -> str:
    """Name below ``placewright``: the module's row goes by it; empty for the facade."""
    return module.split(".")[1] if "." in module else ""


def test_every_module_stands_in_a_row() -> None:
    """A new top-level module or package is given its place before anything is built on it."""
    assert {part(m) for m in MODULES} - {""} <= ROW_OF.keys()


@pytest.mark.parametrize("module", [m for m in MODULES if part(m)])
def test_data_flows_one_way(module: str) -> None:
    """A module imports only from its own package and from rows above, also inside functions."""
    own = part(module)
    for target in imports(module, TREES[module]):
        if not part(target):  # the facade itself: nothing but the version
            continue
        assert part(target) == own or ROW_OF[part(target)] < ROW_OF[own], f"{module} imports {target}"


def test_only_the_version_is_taken_from_the_facade() -> None:
    """Nothing inside imports the facade's functions, which import everything."""
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "placewright":
                names = {a.name for a in node.names if f"placewright.{a.name}" not in MODULES}
                assert names <= {"__version__"}, f"{module} imports {names} from the facade"


def test_imports_form_no_cycle() -> None:
    """The graph of imports is acyclic, those inside functions and for types included."""
    graph: rustworkx.PyDiGraph = rustworkx.PyDiGraph()
    index = {name: graph.add_node(name) for name in MODULES}
    for module, tree in TREES.items():
        for target in imports(module, tree):
            if target != module and not module.startswith(f"{target}."):  # a package stands for its facade
                graph.add_edge(index[module], index[target], None)
    cycle = [graph[a] for a, _ in rustworkx.digraph_find_cycle(graph)]
    assert not cycle, " -> ".join(cycle)


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    """``verify`` knows the data alone: neither judge, kernels, arrays, solvers nor bounds, nor numpy."""
    checker = [m for m in MODULES if part(m) == "verify"]
    known = {"cluster", "graph", "objective", "plan", "problem", "verify"}
    assert {part(target) for m in checker for target in imports(m, TREES[m])} <= known
    for module in checker:
        named = {n.module for n in ast.walk(TREES[module]) if isinstance(n, ast.ImportFrom)}
        named |= {a.name for n in ast.walk(TREES[module]) if isinstance(n, ast.Import) for a in n.names}
        assert not {"numpy", "numba"} & named


@pytest.mark.parametrize("module", [m for m in MODULES if part(m) in ("solvers", "bounds") and m not in FACADES])
def test_algorithms_do_not_import_each_other(module: str) -> None:
    """An algorithm's file imports no other algorithm's; models and starts may be shared."""
    others = {m for m in imports(module, TREES[module]) if part(m) in ("solvers", "bounds")}
    assert others <= SHARED_BY_ALGORITHMS | set(FACADES) - {"placewright.solvers", "placewright.bounds"}


@pytest.mark.parametrize("name", FACADES)
def test_exports_are_exactly_all(name: str) -> None:
    """A facade lists what it gathers from its modules and what it defines, no more, no less; each name is there."""
    body = TREES[name].body
    ours = [n for n in body if isinstance(n, ast.ImportFrom) and (n.module or "").split(".")[0] == "placewright"]
    gathered = {a.name for n in ours for a in n.names}
    defined = {n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")}
    if not gathered and not defined and name != "placewright":
        return  # an empty facade: its modules are imported one by one
    facade = importlib.import_module(name)
    listed = set(facade.__all__)
    assert len(listed) == len(facade.__all__)
    assert [n for n in facade.__all__ if not hasattr(facade, n)] == []
    if name == "placewright":
        assert listed == facade._LAZY.keys()
    elif defined or any(isinstance(n, ast.AnnAssign) for n in body):  # what it imports is for its own use
        own = defined | {n.target.id for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        assert defined <= listed <= own | gathered
    else:
        assert listed == gathered


@pytest.mark.parametrize("module", MODULES)
def test_files_are_short_and_named_for_what_they_hold(module: str) -> None:
    """No file is above 500 lines, and none is a drawer for odds and ends."""
    assert len(MODULES[module].read_text().splitlines()) <= 500
    assert MODULES[module].stem not in ("utils", "util", "common", "helpers", "misc")


@pytest.mark.parametrize("module", [m for m in MODULES if part(m) != "cli" and m != "placewright.execute.__main__"])
def test_only_the_command_line_prints(module: str) -> None:
    """The library returns and logs; nothing but ``cli``, and each rank's own command, write to standard output."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in ("print", "sys.stdout.write")


def test_only_what_is_run_is_imported_by_nobody() -> None:
    """Every file is used: imported somewhere, or run as ``python -m`` does (workers, and the writer of the schemas)."""
    used = {target for module, tree in TREES.items() for target in imports(module, tree)}
    text = "\n".join(path.read_text() for path in MODULES.values())
    lonely = [m for m in MODULES if m not in used and m not in FACADES and f'"{m}"' not in text]
    assert lonely == [
        "placewright.__main__",
        "placewright.costs.worker",
        "placewright.execute.__main__",
        "placewright.io.schema",
    ]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_name_what_is_there(path: Path) -> None:
    """What benchmarks and examples import is where they say: nothing else runs most of them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "placewright":
            module = str(node.module)
            assert module in MODULES, module
            for name in {a.name for a in node.names}:
                assert f"{module}.{name}" in MODULES or name in named_in(module), f"{module}.{name}"


def named_in(module: str) -> set[str]:
    """What can be imported from a module: what it defines, imports, or gives when it is asked for."""
    found = set(placewright._LAZY) if module == "placewright" else set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name for a in node.names}
    return found
