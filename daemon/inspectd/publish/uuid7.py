"""Identifiers of version 7 (RFC 9562, section 5.7): 48 bits of time, 74 of chance. Pure."""

from __future__ import annotations

import uuid

_TIME_MAX_MS = 2**48 - 1


def uuid7(wall_s: float, random: bytes) -> bytes:
    """Make the 16 bytes of a UUIDv7 from the wall clock and at least 10 random bytes.

    Two made in one millisecond have no order: the contract orders by seq, never by id. A clock before 1970 gives
    time 0, so that a PC whose clock battery is empty still gets ids. Raises ValueError for too few random bytes.
    """
    if len(random) < 10:
        raise ValueError(f"uuid7 needs 10 random bytes, got {len(random)}")
    time_ms = min(max(int(wall_s * 1000), 0), _TIME_MAX_MS)
    version_and_chance = 0x7000 | (int.from_bytes(random[:2], "big") & 0x0FFF)
    variant_and_chance = 0x80 | (random[2] & 0x3F)
    return (
        time_ms.to_bytes(6, "big") + version_and_chance.to_bytes(2, "big") + bytes((variant_and_chance,)) + random[3:10]
    )


def uuid_text(value: bytes) -> str:
    """Write 16 bytes as `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`."""
    return str(uuid.UUID(bytes=value))
