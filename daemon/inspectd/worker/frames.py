"""Size and memory of one camera's frame pool: a memfd of slots. Main only owns it; children map it (worker.pool)."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from inspectd.errors import OutsideError

HEADER_BYTES = 64
"""One cache line: frameId, generation; the pixels behind it stay aligned."""
CHANNELS = 3
SHARE_OF_MEMORY = 2
"""One pool takes at most half of what is available: the models and the next pool need some as well."""
STEP_BYTES = 16 * 2**20
"""Taken at once: the kernel clears 1 MB in 0.3 to 0.7 ms, and main's loop must not stand still for long."""
_CURE = "lower `queue_depth`, `requests`, `slots` or the picture size"


def slot_bytes(width_px: int, height_px: int) -> int:
    """Size of a slot that takes a BGR8 picture of this size, in whole pages."""
    raw = HEADER_BYTES + width_px * height_px * CHANNELS
    return -(-raw // mmap.PAGESIZE) * mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What a process needs to map a pool, beside its descriptor."""

    camera: str
    pool: int
    slots: int
    slot_bytes: int

    @property
    def total_bytes(self) -> int:
        """Of all slots."""
        return self.slots * self.slot_bytes


class NewMemory:
    """A pool's memory while it is being taken, step by step.

    The whole of it is allocated before anybody maps it: a sparse one would end in SIGBUS when memory runs out.
    """

    _promised_bytes: ClassVar[int] = 0
    """What all pools that are being taken have still to get: two must not count on the same memory."""

    def __init__(self, spec: PoolSpec) -> None:
        """Raise OutsideError before anything is taken: the kernel would rather kill processes than refuse a memfd."""
        self._spec, self._taken_bytes = spec, 0
        most_bytes = (available_bytes() - NewMemory._promised_bytes) // SHARE_OF_MEMORY
        if spec.total_bytes > most_bytes:
            raise OutsideError(f"{_no_memory(spec)}, at most {most_bytes / 1e6:.0f} MB may be taken now; {_CURE}")
        self.descriptor = os.memfd_create(f"inspectd-{spec.camera}-{spec.pool}", os.MFD_CLOEXEC)
        NewMemory._promised_bytes += spec.total_bytes

    def step(self) -> bool:
        """Take the next part; gives whether that was the last. Raises OutsideError, and has given all back then."""
        size = min(STEP_BYTES, self._spec.total_bytes - self._taken_bytes)
        try:
            os.posix_fallocate(self.descriptor, self._taken_bytes, size)
        except OSError as error:
            self.close()
            raise OutsideError(f"{_no_memory(self._spec)} ({error.strerror}); {_CURE}") from error
        self._taken_bytes += size
        NewMemory._promised_bytes -= size
        return self._taken_bytes == self._spec.total_bytes

    def close(self) -> None:
        """Give all of it back."""
        os.close(self.descriptor)
        NewMemory._promised_bytes -= self._spec.total_bytes - self._taken_bytes


def available_bytes() -> int:
    """Memory that can be taken without pushing anything out, as the kernel estimates it."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes) * 1024


def _no_memory(spec: PoolSpec) -> str:
    return (
        f"{spec.camera}: no memory for the frame pool: {spec.slots} slots × {spec.slot_bytes / 1e6:.1f} MB "
        f"= {spec.total_bytes / 1e6:.0f} MB"
    )
