"""What can't be collected where an extra is not installed is left out, and the report's head says so."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from hypothesis import settings

settings.register_profile("placewright", deadline=None)  # no clock in tests
settings.load_profile("placewright")

EXTRAS = ("onnx", "onnxruntime", "torch", "transformers")
MISSING = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
HERE = Path(__file__).parent


def _needs(path: Path) -> set[str]:
    """Packages that a test file imports, its own small models included."""
    text = path.read_text()
    found = set(re.findall(rf"^\s*(?:import|from) ({'|'.join(EXTRAS)})\b", text, re.MULTILINE))
    found |= {name for name in ("onnx", "torch") if f"small_{name}" in text or f"capture.{name}" in text}
    return found


LEFT_OUT = {
    path.relative_to(HERE).as_posix(): wanted
    for path in (sorted(HERE.rglob("test_*.py")) if MISSING else [])
    if (wanted := sorted(_needs(path) & set(MISSING)))
}
collect_ignore = list(LEFT_OUT)


def pytest_report_header() -> list[str]:
    """One line a file that is skipped, with the reason."""
    return [f"skipped: tests/{path} needs {', '.join(wanted)}" for path, wanted in LEFT_OUT.items()]
