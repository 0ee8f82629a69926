"""Layer annotations of ONNX Runtime, in a script that writes them into a model.

A node's metadata ``layer_ann`` is matched by ``session.layer_assignment_settings``, ``cpu(=a); gpu:1(=b)``
(https://onnxruntime.ai/docs/, "Layer annotations and capacity-aware partitioning"). A session has
one execution provider of a kind, so one GPU and the CPU, and the annotation is a preference: a node that the provider
has no kernel for goes to the next one. For more devices there is ``onnx-models``.
"""

from __future__ import annotations

from pathlib import Path

from placewright.export.device_words import accelerator_index
from placewright.export.nearest import Nearest, Rules
from placewright.export.target import Exported

__all__ = ["RULES", "write"]

RULES = Rules(
    "ONNX Runtime",
    "one accelerator and the CPU of one host",
    unit="operator",
    ordered=False,
    one_host=True,
    one_accelerator=True,
    pipelined=False,
    tied_twice=False,
)

PROGRAM = '''# python THIS_FILE MODEL.onnx ANNOTATED.onnx

import sys

import onnx

SETTINGS = {settings!r}
PROVIDERS = {providers!r}
DEVICE_OF = {devices}


def annotate(model):
    """Mark each node with its device; constants go with what reads them."""
    reader = {{}}
    for position, node in reversed(list(enumerate(model.graph.node))):
        device = DEVICE_OF.get(node.name) or DEVICE_OF.get(f"{{node.name or node.op_type}}_{{position}}")
        device = device or next((reader[o] for o in node.output if o in reader), None)
        if device is not None:
            entry = node.metadata_props.add()
            entry.key, entry.value = "layer_ann", device
            reader.update(dict.fromkeys(node.input, device))
    return model


def session(path):
    """Open an annotated model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.layer_assignment_settings", SETTINGS)
    return onnxruntime.InferenceSession(path, options, providers=PROVIDERS)


if __name__ == "__main__":
    onnx.save(annotate(onnx.load(sys.argv[1])), sys.argv[2])
'''


def write(found: Nearest, folder: Path) -> Exported:
    """Write the script."""
    cluster, graph = found.problem.cluster, found.problem.graph
    words = {i: _word(found, i) for i in found.plan.devices_used}
    rows = {
        name: f"on_{words[int(device)].replace(':', '_')}"
        for v, device in zip(graph.operators, found.plan.device_of.tolist(), strict=True)
        for name in v.part_names
    }
    settings = "; ".join(f"{word}(=on_{word.replace(':', '_')})" for word in words.values())
    providers = ["CPUExecutionProvider"]
    if any(cluster.devices[i].kind != "cpu" for i in words):
        providers.insert(0, "CUDAExecutionProvider")
    listed = "{\n" + "".join(f"    {name!r}: {device!r},\n" for name, device in rows.items()) + "}"
    notes = []
    if len(providers) > 1:
        notes.append("PROVIDERS names CUDA; put another provider there if the accelerator is none of CUDA's")
    return Exported(PROGRAM.format(settings=settings, providers=providers, devices=listed), tuple(notes))


def _word(found: Nearest, device: int) -> str:
    number = accelerator_index(found.problem.cluster, device)
    return "cpu" if number < 0 else f"gpu:{number}"
