"""Rules of fusion against what ONNX Runtime and TorchInductor really do with networks: shares of pairs, as tables.

Run: ``python benchmarks/quality/fusion.py [--write]``; ``--write`` puts the tables into ``docs/fusion.md``. Networks:
those of the onnx wheel, and small configurations of transformers. The exports need onnxscript
(``pip install -c constraints.txt onnxscript``). Nothing is timed, so other work does no harm. About 12 minutes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.quality.fusion_inductor import kernel_groups  # noqa: E402
from benchmarks.quality.fusion_networks import LATER, NETWORKS, build  # noqa: E402
from benchmarks.quality.fusion_onnxruntime import LEVELS, runtime_groups, with_weights_apart  # noqa: E402
from benchmarks.quality.fusion_pairs import Comparison, compare  # noqa: E402

from placewright.capture import capture  # noqa: E402
from placewright.capture.torch_export import capture_program, export_module  # noqa: E402
from placewright.coarsen import ANY, RULES, fuse  # noqa: E402
from placewright.graph import Operator, OperatorGraph  # noqa: E402
from placewright.io import write_atomic  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
PAGE = ROOT / "docs" / "fusion.md"
MARKERS = "<!-- tables: benchmarks/quality/fusion.py -->", "<!-- end of tables -->"
FREE = frozenset({"Identity", "Dropout"})
"""Kinds that do nothing at inference."""

RUNTIME_HEADINGS = (
    *("network", "operators", "nodes: basic", "extended", "all", "real fusions: basic", "extended", "all"),
    *("`onnxruntime`: operators", "recall", "precision", "`auto`: operators", "recall", "precision"),
)
KERNEL_HEADINGS = (
    *("network", "operators", "kernels", "real fusions", "of these around"),
    *("`inductor`: operators", "recall", "precision", "`auto`: operators", "recall", "precision"),
)


class Differences:
    """What rules and back-end disagree on, over all networks."""

    def __init__(self) -> None:
        self.missed: dict[tuple[str, str], Counter[str]] = {}
        self.wrong: dict[tuple[str, str], Counter[str]] = {}
        self.real = self.predicted = self.both = self.around = 0

    def add(self, network: str, found: Comparison) -> None:
        """Take in those of one network."""
        self.real, self.predicted = self.real + found.real, self.predicted + found.predicted
        self.both, self.around = self.both + found.both, self.around + found.around
        for counts, rows in ((found.missed, self.missed), (found.wrong, self.wrong)):
            for kinds, count in counts.items():
                rows.setdefault(kinds, Counter())[network] += count

    def lines(self) -> Iterator[str]:
        """Give the shares over all networks, and each kind of pair with the networks that have it."""
        recall = f"{self.both / self.real:.1%}"
        if self.around:
            recall += f", {self.both / (self.real - self.around):.1%} without those around"
        yield (
            f"Together: {self.both} of {self.real} real fusions are predicted ({recall}); "
            f"{self.both} of {self.predicted} predicted fusions are real ({self.both / self.predicted:.1%})."
        )
        for what, rows in (("Missed", self.missed), ("Not real", self.wrong)):
            shown = []
            for (a, b), networks in sorted(rows.items(), key=lambda row: -row[1].total()):
                where = ", ".join(f"{n} {c}" for n, c in networks.items())
                shown.append(f"{a.removeprefix('aten.')} → {b.removeprefix('aten.')} ({where})")
            yield f"{what}: {'; '.join(shown) or 'none'}."


def shares(graph: OperatorGraph, found: Comparison, rules: str) -> list[str]:
    """Operators that are left, recall and precision."""
    return [str(len(fuse(graph, RULES[rules]))), f"{found.recall:.0%}", f"{found.precision:.0%}"]


def runtime_row(name: str, path: Path, differences: Differences) -> list[str]:
    """Compare one ONNX file."""
    graph = capture(path, fuse="none")
    levels = {level: runtime_groups(path, level) for level in LEVELS}

    def free(operator: Operator) -> bool:
        return operator.kind in FREE

    real = [compare(graph, RULES["onnxruntime"], groups.of, free) for groups in levels.values()]
    differences.add(name, real[-1])
    auto = compare(graph, ANY, levels["all"].of, free)
    row = [name, str(len(graph)), *(str(g.nodes) for g in levels.values()), *(str(c.real) for c in real)]
    return [*row, *shares(graph, real[-1], "onnxruntime"), *shares(graph, auto, "auto")]


def kernel_row(name: str, differences: Differences) -> list[str]:
    """Compare one torch module."""
    module, inputs = build(name)
    program = export_module(module, (), inputs)
    graph = capture_program(program, name=name)
    made = kernel_groups(program, list(inputs.values()))

    def free(operator: Operator) -> bool:
        return operator.name not in made.of

    found = compare(graph, RULES["inductor"], made.of, free)
    differences.add(name, found)
    auto = compare(graph, ANY, made.of, free)
    row = [name, str(len(graph)), str(made.kernels), str(found.real), str(found.around)]
    return [*row, *shares(graph, found, "inductor"), *shares(graph, auto, "auto")]


def exported(name: str, folder: Path) -> Path:
    """Export a torch module to an ONNX file, weights within."""
    module, inputs = build(name)
    path = folder / f"{name}.onnx"
    torch.onnx.export(module, (), kwargs=inputs, dynamo=True, optimize=True, verbose=False).save(path)
    return path


def table(headings: tuple[str, ...], rows: list[list[str]]) -> str:
    """Give rows as a Markdown table, numbers to the right."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def title(name: str) -> str:
    """Mark a network that the rules were not written with."""
    return f"{name} *" if name in LATER else name


