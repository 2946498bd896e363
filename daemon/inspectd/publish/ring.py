"""Records on their way to the disk, in order. Full (10,000): consecutive ones become runs with code 700. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice

from inspectd.decide import uncommitted
from inspectd.publish.intervals import IntervalSet
from inspectd.records import Code, Inspection, LostRun, Record

CAPACITY_RECORDS = 10_000
"""MQTT-CONTRACT "Fail-safe": 80 s at 120/s."""

_RunKey = tuple[str, bool, bool]
"""camera, simulated, count_is_upper_bound."""


@dataclass(slots=True)
class _Entry:
    record: Record
    submitted_s: float
    tried: bool = False


@dataclass(slots=True)
class _Overflow:
    numbers: IntervalSet
    wall_s: float
    submitted_s: float


class Ring:
    """Bounded queue of uncommitted records. Nothing is dropped: what does not fit is still accounted, as runs."""

    def __init__(self, capacity: int = CAPACITY_RECORDS) -> None:
        self._capacity = capacity
        self._entries: deque[_Entry] = deque()
        self._overflow: dict[_RunKey, _Overflow] = {}

    def __len__(self) -> int:
        return len(self._entries) + len(self._overflow)

    def oldest_s(self) -> float | None:
        """Give the time of the oldest submit that is not committed; None: all are."""
        ages = [overflow.submitted_s for overflow in self._overflow.values()]
        if self._entries:
            ages.append(self._entries[0].submitted_s)
        return min(ages, default=None)

    def submit(self, record: Record, now: float) -> bool:
        """Add a record. False: it did not fit and will be part of a run; its own result is lost."""
        if len(self._entries) < self._capacity:
            self._entries.append(_Entry(record, now))
            return True
        if isinstance(record, LostRun):
            first, last, wall_s = record.from_frame_id, record.to_frame_id, record.wall_s
            key = (record.camera, record.simulated, record.count_is_upper_bound)
        else:
            first, last, wall_s = record.frame_id, record.frame_id, record.closed_wall_s
            key = (record.camera, record.simulated, False)
        overflow = self._overflow.setdefault(key, _Overflow(IntervalSet(), wall_s, now))
        overflow.numbers = overflow.numbers.add(first, last)
        return False

    def batch(self, limit: int) -> list[Record]:
        """Give the oldest records; they stay until `done`."""
        return [entry.record for entry in islice(self._entries, limit)]

    def done(self, count: int) -> None:
        """Forget so many of the oldest: they are committed. Runs that waited for room move up."""
        for _ in range(count):
            self._entries.popleft()
        if self._overflow and len(self._entries) < self._capacity:
            for (camera, simulated, upper_bound), overflow in self._overflow.items():
                reason = f"more than {self._capacity} records could not be committed"
                for first, last in overflow.numbers.spans:
                    run = LostRun(
                        camera, first, last, Code.NOT_COMMITTED, reason, overflow.wall_s, upper_bound, simulated
                    )
                    self._entries.append(_Entry(run, overflow.submitted_s, tried=True))
            self._overflow.clear()

    def tried_in_vain(self, reason: str, *, beyond: int = 0) -> tuple[Inspection, ...]:
        """Turn every result that waits into a 700, and give those that are turned now: each is given once.

        The oldest `beyond` are on their way to the disk as they are.
        """
        turned: list[Inspection] = []
        for entry in islice(self._entries, beyond, None):
            if not entry.tried:
                entry.tried = True
                if isinstance(entry.record, Inspection):
                    entry.record = not_committed(entry.record, reason)
                    turned.append(entry.record)
        return tuple(turned)


def not_committed(inspection: Inspection, reason: str) -> Inspection:
    """Give the record of a result that could not be committed in time."""
    told = uncommitted(inspection.decision, f"the result could not be committed: {reason}")
    return replace(inspection, decision=told)
