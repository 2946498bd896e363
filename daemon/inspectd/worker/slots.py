"""Who holds each slot of a pool: the camera child, or main with a set of readers. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from inspectd.errors import WorkerError


@dataclass(slots=True)
class _Held:
    frame_id: int
    readers: set[Hashable] = field(default_factory=set)


class SlotTable:
    """Slots of one pool. A slot is the camera child's, or held for one frame until its last reader let go.

    A reader is anything that can still look at the pixels: the frame's own line, an attempt in a model child
    (until it has answered or its process was reaped).
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._held: dict[int, _Held] = {}
        self._freed: list[int] = []

    @property
    def held(self) -> int:
        """Slots that are not the camera child's."""
        return len(self._held)

    def announce(self, slot: int, frame_id: int, reader: Hashable) -> None:
        """The child has filled a slot and given it to main. Raises WorkerError if the slot was not its to give."""
        if not 0 <= slot < self.slots:
            raise WorkerError(f"slot {slot} of frame {frame_id} does not exist (there are {self.slots})")
        if slot in self._held:
            raise WorkerError(f"slot {slot} of frame {frame_id} still holds frame {self._held[slot].frame_id}")
        self._held[slot] = _Held(frame_id, {reader})

    def read(self, slot: int, frame_id: int, reader: Hashable) -> None:
        """One more reader. Raises WorkerError if the slot was given away: nobody may start to read then."""
        held = self._held.get(slot)
        if held is None or held.frame_id != frame_id:
            raise WorkerError(f"slot {slot} is not frame {frame_id}'s any more")
        held.readers.add(reader)

    def release(self, slot: int, frame_id: int, reader: Hashable) -> None:
        """A reader is done; the last one frees the slot. Letting go twice, or after the pool's end, is harmless."""
        held = self._held.get(slot)
        if held is None or held.frame_id != frame_id:
            return
        held.readers.discard(reader)
        if not held.readers:
            del self._held[slot]
            self._freed.append(slot)

    def take_freed(self) -> list[int]:
        """Slots that have become free since the last call: to be told to the camera child, once."""
        freed, self._freed = self._freed, []
        return freed

    def keep_freed(self, slots: list[int]) -> None:
        """The camera child could not be told: take_freed gives these again."""
        self._freed += slots

    def free_slots(self) -> list[int]:
        """Every slot that is not held: what a new camera child starts with (forgets what take_freed would tell)."""
        self._freed = []
        return [slot for slot in range(self.slots) if slot not in self._held]