def measured(only: list[str]) -> str:
    """Compare all networks, or some; the tables."""
    runtime, kernels = Differences(), Differences()
    runtime_rows, kernel_rows, failed = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(LIGHT.glob("*.onnx")):
            name = path.stem.removeprefix("light_")
            if not only or name in only:
                with_weights_apart(path, Path(folder) / path.name)
                runtime_rows.append(runtime_row(name, Path(folder) / path.name, runtime))
                print(runtime_rows[-1], file=sys.stderr, flush=True)
        for name in [n for n in (*NETWORKS, *LATER) if not only or n in only]:
            try:
                runtime_rows.append(runtime_row(title(name), exported(name, Path(folder)), runtime))
                print(runtime_rows[-1], file=sys.stderr, flush=True)
            except torch.onnx.OnnxExporterError as error:
                failed.append(f"{name} (torch.onnx: {type(error).__name__})")
    for name in [n for n in (*NETWORKS, *LATER) if not only or n in only]:
        kernel_rows.append([title(name), *kernel_row(name, kernels)[1:]])
        print(kernel_rows[-1], file=sys.stderr, flush=True)
    versions = {p: importlib.metadata.version(p) for p in ("onnxruntime", "onnxscript", "torch", "transformers")}
    left_out = f" Without {', '.join(failed)}, which could not be exported." if failed else ""
    parts = [
        f"### ONNX Runtime {versions['onnxruntime']}, CPU",
        table(RUNTIME_HEADINGS, runtime_rows),
        f"Exported by torch {versions['torch']} with onnxscript {versions['onnxscript']}.{left_out}",
        *runtime.lines(),
        f"### TorchInductor of torch {versions['torch']}, CPU",
        table(KERNEL_HEADINGS, kernel_rows),
        f"transformers {versions['transformers']}.",
        *kernels.lines(),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Compare, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="default all")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/fusion.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    text = measured(options.networks)
    print(text)
    if options.write and not options.networks:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARKERS[0])
        write_atomic(PAGE, f"{before}{MARKERS[0]}\n\n{text}\n\n{MARKERS[1]}{rest.partition(MARKERS[1])[2]}")


if __name__ == "__main__":
    main()
