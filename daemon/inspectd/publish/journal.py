"""The journal: exactly one row per frame, rows and state in one transaction. Synchronous; one thread at a time."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from inspectd.accounts import Mark, Span
from inspectd.errors import InspectdError
from inspectd.publish.counters import Counters
from inspectd.publish.events import Occurrence
from inspectd.publish.filerow import FileRow
from inspectd.publish.journalrows import EventRow, ResultRow, RunRow, StoredEvent, StoredResult, result_row, run_row
from inspectd.publish.journalstate import JournalState, marks_of_ledgers
from inspectd.publish.retention import Limits
from inspectd.publish.sqlitefile import JournalDamaged
from inspectd.publish.tidying import tidy
from inspectd.records import Inspection, LostRun, Record

Encode = Callable[[Inspection, int], bytes]
"""Words a result with its seq; these bytes are committed, sent, and sent again."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the journal knows when it is opened, or begun anew."""

    stream_id: str
    next_seq: int
    acked_seq: int
    counters: Counters
    marks: Mapping[str, Mark]
    other_boot: bool
    """The machine went down without a planned stop: numbers up to `reserved_to` may have been given."""
    new_stream: bool
    damaged: str | None
    """What was set aside and what that means, for the alarm."""
    next_event: int
    acked_event: int
    memo: str
    """The station's memo as it was last kept; empty: never."""


@dataclass(frozen=True, slots=True)
class Committed:
    """One record that is on the disk. `seq` and `payload` are None for a run: it is not published."""

    record: Record
    seq: int | None
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Loss:
    """Unsent results that had to be given up."""

    stream_id: str
    ranges: tuple[Span, ...]
    count: int


