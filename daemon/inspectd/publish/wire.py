"""Turns documents into bytes for MQTT: compact UTF-8 JSON, finite numbers only, never above the payload cap. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

PAYLOAD_MAX_BYTES = 64 * 1024
"""MQTT-CONTRACT "Topics"."""

_LIMITS = ((256, 100), (256, 50), (64, 25), (64, 10), (64, 5))
"""(longest text, longest list or map) of a document that had to be shortened; the first pair that fits is taken.
64 characters keep a SHA-256 in hex whole."""
_MAPS = frozenset({"defectCounts", "scores", "perCamera", "byCode", "cameras", "labels"})
"""Objects whose keys are data, so that entries may be left out; the others have the contract's fields."""

_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode, and shorten what is above the cap: texts first, then the ends of lists and maps.

    Where `resultContent` lost something its `contentTruncated` becomes true. Half of a surrogate pair (a file name
    that is not UTF-8) becomes `?`. Raises ValueError for a number that is not finite.
    """
    payload = _bytes_of(document)
    if len(payload) <= PAYLOAD_MAX_BYTES:
        return payload
    for text_max, entries_max in _LIMITS:
        payload = _bytes_of(_shortened(document, text_max, entries_max))
        if len(payload) <= PAYLOAD_MAX_BYTES:
            return payload
    raise ValueError(f"a message of {len(payload)} bytes cannot be shortened to {PAYLOAD_MAX_BYTES}")


def smallest(document: Mapping[str, Any]) -> bytes:
    """Encode the document as short as `encode` ever makes it."""
    return _bytes_of(_shortened(document, *_LIMITS[-1]))


def time_text(wall_s: float) -> str:
    """Write a time of the wall clock as ISO-8601 UTC with milliseconds and Z."""
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def milliseconds(seconds: float) -> float:
    """Convert a duration for the wire."""
    return round(seconds * 1000, 2)


def _bytes_of(document: Mapping[str, Any]) -> bytes:
    return _encoder.encode(document).encode("utf-8", "replace")


def _shortened(value: Any, text_max: int, entries_max: int, key: str = "") -> Any:
    if isinstance(value, str):
        return value if len(value) <= text_max else value[: text_max - 1] + "…"
    if isinstance(value, (list, tuple)):
        return [_shortened(item, text_max, entries_max) for item in value[:entries_max]]
    if not isinstance(value, Mapping):
        return value
    items = list(value.items())[:entries_max] if key in _MAPS else value.items()
    short = {_shortened(name, text_max, 0): _shortened(item, text_max, entries_max, name) for name, item in items}
    if key == "resultContent":
        short["contentTruncated"] = True
    return short
