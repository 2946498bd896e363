"""The MQTT 5 properties of what we publish, packed once and kept: packing them anew is most of a publish's CPU time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

JSON = b"\x01\x01" + b"\x03\x00\x10application/json"
"""Payload format indicator 1 (UTF-8), and content type: MQTT 5, 3.3.2.3."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Properties in the form in which they go out. paho asks what it sends for nothing but `pack`."""

    packed: bytes

    def pack(self) -> bytes:
        """Give length and properties."""
        return self.packed


@lru_cache(maxsize=64)
def publish_properties(expiry_s: int | None, correlation: bytes | None) -> Packed:
    """Pack the properties of one PUBLISH: JSON, message expiry, correlation data (at most 65,535 bytes)."""
    body = JSON
    if expiry_s is not None:
        body += b"\x02" + expiry_s.to_bytes(4, "big")
    if correlation is not None:
        body += b"\x09" + len(correlation).to_bytes(2, "big") + correlation
    return Packed(_length(len(body)) + body)


def _length(length: int) -> bytes:
    """Encode a variable byte integer: MQTT 5, 1.5.5."""
    encoded = bytearray()
    while True:
        length, digit = divmod(length, 128)
        encoded.append(digit | 128 if length else digit)
        if not length:
            return bytes(encoded)
