"""Reads config/asyncapi.yaml for the tests: its parts, and where its references lead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.contract.schemas import SCHEMAS

CONFIG = SCHEMAS.parent
REQUESTS = "{base}/cmd/"
"""Begin of every command's topic."""


@cache
def contract() -> Any:
    """Give the document as it is published, references and all. Nobody changes it."""
    return yaml.safe_load((CONFIG / "asyncapi.yaml").read_text(encoding="utf-8"))


def channels() -> dict[str, Any]:
    """Give the channels by name."""
    found: dict[str, Any] = contract()["channels"]
    return found


def operations() -> dict[str, Any]:
    """Give the operations by name."""
    found: dict[str, Any] = contract()["operations"]
    return found


def messages() -> dict[str, Any]:
    """Give the messages by name."""
    found: dict[str, Any] = contract()["components"]["messages"]
    return found


def references(part: Any) -> Iterator[str]:
    """Give every reference inside a part."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        for item in part.values():
            yield from references(item)
    elif isinstance(part, list):
        for item in part:
            yield from references(item)


def at(reference: str) -> Any:
    """Follow a reference, within the document or to a file, to its end. Raises KeyError or OSError."""
    file, _, pointer = reference.partition("#")
    found = json.loads((CONFIG / file).read_text(encoding="utf-8")) if file else contract()
    for step in pointer.split("/")[1:]:
        found = found[step]
    return at(found["$ref"]) if isinstance(found, dict) and "$ref" in found else found


def channel_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Give the channel of an operation, or of its reply."""
    found: dict[str, Any] = at(operation["channel"]["$ref"])
    return found


def mqtt_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Give how an operation goes over MQTT."""
    bindings = operation["bindings"]
    found: dict[str, Any] = (at(bindings["$ref"]) if "$ref" in bindings else bindings)["mqtt"]
    return found


def leaf_of(channel: dict[str, Any]) -> str:
    """Give the topic below the base, without its parameters: `rsp`, `cmd/replay`."""
    levels = str(channel["address"]).removeprefix("{base}/").split("/")
    return "/".join(level for level in levels if not level.startswith("{"))


def schema_of(message: dict[str, Any]) -> str | None:
    """Give the name of a message's schema: `result`. None: its payload is empty."""
    reference = message["payload"].get("$ref")
    return None if reference is None else Path(reference).name.removesuffix(".schema.json")


def examples_of(message: dict[str, Any]) -> list[str]:
    """Give the names of a message's examples."""
    return [Path(example["payload"]["$ref"]).stem for example in message.get("examples", ())]
