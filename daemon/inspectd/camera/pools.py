"""The frame pools of one camera in main: the current one, and old ones that somebody still reads or may write to."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

from inspectd.errors import WorkerError
from inspectd.records import Frame
from inspectd.worker.frames import PoolSpec
from inspectd.worker.slots import SlotTable


class Pools:
    """Owns the descriptors. Main maps none of them: it touches no pixel."""

    def __init__(self, camera: str, slots: Callable[[], int]) -> None:
        self._camera, self._slots = camera, slots
        self._needed_bytes = 0
        self._pools: dict[int, tuple[PoolSpec, int, SlotTable]] = {}
        self._current = 0
        self._quarantined: dict[int, int] = {}
        """Pool → the life of the stuck camera process that may still write to it."""

    @property
    def slots(self) -> int:
        """Slots of the current pool."""
        return self._pools[self._current][0].slots if self._current in self._pools else 0

    def need(self, slot_bytes: int) -> None:
        """Slots have to be at least so large."""
        self._needed_bytes = max(self._needed_bytes, slot_bytes)

    def wanted(self) -> PoolSpec | None:
        """Say which pool is to be made; None: the current one will do."""
        slots = self._slots()
        now = self._pools[self._current][0] if self._current in self._pools else None
        if now is not None and now.slot_bytes >= self._needed_bytes and now.slots >= slots:
            return None
        return PoolSpec(self._camera, max(self._pools, default=self._current) + 1, slots, self._needed_bytes)

    def install(self, spec: PoolSpec, descriptor: int) -> None:
        """Let the camera fill this pool from now on."""
        self._pools[spec.pool] = (spec, descriptor, SlotTable(spec.slots))
        self._current = spec.pool

    def refused(self) -> None:
        """There is no memory for it: forget the size that was asked for."""
        self._needed_bytes = self._pools[self._current][0].slot_bytes if self._current in self._pools else 0

    def current(self) -> tuple[PoolSpec, int]:
        """The pool that the camera fills."""
        spec, descriptor, _ = self._pools[self._current]
        return spec, descriptor

    def mapped(self) -> list[tuple[PoolSpec, int]]:
        """Every pool that a frame may lie in."""
        return [(spec, descriptor) for spec, descriptor, _ in self._pools.values()]

    def table(self, frame: Frame) -> SlotTable:
        """The slot table of a frame's pool. Raises WorkerError for one that is gone."""
        try:
            return self._pools[frame.pool][2]
        except KeyError:
            raise WorkerError(
                f"{self._camera}: frame {frame.frame_id} lies in pool {frame.pool}, which is gone"
            ) from None

    def release(self, frame: Frame, reader: Hashable) -> list[PoolSpec]:
        """A reader lets go of a frame; returns old pools that nobody needs any more."""
        if frame.pool not in self._pools:
            return []
        self._pools[frame.pool][2].release(frame.slot, frame.frame_id, reader)
        return self.drop_empty() if frame.pool != self._current else []

    def freed(self) -> list[int]:
        """Slots of the current pool that have become free since the last call."""
        return self._pools[self._current][2].take_freed() if self._current in self._pools else []

    def keep_freed(self, slots: list[int]) -> None:
        """The child could not be told of these: give them again next time."""
        self._pools[self._current][2].keep_freed(slots)

    def free_slots(self) -> list[int]:
        """Every free slot of the current pool, for a child that begins with it."""
        return self._pools[self._current][2].free_slots()

    def quarantine(self, life: int) -> None:
        """The camera process could not be killed: its pool is kept from everybody else until it ends."""
        if self._current in self._pools:
            self._quarantined[self._current] = life
            self._current = max(self._pools) + 1

    def release_quarantined(self, life: int) -> list[PoolSpec]:
        """That stuck process has ended; returns the pools that nobody needs any more."""
        self._quarantined = {pool: holder for pool, holder in self._quarantined.items() if holder != life}
        return self.drop_empty()

    def drop_empty(self) -> list[PoolSpec]:
        """Close old pools without readers and without a possible writer."""
        gone = [
            spec
            for spec, _, table in self._pools.values()
            if spec.pool != self._current and spec.pool not in self._quarantined and not table.held
        ]
        for spec in gone:
            os.close(self._pools.pop(spec.pool)[1])
        return gone

    def close(self) -> None:
        """Close every descriptor."""
        for _, descriptor, _ in self._pools.values():
            os.close(descriptor)
        self._pools.clear()
