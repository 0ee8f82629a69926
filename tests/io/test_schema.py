"""The shipped JSON Schemas are those of the structs that decode the files."""

import importlib.resources
import json

import pytest

from placewright.io.schema import FOLDER, SCHEMAS, json_schema, main, schema_text


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_shipped_schema_is_up_to_date(name):
    """`python -m placewright.io.schema` writes it again when this fails."""
    shipped = importlib.resources.files("placewright").joinpath(f"data/schemas/{name}.json").read_text()
    assert shipped == schema_text(name)


def test_the_shipped_folder_holds_nothing_else(tmp_path, monkeypatch):
    """Writing the schemas makes exactly the files that are shipped."""
    monkeypatch.setattr("placewright.io.schema.FOLDER", tmp_path / "new")
    main()
    made = {path.name: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert made == {path.name: path.read_text() for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_reference_in_a_schema_resolves_and_unknown_keys_are_refused(name):
    """Each $ref names a definition that is there; every struct forbids additional properties."""
    schema = json_schema(name)
    text = json.dumps(schema)
    for definition in text.split('"#/$defs/')[1:]:
        assert definition.split('"')[0] in schema["$defs"]
    structs = [d for d in schema["$defs"].values() if d["type"] == "object"]
    assert structs and all(d["additionalProperties"] is False for d in structs)


@pytest.mark.parametrize("name", ["problem", "plan", "result"])
def test_the_schema_key_is_required(name):
    """A file says what it is."""
    top = json_schema(name)["$defs"][SCHEMAS[name].__name__]
    assert "schema" in top["required"]
    assert top["properties"]["schema"] == {"enum": [f"placewright/{name}/1"]}
