"""The shared-memory pool of one camera: a memfd of slots, each with a stamp before its pixels."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inspectd.errors import OutsideError, StaleSlot
from inspectd.records import Frame

HEADER_BYTES = 64
"""One cache line: frameId, generation; the pixels behind it stay aligned."""
_STAMP = struct.Struct("<QQ")
_NO_STAMP = (0, 0)
CHANNELS = 3
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
    if total > (available := available_bytes()):
        raise OutsideError(f"{_no_memory(spec)}, {available / 1e6:.0f} MB are available; {_CURE}")
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


class Pool:
    """A mapped pool. The camera child writes, model children read; main only owns the descriptor."""

    def __init__(self, spec: PoolSpec, descriptor: int) -> None:
        self.spec = spec
        self._map = mmap.mmap(descriptor, spec.slots * spec.slot_bytes)
        os.close(descriptor)

    def fits(self, pixels: NDArray[np.uint8]) -> bool:
        """Whether a picture fits into a slot."""
        return HEADER_BYTES + pixels.nbytes <= self.spec.slot_bytes

    def write(self, slot: int, frame_id: int, generation: int, pixels: NDArray[np.uint8]) -> None:
        """Copy the pixels (height × width × 3, uint8) into a slot; the stamp is valid only around whole pixels."""
        start = slot * self.spec.slot_bytes
        _STAMP.pack_into(self._map, start, *_NO_STAMP)
        self._pixels(slot, pixels.shape[0], pixels.shape[1])[:] = pixels
        _STAMP.pack_into(self._map, start, frame_id, generation)

    def view(self, frame: Frame) -> NDArray[np.uint8]:
        """Pixels of a frame, height × width × 3, without a copy. Raises StaleSlot if it is not this frame's slot."""
        if not 0 <= frame.slot < self.spec.slots:
            raise StaleSlot(f"{frame.camera}: slot {frame.slot} of {self.spec.slots} does not exist")
        if HEADER_BYTES + frame.width_px * frame.height_px * CHANNELS > self.spec.slot_bytes:
            raise StaleSlot(f"{frame.camera}: {frame.width_px} × {frame.height_px} px do not fit into a slot")
        self.check(frame)
        return self._pixels(frame.slot, frame.height_px, frame.width_px)

    def check(self, frame: Frame) -> None:
        """Raise StaleSlot unless the slot still carries this frame's stamp."""
        found = _STAMP.unpack_from(self._map, frame.slot * self.spec.slot_bytes)
        if found != (frame.frame_id, frame.generation):
            raise StaleSlot(
                f"{frame.camera}: slot {frame.slot} carries frame {found[0]} generation {found[1]}, "
                f"not {frame.frame_id} generation {frame.generation}"
            )

    def _pixels(self, slot: int, height: int, width: int) -> NDArray[np.uint8]:
        start = slot * self.spec.slot_bytes + HEADER_BYTES
        flat = np.frombuffer(self._map, np.uint8, height * width * CHANNELS, start)
        return flat.reshape(height, width, CHANNELS)
