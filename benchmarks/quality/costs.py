"""Analytic times against measured ones: published kernels of four GPUs, and operators and networks on this CPU.

Run ``python benchmarks/quality/costs.py [--threads 1,2] [--runtimes torch,onnxruntime] [--only squeezenet]
[--keep FILE] [-o docs/costs.md]`` in the repository's root; ``PLACEWRIGHT_MEASUREMENTS`` names the folder of
``gemm.csv`` and ``attention.csv``. ``--fit`` fits the curves to them and prints what ``data/efficiency.yaml`` says of
GPUs instead. ``--keep``: each network is written as soon as it is measured, and an interrupted run goes on where it
was. A picture of the same name with ``.svg`` is written beside the page.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.quality.cost_onnx_networks import NAMES as EXPORTED  # noqa: E402
from benchmarks.quality.cost_onnx_networks import exported  # noqa: E402
from benchmarks.quality.costs_picture import picture  # noqa: E402
from benchmarks.quality.kernel_measurements import measured  # noqa: E402

from placewright.capture import capture  # noqa: E402
from placewright.cluster import Cluster, Device  # noqa: E402
from placewright.costs import analytic, profile  # noqa: E402
from placewright.costs.calibrate import Calibration, as_runtime, calibrate  # noqa: E402
from placewright.costs.curve import Curve  # noqa: E402
from placewright.costs.curve_fit import SHAPE, Measured, fit_curve  # noqa: E402
from placewright.host import available_cores, cpu_name  # noqa: E402
from placewright.io import write_atomic  # noqa: E402
from placewright.units import format_seconds  # noqa: E402

FAMILIES = {"product": "matrix products", "prefill": "attention, prefill", "decode": "attention, decode"}
START = Curve(0.7, 0.8, 2.0, 6000.0, 500.0, 2000.0, 1.0, 0.15)
TORCH = ("bert_4", "gpt2_small", "vit_base", "t5_small", "resnet_50", "mobilenet_v2", "densenet_121")
ONNX = ("squeezenet", "resnet50", "inception_v1", "densenet121", "shufflenet", "vgg19")
PAGE = "docs/costs.md"
CHANNEL_BYTES_PER_S = 38.4e9
"""One channel of DDR5-4800: what a core is assumed to reach before it is calibrated."""


def free_fields(family: str) -> tuple[str, ...]:
    """Fields that are fitted: products are not handed out piece by piece."""
    return tuple(f for f in SHAPE if f != "piece_cycles" or family != "product")


@cache
def fitted(family: str, without: str = "") -> tuple[Curve, Mapping[str, float]]:
    """Fit the curve of a family to all GPUs but one; with the cycles of each GPU's floor."""
    devices = {name: d for name, d in measured(family).items() if name != without}
    free = free_fields(family)
    start = replace(START, **{f: 0.0 for f in SHAPE if f not in free and f == "piece_cycles"})
    curve, floors = fit_curve(start, list(devices.values()), free=free)
    return curve, dict(zip(devices, floors, strict=True))


def errors(curve: Curve, seen: Measured, cycles: float | None = None) -> np.ndarray:
    """Relative errors of a curve's times, with a floor of its own or a given one."""
    floor_s = None if cycles is None else cycles / seen.figures.clock_hz
    return curve.seconds(seen.work, seen.figures, floor_s=floor_s, warm=True) / seen.seconds - 1


def spread(found: np.ndarray) -> str:
    """Median of the errors' sizes, with their quartiles and ninth decile."""
    low, middle, high, worst = np.quantile(np.abs(found), [0.25, 0.5, 0.75, 0.9])
    return f"{middle:.1%} ({low:.0%}, {high:.0%}, {worst:.0%})"


def kernel_rows() -> Iterator[str]:
    """One line a family and GPU: the shared curve, a curve that never saw the GPU, and one calibrated for it."""
    off: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    for family, title in FAMILIES.items():
        curve, floors = fitted(family)
        for model, seen in measured(family).items():
            unseen, _ = fitted(family, model)
            own, own_floors = fit_curve(curve, [seen], free=("arithmetic", "memory"))
            found = errors(curve, seen, floors[model]), errors(unseen, seen), errors(own, seen, own_floors[0])
            off.setdefault(model, []).append(found)
            yield f"| {title} | {model} | {seen.seconds.size:,} | {' | '.join(map(spread, found))} |"
    for model, parts in off.items():
        whole = [np.concatenate(column) for column in zip(*parts, strict=True)]
        yield f"| all | {model} | {whole[0].size:,} | {' | '.join(map(spread, whole))} |"


def floor_lines() -> Iterator[str]:
    """Say what each GPU's floor is: the one figure that no datasheet has."""
    devices = measured("product")
    _, floors = fitted("product")
    named = (f"{m} {floors[m] / d.figures.clock_hz * 1e6:.1f} us ({floors[m]:,.0f} cycles)" for m, d in devices.items())
    yield "What no datasheet says is how long a kernel takes that does nothing. Fitted to matrix products:"
    yield from (f"{line}," for line in named)
    yield "and an unseen GPU is taken to have the median of the others' cycles. Of one whose runtime is slower or"
    yield "faster, small kernels are off by the difference: state `launch_overhead`."


