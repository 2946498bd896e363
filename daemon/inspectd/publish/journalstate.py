"""What the journal knows besides its rows, and how its file keeps that: changed with the rows it speaks of. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from inspectd.accounts import Mark
from inspectd.publish.counters import Counters
from inspectd.publish.intervals import IntervalSet, Overlap
from inspectd.records import LostRun, Record

_encode = json.JSONEncoder(separators=(",", ":")).encode
SCHEMA_VERSION = "1.1"
"""Columns and tables may be added under a new minor number; what an older release does not know it leaves alone.

1.1: the table events; state has first_event, next_event, acked_event, memo."""


@dataclass(frozen=True, slots=True)
class CameraMarks:
    """One camera's numbers."""

    accounted: IntervalSet = field(default_factory=IntervalSet)
    """Numbers that have their row."""
    reserved_to: int = 0
    """Numbers up to here may be given before the next commit says more."""
    excluded: int = 0
    """How many of the accounted numbers are outside `captured`."""

    @property
    def mark(self) -> Mark:
        """The same, as the accounts take it at start."""
        accounted = self.accounted
        return Mark(accounted.contiguous_to, accounted.above, self.reserved_to, self.excluded)


@dataclass(frozen=True, slots=True)
class JournalState:
    """The single row of a journal file. A value: a commit that fails changes nothing."""

    stream_id: str
    next_seq: int
    acked_seq: int
    counters: Counters
    kernel_boot_id: str
    clean: bool
    """A planned stop was the last thing that happened."""
    software_version: str
    marks: Mapping[str, CameraMarks] = field(default_factory=lambda: MappingProxyType({}))
    next_event: int = 1
    acked_event: int = 0
    memo: str = ""
    """What the station wants to know after a restart, as it writes it; empty: never kept."""

    def with_record(self, record: Record) -> JournalState:
        """Give the state with one more record accounted. Raises Overlap if its number has a record already."""
        if isinstance(record, LostRun):
            first, last, seqs = record.from_frame_id, record.to_frame_id, 0
            excluded = record.count if record.count_is_upper_bound else 0
        else:
            first, last, seqs, excluded = record.frame_id, record.frame_id, 1, 0
        marks = self.marks.get(record.camera, CameraMarks())
        try:
            accounted = marks.accounted.add(first, last)
        except Overlap as error:
            raise Overlap(f"{record.camera}: {error}") from error
        changed = CameraMarks(accounted, marks.reserved_to, marks.excluded + excluded)
        return replace(
            self,
            next_seq=self.next_seq + seqs,
            counters=self.counters.add(record),
            marks={**self.marks, record.camera: changed},
        )

    def reserving(self, camera: str, to: int) -> JournalState:
        """Give the state with numbers up to `to` reserved."""
        marks = self.marks.get(camera, CameraMarks())
        return replace(self, marks={**self.marks, camera: replace(marks, reserved_to=max(marks.reserved_to, to))})

    def counting_anew(self, now_wall_s: float) -> JournalState:
        """Give the state of a new period: nothing is counted, and no number that has its record is captured.

        What is in flight is captured in the new period, because it will be counted there.
        """
        marks = {name: replace(marks, excluded=marks.accounted.count) for name, marks in self.marks.items()}
        return replace(self, counters=Counters(now_wall_s), marks=marks)

    def anew(self, stream_id: str, now_wall_s: float) -> JournalState:
        """Give the state of a new stream, which counts anew.

        Events keep counting up, so that no number means two events; those that were not sent are gone with their rows.
        """
        state = self.counting_anew(now_wall_s)
        return replace(state, stream_id=stream_id, next_seq=1, acked_seq=0, acked_event=self.next_event - 1)


def marks_of_ledgers(ledger_last: Mapping[str, int]) -> dict[str, CameraMarks]:
    """Give the marks of a stream that knows nothing of the numbers that were already given."""
    return {name: CameraMarks(IntervalSet(last), last, last) for name, last in ledger_last.items()}


def marks_to_json(marks: Mapping[str, CameraMarks]) -> str:
    """Write the marks as the journal keeps them: accounted to, reserved to, excluded, spans above."""
    document = {
        name: [camera.accounted.contiguous_to, camera.reserved_to, camera.excluded, camera.accounted.above]
        for name, camera in marks.items()
    }
    return _encode(document)


def marks_from_json(text: str) -> dict[str, CameraMarks]:
    """Read them back; entries that a newer release added are passed over. Raises ValueError for anything else."""
    try:
        return {name: _camera_marks(*values[:4]) for name, values in json.loads(text).items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"these are not marks: {text[:80]!r}") from error


def _camera_marks(accounted_to: int, reserved_to: int, excluded: int, above: list[Any]) -> CameraMarks:
    spans = tuple((int(first), int(last)) for first, last in above)
    return CameraMarks(IntervalSet(int(accounted_to), spans), int(reserved_to), int(excluded))
