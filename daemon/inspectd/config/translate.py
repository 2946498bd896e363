"""Turns pydantic's errors into faults that an engineer can act on: the key as in the file, the value, and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from inspectd.config.faults import Fault, KeyPath, listed, shown
from inspectd.config.fields import DEVICE_PATTERN, ID_PATTERN, LEVEL_PATTERN, SHA256_PATTERN
from inspectd.config.suggest import did_you_mean, known_keys, nearest_of, sections_with
from inspectd.config.yamltree import Tree

_ID_RULE = "only A-Z a-z 0-9 _ - are allowed here (it becomes part of topics and file names)"
_PATTERNS = {
    ID_PATTERN: _ID_RULE,
    LEVEL_PATTERN: _ID_RULE,
    SHA256_PATTERN: "is not a SHA-256, which has 64 digits 0-9 a-f; `sha256sum FILE` prints it",
    DEVICE_PATTERN: "is not a device as OpenVINO names them: CPU, GPU, GPU.1, NPU",
}
_WANTED = {
    "string_type": "text",
    "path_type": "a path",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list, like [a, b],",
    "dict_type": "a section (`key: value` lines, indented below it)",
    "model_type": "a section (`key: value` lines, indented below it)",
    "model_attributes_type": "a section (`key: value` lines, indented below it)",
}
_LIMITS = {
    "greater_than": "too small; it must be above {gt}",
    "greater_than_equal": "too small; at least {ge}",
    "less_than": "too large; it must be below {lt}",
    "less_than_equal": "too large; at most {le}",
    "string_too_long": "too long; at most {max_length} characters",
    "finite_number": "not a finite number",
}


def faults_of(error: ValidationError, tree: Tree) -> Iterator[Fault]:
    """Give a fault for every error that says something of its own."""
    found = [(located(details["loc"], tree.value), details) for details in error.errors(include_url=False)]
    keys = [key for key, _ in found]
    meant = {_meant(key, tree.value) for key, details in found if details["type"] == "extra_forbidden"}
    for key, details in found:
        if details["type"] == "missing" and key in meant:
            continue  # it is there, misspelt
        if details["type"] == "too_short" and any(len(other) > len(key) and other[: len(key)] == key for other in keys):
            continue  # entries that were wrong do not count; they are told themselves
        yield _fault(key, details, tree)


def _meant(key: KeyPath, value: Any) -> KeyPath:
    """Give the key that an unknown one may stand for."""
    near = nearest_of(str(key[-1]), known_keys(key[:-1], value))
    return (*key[:-1], near) if near else ()


def located(loc: KeyPath, value: Any) -> KeyPath:
    """Give the place in the file: without the names that pydantic puts in for unions and for keys."""
    key: list[str | int] = []
    for part in loc:
        if part == "[key]" or (isinstance(value, dict) and part == value.get("kind") and part not in value):
            continue
        key.append(part)
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            value = None
    return tuple(key)


def _fault(key: KeyPath, details: Mapping[str, Any], tree: Tree) -> Fault:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if "at" in context:
        return Fault((*key, context["at"]), details["msg"])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        key = (*key, "kind")
        known = re.findall(r"'([^']*)'", context.get("expected_tags", "'files', 'simulator'"))
        if kind == "union_tag_not_found":
            return Fault(key, f"is missing; it is {listed(known, 'or')}")
        return Fault(key, _none_of(context["tag"], known))
    if kind == "missing":
        return Fault(key, _missing(key))
    if kind == "extra_forbidden":
        return Fault(key, _unknown(key, tree.value))
    if kind in _WANTED:
        return Fault(key, _wrong_type(_WANTED[kind], value, tree.words.get(key)))
    cure = _CURES.get(kind)
    if cure is not None:
        return Fault(key, cure(value, context))
    if kind in _LIMITS:
        return Fault(key, f"{shown(value)} is {_LIMITS[kind].format(**context)}")
    return Fault(key, details["msg"] if "bare" in context else f"{shown(value)}: {details['msg']}")


def _missing(key: KeyPath) -> str:
    if isinstance(key[-1], int):
        return "too few values; the list needs one more here"
    return "is missing; the section needs it" if len(key) > 1 else "is missing; the file needs it"


def _unknown(key: KeyPath, value: Any) -> str:
    known = known_keys(key[:-1], value)
    name = str(key[-1])
    near = did_you_mean(name, known)
    if near:
        return f"unknown key{near}"
    if elsewhere := sections_with(name):
        places = [f"under `{section}`" if section else "at the top of the file" for section in elsewhere]
        return f"unknown key here; it belongs {listed(places, 'or')}"
    return f"unknown key; known here: {', '.join(known)}"


def _wrong_type(wanted: str, value: Any, word: str | None) -> str:
    if value is None:
        return f"has no value; give {wanted.rstrip(',')}, or remove the key"
    if isinstance(value, bool) and wanted in ("text", "a path"):
        told = shown(word or value)
        return f'{told} without quotes is {str(value).lower()} to YAML; write "{word or value}" in quotes for text'
    if isinstance(value, (int, float)) and wanted in ("text", "a path"):
        return (
            f'{shown(word or value)} without quotes is a number; write "{(word or str(value))[:60]}" in quotes for text'
        )
    if isinstance(value, str) and "number" in wanted:
        if re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?", value):
            return f"{shown(value)} in quotes is text; write {value} without them"
        if match := re.fullmatch(r"([-+]?[0-9.]+)\s*[A-Za-zµ%]+", value):
            return f"{shown(value)} is text; give the number alone ({match[1]}), in the unit that the key names"
    if isinstance(value, float) and wanted == "a whole number":
        return f"{shown(word or value)} has a fraction; {wanted} is wanted"
    kinds = {dict: "a section", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    what = kinds.get(type(value), "something else")
    told = f"is {what}" if isinstance(value, (dict, list)) else f"{shown(word or value)} is {what}"
    return f"{told}; {wanted} is wanted"


def _none_of(value: Any, known: list[str]) -> str:
    if isinstance(value, (str, int)) and str(value) in known:
        near = f"; write {value} {'without' if isinstance(value, str) else 'in'} quotes"
    else:
        near = did_you_mean(value, known) if isinstance(value, str) else ""
    return f"{shown(value)} is not {listed(known, 'or')}{near}"


def _expected(value: Any, context: Mapping[str, Any]) -> str:
    known = [word.strip("'") for word in re.split(r", | or ", context["expected"])]
    if value is None:
        return f"has no value; give {listed(known, 'or')}, or remove the key"
    return _none_of(value, known)


def _pattern(value: Any, context: Mapping[str, Any]) -> str:
    return f"{shown(value)}: {_PATTERNS.get(context['pattern'], 'has characters that are not allowed here')}"


_CURES: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "literal_error": _expected,
    "string_pattern_mismatch": _pattern,
    "string_too_short": lambda _, __: "is empty; give a text, or remove the key",
    "too_short": lambda _, __: "is empty; give at least one",
    "too_long": lambda _, context: f"has {context['actual_length']} values; {context['max_length']} are wanted",
}
