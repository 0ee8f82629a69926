"""A model for each session call of an ONNX plan, with the order that joins them: for any runtime that reads ONNX."""

from __future__ import annotations

from pathlib import Path

import msgspec

from placewright.errors import InvalidInput
from placewright.export.nearest import Nearest
from placewright.export.target import Exported

__all__ = ["write"]


def write(found: Nearest, folder: Path) -> Exported:
    """Write ``calls.json``, and a model for each call that it lists.

    A call reads what the calls before it made, by name. Calls are in an order in which they can be run one by one;
    those of different devices may run at the same time when what they read is there.
    """
    from placewright.capture.onnx_file import load_model
    from placewright.execute.dispatch import find_model
    from placewright.execute.onnx_split import split_model

    source = found.problem.graph.source
    if source is None or source.format != "onnx":
        raise InvalidInput("onnx-models parts the ONNX file that a plan was made of, and this plan was made of none")
    model, _ = load_model(find_model(found.problem, folder))
    split = split_model(model, found.problem, found.plan)
    files: dict[str, bytes] = {}
    rows = []
    for k, call in enumerate(split.calls):
        name = f"{k:03d}-{_plain(found.problem.cluster.devices[call.device].name)}.onnx"
        files[name] = split.call_model(call)
        rows.append(
            {
                "model": name,
                "device": found.problem.cluster.devices[call.device].name,
                "inputs": call.inputs,
                "outputs": call.outputs,
            }
        )
    document = {"inputs": split.inputs, "outputs": split.outputs, "calls": rows}
    if split.unplaced_outputs:
        files["constants.onnx"] = split.unplaced_model()
        document["constants"] = "constants.onnx"
    files["calls.json"] = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    return Exported(files=files)


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
