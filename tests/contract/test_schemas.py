"""How schemas are written: open to new fields, certain of the old ones, complete in one file each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.contract.schemas import SCHEMAS, published_schema, strict_schema

FILES = sorted(SCHEMAS.glob("*.json"))
TYPING = {"type", "enum", "const", "$ref", "oneOf", "anyOf", "not"}
"""A field has at least one of these."""
UNDECIDED = {"readings", "measurements"}
"""What models that read and measure add is named when there are such models."""

pytestmark = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".schema.json"))


def parts(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object inside a schema, with the key under which it stands."""
    if isinstance(schema, dict):
        yield name, schema
        for key, part in schema.items():
            yield from parts(part, name if key == "items" else key)
    elif isinstance(schema, list):
        for part in schema:
            yield from parts(part, name)


def leaf(path: Path) -> str:
    return path.name.removesuffix(".schema.json")


def test_it_is_a_schema_with_title_description_and_a_name_of_its_own(path: Path) -> None:
    """And so is its strict form."""
    schema = published_schema(leaf(path))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator.check_schema(strict_schema(leaf(path)))
    assert schema["$id"] == f"urn:inspectd:schema:{leaf(path)}:1.0"
    assert schema["title"]
    assert schema["description"]


def test_it_lets_new_fields_pass_everywhere(path: Path) -> None:
    """Fields are only added within a major version; a subscriber that validates must not break."""
    for name, part in parts(published_schema(leaf(path))):
        for rule in ("additionalProperties", "unevaluatedProperties"):
            assert part.get(rule) is not False, name


def test_every_object_names_its_fields_or_is_a_map(path: Path) -> None:
    """Else the strict check of our own messages would see nothing of it."""
    for name, part in parts(published_schema(leaf(path))):
        if part.get("type") == "object" and name not in UNDECIDED:
            assert "properties" in part or "additionalProperties" in part, name


def test_every_field_has_a_type_and_every_required_one_is_named(path: Path) -> None:
    for name, part in parts(published_schema(leaf(path))):
        if part.get("type") != "object":
            continue
        for field, rule in part.get("properties", {}).items():
            assert TYPING & rule.keys(), f"{name}: {field}"
        assert set(part.get("required", ())) <= part.get("properties", {}).keys(), name


def test_it_refers_to_itself_only(path: Path) -> None:
    """A validator needs neither network nor another file."""
    for name, part in parts(published_schema(leaf(path))):
        reference = part.get("$ref", "#")
        assert not isinstance(reference, str) or reference.startswith("#"), name


def test_a_message_that_names_its_schema_names_this_one(path: Path) -> None:
    named = published_schema(leaf(path))["properties"].get("schema", {}).get("const")
    assert named in (None, f"inspectd.{leaf(path)}/1.0")


def test_it_is_laid_out_as_the_others(path: Path) -> None:
    """So that a change shows as what it is."""
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), ensure_ascii=False, indent=2) + "\n"
