"""Size and memory of one camera's frame pool: a memfd of slots. Main only owns it; children map it (worker.pool)."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from inspectd.errors import OutsideError

HEADER_BYTES = 64
"""One cache line: frameId, generation; the pixels behind it stay aligned."""
CHANNELS = 3
SHARE_OF_MEMORY = 2
"""One pool takes at most half of what is available: the models and the next pool need some as well."""
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


def create_memory(spec: PoolSpec) -> int:
    """Make the pool's memory and return its descriptor.

    The whole of it is allocated now: a sparse one would end in SIGBUS when memory runs out. Raises OutsideError, before
    anything is taken: the kernel would rather kill processes than refuse a memfd.
    """
    total = spec.slots * spec.slot_bytes
    if total > (most := available_bytes() // SHARE_OF_MEMORY):
        raise OutsideError(f"{_no_memory(spec)}, at most {most / 1e6:.0f} MB may be taken now; {_CURE}")
    descriptor = os.memfd_create(f"inspectd-{spec.camera}-{spec.pool}", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, total)
    except OSError as error:
        os.close(descriptor)
        raise OutsideError(f"{_no_memory(spec)} ({error.strerror}); {_CURE}") from error
    return descriptor


def available_bytes() -> int:
    """Memory that can be taken without pushing anything out, as the kernel estimates it."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes) * 1024


def _no_memory(spec: PoolSpec) -> str:
    total = spec.slots * spec.slot_bytes
    return (
        f"{spec.camera}: no memory for the frame pool: {spec.slots} slots × {spec.slot_bytes / 1e6:.1f} MB "
        f"= {total / 1e6:.0f} MB"
    )
