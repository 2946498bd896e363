"""A value together with where it comes from: file, configuration, or assumed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from inspectd.errors import ModelRefused

T = TypeVar("T")


class Source(StrEnum):
    """Who said it."""

    FILE = "file"
    CONFIGURATION = "configuration"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T]):
    """One value of a model's description."""

    value: T
    source: Source
    where: str = ""
    """In plain words: `rt_info scale_values`, `default of YOLOX`."""


def choose(model: str, key: str, configured: T | None, said: T | None, place: str, assumed: Sourced[T]) -> Sourced[T]:
    """Give the file's value, else the configuration's, else the assumed one. Raises ModelRefused on a contradiction."""
    if configured is not None and said is not None and configured != said:
        raise ModelRefused(
            f"{model}: configuration says {key} {configured}, the file says {said} ({place}); "
            "correct the line or leave it out"
        )
    if said is not None:
        return Sourced(said, Source.FILE, place)
    if configured is not None:
        return Sourced(configured, Source.CONFIGURATION, key)
    return assumed
