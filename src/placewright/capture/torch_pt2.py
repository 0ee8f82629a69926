"""Read a ``.pt2`` file as data: no pickle, no evaluated text, no code that is built from unchecked names."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from placewright.capture.torch_pt2_check import checked_program
from placewright.errors import InvalidInput
from placewright.units import format_bytes

__all__ = ["read_pt2"]

MAX_JSON_BYTES = 256 * 2**20
"""A program's graph is refused above this; 13 billion parameters in 40 layers need some 10 MiB."""


def read_pt2(path: Path, *, weights: bool = False) -> ExportedProgram:
    """Program in a file that ``torch.export.save`` wrote (torch 2.9 or later).

    ``torch.export.load`` unpickles sample inputs and odd constants, evaluates symbolic sizes as text and compiles names
    from the file as code. This reader guarantees, for any bytes in the file, that it does none of that:

    - Of the archive it reads the graph (bounded JSON) and the tables of weights; with ``weights`` also the weights, as
      raw numbers. Sample inputs are not read; a weight or constant that is pickled is refused.
    - Only records that are stored uncompressed are read, so nothing grows beyond the file's size.
    - Operators must be ``aten`` or ``prims`` operators that touch no file, arithmetic on sizes, or a wrapper for
      gradient mode, autocast or a condition. Names must be identifiers, symbolic sizes arithmetic in known functions.
      Guards, stack traces, call signatures and everything else that capture doesn't need is left out.

    The program takes its inputs flat, by position.

    Parameters
    ----------
    path : Path
    weights : bool
        Read the weights; else they are meta tensors.

    Raises
    ------
    InvalidInput
        If the file can't be read under these rules.
    """
    what = f"exported program {path.name!r}"
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(_Archive(archive), weights)
    except InvalidInput as error:
        raise InvalidInput(error.violations, what=what) from None
    except FileNotFoundError:
        raise InvalidInput("there is no such file; check the path", what=what) from None
    except OSError as error:
        raise InvalidInput(f"it can't be read ({error.strerror or error}); check the path", what=what) from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError):
        raise InvalidInput(
            "it is no complete .pt2 archive; save it again with torch.export.save(program, path)", what=what
        ) from None
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InvalidInput(
            f"its program can't be read ({reason}); save it again with torch.export.save of torch {torch.__version__}",
            what=what,
        ) from None


class _Archive:
    """Records by name without the archive's own top folder; nothing compressed."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._records = {i.filename.partition("/")[2]: i for i in archive.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def names(self, prefix: str) -> list[str]:
        return [n for n in self._records if n.startswith(prefix)]

    def size(self, name: str) -> int:
        if name not in self._records:
            raise InvalidInput(f"the record {name!r} is missing; save it again with torch.export.save")
        return self._records[name].file_size

    def read(self, name: str, limit: int | None = None) -> bytes:
        size = self.size(name)
        if self._records[name].compress_type != zipfile.ZIP_STORED:
            raise InvalidInput(f"the record {name!r} is compressed; torch.export.save stores records uncompressed")
        if limit is not None and size > limit:
            raise InvalidInput(f"the record {name!r} has {format_bytes(size)}, more than {format_bytes(limit)}")
        return self._archive.read(self._records[name])

    def json(self, name: str) -> Any:
        content = self.read(name, MAX_JSON_BYTES)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise InvalidInput(f"the record {name!r} is no JSON; save it again with torch.export.save") from None


def _read(archive: _Archive, weights: bool) -> ExportedProgram:
    from torch._export.serde import schema, serialize

    models = [n for n in archive.names("models/") if n.endswith(".json")]
    if len(models) != 1:
        raise InvalidInput(
            f"it holds {len(models)} programs in today's format, not 1; save one with torch.export.save of torch 2.9 "
            "or later"
        )
    model = models[0].removeprefix("models/").removesuffix(".json")
    state = _payload(archive, "data/weights/", f"{model}_weights_config.json", weights)
    constants = _payload(archive, "data/constants/", f"{model}_constants_config.json", weights)
    convert: Any = serialize._dict_to_dataclass
    program = convert(schema.ExportedProgram, checked_program(archive.json(models[0])))
    try:
        return serialize.ExportedProgramDeserializer().deserialize(program, state, constants, None)
    except RecursionError:
        raise InvalidInput("its graph is nested too deeply") from None


def _payload(archive: _Archive, folder: str, table: str, weights: bool) -> dict[str, torch.Tensor]:
    """Tensors of one table; those that share a record share storage."""
    from torch._export.serde.schema import ScalarType
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    if folder + table not in archive:
        raise InvalidInput(
            f"the record {folder + table!r} is missing (older files keep weights as a pickle); "
            "save it again with torch.export.save of torch 2.9 or later"
        )
    flat: dict[str, torch.Tensor] = {}
    tensors: dict[str, torch.Tensor] = {}
    for name, entry in archive.json(folder + table)["config"].items():
        record, meta = str(entry["path_name"]), entry.get("tensor_meta")
        if entry.get("use_pickle") or meta is None:
            raise InvalidInput(f"{name!r} is stored as a pickle, which is not loaded; make it a plain tensor")
        dtype = _SERIALIZE_TO_TORCH_DTYPE[ScalarType(meta["dtype"])]
        size, stride = ([int(s["as_int"]) for s in meta[key]] for key in ("sizes", "strides"))
        offset = int(meta["storage_offset"]["as_int"])
        stored = archive.size(folder + record)
        if stored == 0:  # saved from the meta device (or empty): all such tensors name one record and share nothing
            tensor = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            if weights and not tensor.numel():
                tensor = torch.empty_strided(size, stride, dtype=dtype)
        else:
            if record not in flat:
                flat[record] = (
                    torch.frombuffer(bytearray(archive.read(folder + record)), dtype=torch.uint8)
                    if weights
                    else torch.empty(stored, dtype=torch.uint8, device="meta")
                )
            reach = (offset + 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))) * dtype.itemsize
            if (
                min(size, default=1) < 0
                or min(stride, default=0) < 0
                or offset < 0
                or (0 not in size and reach > stored)
            ):
                raise InvalidInput(f"{name!r} reaches beyond its record of {stored} B; the file is damaged")
            base = torch.empty(0, dtype=dtype, device=flat[record].device)
            tensor = base.set_(flat[record].untyped_storage(), offset, size, stride)
        tensors[name] = torch.nn.Parameter(tensor, requires_grad=False) if entry.get("is_param") else tensor
    return tensors
