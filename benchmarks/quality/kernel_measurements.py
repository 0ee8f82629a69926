"""Published kernel times, and the datasheets of the GPUs that they were measured on."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from placewright import catalogue
from placewright.costs.curve import Figures, Work
from placewright.costs.curve_fit import Measured

FOLDER = Path(os.environ.get("PLACEWRIGHT_MEASUREMENTS", Path(__file__).parents[3] / "shared/measurements"))
MODELS = {
    "a100-sxm-80g": "a100-sxm-80gb",
    "h100-sxm-80g": "h100-sxm-80gb",
    "l40s": "l40s",
    "arc-pro-b60": "arc-pro-b60",
}
"""Entry of the catalogue by the name that the files use."""


def measured(family: str) -> dict[str, Measured]:
    """``product``, ``prefill`` or ``decode`` of each GPU; raises FileNotFoundError where the files aren't."""
    path = FOLDER / ("gemm.csv" if family == "product" else "attention.csv")
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; PLACEWRIGHT_MEASUREMENTS names the folder of kernel measurements")
    with path.open() as file:
        rows = [r for r in csv.DictReader(file) if r.get("phase", "product") == family]
    return {MODELS[d]: _device(MODELS[d], family, [r for r in rows if r["device"] == d]) for d in MODELS}


def figures(model: str) -> Figures:
    """Look up a GPU in the catalogue, for bf16."""
    entry = catalogue.lookup(model)
    assert entry.clock_hz and entry.compute_units and entry.cache_bytes
    return Figures(
        entry.flops_per_s["bf16"],
        entry.memory_bandwidth_bytes_per_s,
        entry.clock_hz,
        entry.compute_units,
        entry.cache_bytes,
    )


def _device(model: str, family: str, rows: list[dict[str, str]]) -> Measured:
    def column(name: str) -> np.ndarray:
        return np.array([float(r[name]) for r in rows])

    seconds = column("time_ms") * 1e-3
    if family == "product":
        m, n, k = column("m"), column("n"), column("k")
        return Measured(product_work(m, n, k), figures(model), seconds)
    shape = [column(c) for c in ["batch", "input_length", "past_length", "query_heads", "kv_heads", "head_dim"]]
    return Measured(attention_work(*shape), figures(model), seconds)


def product_work(m: np.ndarray, n: np.ndarray, k: np.ndarray) -> Work:
    """(m, k) x (k, n) in bf16."""
    return Work(2 * m * n * k, 2 * (m * k + k * n + m * n), k, np.zeros_like(m))


def attention_work(
    batch: np.ndarray, new: np.ndarray, past: np.ndarray, heads: np.ndarray, kv_heads: np.ndarray, width: np.ndarray
) -> Work:
    """Causal attention of ``new`` tokens after ``past`` others in bf16: QK^T and PV; Q, K, V and the result once."""
    pairs = new * past + new * (new + 1) / 2
    flops = 4 * batch * heads * width * pairs
    moved = 2 * width * batch * (2 * new * heads + 2 * (past + new) * kv_heads)
    pieces = np.where(new == 1, batch * kv_heads, batch * heads * np.ceil(new / 128))
    return Work(flops, moved, pairs / new, pieces)
