"""The writer's thread on a real disk: kill -9 at any moment, a disk that refuses, damage while running, a stop."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import resource
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.journaling import (
    BOOT_ID,
    LARGE,
    WALL_S,
    audit,
    close_journals,
    encode,
    event_seqs,
    inspection,
    lost,
    open_journal,
)

from inspectd.accounts import Accounts
from inspectd.errors import StorageError
from inspectd.publish.announcer import Announcer, Wording
from inspectd.publish.counters import Counters
from inspectd.publish.effects import Row
from inspectd.publish.events import Event, EventName
from inspectd.publish.intervals import IntervalSet, Overlap
from inspectd.publish.journal import Committed, Encode, Loss, Recovered
from inspectd.publish.retention import Limits
from inspectd.publish.ring import Ring
from inspectd.publish.writer import Writer
from inspectd.publish.writerport import EVENTS_MAX, Commit, CountersReset
from inspectd.records import Code, Evaluation, Inspection, LostRun

CRASHER = """
import asyncio, os, random, sys
from pathlib import Path
from tests.journaling import BOOT_ID, encode, inspection, lost, open_journal
from inspectd.publish.retention import Limits
from inspectd.publish.writer import Writer
from inspectd.publish.events import Event, EventName
from inspectd.records import Code

class Listener:
    def __init__(self): self.gate = asyncio.Event()
    def on_commit(self, commit):
        for row in commit.rows:
            record = row.record
            first = record.frame_id if row.seq else record.from_frame_id
            last = record.frame_id if row.seq else record.to_frame_id
            os.write(1, f"{record.camera} {first} {last} {row.seq or 0}\\n".encode())
        self.gate.set()
    def on_events(self, last_event): os.write(1, f"event 0 0 {last_event}\\n".encode())
    def on_trouble(self, reason): os.write(2, f"trouble {reason}\\n".encode())
    on_counters_reset = lambda self, reset: None
    on_uncommitted = on_loss = on_new_stream = on_failure = on_trouble

async def main(folder, seed):
    chance = random.Random(seed)
    journal, recovered = open_journal(folder, Limits(max_bytes=1 << 30, file_max_bytes=48 * 1024))
    records = []
    for camera, mark in recovered.marks.items():  # what main does at start: every hole below the highest gets 302
        records += [lost(a, b, Code.INTERRUPTED, camera) for a, b in mark.missing(mark.highest)]
    journal.commit(records, encode, 1_796_000_000.0)
    nexts = {camera: mark.highest + 1 for camera, mark in recovered.marks.items()} or {"top": 1, "side": 1}
    listener = Listener()
    loop = asyncio.get_running_loop()
    writer = Writer(journal, lambda stream_id: encode, listener, loop, wall=lambda: 1_796_000_000.0, boot_id=BOOT_ID)
    writer.start()
    while True:
        listener.gate.clear()
        for camera in nexts:
            window = list(range(nexts[camera], nexts[camera] + 6))
            nexts[camera] += 8
            chance.shuffle(window)
            for number in window:
                writer.submit(inspection(number, camera=camera), urgent=chance.random() < 0.1)
            writer.submit(lost(nexts[camera] - 2, nexts[camera] - 1, camera=camera))
            writer.reserve(camera, nexts[camera] + 100)
            for _ in range(chance.randrange(3)):
                writer.event(Event(EventName.TRIGGER_MISSED, camera, 300, {"next": nexts[camera]}))
        writer.ack(writer.stream_id, chance.randrange(1, 50))
        await listener.gate.wait()

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    """Python tells of a connection that nobody closed."""
    yield
    close_journals()