def curve_lines() -> Iterator[str]:
    """Lines of ``data/efficiency.yaml``: four digits of what was fitted."""
    for family in FAMILIES:
        curve, _ = fitted(family)
        given = {n: float(f"{x:.4g}") for n, x in asdict(curve).items() if x and np.isfinite(x)}
        yield f"    {family}: {{{', '.join(f'{n}: {x:g}' for n, x in given.items())}}}"


def device_of(threads: int) -> Device:
    """Describe cores of this CPU as a datasheet would: clock times FLOPs a cycle, one channel of memory a core."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    clock = next((float(line.split(":")[1]) * 1e6 for line in text.splitlines() if "MHz" in line), 2.5e9)
    per_cycle = 64 if "avx512f" in text else 32 if "avx2" in text else 16
    cores = available_cores()[:threads]
    return Device(
        f"cpu{threads}",
        kind="cpu",
        cores=cores,
        threads=threads,
        flops_per_s={"fp32": threads * clock * per_cycle},
        memory_bandwidth_bytes_per_s=threads * CHANNEL_BYTES_PER_S,
        launch_overhead_s=2e-6,
    )


def networks(runtime: str) -> dict[str, str]:
    """Spec or path of each network by name."""
    if runtime == "torch":
        return {name: f"py:benchmarks.quality.cost_networks:{name}" for name in TORCH}
    spec = importlib.util.find_spec("onnx")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "backend/test/data/light"
    found = {name: folder / f"light_{name}.onnx" for name in ONNX}
    made = Path(tempfile.gettempdir()) / "placewright-cost-networks"
    transformers = {name: str(exported(name, made)) for name in EXPORTED}
    return {name: str(path) for name, path in found.items() if path.is_file()} | transformers


def compared(name: str, model: str, runtime: str, threads: int, calibration: Calibration) -> dict[str, Any]:
    """Measure one network and predict it with the curve before and after the calibration."""
    device = device_of(threads)
    graph = capture(model, fuse="onnxruntime" if runtime == "onnxruntime" else "none")
    cluster = Cluster([device])
    report = profile(model, graph, cluster, cache=None, reconcile=False)
    before = analytic(graph, cluster).processing_s[:, 0]
    corrected = Cluster([replace(device, launch_overhead_s=calibration.launch_overhead_s)])
    after = analytic(graph, corrected, curves={device.name: calibration.curves}).processing_s[:, 0]
    columns = (report.times.processing_s[:, 0], before, after)
    return {
        "network": name,
        "runtime": runtime,
        "threads": threads,
        "load": os.getloadavg()[0],
        "whole_s": report.whole_s.get(device.name, 0.0),
        "operators": [
            [v.kind, *(float(c[k]) for c in columns)] for k, v in enumerate(graph.operators) if columns[0][k] > 0
        ],
    }


def signed(predicted: float, real: float) -> str:
    """Relative error with its sign."""
    return f"{predicted / real - 1:+.0%}" if real > 0 else "-"


def network_rows(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line a network, runtime and number of threads; then the median and largest size of the errors."""
    off: dict[tuple[str, int], list[list[float]]] = {}
    for r in found:
        sums = [sum(v[k] for v in r["operators"]) for k in (1, 2, 3)]
        whole = r["whole_s"] or sums[0]
        off.setdefault((r["runtime"], r["threads"]), []).append([abs(predicted / whole - 1) for predicted in sums])
        cells = (signed(s, whole) for s in sums)
        named = f"| {r['runtime']} | {r['threads']} | {r['network']} | {len(r['operators'])}"
        yield f"{named} | {format_seconds(whole)} | {' | '.join(cells)} |"
    off["all", 0] = [row for rows in off.values() for row in rows]
    for (runtime, threads), rows in off.items():
        columns = np.array(rows).T
        cells = (f"{np.median(e):.1%} ({e.max():.0%})" for e in columns)
        yield f"| {runtime} | {threads or ''} | *median (largest) error* | | | {' | '.join(cells)} |"


def kind_rows(found: Sequence[Mapping[str, Any]], runtime: str, threads: int, most: int = 16) -> Iterator[str]:
    """List the kinds of operators that most time goes to: their sum, and how far single operators are off."""
    of_kind: dict[str, list[list[float]]] = {}
    for r in found:
        if (r["runtime"], r["threads"]) == (runtime, threads):
            for kind, *times in r["operators"]:
                of_kind.setdefault(kind, []).append(times)
    total = sum(t[0] for rows in of_kind.values() for t in rows)
    ordered = sorted(of_kind, key=lambda k: (-sum(t[0] for t in of_kind[k]), k))
    for kind in ordered[:most]:
        times = np.array(of_kind[kind])
        sums = times.sum(axis=0)
        off = np.abs(times[:, 2] / times[:, 0] - 1)
        yield (
            f"| `{kind}` | {len(times)} | {sums[0] / total:.0%} | {signed(sums[1], sums[0])} | "
            f"{signed(sums[2], sums[0])} | {np.median(off):.0%} |"
        )


