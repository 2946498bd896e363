"""Where one camera's pictures lie, as main sees it: gives pools and free slots to the child, pools to the models."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from typing import Protocol

from inspectd.camera.pools import Pools
from inspectd.errors import OutsideError
from inspectd.records import Frame
from inspectd.worker.frames import NewMemory, PoolSpec
from inspectd.worker.ports import Later, Supervised, Timer

LINE_READER = ("line", 0)
"""The line itself holds a frame's slot until the frame is closed."""
FREE_AGAIN_S = 0.05
"""A camera child that did not read about its free slots is told again after this."""


Refused = Callable[[OutsideError], None]
"""Told why there is no memory for the pool that was asked for."""


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
        self._has_child = False
        """There is a child that may be given pools."""
        self._making: tuple[PoolSpec, NewMemory] | None = None
        self._step_timer: Timer | None = None
        self._refused: list[Refused] = []
        """Of whoever waits for the pool that is being made."""

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

    def begin(self, refused: Refused) -> None:
        """A new child begins: with the current pool if that will do, else with a new one as soon as there is one."""
        self._has_child = True
        if self._making is None and self._pools.wanted() is None:
            self._give()
        else:
            self.provide(refused)

    def child_gone(self) -> None:
        """Give pools to nobody until the next child begins."""
        self._has_child = False

    def provide(self, refused: Refused) -> None:
        """Replace a pool that is too small; a large one is made step by step, and the loop goes on meanwhile."""
        self._refused.append(refused)
        if self._making is None:
            self._make()

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
        if self._step_timer is not None:
            self._step_timer.cancel()
        if self._making is not None:
            self._making[1].close()
        self._pools.close()

    def _make(self) -> None:
        """Begin to make the pool that is wanted, if one is."""
        spec = self._pools.wanted()
        if spec is None:
            self._refused.clear()
            return
        try:
            self._making = spec, NewMemory(spec)
        except OutsideError as error:
            self._refuse(error)
        else:
            self._step(*self._making)

    def _step(self, spec: PoolSpec, memory: NewMemory) -> None:
        self._step_timer = None
        try:
            is_whole = memory.step()
        except OutsideError as error:
            self._making = None
            self._refuse(error)
            return
        if not is_whole:
            self._step_timer = self._later(0.0, lambda: self._step(spec, memory))
            return
        self._making = None
        self._pools.install(spec, memory.descriptor)
        for user in self._users:
            user.add_pool(spec, memory.descriptor)
        if self._has_child:
            self._give()
        self._forget(self._pools.drop_empty())
        self._make()  # more may be wanted by now

    def _refuse(self, error: OutsideError) -> None:
        self._pools.refused()
        waiting, self._refused = self._refused, []
        for refused in waiting:
            refused(error)

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