@dataclass
class Recorder:
    """Everything that the writer told, and a way to wait for it."""

    commits: list[Commit] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    resets: list[CountersReset] = field(default_factory=list)
    uncommitted: list[Inspection] = field(default_factory=list)
    troubles: list[str | None] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    streams: list[Recovered] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def rows(self) -> list[Committed]:
        return [row for commit in self.commits for row in commit.rows]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.told.clear()
                await self.told.wait()

    def on_commit(self, commit: Commit) -> None:
        self.commits.append(commit)
        self.told.set()

    def on_events(self, last_event: int) -> None:
        self.events.append(last_event)
        self.told.set()

    def on_counters_reset(self, reset: CountersReset) -> None:
        self.resets.append(reset)
        self.told.set()

    def on_uncommitted(self, records: tuple[Inspection, ...]) -> None:
        self.uncommitted += records
        self.told.set()

    def on_trouble(self, reason: str | None) -> None:
        self.troubles.append(reason)
        self.told.set()

    def on_loss(self, loss: Loss) -> None:
        self.losses.append(loss)
        self.told.set()

    def on_new_stream(self, recovered: Recovered) -> None:
        self.streams.append(recovered)
        self.told.set()

    def on_failure(self, error: Exception) -> None:
        self.failures.append(error)
        self.told.set()


def start(
    folder: Path, limits: Limits = LARGE, encoder: Callable[[str], Encode] = lambda _: encode, ring: Ring | None = None
) -> tuple[Writer, Recorder]:
    journal, _ = open_journal(folder, limits)
    recorder = Recorder()
    writer = Writer(journal, encoder, recorder, asyncio.get_running_loop(), ring=ring, retry_s=0.02, boot_id=BOOT_ID)
    writer.start()
    return writer, recorder


@contextmanager
def full_disk(writer: Writer) -> Iterator[Callable[[], None]]:
    """Let SQLite find the disk full, until the function that is given is called."""
    connection = writer._journal._files.newest._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")

    def mend() -> None:
        connection.execute("PRAGMA max_page_count = 4294967294")

    try:
        yield mend
    finally:
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            mend()


def kill_while_writing(folder: Path, seed: int) -> list[tuple[str, int, int, int]]:
    """Start the writing process, kill it after a random number of lines; give what it had said to be committed."""
    chance = random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", CRASHER, str(folder), str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = list(itertools.islice(process.stdout, chance.randrange(1, 700)))
        threading.Event().wait(chance.random() * 0.03)  # any moment of a commit, not only its end
        process.kill()
        lines += process.stdout.readlines()
        assert process.stderr.read() == b""
    said = []
    for line in lines:
        camera, first, last, seq = line.decode("ascii").split()
        said.append((camera, int(first), int(last), int(seq)))
    return said


def test_after_kill_9_at_any_moment_each_committed_record_is_there_exactly_once(tmp_path: Path) -> None:
    """Six rounds on one journal whose files rotate all the time: rows, counters, marks and seqs agree after each."""
    said: list[tuple[str, int, int, int]] = []
    for seed in range(6):
        said += kill_while_writing(tmp_path, seed)
        journal, recovered = open_journal(tmp_path)
        journal.close(clean=False)
        seqs, frames, evaluations = audit(tmp_path)
        assert (recovered.new_stream, recovered.damaged) == (False, None)
        assert seqs == list(range(1, recovered.next_seq))
        assert set(frames.values()) == {1}
        counters = recovered.counters
        assert counters.accounted == sum(frames.values()) == evaluations.total()
        assert (counters.ok, counters.undefined) == (evaluations[1], evaluations[0])
        for camera, mark in recovered.marks.items():
            numbers = IntervalSet(mark.accounted_to, mark.above)
            assert sorted(number for name, number in frames if name == camera) == [
                number for first, last in numbers.spans for number in range(first, last + 1)
            ]
            assert mark.reserved_to >= mark.highest
        assert event_seqs(tmp_path) == list(range(1, recovered.next_event))
        assert max((number for kind, *_, number in said if kind == "event"), default=0) < recovered.next_event
        for camera, first, last, _ in said:
            assert camera == "event" or all(frames[camera, number] == 1 for number in range(first, last + 1))
        assert {seq for camera, *_, seq in said if seq and camera != "event"} <= set(seqs)
    assert len(list(tmp_path.glob("*.sqlite"))) > 8


