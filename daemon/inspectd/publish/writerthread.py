"""The writer's thread: gathers what waits, commits it, tries again. Alone touches the journal; tells the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from inspectd.errors import StorageError
from inspectd.publish.counters import Counters
from inspectd.publish.journal import Encode, Journal, Recovered
from inspectd.publish.sqlitefile import DiskFull, JournalDamaged
from inspectd.publish.writerport import Commit, CountersReset, Listener, Notes, Request, Shared

COMMIT_INTERVAL_S = 0.025
"""A result in a commit of its own writes twice as much to the disk as at 120/s this way."""
NOTES_S = 1.0
"""An acknowledgement or a reservation waits so long for a commit that takes it along."""
BATCH_RECORDS = 512
"""More in one transaction would make the next records wait for long after an outage of the disk."""
BATCH_EVENTS = 100

_log = logging.getLogger(__name__)


class WriterThread:
    """The body of the thread."""

    def __init__(
        self,
        shared: Shared,
        journal: Journal,
        encoder: Callable[[str], Encode],
        listener: Listener,
        new_stream: Callable[[Recovered], None],
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        wall: Callable[[], float],
        retry_s: float,
    ) -> None:
        self._shared = shared
        self._journal = journal
        self._encoder = encoder
        self._encode = encoder(journal.state.stream_id)
        self._listener = listener
        self._new_stream = new_stream
        self._loop = loop
        self._clock = clock
        self._wall = wall
        self._retry_s = retry_s
        self._next_commit_s = 0.0
        self._in_trouble = False
        self._resets: list[asyncio.Future[Counters]] = []
        """For a reset that is not on the disk yet."""

    def run(self, ended: asyncio.Future[bool]) -> None:
        """Work until closed or abandoned; `ended` gets whether everything is on the disk."""
        complete: bool | None = None
        try:
            while complete is None:
                complete = self._turn()
        except Exception as error:
            _log.exception("the journal's writer has failed")
            self._tell(self._listener.on_failure, error)
        finally:
            with self._shared.changed:
                self._shared.ended = True
                left = tuple(self._shared.requests)
                self._shared.requests.clear()
                resets = [*self._resets, *self._shared.notes.resets]
            for future in (*(request.future for request in left), *resets):
                self._tell(_settle, future, None, StorageError("the journal is closed"))
            self._tell(_settle, ended, bool(complete), None)

    def _turn(self) -> bool | None:
        """Wait for something to do, and do it. Gives whether everything is on the disk, once it is the end."""
        shared = self._shared
        with shared.changed:
            while not shared.requests and not shared.abandoned and (wait_s := self._commit_wait_s()) != 0:
                shared.changed.wait(wait_s)
            requests = tuple(shared.requests)
            shared.requests.clear()
            commit_due = self._commit_wait_s() == 0
            abandoned, closing, clean = shared.abandoned, shared.closing, shared.clean
        for request in requests:
            self._serve(request)
        if abandoned:
            self._journal.close(clean=False)
            return False
        if commit_due:
            self._commit()
            self._housekeep()
        self._tell_loss()
        with shared.changed:
            waiting = len(shared.ring) or shared.events or shared.requests or shared.notes.urgent
            idle = not self._in_trouble and not waiting
        return self._close(clean=clean) if closing and idle else None

    def _commit_wait_s(self) -> float | None:
        """Give how long the next commit has time; None: there is nothing to commit. Called under the lock."""
        shared, now = self._shared, self._clock()
        if self._in_trouble:
            return max(0.0, self._next_commit_s - now)
        if shared.closing or shared.events or shared.notes.urgent or (shared.urgent and len(shared.ring)):
            return 0.0
        due_s = [self._next_commit_s] if len(shared.ring) else []
        if shared.notes.since_s is not None:
            due_s.append(shared.notes.since_s + NOTES_S)
        return max(0.0, min(due_s) - now) if due_s else None

    def _commit(self) -> None:
        """Commit the oldest records and events, and everything noted."""
        shared, started_s = self._shared, self._clock()
        self._next_commit_s = started_s + COMMIT_INTERVAL_S
        with shared.changed:
            batch = shared.ring.batch(BATCH_RECORDS)
            shared.committing = len(batch)
            events = shared.take_events(BATCH_EVENTS)
            notes, shared.notes, shared.urgent = shared.notes, Notes(), False
        self._take(notes)
        before = self._journal.state
        try:
            rows = self._journal.commit(batch, self._encode, self._wall(), events)
        except StorageError as error:
            with shared.changed:
                shared.committing = 0
                shared.give_back_events(events)
            if isinstance(error, JournalDamaged):
                self._begin_anew(error)
            else:
                self._failed(error)
            return
        commit_s = self._clock() - started_s
        with shared.changed:
            shared.committing = 0
            shared.ring.done(len(batch))
        if self._in_trouble:
            self._in_trouble = False
            _log.warning("the journal is written again")
            self._tell(self._listener.on_trouble, None)
        if self._resets:
            excluded = {name: marks.excluded for name, marks in before.marks.items()}
            self._tell(self._listener.on_counters_reset, CountersReset(before.counters, excluded))
        state = self._journal.state
        self._tell(self._listener.on_commit, Commit(rows, state.counters, state.next_seq, commit_s))
        if events:
            self._tell(self._listener.on_events, state.next_event - 1)
        for future in self._resets:
            self._tell(_settle, future, before.counters, None)
        self._resets.clear()

    def _take(self, notes: Notes) -> None:
        """Note in the journal's state; from there it goes to the disk with the first commit that succeeds."""
        if notes.acked and notes.acked[0] == self._journal.state.stream_id:
            self._journal.ack(notes.acked[1])
        self._journal.ack_event(notes.acked_event)
        for camera, to in notes.reserved.items():
            self._journal.reserve(camera, to)
        if notes.memo is not None:
            self._journal.keep_memo(notes.memo)
        if notes.resets:
            self._resets += notes.resets
            self._journal.reset_counters(self._wall())
        self._journal.count(**asdict(notes.counts))

    def _failed(self, error: StorageError) -> None:
        """Nothing was written: what waits becomes 700, and is tried again after a while."""
        self._next_commit_s = self._clock() + self._retry_s
        with self._shared.changed:
            turned = self._shared.ring.tried_in_vain(str(error))
        if not self._in_trouble:
            self._in_trouble = True
            _log.error("the journal cannot be written: %s", error)
            self._tell(self._listener.on_trouble, str(error))
        if turned:
            self._tell(self._listener.on_uncommitted, turned)
        if isinstance(error, DiskFull):
            with suppress(StorageError):  # no room even for that: again after the next commit that fails
                self._journal.make_room(self._wall())

    def _begin_anew(self, error: JournalDamaged) -> None:
        """Set the files aside; the records still wait, and go into the new stream."""
        try:
            recovered = self._journal.begin_anew(str(error), self._wall())
        except StorageError as again:
            self._failed(again)
            return
        _log.error("%s", recovered.damaged)
        self._encode = self._encoder(recovered.stream_id)
        self._tell(self._new_stream, recovered)

    def _housekeep(self) -> None:
        try:
            self._journal.housekeep(self._wall(), ages_count=self._shared.ages_count)
        except JournalDamaged as error:
            self._begin_anew(error)
        except StorageError as error:
            _log.debug("nothing is lost, only later: %s", error)

    def _tell_loss(self) -> None:
        loss = self._journal.take_loss()
        if loss is not None:
            _log.error("%d results were given up unsent: seq %s", loss.count, loss.ranges)
            self._tell(self._listener.on_loss, loss)
        events = self._journal.take_lost_events()
        if events:
            _log.warning("%d events were given up unsent", events)
        if loss is not None or events:
            with self._shared.changed:
                self._shared.notes.since_s = self._shared.notes.since_s or self._clock()

    def _serve(self, request: Request) -> None:
        if request.stream_id != self._journal.state.stream_id:
            self._tell(_settle, request.future, None, StorageError(f"stream {request.stream_id} was set aside"))
            return
        try:
            answer = request.call()
        except StorageError as error:
            if isinstance(error, JournalDamaged):
                self._begin_anew(error)
            self._tell(_settle, request.future, None, error)
        else:
            self._tell(_settle, request.future, answer, None)

    def _close(self, *, clean: bool) -> bool | None:
        try:
            self._journal.close(clean=clean)
        except StorageError as error:
            self._failed(error)
            return None
        return True

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(callback, *arguments)


def _settle(future: asyncio.Future[Any], answer: object, problem: StorageError | None) -> None:
    if future.done():
        return
    if problem is None:
        future.set_result(answer)
    else:
        future.set_exception(problem)
