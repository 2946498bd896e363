"""Where one camera's pictures lie, as main sees it: gives pools and free slots to the child, pools to the models."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import Protocol

from inspectd.camera.pools import Pools
from inspectd.records import Frame
from inspectd.worker.frames import PoolSpec
from inspectd.worker.ports import Later, Supervised, Timer

LINE_READER = ("line", 0)
"""The line itself holds a frame's slot until the frame is closed."""
FREE_AGAIN_S = 0.05
"""A camera child that did not read about its free slots is told again after this."""


class PoolUser(Protocol):
    """A model's lane: it maps pools."""

    def add_pool(self, spec: PoolSpec, descriptor: int) -> None:
        """A pool whose slots will be asked about."""

    def forget_pool(self, spec: PoolSpec) -> None:
        """It will not be any more."""


class FrameStore:
    """Everything about slots that needs a message to somebody."""

    def __init__(self, pools: Pools, host: Supervised, users: Sequence[PoolUser], later: Later) -> None:
        self._pools, self._host, self._users, self._later = pools, host, users, later
        self._timer: Timer | None = None

    @property
    def slots(self) -> int:
        """Slots of the current pool; 0 before the first."""
        return self._pools.slots

    def pools(self) -> list[tuple[PoolSpec, int]]:
        """Every pool that a frame may lie in, with its descriptor."""
        return self._pools.mapped()

    def need(self, slot_bytes: int) -> None:
        """Slots have to be at least so large."""
        self._pools.need(slot_bytes)

    def begin(self) -> None:
        """A new child begins: with the current pool if that will do. Raises OutsideError without memory."""
        if not self.provide():
            self._give()

    def provide(self) -> bool:
        """Replace a pool that is too small; gives whether it was. Raises OutsideError without memory."""
        made = self._pools.provide()
        if made is None:
            return False
        for user in self._users:
            user.add_pool(*made)
        self._give()
        self._forget(self._pools.drop_empty())
        return True

    def announce(self, frame: Frame) -> None:
        """The child has filled the frame's slot. Raises WorkerError if it was not its to fill."""
        self._pools.table(frame).announce(frame.slot, frame.frame_id, LINE_READER)

    def read(self, frame: Frame, reader: Hashable) -> None:
        """One more reader of the frame's slot. Raises WorkerError if it was given away."""
        self._pools.table(frame).read(frame.slot, frame.frame_id, reader)

    def release(self, frame: Frame, reader: Hashable) -> None:
        """A reader is done; the last one gives the slot back to the camera."""
        self._forget(self._pools.release(frame, reader))
        self._tell_free()

    def quarantine(self, life: int) -> None:
        """The camera child of that life could not be killed: nobody else may have its pool."""
        self._pools.quarantine(life)

    def release_quarantined(self, life: int) -> None:
        """It has ended after all."""
        self._forget(self._pools.release_quarantined(life))

    def close(self) -> None:
        """Give the memory back."""
        if self._timer is not None:
            self._timer.cancel()
        self._pools.close()

    def _give(self) -> None:
        """Give the child the current pool and every free slot of it."""
        spec, descriptor = self._pools.current()
        self._host.send({"t": "pool", "spec": asdict(spec), "free": self._pools.free_slots()}, (descriptor,))

    def _forget(self, gone: Sequence[PoolSpec]) -> None:
        for spec in gone:
            for user in self._users:
                user.forget_pool(spec)

    def _tell_free(self) -> None:
        """Tell the child which slots are free again; if it does not read now, a little later."""
        if self._timer is not None:
            return
        freed = self._pools.freed()
        if freed and not self._host.offer({"t": "free", "p": self._pools.current()[0].pool, "slots": freed}):
            self._pools.keep_freed(freed)
            self._timer = self._later(FREE_AGAIN_S, self._tell_free_again)

    def _tell_free_again(self) -> None:
        self._timer = None
        self._tell_free()