async def test_records_are_committed_in_the_order_they_came_and_read_back_with_the_same_bytes(tmp_path: Path) -> None:
    writer, recorder = start(tmp_path)
    for number in range(1, 51):
        writer.submit(inspection(number, Evaluation(number % 4)))
    writer.submit(lost(51, 60))
    await recorder.until(lambda: len(recorder.rows) == 51)
    assert [row.seq for row in recorder.rows] == [*range(1, 51), None]
    assert recorder.commits[-1].counters.accounted == 60
    assert recorder.commits[-1].next_seq == 51
    read = await writer.read(1, 50, 100)
    assert [(row.seq, row.payload) for row in read] == [(row.seq, row.payload) for row in recorder.rows[:-1]]
    assert writer.pending_since(0.0) is None
    assert await writer.close(5)
    assert open_journal(tmp_path)[1].next_seq == 51


async def test_continuous_records_gather_and_an_urgent_one_does_not_wait(tmp_path: Path) -> None:
    """The clock stands still, so the 25 ms never end: what comes after the first commit waits for an urgent record."""
    journal, _ = open_journal(tmp_path)
    recorder = Recorder()
    writer = Writer(
        journal, lambda _: encode, recorder, asyncio.get_running_loop(), clock=lambda: 1000.0, boot_id=BOOT_ID
    )
    writer.start()
    writer.submit(inspection(1))
    await recorder.until(lambda: len(recorder.rows) == 1)
    for number in (2, 3, 4):
        writer.submit(inspection(number))
    await writer.read(1, 1, 1)
    assert len(recorder.commits) == 1
    assert writer.pending_since(1000.5) == 0.5
    writer.submit(inspection(5), urgent=True)
    await recorder.until(lambda: len(recorder.rows) == 5)
    assert [len(commit.rows) for commit in recorder.commits] == [1, 4]
    assert await writer.close(5)


async def test_an_acknowledgement_alone_is_written_within_a_second(tmp_path: Path) -> None:
    writer, recorder = start(tmp_path)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    writer.ack(writer.stream_id, 1)
    writer.reserve("top", 400)
    writer.count(verdicts_expired=3)
    await recorder.until(lambda: len(recorder.commits) == 2)
    with closing(sqlite3.connect(tmp_path / "00000001.sqlite")) as connection:
        acked_seq, marks = connection.execute("SELECT acked_seq, marks FROM state").fetchone()
    assert (acked_seq, marks) == (1, '{"top":[1,400,0,[]]}')
    assert recorder.commits[-1].counters.verdicts_expired == 3
    assert await writer.close(5)


