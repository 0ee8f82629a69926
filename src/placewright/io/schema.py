"""The JSON Schemas of all files, generated from the structs that decode them.

The copies in ``placewright/data/schemas`` are shipped; ``python -m placewright.io.schema`` writes them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from placewright.catalogue import HardwareFile
from placewright.io.cluster_file import ClusterEntry
from placewright.io.plan_document import PlanDocument
from placewright.io.problem_document import ProblemDocument
from placewright.io.reading import write_atomic
from placewright.io.result_json import ResultDocument

__all__ = ["FOLDER", "SCHEMAS", "json_schema", "schema_text"]

SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "catalogue": HardwareFile,
    "cluster": ClusterEntry,
    "problem": ProblemDocument,
    "plan": PlanDocument,
    "result": ResultDocument,
}
"""What decodes each kind of file, by the name of its schema."""

FOLDER = Path(__file__).parent.parent / "data" / "schemas"
"""Where the shipped copies are: one ``<name>.json`` each."""


def json_schema(name: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of a kind of file.

    Examples
    --------
    >>> json_schema("plan")["$id"]
    'placewright/plan/1'
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"placewright/{name}/1"}
    return head | msgspec.json.schema(SCHEMAS[name])


def schema_text(name: str) -> str:
    """Make the text of a shipped file."""
    return msgspec.json.format(msgspec.json.encode(json_schema(name), order="sorted"), indent=1).decode() + "\n"


def main() -> None:
    """Write the shipped copies."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in SCHEMAS:
        write_atomic(FOLDER / f"{name}.json", schema_text(name))


if __name__ == "__main__":
    main()
