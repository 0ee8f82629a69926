"""ONNX files as untrusted data: bounded, checked, and without reading a weight that lies outside the model's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import TYPE_CHECKING

from placewright.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

__all__ = ["external_location", "load_model", "onnx_module", "tensors_of"]

LARGEST_FILE_BYTES = 2**31
"""A protocol buffer can't be larger; weights beyond that are external data."""


def onnx_module() -> ModuleType:
    """Import the package ``onnx``.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import onnx
        import onnx.shape_inference
    except ImportError as absent:
        raise MissingExtra("onnx", "onnx", "reading an ONNX model") from absent
    return onnx


def load_model(path: str | Path) -> tuple[ModelProto, str]:
    """Read an ONNX file without its external data.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    ModelProto
    str
        The sha256 of the file's bytes, in hexadecimal.

    Raises
    ------
    InvalidInput
        If there is no such file, it is larger than 2 GiB, truncated or no ONNX model, has no operators, states a weight
        whose bytes don't fit its shape, or names external data outside its folder.
    """
    onnx = onnx_module()
    path = Path(path)
    what = f"ONNX model {path.name!r}"
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InvalidInput("it is not a regular file; name an .onnx file", what=what)
        if size > LARGEST_FILE_BYTES:
            raise InvalidInput(
                f"its {size} B are above the {LARGEST_FILE_BYTES} B of a protocol buffer; save it with external data",
                what=what,
            )
        content = path.read_bytes()
    except OSError as failure:
        reason = failure.strerror or type(failure).__name__
        raise InvalidInput(f"{path} can't be read: {reason}; check the path", what=what) from None
    model: ModelProto = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # protobuf's DecodeError, whose module depends on its back-end
        raise InvalidInput(
            f"its {len(content)} B are no ONNX model, or a truncated one; export or download it again", what=what
        ) from None
    violations = _violations(model, path.parent)
    if violations:
        raise InvalidInput(violations, what=what)
    return model, hashlib.sha256(content).hexdigest()


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor that a graph holds: initialisers and attributes, those of its sub-graphs included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for body in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from tensors_of(body)


def external_location(tensor: TensorProto) -> str | None:
    """File that a tensor's data lies in, as the model states it; ``None`` when the model holds the data itself."""
    if tensor.data_location != tensor.EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _violations(model: ModelProto, folder: Path) -> list[str]:
    if not model.ir_version or not model.opset_import:
        return ["it states no IR version and operator set, so it is no ONNX model; export it again"]
    if not model.graph.node:
        return ["its graph has no operators; there is nothing to place"]
    onnx = onnx_module()
    found = [
        f"operator set {entry.version} is above {onnx.defs.onnx_opset_version()}, the newest that the installed onnx "
        f"{onnx.__version__} knows; install a newer onnx"
        for entry in model.opset_import
        if entry.domain in ("", "ai.onnx") and entry.version > onnx.defs.onnx_opset_version()
    ]
    if not all(isinstance(text, str) for text in _texts(model.graph)):  # protobuf hands malformed text over as bytes
        return ["a name in it is not UTF-8 text, so it is corrupt; export or download it again"]
    if not all(text.isprintable() for text in _shown_texts(model.graph)):
        return ["an operator type or dimension in it has unprintable characters, so it is corrupt; export it again"]
    locations: dict[str, str] = {}
    for tensor in tensors_of(model.graph):
        where = f"weight {tensor.name!r}"
        location = external_location(tensor)
        if any(d < 0 for d in tensor.dims):
            found.append(f"{where}: its shape {tuple(tensor.dims)} has a negative dimension; export the model again")
        elif location is not None:
            locations.setdefault(location, tensor.name)
        elif tensor.HasField("raw_data") and tensor.data_type in onnx.TensorProto.DataType.values():
            needed = _raw_bytes(tensor)
            if needed is not None and needed != len(tensor.raw_data):
                found.append(
                    f"{where}: it holds {len(tensor.raw_data)} B, its shape {tuple(tensor.dims)} needs {needed} B; "
                    "export the model again"
                )
    found += [reason for location, name in locations.items() if (reason := _escape(location, name, folder))]
    return found


def _texts(graph: GraphProto) -> Iterator[object]:
    """Every name in a graph, its sub-graphs included."""
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (d.dim_param for d in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for body in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _texts(body)


def _shown_texts(graph: GraphProto) -> Iterator[str]:
    """Texts of a graph that messages show as they are."""
    for value in graph.input:
        yield from (d.dim_param for d in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.op_type, node.domain)


def _raw_bytes(tensor: TensorProto) -> int | None:
    """Bytes that raw data of this type and shape take; ``None`` where several elements share a byte, or for text."""
    onnx = onnx_module()
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if kind in ("UNDEFINED", "STRING") or kind.endswith(("INT4", "INT2", "E2M1")):
        return None
    count = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    for d in tensor.dims:
        count *= d
    return count


def _escape(location: str, name: str, folder: Path) -> str:
    """Why external data may not be read from where a model says; empty when it may."""
    where = f"weight {name!r}: its external data {location!r}"
    if not location or "\0" in location:
        return f"{where} names no file; save the model again with its external data"
    if PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive or location.startswith("\\"):
        return f"{where} is an absolute path; put the file beside the model and name it relative to the model"
    try:
        target = (folder / location.replace("\\", "/")).resolve()
        inside = target.is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return f"{where} can't be resolved; save the model again with its external data"
    return "" if inside else f"{where} lies outside the model's folder; put the file beside the model"
