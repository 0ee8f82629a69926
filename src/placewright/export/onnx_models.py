"""A model for each session call of an ONNX plan, with the order that joins them: for any runtime that reads ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from placewright.export.nearest import Nearest
from placewright.export.target import Exported

if TYPE_CHECKING:
    from placewright.execute.onnx.split import Call, Split

__all__ = ["write"]


def write(found: Nearest, folder: Path) -> Exported:
    """Write ``calls.json``, and a model for each call that it lists.

    A call reads what the calls before it made, by name. Calls are in an order in which they can be run one by one;
    those of different devices may run at the same time when what they read is there.
    """
    from placewright.capture.onnx_file import load_model
    from placewright.execute.network import find_model
    from placewright.execute.onnx.split import split_model

    model, _ = load_model(find_model(found.problem, folder))
    split = split_model(model, found.problem, found.plan)
    files: dict[str, bytes] = {}
    rows = []
    for k, call in enumerate(_in_order(split)):
        device = found.problem.cluster.devices[call.device].name
        name = f"{k:03d}-{_plain(device)}.onnx"
        files[name] = split.call_model(call)
        rows.append({"model": name, "device": device, "inputs": call.inputs, "outputs": call.outputs})
    document: dict[str, Any] = {"inputs": split.inputs, "outputs": split.outputs, "calls": rows}
    if split.unplaced_outputs:
        files["constants.onnx"] = split.unplaced_model()
        document["constants"] = "constants.onnx"
    files["calls.json"] = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    return Exported(files=files)


def _in_order(split: Split) -> Iterator[Call]:
    """Yield calls so that each stands behind those that make what it reads."""
    made = {name for call in split.calls for name in call.outputs}
    there = {name for call in split.calls for name in call.inputs} - made
    waiting = list(split.calls)
    while waiting:
        call = next(call for call in waiting if there.issuperset(call.inputs))
        waiting.remove(call)
        there.update(call.outputs)
        yield call


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
