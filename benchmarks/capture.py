"""Capture real networks on the meta device, each in its own process: size of the graph, seconds, peak memory.

Run ``python benchmarks/capture.py`` in the repository's root; it prints the table and puts it into ``docs/capture.md``.
With names of functions in ``examples/models.py`` it captures these alone and leaves the page as it is.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "capture.md"
MARKERS = ("<!-- table: benchmarks/capture.py -->", "<!-- end of table -->")
NETWORKS = {
    "bert_large": "BERT-large, 512 tokens",
    "gpt2_xl": "GPT-2 XL, 1,024 tokens",
    "llama_7b": "Llama 7B, bf16, 2,048 tokens",
    "llama_13b": "Llama 13B, bf16, 2,048 tokens",
    "mixtral_8x7b": "Mixtral 8x7B, bf16, 2,048 tokens",
    "t5_large": "T5-large, 512 + 512 tokens",
    "whisper_small": "Whisper-small, 30 s + 448 tokens",
    "resnet_50": "ResNet-50, 224 x 224",
    "swin_v2_large": "Swin-v2-large, 192 x 192",
    "vit_large": "ViT-large/16, 224 x 224",
}
HEADINGS = (
    *("network", "operators", "fused", "tensors", "classes", "parameters", "weights, GiB"),
    *("GFLOP", "export, s", "capture, s", "peak RSS, GiB"),
)


def measure(name: str) -> dict[str, float | int | str]:
    """Capture one network in this process."""
    sys.path.insert(0, str(ROOT))
    from placewright.capture.torch_export import capture_program, export_module
    from placewright.capture.torch_spec import load_py

    module, args, kwargs = load_py(f"examples.models:{name}")
    start = time.perf_counter()
    program = export_module(module, args, kwargs)
    exported = time.perf_counter()
    graph = capture_program(program, name=name)
    captured = time.perf_counter()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        from placewright.coarsen import fuse

        fused: int | str = len(fuse(graph))
    except ImportError:
        fused = "-"
    return {
        "operators": len(graph),
        "fused": fused,
        "tensors": len(graph.tensors),
        "classes": len(graph.colocation),
        "parameters": sum(p.numel() for p in module.parameters()),
        "weight_bytes": sum(v.weight_bytes for v in graph.operators),
        "flops": sum(v.flops for v in graph.operators),
        "export_s": exported - start,
        "capture_s": captured - exported,
        "peak_bytes": peak_kib * 1024,
    }


def row(name: str, limit_s: float) -> list[str]:
    """Capture one network in its own process; a row of the table."""
    command = [sys.executable, "-W", "ignore", __file__, "--measure", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.TimeoutExpired:
        return [NETWORKS[name], f"not within {limit_s:g} s", *[""] * (len(HEADINGS) - 2)]
    except subprocess.CalledProcessError as error:
        return [NETWORKS[name], (error.stderr.strip().splitlines() or ["failed"])[-1], *[""] * (len(HEADINGS) - 2)]
    m = json.loads(done.stdout.strip().splitlines()[-1])
    fused = m["fused"] if isinstance(m["fused"], str) else f"{m['fused']:,}"
    return [
        *(NETWORKS[name], f"{m['operators']:,}", fused, f"{m['tensors']:,}", f"{m['classes']:,}"),
        *(f"{m['parameters']:,}", f"{m['weight_bytes'] / 2**30:.2f}", f"{m['flops'] / 1e9:,.0f}"),
        *(f"{m['export_s']:.1f}", f"{m['capture_s']:.1f}", f"{m['peak_bytes'] / 2**30:.2f}"),
    ]


def table(rows: list[list[str]]) -> str:
    """Give rows as a Markdown table, numbers to the right."""
    lines = [HEADINGS, ["---", *["---:"] * (len(HEADINGS) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(text: str) -> None:
    """Put the table between the page's markers."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(MARKERS[0])
    _, _, after = rest.partition(MARKERS[1])
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=PAGE.parent, delete=False) as file:
        file.write(f"{before}{MARKERS[0]}\n{text}\n{MARKERS[1]}{after}")
    Path(file.name).chmod(0o644)
    Path(file.name).replace(PAGE)


def main() -> None:
    """Measure, print, and write the page when all networks were measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; default all")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each network")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    rows = []
    for name in options.networks or NETWORKS:
        rows.append(row(name, options.limit))
        print("| " + " | ".join(rows[-1]) + " |", file=sys.stderr, flush=True)
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("torch", "transformers"))
    where = f"Python {sys.version.split()[0]}, {os.cpu_count()} shared cores, {time.strftime('%Y-%m-%d')}"
    text = f"{table(rows)}\n\n{versions}, {where}."
    print(text)
    if not options.networks:
        write_page(text)


if __name__ == "__main__":
    main()
