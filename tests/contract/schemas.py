"""Validates messages against the published schemas, more strictly than a subscriber may: unknown fields are faults."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

SCHEMAS = Path(__file__).parents[2] / "config" / "schemas"
PAYLOAD_MAX_BYTES = 64 * 1024
VERDICT_MAX_BYTES = 400
_SAME_AS = {"replay": "result"}
"""Leaves that carry another leaf's messages."""


class WrongMessage(AssertionError):
    """A message on the wire is not what the contract says; names topic, field and value."""


def validate(topic_leaf: str, payload: bytes) -> Any:
    """Check one message and give back its document.

    `topic_leaf` is the topic below the base, such as `result`, `rsp/mes-1` or `alarm/CameraLost/top`. An alarm that is
    gone is an empty message and gives None. Raises WrongMessage.
    """
    leaf = topic_leaf.split("/", maxsplit=1)[0]
    limit = VERDICT_MAX_BYTES if leaf == "verdict" else PAYLOAD_MAX_BYTES
    if len(payload) > limit:
        raise WrongMessage(f"{topic_leaf}: {len(payload)} bytes, at most {limit} are allowed")
    if leaf == "alarm" and not payload:
        _check_alarm_topic(topic_leaf, None)
        return None
    validator = _validator(_SAME_AS.get(leaf, leaf))
    document = _parse(topic_leaf, payload)
    faults = [_sentence(fault) for fault in validator.iter_errors(document)]
    if faults:
        raise WrongMessage("\n".join([f"{topic_leaf}: {len(faults)} faults in {payload[:400]!r}", *faults]))
    if leaf == "alarm" and topic_leaf != "alarm":
        _check_alarm_topic(topic_leaf, document)
    return document


def published_schema(leaf: str) -> dict[str, Any]:
    """Give a schema as it is published."""
    path = SCHEMAS / f"{leaf}.schema.json"
    if not path.exists():
        known = ", ".join(sorted(file.name.removesuffix(".schema.json") for file in SCHEMAS.glob("*.schema.json")))
        raise WrongMessage(f"no schema for the topic {leaf!r}; there are {known}")
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


def strict_schema(leaf: str) -> dict[str, Any]:
    """Give a schema that refuses fields which it does not name, so that a typo is seen."""
    schema = published_schema(leaf)
    _close(schema)
    return schema


@cache
def _validator(leaf: str) -> Draft202012Validator:
    return Draft202012Validator(strict_schema(leaf))


def _close(part: Any) -> None:
    if isinstance(part, list):
        for item in part:
            _close(item)
    elif isinstance(part, dict):
        if part.get("type") == "object" and "properties" in part:
            part.setdefault("unevaluatedProperties", False)
        for item in part.values():
            _close(item)


def _check_alarm_topic(topic_leaf: str, document: Any) -> None:
    """An alarm's topic has its code and its source, and its message says the same."""
    _, code, source, *others = *topic_leaf.split("/"), "", ""
    codes = published_schema("alarm")["properties"]["code"]["enum"]
    if code not in codes or not re.fullmatch(r"[A-Za-z0-9_-]+", source) or any(others):
        raise WrongMessage(f"{topic_leaf}: wanted is alarm/CODE/SOURCE with a code of {', '.join(codes)}")
    if document is not None and (document["code"], document["source"]) != (code, source):
        raise WrongMessage(f"{topic_leaf}: its message is of {document['code']}/{document['source']}")


def _parse(topic_leaf: str, payload: bytes) -> Any:
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongMessage(f"{topic_leaf}: not UTF-8: {error}") from error
    if topic_leaf == "verdict" and not text.startswith("{"):
        return _from_csv(text)
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twins)
    except ValueError as error:
        raise WrongMessage(f"{topic_leaf}: {error} in {payload[:400]!r}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError(f"a field is there twice among {[name for name, _ in pairs]}")
    return document


def _from_csv(text: str) -> dict[str, Any]:
    """Give the values of a CSV verdict their names; a whole number where the schema wants no text."""
    rows = list(csv.reader([text], strict=True))
    properties = published_schema("verdict")["properties"]
    if len(text.splitlines()) != 1 or len(rows) != 1 or len(rows[0]) != len(properties):
        raise WrongMessage(f"verdict: one line of {len(properties)} values is wanted, not {text!r}")
    named = zip(properties.items(), rows[0], strict=True)
    return {
        name: int(value) if rule.get("type") != "string" and re.fullmatch(r"\d+", value) else value
        for (name, rule), value in named
    }


def _sentence(fault: ValidationError) -> str:
    return f"  {fault.json_path}: {fault.message[:300]}"