class Journal:
    """All files of one stream. A call that raises StorageError has changed nothing and may be tried again."""

    def __init__(self, files: FileRow, state: JournalState, limits: Limits) -> None:
        self._files = files
        self._limits = limits
        self._tidy_asked = True
        self.state = state
        """With what was noted since the last commit."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        kernel_boot_id: str,
        now_wall_s: float,
        limits: Limits,
        software_version: str,
        ledger_last: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Journal, Recovered]:
        """Open the journal or begin it.

        Where a new stream begins, each camera's numbers up to `ledger_last` are taken as used: accounted and excluded
        from `captured`. The first `commit` (an empty one will do) notes that this run has begun: it has to come before
        a camera takes a number, with the records of everything that was found missing. Raises OutsideError if a release
        of another major wrote the files, StorageError if the disk does not answer.
        """
        files, damage = FileRow(folder, limits), None
        try:
            head = files.discover(kernel_boot_id)
        except JournalDamaged as error:
            head, damage = None, error
        except InspectdError:
            files.close()
            raise
        if head is None:
            text = f"{damage}; {_set_aside_text(files)}" if damage else None
            state = JournalState(
                stream_id=_new_stream_id(),
                next_seq=1,
                acked_seq=0,
                counters=Counters(now_wall_s),
                kernel_boot_id=kernel_boot_id,
                clean=False,
                software_version=software_version,
                marks=marks_of_ledgers(ledger_last),
            )
            files.begin(state, now_wall_s)
            return cls(files, state, limits), _recovered(state, new_stream=True, damaged=text)
        other_boot = head.state.kernel_boot_id != kernel_boot_id and not head.state.clean
        state = replace(head.state, kernel_boot_id=kernel_boot_id, clean=False, software_version=software_version)
        return cls(files, state, limits), _recovered(state, other_boot=other_boot)

    def commit(
        self, records: Sequence[Record], encode: Encode, now_wall_s: float, events: Sequence[Occurrence] = ()
    ) -> tuple[Committed, ...]:
        """Write records, events, counters, marks and everything noted since, in one transaction.

        Raises Overlap before anything is written if a number has its record already.
        """
        state, done = self.state, []
        results: list[ResultRow] = []
        runs: list[RunRow] = []
        for record in records:
            seq = state.next_seq
            state = state.with_record(record)
            if isinstance(record, LostRun):
                runs.append(run_row(record))
                done.append(Committed(record, None, None))
            else:
                payload = encode(record, seq)
                results.append(result_row(record, seq, payload))
                done.append(Committed(record, seq, payload))
        event_rows: list[EventRow] = [
            (number, int(event.wall_s * 1000), event.word(number))
            for number, event in enumerate(events, state.next_event)
        ]
        state = replace(state, next_event=state.next_event + len(event_rows))
        if self._files.rotation_due(self.state.next_seq, now_wall_s):
            self._files.begin(self.state, now_wall_s)
            self._tidy_asked = True
        self._files.newest.write(state, results, runs, event_rows)
        self.state = state
        return tuple(done)

    def ack(self, seq: int) -> None:
        """Note that everything up to `seq` is delivered; written with the next commit. Never goes back."""
        if self.state.acked_seq < seq < self.state.next_seq:
            self.state = replace(self.state, acked_seq=seq)

    def ack_event(self, event_seq: int) -> None:
        """Note that every event up to this one is delivered; written with the next commit. Never goes back."""
        if self.state.acked_event < event_seq < self.state.next_event:
            self.state = replace(self.state, acked_event=event_seq)

    def keep_memo(self, text: str) -> None:
        """Keep the station's memo; written with the next commit."""
        self.state = replace(self.state, memo=text)

    def reset_counters(self, now_wall_s: float) -> None:
        """Begin to count anew with the next commit, its records already in the new period."""
        self.state = self.state.counting_anew(now_wall_s)

    def reserve(self, camera: str, to: int) -> None:
        """Note that the camera may take numbers up to `to`; written with the next commit."""
        self.state = self.state.reserving(camera, to)

    def count(
        self,
        *,
        triggers_accepted: int = 0,
        triggers_missed: int = 0,
        verdicts_expired: int = 0,
        events_lost: int = 0,
    ) -> None:
        """Count what has no record of its own; written with the next commit."""
        counters = self.state.counters.note(
            triggers_accepted=triggers_accepted,
            triggers_missed=triggers_missed,
            verdicts_expired=verdicts_expired,
            events_lost=events_lost,
        )
        self.state = replace(self.state, counters=counters)

    def read(self, from_seq: int, to_seq: int, limit: int) -> tuple[StoredResult, ...]:
        """Read at most `limit` results of a range, in order. A seq that is left out is not there any more."""
        return self._files.read(from_seq, to_seq, limit)

    def find(self, result_id: bytes) -> StoredResult | None:
        """Find a result by its id; None: it is not there (any more)."""
        return self._files.find(result_id)

    def read_events(self, from_event: int, limit: int) -> tuple[StoredEvent, ...]:
        """Read at most `limit` events from a number on, in order. One that is left out is not there any more."""
        return self._files.read_events(from_event, limit)

    def dead_letter(self, seq: int, reason: str, substitute: bytes | None, now_wall_s: float) -> None:
        """Keep the payload that cannot be sent as a dead letter, its substitute (if any) in its place; at once."""
        self._files.bury(seq, reason, substitute, now_wall_s)

    def housekeep(self, now_wall_s: float, *, ages_count: bool) -> None:
        """Do between commits what would hold them up: move the log into the file, remove what is too much.

        `ages_count` False: nothing goes for its age, for the wall clock cannot be believed.
        """
        if self._files.newest.checkpoint_if_due(self._limits.log_bytes):
            self._files.measure()
        if self._tidy_asked or self._files.total_bytes > self._limits.max_bytes:
            self._tidy_asked = False
            limits = self._limits if ages_count else replace(self._limits, keep_days=math.inf)
            tidy(self._files, self.state, limits, now_wall_s, disk_full=False)

    def make_room(self, now_wall_s: float) -> None:
        """Give up the next file, or part of one, because the disk is full."""
        tidy(self._files, self.state, self._limits, now_wall_s, disk_full=True)

    def take_loss(self) -> Loss | None:
        """Give what was lost since the last call, unsent results only; counted with the next commit."""
        ranges = tuple(
            (max(first, self.state.acked_seq + 1), last)
            for first, last in self._files.gone
            if last > self.state.acked_seq and first <= last
        )
        self._files.gone.clear()
        if not ranges:
            return None
        count = sum(last - first + 1 for first, last in ranges)
        self.state = replace(self.state, counters=self.state.counters.note(results_lost=count))
        return Loss(self.state.stream_id, ranges, count)

    def take_lost_events(self) -> int:
        """Give how many unsent events were given up since the last call; counted with the next commit."""
        acked = self.state.acked_event
        count = sum(max(0, last - max(first, acked + 1) + 1) for first, last in self._files.gone_events)
        self._files.gone_events.clear()
        if count:
            self.count(events_lost=count)
        return count

    def begin_anew(self, reason: str, now_wall_s: float) -> Recovered:
        """Set the damaged files aside and begin a new stream; what was unsent is in the files set aside.

        The marks go on from memory, so that no number gets a second record; those that have theirs are excluded.
        """
        text = f"{reason}; {_set_aside_text(self._files)}"
        state = self.state.anew(_new_stream_id(), now_wall_s)
        self._files.gone.clear()
        self._files.gone_events.clear()
        self.state = state
        self._files.begin(state, now_wall_s)
        return _recovered(state, new_stream=True, damaged=text)

    def close(self, *, clean: bool) -> None:
        """Write what was noted, mark a planned stop, and disconnect."""
        if clean:
            state = replace(self.state, clean=True)
            if self._files.is_outdated:
                self._files.begin(state, self._files.newest_facts(state, 0.0).created_wall_s)
            else:
                self._files.newest.write(state)
        self._files.close()


def _new_stream_id() -> str:
    return uuid.uuid4().hex


def _set_aside_text(files: FileRow) -> str:
    count = files.set_aside_all()
    return (
        f"{count} journal files were set aside as {files.folder}/*.damaged-*, with the results in them that were not"
        " sent; a new stream begins. Have the disk looked at"
    )


def _recovered(
    state: JournalState, *, other_boot: bool = False, new_stream: bool = False, damaged: str | None = None
) -> Recovered:
    marks = {name: marks.mark for name, marks in state.marks.items()}
    return Recovered(
        state.stream_id,
        state.next_seq,
        state.acked_seq,
        state.counters,
        MappingProxyType(marks),
        other_boot,
        new_stream,
        damaged,
        state.next_event,
        state.acked_event,
        state.memo,
    )
