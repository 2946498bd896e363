"""What a class is called that nobody named. Imports nothing: main uses it as well."""

from __future__ import annotations

from collections.abc import Sequence


def class_name(classes: Sequence[str], class_id: int) -> str:
    """Name of a class; of one beyond the names its number, so that it is still told apart."""
    return classes[class_id] if class_id < len(classes) else f"class_{class_id}"


def with_room_for(classes: Sequence[str], count: int) -> tuple[str, ...]:
    """Names for `count` classes: those given, and numbers for the rest."""
    return tuple(class_name(classes, class_id) for class_id in range(max(count, len(classes))))
