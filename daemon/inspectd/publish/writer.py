"""The journal as the loop sees it: records, notes and reads are handed to a thread; no call here waits for the disk."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from inspectd.errors import StorageError
from inspectd.publish.counters import Counters
from inspectd.publish.events import DURABLE, Event, Occurrence
from inspectd.publish.intervals import IntervalSet
from inspectd.publish.journal import Encode, Journal, Recovered
from inspectd.publish.journalrows import StoredEvent, StoredResult
from inspectd.publish.ring import Ring, not_committed
from inspectd.publish.uuid7 import uuid7
from inspectd.publish.writerport import Counts, Listener, Request, Shared
from inspectd.publish.writerthread import WriterThread
from inspectd.records import Inspection, LostRun, Record

RETRY_S = 0.5
"""Between two tries to commit on a disk that refuses."""
REQUESTS_MAX = 64
"""Reads that wait; beyond it they are refused (StorageError) and may be asked again."""

_Answer = TypeVar("_Answer")


class Writer:
    """Used from the loop's thread only; `journal` belongs to the thread from `start` on.

    Records wait in a ring of 10,000; beyond it consecutive ones are merged into runs with code 700. They are committed
    at once after a pause, then at most every 25 ms; `urgent` ones at once.
    """

    def __init__(
        self,
        journal: Journal,
        encoder: Callable[[str], Encode],
        listener: Listener,
        loop: asyncio.AbstractEventLoop,
        *,
        boot_id: str,
        ring: Ring | None = None,
        retry_s: float = RETRY_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.stream_id = journal.state.stream_id
        """The stream that the loop knows of."""
        self._journal = journal
        self._loop = loop
        self._boot_id = boot_id
        self._clock = clock
        self._wall = wall
        self._submitted = {name: marks.accounted for name, marks in journal.state.marks.items()}
        self._shared = Shared(Ring() if ring is None else ring)
        self._listener = listener
        self._ended: asyncio.Future[bool] = loop.create_future()
        thread = WriterThread(self._shared, journal, encoder, listener, self._new_stream, loop, clock, wall, retry_s)
        self._thread = threading.Thread(target=thread.run, args=(self._ended,), name="writer", daemon=True)

    def start(self) -> None:
        """Start the thread. A daemon thread: a disk that never answers must not keep the process from ending."""
        self._thread.start()

    def submit(self, record: Record, *, urgent: bool = False) -> None:
        """Hand over a record; `urgent`: commit it at once. Raises Overlap if its number was handed over before."""
        if isinstance(record, LostRun):
            first, last = record.from_frame_id, record.to_frame_id
        else:
            first, last = record.frame_id, record.frame_id
        known = self._submitted.get(record.camera, IntervalSet())
        self._submitted[record.camera] = known.add(first, last)
        with self._shared.changed:
            fits = self._shared.ring.submit(record, self._clock())
            self._shared.urgent |= urgent
            if urgent or len(self._shared.ring) == 1:
                self._shared.changed.notify()
        if not fits and isinstance(record, Inspection):
            lost = not_committed(record, "too many records wait for the disk")
            self._loop.call_soon(self._listener.on_uncommitted, (lost,))

    def event(self, event: Event) -> None:
        """Hand over a durable event; on the disk at once. Of more than 1000 that wait for it the oldest is lost.

        Raises ValueError for one that is not durable, and ValueError or TypeError where it cannot be worded.
        """
        if event.name not in DURABLE:
            raise ValueError(f"{event.name} is not a durable event")
        wall_s = self._wall()
        occurrence = Occurrence(event, uuid7(wall_s, os.urandom(10)), wall_s, self._boot_id)
        occurrence.word(0)  # an error in it is raised here, where it was made, and does not end the thread
        with self._shared.changed:
            self._shared.add_event(occurrence)
            self._shared.changed.notify()

    def keep_memo(self, text: str) -> None:
        """Keep the station's memo; on the disk at once, with the events that wait."""
        with self._shared.changed:
            self._shared.notes.memo = text
            self._shared.changed.notify()

    def ack(self, stream_id: str, seq: int) -> None:
        """Note that everything of a stream up to `seq` is delivered; on the disk within a second."""
        with self._shared.changed:
            self._shared.notes.acked = (stream_id, seq)
            self._noted()

    def ack_event(self, event_seq: int) -> None:
        """Note that every event up to this one is delivered; on the disk within a second."""
        with self._shared.changed:
            self._shared.notes.acked_event = max(event_seq, self._shared.notes.acked_event)
            self._noted()

    def reserve(self, camera: str, to: int) -> None:
        """Note that the camera may take numbers up to `to`; on the disk within a second."""
        with self._shared.changed:
            self._shared.notes.reserved[camera] = to
            self._noted()

    def count(self, *, triggers_accepted: int = 0, triggers_missed: int = 0, verdicts_expired: int = 0) -> None:
        """Count what has no record of its own; on the disk within a second."""
        with self._shared.changed:
            counts = self._shared.notes.counts
            counts.triggers_accepted += triggers_accepted
            counts.triggers_missed += triggers_missed
            counts.verdicts_expired += verdicts_expired
            self._noted()

    def reset_counters(self) -> asyncio.Future[Counters]:
        """Begin to count anew, at once; gives the counters as the new period began, once that is on the disk.

        What has no row yet is counted in the new period, and captured in it. The listener is told before the future.
        """
        future: asyncio.Future[Counters] = self._loop.create_future()
        with self._shared.changed:
            if self._shared.ended:
                future.set_exception(StorageError("the journal is closed"))
            else:
                self._shared.notes.counts = Counts()
                self._shared.notes.resets.append(future)
                self._shared.changed.notify()
        return future

    def read(self, from_seq: int, to_seq: int, limit: int) -> asyncio.Future[tuple[StoredResult, ...]]:
        """Read results between two commits; a seq that is left out is lost. The future may raise StorageError."""
        return self._ask(partial(self._journal.read, from_seq, to_seq, limit))

    def find(self, *, result_id: bytes | None = None, job_id: str | None = None) -> asyncio.Future[StoredResult | None]:
        """Find a result by its id or by its job's; None: it is not there (any more). May raise StorageError.

        A job of one frame has its result's id, written as text. Raises ValueError where not one of them is given.
        """
        if (result_id is None) == (job_id is None):
            raise ValueError("find: give result_id or job_id")
        if job_id is not None:
            result_id = _result_id_of(job_id)
        return self._ask(lambda: None if result_id is None else self._journal.find(result_id))

    def read_events(self, from_event: int, limit: int) -> asyncio.Future[tuple[StoredEvent, ...]]:
        """Read events between two commits; one that is left out is lost. The future may raise StorageError."""
        return self._ask(partial(self._journal.read_events, from_event, limit))

    def dead_letter(self, seq: int, reason: str, substitute: bytes | None) -> asyncio.Future[None]:
        """Put a payload aside that cannot be sent; done when the substitute (if any) is on the disk in its place."""
        return self._ask(partial(self._journal.dead_letter, seq, reason, substitute, self._wall()))

    def believe_clock(self, *, is_right: bool) -> None:
        """Note whether the wall clock can be believed; until then nothing is thrown away for its age."""
        with self._shared.changed:
            self._shared.ages_count = is_right

    def give_up_waiting(self, reason: str) -> None:
        """Turn what has waited too long into 700, verdicts at once; what is on its way to the disk stays as it is."""
        with self._shared.changed:
            turned = self._shared.ring.tried_in_vain(reason, beyond=self._shared.committing)
        if turned:
            self._loop.call_soon(self._listener.on_uncommitted, turned)

    def pending_since(self, now: float) -> float | None:
        """Give the age in s of the oldest submit that is not committed; None: nothing waits."""
        with self._shared.changed:
            oldest_s = self._shared.ring.oldest_s()
        return None if oldest_s is None else now - oldest_s

    async def close(self, deadline_s: float, *, clean: bool = True) -> bool:
        """Commit everything, mark a planned stop if `clean`, end. False: the disk did not take it in time."""
        with self._shared.changed:
            self._shared.closing, self._shared.clean = True, clean
            self._shared.changed.notify()
        try:
            return await asyncio.wait_for(asyncio.shield(self._ended), deadline_s)
        except TimeoutError:
            with self._shared.changed:
                self._shared.abandoned = True
                self._shared.changed.notify()
            return False

    def _noted(self) -> None:
        """Let the thread wake up in time. Called under the lock."""
        if self._shared.notes.since_s is None:
            self._shared.notes.since_s = self._clock()
            self._shared.changed.notify()

    def _ask(self, call: Callable[[], _Answer]) -> asyncio.Future[_Answer]:
        future: asyncio.Future[_Answer] = self._loop.create_future()
        with self._shared.changed:
            if self._shared.ended:
                future.set_exception(StorageError("the journal is closed"))
            elif len(self._shared.requests) >= REQUESTS_MAX:
                future.set_exception(StorageError(f"{REQUESTS_MAX} requests wait for the journal already"))
            else:
                self._shared.requests.append(Request(call, future, self.stream_id))
                self._shared.changed.notify()
        return future

    def _new_stream(self, recovered: Recovered) -> None:
        self.stream_id = recovered.stream_id
        self._listener.on_new_stream(recovered)


def _result_id_of(job_id: str) -> bytes | None:
    """Give the id of the result that closes a job; None: no job has such an id."""
    try:
        return uuid.UUID(job_id).bytes
    except ValueError:
        return None
