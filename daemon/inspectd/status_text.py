"""Reads values of the status document, whatever they are, and writes them for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

DASH = "–"
"""For what is not there."""
_UNITS = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "min"), (60.0, "min", 1.0, "s"))

Document = Mapping[str, Any]


def span(seconds: object) -> str:
    """Write a duration with the two units that matter."""
    if not is_number(seconds):
        return DASH
    value = float(seconds)
    for unit_s, unit, smaller_s, smaller in _UNITS:
        if value >= unit_s:
            rest = int(value % unit_s / smaller_s)
            return f"{int(value / unit_s)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def size(count: object) -> str:
    """Write a number of bytes."""
    if not is_number(count):
        return DASH
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit in {"B", "kB"} or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def plain(value: object) -> str:
    """Write a text of the daemon's so that a terminal only shows it."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value))


def part(document: Document, *path: str) -> Document:
    """Go down; what is not there, or is no object, is an empty one."""
    for step in path:
        inner = document.get(step)
        document = inner if isinstance(inner, Mapping) else {}
    return document


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(value: object) -> int:
    """Give a number without its fraction; 0 for what is none."""
    return int(value) if isinstance(value, int | float) else 0


def number_text(value: object) -> str:
    """Write a number, its thousands apart."""
    return f"{value:,}" if isinstance(value, int) else DASH if value is None else plain(value)


def seconds_of(milliseconds: object) -> float | None:
    """Convert from the unit of the wire."""
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else None


def minute(time: object) -> str:
    """Write a time of the contract to the minute; it stays UTC."""
    date, _, clock = plain(time or DASH).partition("T")
    return f"{date} {clock[:5]} UTC" if clock else date
