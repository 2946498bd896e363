"""Reads what stands in a request: a JSON object, names, and how long it is meant to hold. Pure; raises nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

REQUEST_LIMIT_BYTES = 64 * 1024
VALID_MAX_MS = 86_400_000
"""A day. Who means longer does not mean a command."""
TIME_LIMIT = 64
AHEAD_S = 2.0
"""A request from further in the future than this comes from a clock that is wrong."""
EARLIEST_WALL_S = 1_735_689_600.0
"""2025-01-01: a request from before this program existed comes from a clock that nobody has set."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Validity:
    """How long a request holds, as its sender wrote it."""

    valid_s: float | None
    """None: for ever."""
    requested_wall_s: float | None

    def left_s(self, wall_s: float | None) -> float | None:
        """How long it still holds from its receipt on, negative if it is over; None: for ever.

        It counts from `requestedAt` if both clocks are right. Ours is where `wall_s` is given. The sender's is taken
        for right unless the time is proof that it is not: then, as without `requestedAt`, it counts from the receipt.
        A clock that is merely slow looks like a request that was long under way, and is refused like one: to do an
        old request is worse.
        """
        if self.valid_s is None:
            return None
        requested_s = self.requested_wall_s
        if wall_s is None or requested_s is None or not EARLIEST_WALL_S <= requested_s <= wall_s + AHEAD_S:
            return self.valid_s
        return requested_s + self.valid_s - wall_s


def validity(document: Mapping[str, Any]) -> Validity | str:
    """Read `validForMs` and `requestedAt`, or say what is wrong with them."""
    valid_ms, requested_at = document.get("validForMs"), document.get("requestedAt")
    if valid_ms is not None and not (is_number(valid_ms) and 0 < valid_ms <= VALID_MAX_MS):
        return f"validForMs must be a number above 0, at most {VALID_MAX_MS}"
    requested_wall_s = None
    if requested_at is not None:
        requested_wall_s = _wall_s(requested_at)
        if requested_wall_s is None:
            return "requestedAt must be a time such as 2026-03-01T06:30:00.000Z"
    return Validity(None if valid_ms is None else valid_ms / 1000, requested_wall_s)


def document_of(payload: bytes) -> dict[str, Any] | str:
    """Read a JSON object, or say what is wrong with it."""
    if len(payload) > REQUEST_LIMIT_BYTES:
        return f"{len(payload)} bytes, the limit is {REQUEST_LIMIT_BYTES}"
    try:
        document = json.loads(payload, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # ValueError: also bytes that are not UTF-8, and integers of 5,000 digits
        return "not JSON"
    return document if isinstance(document, dict) else "not a JSON object"


def is_name(value: object) -> bool:
    """Whether it may name a requester or a subscriber, and be a level of a topic."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_text(value: object, limit: int) -> bool:
    """Whether it is a text that can be sent on: neither empty nor longer, no control characters, no half surrogates."""
    return isinstance(value, str) and 0 < len(value) <= limit and value.isprintable()


def is_number(value: object) -> bool:
    """Whether it is a finite number; true and false are none."""
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _wall_s(value: object) -> float | None:
    """Read a time with its zone."""
    if not isinstance(value, str) or len(value) > TIME_LIMIT:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
