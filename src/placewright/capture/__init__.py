"""Networks in: an ONNX file, an exported torch program or a function that makes one, as an operator graph."""

from __future__ import annotations

import logging
from pathlib import Path

from placewright import coarsen
from placewright.capture import onnx_flops
from placewright.capture.diffusers_config import capture_denoiser, denoiser_file
from placewright.capture.torch_kinds import known_kind
from placewright.coarsen import ANY, rules_named
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph

__all__ = ["capture", "unknown_kinds"]

log = logging.getLogger(__name__)


def capture(model: str | Path, *, fuse: str = ANY.name, fold: bool = True) -> OperatorGraph:
    """Capture a network as an operator graph.

    Parameters
    ----------
    model : str or Path
        An ``.onnx`` file, a ``.pt2`` file of ``torch.export``, ``py:package.module:function`` that returns
        ``(module, example_inputs)``, or ``hf:`` and the configuration of a U-Net of diffusion. Only the ``py:``
        form runs code that it names.
    fuse : str
        By whose rules to merge operators that a back-end never separates (:func:`placewright.coarsen.fuse`): ``auto``,
        the name of a back-end in :data:`placewright.coarsen.RULES`, or ``none``.
    fold : bool
        Whether operators that follow from weights alone become weights of their readers, as back-ends that fold
        constants do: see :func:`placewright.capture.torch_export.capture_program`. Those of an ONNX file always do.

    Raises
    ------
    InvalidInput
        If the model is of none of these forms, or can't be captured, or the rules are unknown.
    MissingExtra
        If the package that reads it is not installed.
    """
    rules = rules_named(fuse)
    text = str(model)
    if text.startswith("py:"):
        from placewright.capture.torch_export import capture_py

        graph = capture_py(text.removeprefix("py:"), fold=fold)
    elif (denoiser := denoiser_file(text)) is not None:
        graph = capture_denoiser(denoiser, fold=fold)
    elif text.lower().endswith(".onnx"):
        from placewright.capture.onnx_model import capture_onnx

        graph = capture_onnx(model)
    elif text.lower().endswith(".pt2"):
        from placewright.capture.torch_export import capture_pt2

        graph = capture_pt2(Path(model), fold=fold)
    else:
        raise InvalidInput(
            f"model {text!r} is of no known form; give an .onnx file, a .pt2 file, or py:package.module:function"
        )
    if unknown := unknown_kinds(graph):
        log.warning("counted one FLOP an element, as nothing is known of their work: %s", ", ".join(unknown))
    return coarsen.fuse(graph, rules)


def unknown_kinds(graph: OperatorGraph) -> tuple[str, ...]:
    """Name the kinds of operators whose work no rule was made for, in their order.

    Their FLOPs are one for each element of the largest operand; bytes are counted as for all others.
    """
    found = dict.fromkeys(v.kind for v in graph.operators if v.kind and not v.parts)
    known = onnx_flops.known_kind if graph.source is not None and graph.source.format == "onnx" else known_kind
    return tuple(kind for kind in found if not known(kind))
