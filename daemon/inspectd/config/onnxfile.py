"""What an .onnx says about itself: its `metadata_props`, read without a runtime by walking over the file's fields.

Format: Protocol Buffers; ModelProto has metadata_props as field 14, each with key (1) and value (2) (onnx/onnx.proto).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

_METADATA_FIELD, _KEY_FIELD, _VALUE_FIELD = 14, 1, 2
_ENTRY_BYTES_MAX = 1 << 20
_ENTRIES_MAX = 1000
_VARINT_BYTES_MAX = 10
_SKIPPED_BYTES = {1: 8, 5: 4}
"""Wire type → length of fields with a fixed one."""


def onnx_metadata(path: Path) -> dict[str, str]:
    """Give the file's own key-value texts; empty if it has none or is no ONNX file. Raises OSError."""
    with path.open("rb") as stream:
        size = path.stat().st_size
        try:
            entries = [dict(_fields(io.BytesIO(entry), len(entry))) for entry in _entries(stream, size)]
            return {_text(entry[_KEY_FIELD]): _text(entry.get(_VALUE_FIELD, b"")) for entry in entries}
        except (ValueError, KeyError):
            return {}


def _entries(stream: BinaryIO, size: int) -> list[bytes]:
    entries = [value for field, value in _fields(stream, size, only=_METADATA_FIELD) if field == _METADATA_FIELD]
    if len(entries) > _ENTRIES_MAX:
        raise ValueError("more entries than any exporter writes")
    return entries


def _fields(stream: BinaryIO, size: int, only: int | None = None) -> list[tuple[int, bytes]]:
    """(number, content) of the fields with a length; of the others, and of all but `only`, the content is skipped."""
    fields = []
    while stream.tell() < size:
        tag = _varint(stream)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 2:
            length = _varint(stream)
            if length > size - stream.tell():
                raise ValueError("a field is longer than the file")
            if only in (None, number):
                if length > _ENTRY_BYTES_MAX:
                    raise ValueError("an entry is longer than any exporter writes")
                fields.append((number, stream.read(length)))
            else:
                stream.seek(length, io.SEEK_CUR)
        elif wire_type == 0:
            _varint(stream)
        elif wire_type in _SKIPPED_BYTES:
            stream.seek(_SKIPPED_BYTES[wire_type], io.SEEK_CUR)
        else:
            raise ValueError(f"no such kind of field: {wire_type}")
    return fields


def _varint(stream: BinaryIO) -> int:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = stream.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << (7 * place)
        if byte[0] < 0x80:
            return value
    raise ValueError("a number does not end")


def _text(value: bytes) -> str:
    return value.decode("utf-8")
