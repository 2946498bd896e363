"""A mapped frame pool: slots in shared memory, each with a stamp before its pixels. For children."""

from __future__ import annotations

import mmap
import os
import struct

import numpy as np
from numpy.typing import NDArray

from inspectd.errors import StaleSlot
from inspectd.records import Frame
from inspectd.worker.frames import CHANNELS, HEADER_BYTES, PoolSpec

_STAMP = struct.Struct("<QQ")
"""frameId, generation."""
_NO_STAMP = (0, 0)


class Pool:
    """A mapped pool. The camera child writes, model children read."""

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