def page(found: Sequence[Mapping[str, Any]], command: str, picture_name: str) -> str:
    """Put the page together."""
    loads = [r["load"] for r in found] or [os.getloadavg()[0]]
    lines = [
        "# What analytic times are worth",
        "",
        f"Made by `{command}` on {os.cpu_count()} cores",
        f"({cpu_name()}); torch {version('torch')}, ONNX Runtime {version('onnxruntime')}. Other work ran beside it:",
        f"load average {min(loads):.1f} to {max(loads):.1f} while the networks were measured, one after the other.",
        "How it works is below.",
        "",
        "## Kernels of GPUs",
        "",
        "Sizes of relative errors: median (first quartile, third quartile, ninth decile). *Shared*: one curve fitted",
        "to all four GPUs, each with a floor of its own. *Unseen*: fitted to the three others, and the GPU known",
        "by its datasheet alone. *Calibrated*: the shared curve with the GPU's own shares of peak and bandwidth. bf16,",
        "published by ai-dynamo/aiconfigurator (Apache-2.0), warm and back to back.",
        "",
        "| kernels | GPU | measured | shared | unseen | calibrated |",
        "|---|---|---:|---:|---:|---:|",
        *kernel_rows(),
        "",
        f"![efficiency against size]({picture_name})",
        "",
        *floor_lines(),
        "",
    ]
    if found:
        lines += [
            "## Networks on this CPU",
            "",
            "Errors of sums of operators against the network run as a whole: *profiled* (every operator measured),",
            "*before* (the shipped curve, clock x FLOP a cycle and one memory channel a core) and *after*",
            "`placewright calibrate` (twelve operators measured, made up, not taken from these networks). One thread",
            "is timed by the thread's own CPU clock, more by the wall clock: on a busy machine the latter says little.",
            "",
            "| runtime | threads | network | operators | whole | profiled | before | after |",
            "|---|---:|---|---:|---:|---:|---:|---:|",
            *network_rows(found),
            "",
        ]
        for runtime, threads in dict.fromkeys((r["runtime"], r["threads"]) for r in found):
            lines += [
                f"### By kind of operator: {runtime}, {threads} threads",
                "",
                "Share of the measured time, error of the kind's sum before and after calibration, and the median size",
                "of single operators' errors after it.",
                "",
                "| kind | operators | share | before | after | single |",
                "|---|---:|---:|---:|---:|---:|",
                *kind_rows(found, runtime, threads),
                "",
            ]
    return "\n".join([*lines, *explanation()])


def explanation() -> Iterator[str]:
    """How the model works and what one can do about its errors."""
    yield from (ROOT / "benchmarks/quality/costs_explained.md").read_text().splitlines()
    yield ""


def measure(
    runtimes: Sequence[str], threads: Sequence[int], only: str, keep: Path | None, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Compare every network that isn't kept already."""
    found: list[dict[str, Any]] = json.loads(keep.read_text()) if keep is not None and keep.is_file() else []
    done = {(r["runtime"], r["threads"], r["network"]) for r in found}
    for runtime in runtimes:
        for n in threads:
            chosen = {k: m for k, m in networks(runtime).items() if only in k and (runtime, n, k) not in done}
            if not chosen:
                continue
            tell(f"calibrating {runtime} with {n} threads")
            calibration = calibrate(device_of(n), runtime=as_runtime(runtime))
            for name, model in chosen.items():
                tell(f"{runtime}, {n} threads: {name}")
                found.append(compared(name, model, runtime, n, calibration))
                if keep is not None:
                    write_atomic(keep, json.dumps(found))
    return found


def main() -> None:
    """Entry of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--runtimes", default="torch,onnxruntime", help="'' for the kernels alone")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.fit:
        print("\n".join(curve_lines()))
        return
    threads = [n for n in map(int, given.threads.split(",")) if n <= len(available_cores())]
    runtimes = [r for r in given.runtimes.split(",") if r]
    found = measure(runtimes, threads, given.only, given.keep, lambda line: print(line, file=sys.stderr))
    output = given.output or ROOT / PAGE
    command = f"python benchmarks/quality/costs.py --threads {given.threads} --runtimes {given.runtimes} -o {PAGE}"
    text = page(found, command, output.with_suffix(".svg").name)
    if given.output is None:
        print(text)
        return
    curve, floors = fitted("product")
    write_atomic(output.with_suffix(".svg"), picture(measured("product"), curve, floors))
    write_atomic(output, text)


if __name__ == "__main__":
    main()
