"""One fault of a configuration, and how it reads: `FILE:LINE: key.path: what is wrong and how to mend it`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str | int, ...]
"""From the top of the file: keys, and places in lists from 0."""

SHOWN_CHARS = 60
"""Longer values are cut in messages; a line in a terminal stays one line."""
FAULTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong (or, as a warning, doubtful) at one key."""

    key: KeyPath
    what: str
    line: int | None = None
    """None: the line of `key`."""
    depends: tuple[KeyPath, ...] = ()
    """Other keys that it follows from; when one of those is wrong itself, this one is not told."""
    is_warning: bool = False


def shown(value: Any) -> str:
    """Write a value as an engineer would recognise it: in backticks, cut, without control characters."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    text = "".join(char if char.isprintable() else "·" for char in text[: SHOWN_CHARS + 1])
    return f"`{text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + '…'}`"


def listed(words: Iterable[Any], last: str = "and") -> str:
    """Join words: `a, b and c`."""
    texts = [str(word) for word in words]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}" if texts else "nothing"


def key_text(key: KeyPath) -> str:
    """Write a key path: `decision.rules[2].code`, with no control characters."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part)[1:-1]}"
    return text.removeprefix(".")


def rendered(file: str, lines: Sequence[tuple[int, Fault]]) -> list[str]:
    """Give every fault as one line, in the order of the file; the same one only once."""
    texts = dict.fromkeys(
        f"{file}:{line}: {key_text(fault.key)}: {fault.what}" if fault.key else f"{file}:{line}: {fault.what}"
        for line, fault in sorted(lines, key=lambda pair: (pair[0], key_text(pair[1].key)))
    )
    first = list(texts)[:FAULTS_SHOWN]
    rest = len(texts) - len(first)
    return [*first, f"{file}: and {rest} more faults; mend these first"] if rest else first
