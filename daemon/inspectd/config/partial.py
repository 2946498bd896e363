"""Validates a tree against the schema; with faults, also mends it as far as the cross-checks need."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from inspectd.config.faults import Fault, KeyPath
from inspectd.config.schema import Configuration
from inspectd.config.translate import faults_of, located
from inspectd.config.yamltree import Tree

_ROUNDS = 8
"""Taking something out can leave its section incomplete, which is then mended too; the schema is not deeper."""
_FAULTS_MAX = 200
"""With more there is little sense in cross-checks."""
_STAND_INS: dict[str | int, Any] = {
    **dict.fromkeys(("enterprise", "site", "area", "line", "id", "path"), "x"),
    "version": 1,
    "station": dict.fromkeys(("enterprise", "site", "area", "line", "id"), "x"),
    "source": {"kind": "simulator"},
    "fps": 1.0,
    "models": ["x"],
    "task": "detect",
    "evaluation": "notOk",
}
"""For values that a section cannot do without. No fault that touches such a place is told."""


@dataclass(frozen=True, slots=True)
class Validated:
    """What the schema made of a file."""

    configuration: Configuration | None
    """With faults: what is left, mended. None: nothing useful is left."""
    faults: tuple[Fault, ...]
    mended: frozenset[KeyPath]
    """Keys as in the file: what was taken out or put in."""
    origins: dict[KeyPath, KeyPath]
    """Key in `configuration` → key in the file, which differ where entries of a list were taken out."""

    def key_in_file(self, key: KeyPath) -> KeyPath:
        """Give the key as in the file."""
        return _origin(self.origins, key)


def validated(tree: Tree) -> Validated:
    """Validate; the value of `tree` must be a dict."""
    value: Any = tree.value
    faults: tuple[Fault, ...] = ()
    mended: set[KeyPath] = set()
    origins: dict[KeyPath, KeyPath] = {}
    for turn in range(_ROUNDS):
        try:
            return Validated(Configuration.model_validate(value), faults, frozenset(mended), origins)
        except ValidationError as error:
            if turn == 0:
                faults = tuple(faults_of(error, tree))
                value = copy.deepcopy(tree.value)
                origins = {key: key for key in tree.lines}
            if len(faults) > _FAULTS_MAX:
                break
            wrong = _wrong_parts(error, value)
        for key in sorted(wrong, key=_last_first, reverse=True):
            mended.add(_origin(origins, key))
            origins = _mend(value, key, origins)
    return Validated(None, faults, frozenset(mended), origins)


def _origin(origins: dict[KeyPath, KeyPath], key: KeyPath) -> KeyPath:
    for length in range(len(key), 0, -1):
        if key[:length] in origins:
            return origins[key[:length]] + key[length:]
    return key


def _wrong_parts(error: ValidationError, value: Any) -> set[KeyPath]:
    """Give the wrong and the missing keys; of one inside the other only the outer."""
    parts: set[KeyPath] = set()
    for details in error.errors(include_url=False):
        key = located(details["loc"], value)
        at = details.get("ctx", {}).get("at")
        parts.add((*key, at) if at else key)
    return {key for key in parts if not any(key[:length] in parts for length in range(1, len(key)))} - {()}


def _last_first(key: KeyPath) -> tuple[tuple[int, str], ...]:
    """Order so that, in reverse, later entries of a list go before earlier ones."""
    return tuple((part, "") if isinstance(part, int) else (-1, part) for part in key)


def _mend(value: Any, key: KeyPath, origins: dict[KeyPath, KeyPath]) -> dict[KeyPath, KeyPath]:
    """Take out what is wrong, put a stand-in where something is missing. Gives the origins of what is left."""
    *above, last = key
    section = value
    for part in above:
        section = section[part]
    if isinstance(section, dict) and last not in section:
        if last in _STAND_INS:
            section[last] = copy.deepcopy(_STAND_INS[last])
            return origins
        return _mend(value, tuple(above), origins) if above else origins
    if isinstance(section, list) and isinstance(last, int) and last >= len(section):
        return _mend(value, tuple(above), origins)
    del section[last]
    left = {place: origin for place, origin in origins.items() if place[: len(key)] != key}
    return left if isinstance(section, dict) else _moved_up(left, tuple(above), int(last))


def _moved_up(origins: dict[KeyPath, KeyPath], above: KeyPath, gone: int) -> dict[KeyPath, KeyPath]:
    """Count the entries of a list anew after one was taken out."""
    depth = len(above)
    moved: dict[KeyPath, KeyPath] = {}
    for place, origin in origins.items():
        number = place[depth] if len(place) > depth and place[:depth] == above else -1
        if isinstance(number, int) and number > gone:
            moved[(*above, number - 1, *place[depth + 1 :])] = origin
        else:
            moved[place] = origin
    return moved
