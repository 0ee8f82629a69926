"""Affinities of OpenVINO's HETERO mode, in a script that sets them.

In its manual mode every operation has an ``affinity`` in its ``rt_info``
(https://docs.openvino.ai/2025/openvino-workflow/running-inference/inference-devices-and-modes/hetero-execution.html),
and the model is compiled for ``HETERO:GPU.0,CPU``.
"""

from __future__ import annotations

from pathlib import Path

from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules(
    "OpenVINO", "devices of one host", unit="operator", ordered=False, one_host=True, pipelined=False, tied_twice=False
)

GPU_KINDS = ("gpu", "accelerator")

PROGRAM = '''# python THIS_FILE MODEL.onnx

import sys

DEVICES = {order!r}
DEVICE_OF = {devices}


def set_affinities(model):
    """Set the device of each operation by its name; others go with their first reader, or with their first input."""
    operations = model.get_ordered_ops()
    found = {{op.get_friendly_name(): DEVICE_OF.get(op.get_friendly_name()) for op in operations}}
    for op in reversed(operations):
        readers = [t.get_node().get_friendly_name() for o in op.outputs() for t in o.get_target_inputs()]
        device = found[op.get_friendly_name()] or next(filter(None, map(found.get, readers)), None)
        found[op.get_friendly_name()] = device
    for op in operations:
        makers = [i.get_source_output().get_node().get_friendly_name() for i in op.inputs()]
        device = found[op.get_friendly_name()] or next(filter(None, map(found.get, makers)), DEVICES[0])
        found[op.get_friendly_name()] = op.get_rt_info()["affinity"] = device
    return model


def compiled(path):
    """Read a model and compile it for its devices."""
    import openvino

    core = openvino.Core()
    return core.compile_model(set_affinities(core.read_model(path)), "HETERO:" + ",".join(DEVICES))


if __name__ == "__main__":
    compiled(sys.argv[1])
'''


def write(found: Nearest, folder: Path) -> Exported:
    """Write the script."""
    graph = found.problem.graph
    words = {i: _word(found, i) for i in sorted(found.plan.devices_used, key=lambda i: _word(found, i), reverse=True)}
    rows = {
        name: words[int(device)]
        for v, device in zip(graph.operators, found.plan.device_of.tolist(), strict=True)
        for name in v.part_names
    }
    for tensor in graph.tensors:  # OpenVINO calls what makes an output of the network by that output's name
        if tensor.output:
            rows.setdefault(tensor.name, words[int(found.plan.device_of[tensor.producer])])
    listed = "{\n" + "".join(f"    {name!r}: {device!r},\n" for name, device in rows.items()) + "}"
    return Exported(PROGRAM.format(order=list(dict.fromkeys(words.values())), devices=listed))


def _word(found: Nearest, device: int) -> str:
    """Return OpenVINO's name of a device: ``CPU``, ``GPU.1``, ``NPU``; another kind's own name, as a plugin may have.

    GPUs are counted among themselves, whatever else the host has.
    """
    devices = found.problem.cluster.devices
    own = devices[device]
    if own.kind not in GPU_KINDS:
        return own.kind.upper()
    return f"GPU.{sum(d.kind in GPU_KINDS and d.host == own.host for d in devices[:device])}"
