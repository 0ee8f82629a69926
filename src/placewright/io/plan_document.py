"""What a plan file holds: an object of JSON for a structure each."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from placewright.io.problem_document import ProblemDocument
from placewright.io.result_json import ResultDocument

__all__ = ["OperatorTimes", "PlanDocument", "ProvenanceDocument", "ScheduleDocument", "TransferDocument"]

Scalar: TypeAlias = str | int | float | bool


class OperatorTimes(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """When and where each operator of the problem runs: arrays in the problem's order."""

    name: list[str]
    device: list[str]
    start_s: list[float]
    finish_s: list[float]
    call: Annotated[
        list[int] | None,
        Meta(description="Under offload: call of the device, from 0 in its order; 0 on CPUs. Left out: the fewest."),
    ] = None


class TransferDocument(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor on its way."""

    tensor: str
    source: str
    target: str
    start_s: float
    finish_s: float


class ScheduleDocument(msgspec.Struct, forbid_unknown_fields=True):
    """When everything happens, in seconds from the start of the sample."""

    operators: OperatorTimes
    transfers: list[TransferDocument]


class ProvenanceDocument(msgspec.Struct, forbid_unknown_fields=True):
    """How the plan came about."""

    solver: str = ""
    seed: int | None = None
    version: str = ""
    parameters: dict[str, Scalar | list[Scalar] | None] = {}


class PlanDocument(ResultDocument, forbid_unknown_fields=True, kw_only=True):
    """A plan file."""

    schema: Literal["placewright/plan/1"]  # type: ignore[assignment]
    schedule: ScheduleDocument
    provenance: ProvenanceDocument = msgspec.field(default_factory=ProvenanceDocument)
    problem_content: Annotated[ProblemDocument | None, Meta(description="The problem itself, or null.")] = None
