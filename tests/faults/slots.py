"""A camera's frame pool as another process finds it in /proc: the stamps of its slots, read and overwritten."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from inspectd.worker.frames import slot_bytes

_STAMP = struct.Struct("<QQ")
"""frameId, generation: the head of a slot."""
_LATER = 1000


def restamp_newest(pid: int, camera: str, width_px: int, height_px: int) -> int:
    """Give the slot that was written last another generation, as if the camera had taken it back; gives its frame."""
    step = slot_bytes(width_px, height_px)
    descriptor = os.open(_memfd(pid, camera), os.O_RDWR)
    try:
        with mmap.mmap(descriptor, 0) as memory:
            stamps = {start: _STAMP.unpack_from(memory, start) for start in range(0, len(memory), step)}
            start = max(stamps, key=lambda start: stamps[start])
            frame, generation = stamps[start]
            _STAMP.pack_into(memory, start, frame, generation + _LATER)
            return int(frame)
    finally:
        os.close(descriptor)


def _memfd(pid: int, camera: str) -> Path:
    """The newest pool of a camera that a process holds."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        name = str(entry.readlink())
        if name.startswith(f"/memfd:inspectd-{camera}-"):
            found[int(name.removesuffix(" (deleted)").rpartition("-")[2])] = entry
    return found[max(found)]
