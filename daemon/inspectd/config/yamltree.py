"""Reads YAML into plain values that know their lines. Bounded in depth and time; refuses what readers disagree on.

Built from the parser's events without recursion, and without PyYAML's constructors: no tag makes an object, no alias
multiplies, and a word such as `no` is still known as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from inspectd.config.faults import Fault, KeyPath, shown
from inspectd.config.scalars import Scalar, resolved, trap
from inspectd.config.yamlerror import syntax_fault

DEPTH_MAX = 24
NODES_MAX = 20_000
"""Far above any line's configuration; a file with more is not one."""

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_SECRET = re.compile(r"password|secret|token", re.IGNORECASE)
"""Keys whose value is never printed, even though the key may be an unknown one."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One document. `value` is made of dict, list, str, int, float, bool and None; every key of a dict is a str."""

    value: Any
    lines: Mapping[KeyPath, int]
    words: Mapping[KeyPath, str]
    """Unquoted scalars as written."""
    faults: tuple[Fault, ...]

    def line_of(self, key: KeyPath) -> int:
        """Give the line of a key; of a key that is not there, that of what it should stand in."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come yet."""

    path: KeyPath
    value: dict[str, Any] | list[Any]
    key: str | None = None
    is_ignored: bool = False
    """Below a key that is given twice."""


@dataclass(slots=True)
class _Builder:
    lines: dict[KeyPath, int] = field(default_factory=dict)
    words: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    root: Any = None

    def fault(self, key: KeyPath, what: str, line: int) -> None:
        self.faults.append(Fault(key, what, line))

    def begin(self, value: dict[str, Any] | list[Any], line: int) -> None:
        if self.stack and self.awaits_key():
            self.fault(self.stack[-1].path, _COMPLEX_KEY, line)
            self.stack.append(_Open(self.stack[-1].path, value, is_ignored=True))
            self.stack[-2].key = "?"
            return
        path, is_ignored = self.place(value, line)
        self.stack.append(_Open(path, value, is_ignored=is_ignored))

    def awaits_key(self) -> bool:
        return isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def place(self, value: Any, line: int) -> tuple[KeyPath, bool]:
        """Put a value where it belongs. Gives its path, and whether it is beside the point (given twice)."""
        if not self.stack:
            self.root = value
            self.lines[()] = line
            return (), False
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
            path: KeyPath = (*top.path, len(top.value) - 1)
            if not top.is_ignored:
                self.lines[path] = line
            return path, top.is_ignored
        name = top.key or ""
        top.key = None
        path = (*top.path, name)
        if name in top.value or top.is_ignored:
            return path, True
        top.value[name] = value
        self.lines.setdefault(path, line)
        return path, False

    def scalar(self, event: Any, line: int) -> None:
        is_plain = not event.style and event.implicit[0]  # the C parser gives an empty style, PyYAML's own None
        if self.stack and self.awaits_key():
            self.key(event.value, is_plain, line)
            return
        value: Scalar = resolved(event.value) if is_plain else event.value
        path, is_ignored = self.place(value, line)
        if is_plain and not is_ignored:
            self.words[path] = event.value
            if (reason := trap(event.value)) and not _SECRET.search(str(path[-1:])):
                self.fault(path, reason, line)

    def key(self, text: str, is_plain: bool, line: int) -> None:
        top = self.stack[-1]
        top.key = text
        path = (*top.path, text)
        if top.is_ignored:
            return
        if is_plain and text == "<<":
            self.fault(path, "merge keys (`<<`) are not supported; write the keys out", line)
        elif is_plain and not isinstance(resolved(text), str):
            self.fault(path, f'{shown(text)} without quotes is not text to YAML; write "{text[:60]}" in quotes', line)
        if path in self.lines:
            self.fault(path, f"is given twice, first on line {self.lines[path]}; remove one", line)
        else:
            self.lines[path] = line

    def refuse(self, event: Any, line: int) -> None:
        """Tell about anchors, aliases and tags; the value itself is taken as if they were not there."""
        anchor = shown(f"{'*' if isinstance(event, yaml.AliasEvent) else '&'}{event.anchor}")
        if isinstance(event, yaml.AliasEvent):
            self.fault(self.next_path(), f"the alias {anchor} is not supported; write the value out", line)
        elif event.anchor:
            self.fault(
                self.next_path(), f"the anchor {anchor} is not supported; write the value where it is used", line
            )
        if tag := getattr(event, "tag", None):
            short = shown(tag.replace("tag:yaml.org,2002:", "!!"))
            self.fault(self.next_path(), f"the tag {short} is not supported; remove it (text goes in quotes)", line)

    def next_path(self) -> KeyPath:
        """Give the path of the value that comes next."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return top.path if top.key is None else (*top.path, top.key)


_NOTHING = yaml.ScalarEvent(None, None, (False, True), "", style='"')
"""Stands where an alias was."""
_COMPLEX_KEY = "a key must be one word; is this a template (`{{ … }}`) that was not filled in, or text without quotes?"


def parse(text: str) -> Tree:
    """Read one document. What a reader cannot get past is the last of `faults`, and `value` is then None."""
    builder = _Builder()
    try:
        stop = _build(builder, yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        stop = syntax_fault(error, text)
    except yaml.YAMLError as error:
        stop = Fault((), f"is not YAML: {error}", 1)
    if stop is not None:
        return Tree(None, {}, {}, (*builder.faults, stop))
    return Tree(builder.root, builder.lines, builder.words, tuple(builder.faults))


def _build(builder: _Builder, events: Iterator[Any]) -> Fault | None:
    """Feed the events; gives the fault that made it stop."""
    documents = 0
    for count, event in enumerate(events):
        line = event.start_mark.line + 1
        if count > 2 * NODES_MAX:
            return Fault((), f"has more than {NODES_MAX} values; that is no configuration of inspectd", line)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                return Fault((), "a second document begins here (`---`); one file holds one configuration", line)
        elif isinstance(event, yaml.NodeEvent):
            builder.refuse(event, line)
            if isinstance(event, yaml.AliasEvent):
                builder.scalar(_NOTHING, line)
            elif isinstance(event, yaml.ScalarEvent):
                builder.scalar(event, line)
            else:
                builder.begin([] if isinstance(event, yaml.SequenceStartEvent) else {}, line)
            if len(builder.stack) > DEPTH_MAX:
                return Fault((), f"is nested more than {DEPTH_MAX} deep; a bracket or an indentation is wrong", line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            builder.stack.pop()
    return None
