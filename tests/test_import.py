"""What ``import placewright`` loads, and what its facade offers."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import placewright

HEAVY = ["torch", "onnx", "onnxruntime", "transformers", "ortools", "highspy", "numba", "rich", "typer"]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_loads_no_back_end_and_no_solver() -> None:
    """A fresh interpreter holds none of the heavy packages after the import."""
    assert run(f"import sys, placewright; print([m for m in {HEAVY} if m in sys.modules])") == "[]"


def test_data_can_be_made_without_a_back_end_or_a_solver() -> None:
    """Graph, cluster and problem need nothing heavy either."""
    code = (
        "import sys, placewright as pw; "
        "g = pw.OperatorGraph.build([pw.Operator('b'), pw.Operator('a')], [('x', 'a', ['b'], 1)]); "
        "pw.Problem(g, pw.Cluster([pw.Device('d')]), [[1.0], [1.0]]); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert run(code) == "[]"


@pytest.mark.parametrize("name", ["solve", "evaluate", "verify", "capture"])
def test_a_submodule_does_not_hide_the_function_of_its_name(name: str) -> None:
    """``import placewright.solve`` first, and ``placewright.solve`` is still the function."""
    assert run(f"import placewright.{name}, placewright; print(callable(placewright.{name}))") == "True"


def test_every_listed_name_is_there_and_no_other_is_made_up() -> None:
    """``__all__``, ``dir`` and attribute access agree; an unknown name is an AttributeError."""
    assert dir(placewright) == sorted(placewright.__all__)
    assert all(getattr(placewright, name) is not None for name in placewright.__all__)
    with pytest.raises(AttributeError, match="module 'placewright' has no attribute 'sovle'"):
        placewright.sovle  # noqa: B018


def test_the_command_line_answers_at_once() -> None:
    """Help needs neither the judge's kernels nor a solver, a back-end or a page; showing a plan needs no solver."""
    heavy = [m for m in HEAVY if m not in ("rich", "typer")]
    code = (
        "import sys\n"
        "from placewright.cli import main\n"
        "try:\n    main({arguments})\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {[*heavy, 'placewright.evaluate', 'placewright.solve']} if m in sys.modules])"
    )
    for arguments in (["--help"], ["plan", "--help"], ["--version"]):
        assert run(code.format(arguments=arguments)).splitlines()[-1] == "[]"
    shown = run(code.format(arguments=["show", "no-such-plan.json"])).splitlines()[-1]
    assert not {"torch", "onnx", "ortools", "highspy", "placewright.solve"} & set(ast.literal_eval(shown))