async def test_a_number_that_was_handed_over_is_refused_at_once(tmp_path: Path) -> None:
    """In the caller's own stack, so that the error in the program is found where it is; also for an earlier run's."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, 0.0)
    journal.close(clean=True)
    writer, recorder = start(tmp_path)
    writer.submit(inspection(2))
    for record in (inspection(1), inspection(2), lost(2, 4)):
        with pytest.raises(Overlap):
            writer.submit(record)
    assert await writer.close(5)
    assert [row.record for row in recorder.rows] == [inspection(2)]


async def test_on_a_full_disk_each_result_is_told_as_700_once_and_its_row_says_so_too(tmp_path: Path) -> None:
    """Trouble is told once when it begins and once when it ends; the counters, seqs and numbers have no gap."""
    writer, recorder = start(tmp_path)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    with full_disk(writer) as mend:
        for number in range(2, 40):
            writer.submit(inspection(number))
        await recorder.until(lambda: len(recorder.uncommitted) == 38)
        writer.submit(inspection(40))
        await recorder.until(lambda: len(recorder.uncommitted) == 39)
        assert [record.frame_id for record in recorder.uncommitted] == list(range(2, 41))
        assert {record.decision.code for record in recorder.uncommitted} == {Code.NOT_COMMITTED}
        assert len(recorder.rows) == 1
        mend()
        await recorder.until(lambda: len(recorder.rows) == 40)
    assert [reason is None for reason in recorder.troubles] == [False, True]
    assert [row.record for row in recorder.rows[1:]] == recorder.uncommitted
    assert [row.seq for row in recorder.rows] == list(range(1, 41))
    assert recorder.commits[-1].counters.by_code == {0: 1, 700: 39}
    assert len(recorder.uncommitted) == 39
    assert await writer.close(5)


async def test_beyond_the_ring_records_become_runs_and_the_sum_stays_exact(tmp_path: Path) -> None:
    writer, recorder = start(tmp_path, ring=Ring(10))
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    with full_disk(writer) as mend:
        for number in range(2, 41):
            writer.submit(inspection(number))
        await recorder.until(lambda: len(recorder.uncommitted) == 39)
        mend()
        await recorder.until(lambda: recorder.commits[-1].counters.accounted == 40)
    runs = [row.record for row in recorder.rows if isinstance(row.record, LostRun)]
    assert [(run.from_frame_id, run.to_frame_id, run.code) for run in runs] == [(12, 40, Code.NOT_COMMITTED)]
    assert sorted(record.frame_id for record in recorder.uncommitted) == list(range(2, 41))
    assert await writer.close(5)
    assert audit(tmp_path)[1] == {("top", number): 1 for number in range(1, 41)}


async def test_a_disk_that_refuses_to_write_is_tried_again_until_it_does_not(tmp_path: Path) -> None:
    """The kernel itself refuses (RLIMIT_FSIZE): not full, an I/O error. Nothing is there twice afterwards."""
    writer, recorder = start(tmp_path)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "00000001.sqlite-wal").stat().st_size, hard))
    try:
        writer.submit(inspection(2))
        await recorder.until(lambda: recorder.uncommitted)
        assert "disk I/O error" in str(recorder.troubles[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await recorder.until(lambda: recorder.troubles[-1] is None)
    assert await writer.close(5)
    seqs, frames, _ = audit(tmp_path)
    assert (seqs, frames) == ([1, 2], {("top", 1): 1, ("top", 2): 1})


async def test_a_stop_on_a_disk_that_refuses_ends_at_its_deadline_and_is_not_clean(tmp_path: Path) -> None:
    """Whoever opens the journal next finds the numbers without a record, and takes them for lost."""
    writer, recorder = start(tmp_path)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    with full_disk(writer):
        for number in range(2, 40):
            writer.submit(inspection(number))
        await recorder.until(lambda: recorder.uncommitted)
        assert not await writer.close(0.05)
        writer._thread.join(10)
        assert not writer._thread.is_alive()
    _, recovered = open_journal(tmp_path, boot_id="another boot")
    assert (recovered.next_seq, recovered.other_boot) == (2, True)


async def test_damage_while_running_begins_a_new_stream_and_no_record_is_lost_or_doubled(tmp_path: Path) -> None:
    """Found by a read; records go on into the new stream, encoded for it; requests for the old one are refused."""
    streams: list[str] = []

    def encoder(stream_id: str) -> Encode:
        streams.append(stream_id)
        return lambda record, seq: stream_id.encode("ascii") + encode(record, seq)

    writer, recorder = start(tmp_path, encoder=encoder)
    for number in range(1, 101):
        writer.submit(inspection(number))
    await recorder.until(lambda: len(recorder.rows) == 100)
    path = tmp_path / "00000001.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(1024)
        file.write(random.Random(3).randbytes(path.stat().st_size - 1024))
    writer.submit(inspection(101))
    writer.ack(writer.stream_id, 50)
    with pytest.raises(StorageError):
        await writer.read(1, 100, 100)
    writer.ack(writer.stream_id, 50)
    await recorder.until(lambda: len(recorder.rows) == 101)
    writer.submit(inspection(102))
    await recorder.until(lambda: len(recorder.rows) == 102)
    (recovered,) = recorder.streams
    assert recovered.damaged is not None
    assert streams == [streams[0], recovered.stream_id] == [streams[0], writer.stream_id]
    last = recorder.rows[-1]
    assert last.payload is not None
    assert last.payload.startswith(recovered.stream_id.encode("ascii"))
    assert recorder.commits[-1].next_seq - 1 == recorder.commits[-1].counters.accounted
    assert recorder.failures == []
    assert await writer.close(5)
    again = open_journal(tmp_path)[1]
    assert again.marks["top"].accounted_to == 102
    assert again.acked_seq == 0
    assert again.marks["top"].excluded + again.counters.accounted == 102


async def test_an_error_in_the_program_ends_the_thread_and_is_told(tmp_path: Path) -> None:
    """A result that cannot be worded must not be dropped in silence, nor be tried for ever: the daemon has to end."""

    def broken(record: Inspection, seq: int) -> bytes:
        raise TypeError(f"cannot word {record.frame_id} as {seq}")

    writer, recorder = start(tmp_path, encoder=lambda _: broken)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.failures)
    assert "cannot word 1 as 1" in str(recorder.failures[0])
    assert not await writer.close(5)
    with pytest.raises(StorageError, match="closed"):
        await writer.read(1, 1, 1)


async def test_losses_of_a_full_journal_are_told_with_their_seqs(tmp_path: Path) -> None:
    writer, recorder = start(tmp_path, Limits(max_bytes=256 * 1024))
    for number in range(1, 801):
        writer.submit(inspection(number))
    await recorder.until(lambda: len(recorder.rows) == 800)
    for number in range(801, 811):
        writer.submit(inspection(number), urgent=True)
    await recorder.until(lambda: len(recorder.rows) == 810)
    left = {row.seq for row in await writer.read(1, 810, 1000)}
    named = {seq for loss in recorder.losses for first, last in loss.ranges for seq in range(first, last + 1)}
    assert named
    assert left == set(range(1, 811)) - named
    assert await writer.close(5)


def missed(number: int) -> Event:
    """Make an event that needs pages of its own."""
    return Event(EventName.TRIGGER_MISSED, "top", 300, {"why": "x" * 3000, "number": number})


async def test_events_and_alarms_are_on_the_disk_at_once_and_told_after_it(tmp_path: Path) -> None:
    """The clock stands still: nothing that may wait is committed. Direct events and nonsense are refused at once."""
    journal, _ = open_journal(tmp_path)
    recorder = Recorder()
    loop = asyncio.get_running_loop()
    writer = Writer(journal, lambda _: encode, recorder, loop, boot_id="boot", clock=lambda: 1000.0)
    writer.start()
    writer.event(missed(1))
    await recorder.until(lambda: recorder.events == [1])
    writer.event(missed(2))
    writer.event(missed(3))
    await recorder.until(lambda: recorder.events[-1] == 3)
    writer.ack_event(2)
    writer.keep_memo("raised")
    await recorder.until(lambda: journal.state.memo == "raised")
    with pytest.raises(ValueError, match="not a durable event"):
        writer.event(Event(EventName.STATE_CHANGED, "station", 100))
    with pytest.raises(ValueError, match="JSON"):
        writer.event(Event(EventName.TRIGGER_MISSED, "top", 300, {"number": float("nan")}))
    events = await writer.read_events(1, 10)
    assert [event.event_seq for event in events] == [1, 2, 3]
    assert b'"bootId":"boot"' in events[0].payload
    assert await writer.close(5)
    _, recovered = open_journal(tmp_path)
    assert (recovered.next_event, recovered.acked_event, recovered.memo) == (4, 2, "raised")


async def test_events_that_wait_for_the_disk_are_bounded_and_the_oldest_are_counted_as_lost(tmp_path: Path) -> None:
    """What is not lost is numbered without a gap, and comes in the order in which it happened."""
    writer, recorder = start(tmp_path)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    with full_disk(writer) as mend:
        for number in range(EVENTS_MAX):
            writer.event(missed(number))
        await recorder.until(lambda: recorder.troubles)
        for number in range(EVENTS_MAX, EVENTS_MAX + 50):
            writer.event(missed(number))
        mend()
        await recorder.until(lambda: recorder.events and recorder.events[-1] == EVENTS_MAX)
    events = await writer.read_events(1, 2 * EVENTS_MAX)
    assert [event.event_seq for event in events] == list(range(1, EVENTS_MAX + 1))
    assert b'"number":50}' in events[0].payload
    assert await writer.close(5)
    assert open_journal(tmp_path)[1].counters.events_lost == 50


async def test_a_result_is_found_by_its_id_and_by_its_jobs(tmp_path: Path) -> None:
    writer, recorder = start(tmp_path)
    writer.submit(inspection(7))
    await recorder.until(lambda: recorder.rows)
    result_id = inspection(7).result_id
    by_id = await writer.find(result_id=result_id)
    by_job = await writer.find(job_id=str(uuid.UUID(bytes=result_id)))
    assert by_id is not None
    assert by_id == by_job
    assert by_id.frame_id == 7
    assert await writer.find(job_id="no job of ours") is None
    assert await writer.find(result_id=bytes(16)) is None
    with pytest.raises(ValueError, match="result_id or job_id"):
        await writer.find()
    assert await writer.close(5)


class Wire:
    """A publisher that nobody listens to."""

    def committed(self, rows: Iterable[Row]) -> None:
        """Nobody listens."""

    def verdict(self, payload: bytes, expires_s: float) -> None:
        """Nobody listens."""

    def retain(self, leaf: str, payload: bytes, qos: int) -> None:
        """Nobody listens."""


class Sums(Announcer):
    """The real announcer, audited after everything that it hears."""

    def __init__(self, accounts: Accounts) -> None:
        wording = Wording(None, lambda record, seq: b"%d %d" % (record.frame_id, seq))
        super().__init__(Wire, {"top": accounts}, Counters(0.0), wording, lambda: 0.0)
        self.accounts, self.checks, self.resets = accounts, 0, 0

    def check(self) -> None:
        last = self.accounts.seen
        assert self.accounts.captured(last) == self.counters.accounted + self.accounts.in_flight(last)
        self.checks += 1

    def on_commit(self, commit: Commit) -> None:
        super().on_commit(commit)
        self.check()

    def on_counters_reset(self, reset: CountersReset) -> None:
        super().on_counters_reset(reset)
        self.resets += 1
        self.check()


async def test_the_sum_of_the_counters_is_exact_while_they_begin_anew(tmp_path: Path) -> None:
    """Frames are in flight all the time: they are captured, and counted, in the period in which they get their row."""
    journal, _ = open_journal(tmp_path)
    accounts = Accounts(0)
    sums = Sums(accounts)
    writer = Writer(journal, lambda _: encode, sums, asyncio.get_running_loop(), wall=lambda: WALL_S, boot_id=BOOT_ID)
    writer.start()
    resets: list[asyncio.Future[Counters]] = []
    number = 0
    for turn in range(63):  # the last reset is in turn 59
        for _ in range(10):
            number += 1
            accounts.announce(number)
            if number > 5:
                accounts.record(number - 5)
                writer.submit(inspection(number - 5))
        sums.check()
        writer.count(triggers_missed=1)
        if turn % 7 == 3:
            resets.append(writer.reset_counters())
        if turn % 3 == 0:
            await asyncio.sleep(0)
        if turn % 14 == 3:
            begun = await resets[-1]
            assert begun.since_wall_s == WALL_S
            sums.check()
    async with asyncio.timeout(20):
        await asyncio.gather(*resets)
    assert await writer.close(5)
    assert sums.resets
    assert accounts.in_flight(number) == 5
    assert sums.counters.triggers_missed == 3, "what was counted before a reset belongs to the period that has ended"
    _, recovered = open_journal(tmp_path)
    assert recovered.counters.accounted + recovered.marks["top"].excluded == number - 5


async def test_a_reset_that_cannot_be_written_is_told_when_it_is(tmp_path: Path) -> None:
    """Until then the old counters stand, on the disk and in the loop; at the end nobody is left waiting."""
    writer, recorder = start(tmp_path)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    with full_disk(writer) as mend:
        for number in range(2, 40):
            writer.submit(inspection(number))
        await recorder.until(lambda: recorder.troubles)
        reset = writer.reset_counters()
        await writer.read(1, 1, 1)
        assert not reset.done()
        assert recorder.resets == []
        mend()
        await reset
    assert recorder.resets[0].excluded == {"top": 1}
    assert recorder.commits[-1].counters.accounted == 38
    assert await writer.close(5)
    with pytest.raises(StorageError, match="closed"):
        await writer.reset_counters()
