"""Conversions of layout that ONNX Runtime makes inside a network, as its own profile times them."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from placewright.costs.onnx_layout import MOST_BYTES, Opener, filled_bytes
from placewright.costs.tasks import Conversion, Input

__all__ = ["conversions_within"]

RUNS = 20
MOST_EVENTS = 40_000
_KINDS = ("ReorderInput", "ReorderOutput")


def conversions_within(
    path: str, inputs: Sequence[Input], open_session: Opener, run: Callable[[Any, Sequence[Input]], None]
) -> tuple[Conversion, ...]:
    """Time each conversion of a network: none where it has none, or is too large to be written and read again.

    What operators make in the runtime's layout and others read in the plain one is converted between them. Neither has
    the conversion when it is measured by itself, so it is told apart, by the tensor.

    Parameters
    ----------
    path : str
        Of the model.
    inputs : sequence of Input
    open_session : Opener
    run : callable
        Run a session on the inputs, once.
    """
    model = onnx.load(path, load_external_data=False)
    external = any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
    if external or Path(path).stat().st_size + filled_bytes(model) > MOST_BYTES:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        session = open_session(path, optimise=True, optimised_path=str(optimised), profile_prefix=f"{folder}/profile")
        nodes = onnx.load(optimised, load_external_data=False).graph.node
        converting = {n.name: n for n in nodes if n.op_type in _KINDS}
        if not converting:
            session.end_profiling()
            return ()
        for _ in range(max(5, min(RUNS, MOST_EVENTS // len(nodes)))):
            run(session, inputs)
        taken = _durations(Path(session.end_profiling()), converting)
    return tuple(
        Conversion(n.input[0] if n.op_type == _KINDS[0] else n.output[0], n.op_type == _KINDS[0], taken[name])
        for name, n in converting.items()
        if name in taken
    )


def _durations(profile: Path, names: dict[str, onnx.NodeProto]) -> dict[str, float]:
    """Seconds of each node: the lower quartile of its runs, since what else the machine does makes them longer."""
    of_node: dict[str, list[float]] = {}
    for event in json.loads(profile.read_text()):
        name = str(event.get("name", "")).removesuffix("_kernel_time")
        if event.get("cat") == "Node" and name in names and event["name"].endswith("_kernel_time"):
            of_node.setdefault(name, []).append(float(event["dur"]) * 1e-6)
    return {n: statistics.quantiles(t, n=4, method="inclusive")[0] for n, t in of_node.items() if len(t) > 1}
