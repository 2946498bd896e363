"""What somebody may have meant: the nearest of the known words, and which keys the schema knows where."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from inspectd.config.faults import KeyPath, listed
from inspectd.config.schema import Configuration

_ALIKE = 0.6
"""difflib's ratio from which a word counts as a slip of the pen; below, a guess would mislead."""


def nearest_of(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that a slip of the pen may have made of `word`."""
    by_plain = {_plain(other): other for other in known}
    near = difflib.get_close_matches(_plain(word), by_plain, n=1, cutoff=_ALIKE)
    return by_plain[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give `, did you mean X?`, or nothing when no known word is near."""
    near = nearest_of(word, known)
    return f", did you mean `{near}`?" if near else ""


def or_choice(name: str, known: Collection[str]) -> str:
    """Give `, did you mean X?`, or what there is to choose from."""
    return did_you_mean(name, known) or (f"; there is {listed(known)}" if known else "")


def _plain(word: str) -> str:
    return word[:100].casefold().replace(" ", "_").replace("-", "_")


@cache
def json_schema() -> dict[str, Any]:
    """Give the JSON Schema of the YAML, without `$schema` and `$id`."""
    return Configuration.model_json_schema(by_alias=True)


def known_keys(section: KeyPath, value: Any) -> list[str]:
    """Give the keys that may stand in a section. `value` is the whole file; it tells the `kind` of a source."""
    node: Mapping[str, Any] = json_schema()
    for part in section:
        value = _child(value, part)
        node = _resolved(node.get("properties", {}).get(part) or _entry(node), value)
    return list(node.get("properties", {}))


def sections_with(key: str) -> list[str]:
    """Give the sections, as `models.NAME.input`, in which a key may stand."""
    return [section for section, name in _every_key() if name == key]


def _resolved(node: Any, value: Any) -> Mapping[str, Any]:
    if not isinstance(node, Mapping):
        return {}
    mapping = node.get("discriminator", {}).get("mapping", {})
    kind = _child(value, "kind")
    if isinstance(kind, str) and kind in mapping:
        node = {"$ref": mapping[kind]}
    if "$ref" in node:
        return cast("Mapping[str, Any]", json_schema()["$defs"][node["$ref"].rsplit("/", 1)[1]])
    for choice in node.get("anyOf", ()):
        if choice.get("type") != "null":
            return _resolved(choice, value)
    return cast("Mapping[str, Any]", node)


def _entry(node: Mapping[str, Any]) -> Any:
    """Give the schema of what stands under any name of a map, or at any place of a list."""
    by_pattern = next(iter(node.get("patternProperties", {}).values()), None)
    return by_pattern or node.get("additionalProperties") or node.get("items")


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


@cache
def _every_key() -> tuple[tuple[str, str], ...]:
    return tuple(_all_keys("", json_schema()))


def _all_keys(section: str, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, raw in node.get("properties", {}).items():
        yield section, name
        below = f"{section}.{name}".removeprefix(".")
        for reference in raw.get("discriminator", {}).get("mapping", {}).values():
            yield from _all_keys(below, _resolved({"$ref": reference}, None))
        inner = _resolved(raw, None)
        yield from _all_keys(below, inner)
        suffix = "[]" if "items" in inner else ".NAME"
        yield from _all_keys(f"{below}{suffix}", _resolved(_entry(inner), None))
