"""The journal on real files: one row per frame, one transaction, rotation, retention, damage, other releases."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
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
    make_older,
    occurrence,
    open_journal,
)

from inspectd.accounts import Mark
from inspectd.errors import OutsideError, StorageError
from inspectd.publish.intervals import Overlap
from inspectd.publish.journal import Journal, Loss
from inspectd.publish.retention import DAY_S, Compact, FileFacts, Limits, Rotate, Unlink, next_step
from inspectd.publish.sqlitefile import DiskFull, JournalDamaged
from inspectd.publish.storagelock import StorageLock
from inspectd.records import Code, Evaluation, Record

SMALL = Limits(max_bytes=8 * 64 * 1024)
"""A new file every 64 kB."""


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    """Python tells of a connection that nobody closed."""
    yield
    close_journals()


def fill(journal: Journal, first: int, count: int, evaluation: Evaluation = Evaluation.OK, step: int = 3) -> None:
    """Commit so many frames, a few at a time, as the writer's thread does."""
    for number in range(first, first + count, step):
        frames = range(number, min(number + step, first + count))
        records: list[Record] = [inspection(frame, evaluation) for frame in frames]
        journal.commit(records, encode, WALL_S)
        journal.housekeep(WALL_S, ages_count=True)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def execute(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


def overwrite(path: Path, offset: int) -> None:
    """Spoil everything from there on, as a dying disk does."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(7).randbytes(size - offset))


def test_what_was_committed_is_there_when_the_journal_is_opened_again(tmp_path: Path) -> None:
    """Stream, seq, counters, marks and exact bytes; a planned stop is not taken for a power cut."""
    journal, first = open_journal(tmp_path)
    assert (first.next_seq, first.new_stream, first.damaged) == (1, True, None)
    records: list[Record] = [inspection(1), inspection(2, Evaluation.NOT_OK), lost(5, 9), inspection(4, camera="side")]
    done = journal.commit(records, encode, WALL_S)
    assert [row.seq for row in done] == [1, 2, None, 3]
    journal.ack(2)
    journal.reserve("top", 300)
    journal.count(triggers_missed=2)
    journal.close(clean=True)

    again, recovered = open_journal(tmp_path, boot_id="another boot")
    assert (recovered.stream_id, recovered.next_seq, recovered.acked_seq) == (first.stream_id, 4, 2)
    assert not recovered.other_boot
    assert recovered.marks == {"top": Mark(2, ((5, 9),), 300, 0), "side": Mark(0, ((4, 4),), 0, 0)}
    assert (recovered.counters.accounted, recovered.counters.triggers_missed) == (8, 2)
    assert [row.payload for row in again.read(1, 9, 100)] == [row.payload for row in done if row.payload]
    again.close(clean=False)


def test_a_frame_that_has_its_record_gets_no_second_one(tmp_path: Path) -> None:
    """Refused before anything is written: the whole batch, so that the caller sees the error in the program."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1), lost(3, 5)], encode, WALL_S)
    refused: list[Record] = [inspection(1, salt=1), inspection(4, salt=1), lost(2, 3)]
    for again in refused:
        with pytest.raises(Overlap, match="top"):
            journal.commit([inspection(9), again], encode, WALL_S)
    journal.close(clean=True)
    assert audit(tmp_path)[1] == {("top", 1): 1, ("top", 3): 1, ("top", 4): 1, ("top", 5): 1}


def test_a_commit_that_fails_leaves_no_gap_and_no_trace(tmp_path: Path) -> None:
    """SQLite itself says that the disk is full; counters, seq and marks are those of before."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, WALL_S)
    before = journal.state
    connection = journal._files.newest._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(DiskFull):
        journal.commit([inspection(number) for number in range(2, 40)], encode, WALL_S)
    assert journal.state == before
    connection.execute("PRAGMA max_page_count = 1000000")
    assert journal.commit([inspection(2)], encode, WALL_S)[0].seq == 2
    journal.close(clean=True)
    assert audit(tmp_path)[0] == [1, 2]


def test_after_a_power_cut_numbers_that_may_have_been_given_are_told(tmp_path: Path) -> None:
    """Another boot without a planned stop; told again until a commit has come, because only that settles it."""
    journal, _ = open_journal(tmp_path)
    journal.reserve("top", 300)
    journal.commit([inspection(1)], encode, WALL_S)
    journal.close(clean=False)
    for _ in range(2):
        journal, recovered = open_journal(tmp_path, boot_id="second boot")
        assert recovered.other_boot
        assert recovered.marks["top"] == Mark(1, (), 300, 0)
        journal.close(clean=False)
    journal, _ = open_journal(tmp_path, boot_id="second boot")
    journal.commit([lost(2, 300, Code.INTERRUPTED, upper_bound=True)], encode, WALL_S)
    journal.close(clean=False)
    _, recovered = open_journal(tmp_path, boot_id="second boot")
    assert not recovered.other_boot
    assert recovered.marks["top"] == Mark(300, (), 300, 299)
    assert (recovered.counters.accounted, recovered.counters.possibly_lost) == (1, 299)


def test_a_new_file_begins_with_each_day_and_is_read_across(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    for day in range(3):
        wall_s = WALL_S + day * DAY_S
        journal.commit([inspection(2 * day + 1), inspection(2 * day + 2)], encode, wall_s)
        journal.housekeep(wall_s, ages_count=True)
    assert files(tmp_path)[:2] == ["00000001.sqlite", "00000002.sqlite"]
    assert [row.seq for row in journal.read(2, 5, 10)] == [2, 3, 4, 5]
    assert [row.seq for row in journal.read(2, 6, 3)] == [2, 3, 4]
    journal.close(clean=True)
    again, recovered = open_journal(tmp_path, now_wall_s=WALL_S + 2 * DAY_S)
    assert recovered.next_seq == 7
    assert [row.frame_id for row in again.read(1, 6, 10)] == [1, 2, 3, 4, 5, 6]


def test_a_new_file_begins_when_the_newest_is_large(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path, SMALL)
    fill(journal, 1, 300)
    assert len(list(tmp_path.glob("*.sqlite"))) >= 3
    assert [row.seq for row in journal.read(1, 300, 1000)] == list(range(1, 301))
    journal.close(clean=True)
    assert audit(tmp_path)[0] == list(range(1, 301))


def test_when_full_delivered_results_go_first_and_without_a_loss(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path, SMALL)
    for first in range(1, 1500, 50):
        fill(journal, first, 50, step=25)
        journal.ack(first + 49)
        journal.housekeep(WALL_S, ages_count=True)
    assert journal.take_loss() is None
    assert sum(path.stat().st_size for path in tmp_path.glob("*.sqlite")) < 1.3 * SMALL.max_bytes
    left = [row.seq for row in journal.read(1, 1500, 2000)]
    assert left == list(range(left[0], 1501))
    assert left[0] > 1


def test_when_full_of_unsent_results_ok_ones_go_and_each_loss_is_named(tmp_path: Path) -> None:
    """Every tenth is notOk; none of them goes while there are OK ones; what is not named is still there."""
    journal, _ = open_journal(tmp_path, SMALL)
    losses: list[Loss] = []
    for first in range(1, 2001, 20):
        kinds = [Evaluation.OK if number % 10 else Evaluation.NOT_OK for number in range(first, first + 20)]
        records = [inspection(first + place, kind) for place, kind in enumerate(kinds)]
        journal.commit(records, encode, WALL_S)
        journal.housekeep(WALL_S, ages_count=True)
        loss = journal.take_loss()
        losses += [loss] if loss else []
    named = {seq for loss in losses for first, last in loss.ranges for seq in range(first, last + 1)}
    left = {row.seq for row in journal.read(1, 2000, 3000)}
    assert named
    assert not [seq for seq in named if seq % 10 == 0]
    assert left == set(range(1, 2001)) - named
    assert sum(loss.count for loss in losses) == len(named) == journal.state.counters.results_lost
    journal.close(clean=True)


def test_a_full_disk_gives_up_one_step_at_a_time_and_never_what_is_not_ok(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path, SMALL)
    fill(journal, 1, 200, Evaluation.NOT_OK)
    for _ in range(10):
        journal.make_room(WALL_S)
    assert journal.take_loss() is None
    journal.ack(100)
    journal.make_room(WALL_S)
    left = [row.seq for row in journal.read(1, 200, 300)]
    assert left == list(range(left[0], 201))
    assert 1 < left[0] <= 101


def test_the_steps_of_retention_come_in_the_contracts_order() -> None:
    """Too old and delivered; above the limit: delivered, partly delivered, unsent OK, the newest's, the oldest."""
    day = 86_400.0
    limits = Limits(max_bytes=1000, keep_days=30)
    old, young = FileFacts(1, 1, 10, 0.0, day, 400), FileFacts(2, 11, 20, day, 40 * day, 400)
    newest = FileFacts(3, 21, 30, 40 * day, 41 * day, 150)
    assert next_step([old, young], newest, 5, 41 * day, limits, disk_full=False) is None
    assert next_step([old, young], newest, 10, 41 * day, limits, disk_full=False) == Unlink(1)
    assert next_step([old, young], newest, 10, 20 * day, limits, disk_full=False) is None
    full = Limits(max_bytes=900, keep_days=30)
    assert next_step([old, young], newest, 10, 20 * day, full, disk_full=False) == Unlink(1)
    assert next_step([old, young], newest, 5, 41 * day, full, disk_full=False) == Compact(1, drop_ok=False)
    assert next_step([old, young], newest, 0, 41 * day, full, disk_full=False) == Compact(1, drop_ok=True)
    bad = [FileFacts(n, 1, 10, 0.0, day, 400, may_have_unsent_ok=False) for n in (1, 2)]
    assert next_step(bad, newest, 0, day, full, disk_full=False) == Rotate()
    empty = FileFacts(3, 21, 20, 0.0, day, 150)
    assert next_step(bad, empty, 0, day, full, disk_full=False) == Unlink(1)
    assert next_step(bad, empty, 0, day, full, disk_full=True) is None


def test_a_dead_letter_keeps_its_payload_and_gets_a_substitute_in_its_place(tmp_path: Path) -> None:
    """Also in an older file, and after it is opened again; a second one without a substitute changes no payload."""
    journal, _ = open_journal(tmp_path)
    done = journal.commit([inspection(1), inspection(2)], encode, WALL_S)
    journal.commit([inspection(3)], encode, WALL_S + DAY_S)
    journal.dead_letter(1, "too long", b"small", WALL_S)
    journal.dead_letter(1, "that too", None, WALL_S)
    journal.close(clean=True)
    journal, _ = open_journal(tmp_path, now_wall_s=WALL_S + DAY_S)
    assert [row.payload for row in journal.read(1, 2, 9)] == [b"small", done[1].payload]
    with closing(sqlite3.connect(tmp_path / "00000001.sqlite")) as connection:
        assert connection.execute("SELECT seq, reason FROM dead_letters ORDER BY id").fetchall() == [
            (1, "too long"),
            (1, "that too"),
        ]


@pytest.mark.parametrize("offset", [0, 100, 1024, 5000])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_journal_is_set_aside_and_a_new_stream_begins(tmp_path: Path, offset: int, clean: bool) -> None:
    """Whatever is damaged, no number is used again: those of the ledger are accounted, and outside captured."""
    journal, first = open_journal(tmp_path)
    fill(journal, 1, 40)
    journal.close(clean=clean)
    overwrite(tmp_path / "00000001.sqlite", offset)
    journal, recovered = open_journal(tmp_path, boot_id="another boot", ledger_last={"top": 44})
    assert clean or recovered.new_stream
    if not recovered.new_stream:  # a planned stop is believed; the damage shows when the rows are read
        with pytest.raises(JournalDamaged) as damage:
            journal.read(1, 40, 100)
        recovered = journal.begin_anew(str(damage.value), WALL_S)
        assert recovered.marks == {"top": Mark(40, (), 0, 40)}
    else:
        assert recovered.marks == {"top": Mark(44, (), 44, 44)}
    assert recovered.damaged is not None
    assert "set aside" in recovered.damaged
    assert recovered.stream_id != first.stream_id
    assert (recovered.next_seq, recovered.acked_seq, recovered.counters.accounted) == (1, 0, 0)
    assert [name for name in files(tmp_path) if ".damaged-" in name]
    assert journal.commit([inspection(45)], encode, WALL_S)[0].seq == 1
    journal.close(clean=True)
    assert open_journal(tmp_path)[1].stream_id == recovered.stream_id


def test_an_older_file_that_is_damaged_is_set_aside_alone(tmp_path: Path) -> None:
    """The results in the other files are still sent, in the same stream; what is gone unsent is named."""
    journal, first = open_journal(tmp_path)
    for day in range(4):
        journal.commit([inspection(2 * day + 1), inspection(2 * day + 2)], encode, WALL_S + day * DAY_S)
    journal.ack(3)
    journal.close(clean=True)
    overwrite(tmp_path / "00000002.sqlite", 0)
    journal, recovered = open_journal(tmp_path, now_wall_s=WALL_S + 3 * DAY_S)
    assert (recovered.stream_id, recovered.damaged) == (first.stream_id, None)
    assert journal.take_loss() == Loss(first.stream_id, ((4, 4),), 1)
    assert [row.seq for row in journal.read(1, 8, 9)] == [1, 2, 5, 6, 7, 8]
    overwrite(tmp_path / "00000003.sqlite", 0)
    assert [row.seq for row in journal.read(1, 8, 9)] == [1, 2, 7, 8]
    assert journal.take_loss() == Loss(first.stream_id, ((5, 6),), 2)
    assert journal.state.counters.results_lost == 3


def test_files_of_a_newer_release_of_the_same_major_are_read_and_written(tmp_path: Path) -> None:
    """Added columns and counters are no obstacle to the older release that was put back."""
    journal, first = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, WALL_S)
    journal.close(clean=True)
    path = tmp_path / "00000001.sqlite"
    execute(path, "ALTER TABLE results ADD COLUMN colour TEXT")
    execute(path, "ALTER TABLE state ADD COLUMN mood TEXT DEFAULT 'good'")
    execute(path, "UPDATE state SET schema_version = '1.7', marks = '{\"top\":[1,0,0,[],\"more\"]}'")
    journal, recovered = open_journal(tmp_path)
    assert (recovered.stream_id, recovered.next_seq) == (first.stream_id, 2)
    journal.commit([inspection(2)], encode, WALL_S)
    assert [row.seq for row in journal.read(1, 9, 9)] == [1, 2]
    journal.close(clean=True)


def test_files_of_another_major_are_refused_and_left_alone(tmp_path: Path) -> None:
    """Refused with what to do, not set aside as damage: the results in them are good."""
    journal, _ = open_journal(tmp_path)
    journal.close(clean=True)
    execute(tmp_path / "00000001.sqlite", "UPDATE state SET schema_version = '2.0', software_version = '9.1.0'")
    with pytest.raises(OutsideError, match=r"inspectd 9\.1\.0 \(journal schema 2\.0\).*Install that release"):
        open_journal(tmp_path)
    assert files(tmp_path)[0] == "00000001.sqlite"


def test_a_file_that_was_not_finished_is_not_taken_for_the_newest(tmp_path: Path) -> None:
    """A crash while a new file is made leaves the row of files that was there before."""
    journal, first = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, WALL_S)
    journal.close(clean=False)
    (tmp_path / "00000002.new").write_bytes(b"half")
    (tmp_path / "00000002.new-wal").write_bytes(b"half")
    journal, recovered = open_journal(tmp_path)
    assert (recovered.stream_id, recovered.next_seq) == (first.stream_id, 2)
    journal.close(clean=True)
    assert files(tmp_path) == ["00000001.sqlite"]


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("not a folder")
    with pytest.raises(StorageError, match="journal"):
        open_journal(tmp_path / "journal")


def test_files_set_aside_go_when_they_are_old(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path, LARGE)
    aside = tmp_path / "00000000.sqlite.damaged-20260101T000000Z"
    aside.write_bytes(b"x" * 100)
    os.utime(aside, (WALL_S, WALL_S))
    journal.housekeep(WALL_S + DAY_S, ages_count=True)
    assert aside.exists()
    journal.commit([inspection(1)], encode, WALL_S)
    journal.commit([inspection(2)], encode, WALL_S + 40 * DAY_S)
    journal.housekeep(WALL_S + 40 * DAY_S, ages_count=True)
    assert not aside.exists()


def test_a_second_daemon_on_the_same_storage_path_is_told_the_firsts_pid(tmp_path: Path) -> None:
    """The lock is the kernel's: held by another process, given back when that one ends, however it ends."""
    script = (
        "import sys, pathlib; from inspectd.publish.storagelock import StorageLock;"
        "StorageLock.acquire(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(OutsideError, match=f"pid {holder.pid};"):
            StorageLock.acquire(tmp_path)
        holder.kill()
    lock = StorageLock.acquire(tmp_path)
    with pytest.raises(OutsideError, match=f"pid {os.getpid()};"):
        StorageLock.acquire(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(OutsideError, match="in use by the inspectd with pid unknown"):
        StorageLock.acquire(tmp_path)
    lock.release()
    StorageLock.acquire(tmp_path).release()


def test_the_boot_id_of_the_machine_is_noted_with_the_first_commit(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path, boot_id=BOOT_ID)
    journal.commit([], encode, WALL_S)
    journal.close(clean=False)
    assert not open_journal(tmp_path, boot_id=BOOT_ID)[1].other_boot
    assert open_journal(tmp_path, boot_id="other")[1].other_boot


def test_events_are_committed_with_their_records_and_read_back_with_the_same_bytes(tmp_path: Path) -> None:
    """Numbered without gaps over files, bytes as worded with that number; what is acknowledged is kept."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, WALL_S, [occurrence(1), occurrence(2)])
    journal.commit([inspection(2)], encode, WALL_S + DAY_S, [occurrence(3)])
    journal.keep_memo('{"raised":[]}')
    journal.ack_event(1)
    journal.ack_event(9)
    journal.close(clean=True)
    again, recovered = open_journal(tmp_path, now_wall_s=WALL_S + DAY_S)
    assert (recovered.next_event, recovered.acked_event, recovered.memo) == (4, 1, '{"raised":[]}')
    events = again.read_events(1, 10)
    assert [(event.event_seq, event.payload) for event in events] == [(n, occurrence(n).word(n)) for n in (1, 2, 3)]
    assert [event.event_seq for event in again.read_events(2, 1)] == [2]
    assert len(list(tmp_path.glob("*.sqlite"))) == 2
    assert again.read_events(4, 10) == ()


def test_a_commit_that_fails_numbers_no_event(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    journal.commit([], encode, WALL_S, [occurrence(1)])
    connection = journal._files.newest._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(DiskFull):
        journal.commit([], encode, WALL_S, [occurrence(number) for number in range(2, 40)])
    connection.execute("PRAGMA max_page_count = 1000000")
    journal.commit([], encode, WALL_S, [occurrence(2)])
    assert [event.event_seq for event in journal.read_events(1, 100)] == [1, 2]


def test_a_file_of_a_release_without_events_is_never_altered(tmp_path: Path) -> None:
    """It is read as it is; the first commit, or a planned stop without one, begins a new file beside it."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, WALL_S)
    journal.close(clean=False)
    make_older(tmp_path / "00000001.sqlite")
    before = (tmp_path / "00000001.sqlite").read_bytes()
    journal, recovered = open_journal(tmp_path)
    assert (recovered.next_seq, recovered.next_event, recovered.memo) == (2, 1, "")
    assert journal.read_events(1, 10) == ()
    journal.close(clean=True)
    assert (tmp_path / "00000001.sqlite").read_bytes() == before
    journal, recovered = open_journal(tmp_path, boot_id="another boot")
    assert not recovered.other_boot
    journal.commit([inspection(2)], encode, WALL_S, [occurrence(1)])
    assert [row.seq for row in journal.read(1, 9, 9)] == [1, 2]
    assert [event.event_seq for event in journal.read_events(1, 9)] == [1]
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_events_go_on_counting_after_an_older_release_was_put_back_for_a_while(tmp_path: Path) -> None:
    """Its files know no events; a number that was given before must not be given again."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1)], encode, WALL_S, [occurrence(1), occurrence(2)])
    journal.keep_memo("kept")
    journal.ack_event(1)
    journal.commit([inspection(2)], encode, WALL_S)
    journal.commit([inspection(3)], encode, WALL_S + DAY_S)
    journal.close(clean=True)
    make_older(tmp_path / "00000002.sqlite")
    journal, recovered = open_journal(tmp_path, now_wall_s=WALL_S + DAY_S)
    assert (recovered.next_event, recovered.acked_event, recovered.memo) == (3, 1, "kept")
    journal.commit([], encode, WALL_S + DAY_S, [occurrence(3)])
    assert [event.event_seq for event in journal.read_events(2, 9)] == [2, 3]


def test_compacting_keeps_unsent_events_and_works_without_their_table(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1), inspection(2)], encode, WALL_S, [occurrence(1), occurrence(2)])
    path = tmp_path / "00000001.sqlite"
    file = journal._files.newest
    file.compact(1, None, 1)
    assert [event.event_seq for event in file.read_events(1, 9)] == [2]
    assert [row.seq for row in file.read(1, 9, 9)] == [2]
    file.close()
    make_older(path)
    file.compact(0, Evaluation.OK)
    assert file.read(1, 9, 9) == []
    file.close()


def test_a_file_that_another_program_has_open_is_not_compacted(tmp_path: Path) -> None:
    """It would read the new file by the old one's index; and nothing half done is left."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1), inspection(2)], encode, WALL_S)
    file = journal._files.newest
    with closing(sqlite3.connect(file.path)) as other:
        other.execute("SELECT count(*) FROM results").fetchone()
        with pytest.raises(StorageError, match="another program has it open"):
            file.compact(1, None)
    assert [name for name in files(tmp_path) if ".new" in name] == []
    assert [row.seq for row in file.read(1, 9, 9)] == [1, 2]
    file.compact(1, None)
    assert [row.seq for row in file.read(1, 9, 9)] == [2]
    file.close()


def test_a_file_whose_events_are_unsent_is_not_delivered() -> None:
    """It stays when it is old; above the limit it is compacted for its results, and goes only as the oldest of all."""
    day = 86_400.0
    limits = Limits(max_bytes=1000, keep_days=30)
    old = FileFacts(1, 1, 10, 0.0, day, 400, first_event=1, last_event=5)
    newest = FileFacts(3, 21, 20, 40 * day, 41 * day, 150)
    assert next_step([old], newest, 10, 41 * day, limits, disk_full=False, acked_event=4) is None
    assert next_step([old], newest, 10, 41 * day, limits, disk_full=False, acked_event=5) == Unlink(1)
    full = Limits(max_bytes=500, keep_days=30)
    assert next_step([old], newest, 10, day, full, disk_full=False, acked_event=4) == Compact(1, drop_ok=False)
    left = FileFacts(1, 11, 10, 0.0, day, 400, first_event=5, last_event=5)
    assert next_step([left], newest, 10, day, full, disk_full=False, acked_event=4) == Unlink(1)
    assert next_step([left], newest, 10, day, full, disk_full=True, acked_event=4) is None


def test_events_that_had_to_be_given_up_are_counted(tmp_path: Path) -> None:
    """What is left is what is not counted."""
    journal, _ = open_journal(tmp_path, SMALL)
    lost_events = 0
    for number in range(1, 601):
        kind = Evaluation.NOT_OK  # no unsent OK ones that could go before
        journal.commit([inspection(number, kind)], encode, WALL_S, [occurrence(number)])
        journal.housekeep(WALL_S, ages_count=True)
        journal.take_loss()
        lost_events += journal.take_lost_events()
    left = [event.event_seq for event in journal.read_events(1, 1000)]
    assert lost_events
    assert left == list(range(lost_events + 1, 601))
    assert journal.state.counters.events_lost == lost_events


def test_a_new_stream_gives_no_event_number_again_and_keeps_the_alarms(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    journal.keep_memo("raised")
    journal.commit([inspection(1)], encode, WALL_S, [occurrence(1), occurrence(2)])
    recovered = journal.begin_anew("damage", WALL_S)
    assert (recovered.next_event, recovered.acked_event, recovered.memo) == (3, 2, "raised")
    journal.commit([], encode, WALL_S, [occurrence(3)])
    assert [event.event_seq for event in journal.read_events(1, 9)] == [3]
    journal.close(clean=True)
    assert event_seqs(tmp_path) == [3]
    assert open_journal(tmp_path)[1].memo == "raised"


def test_a_result_is_found_by_its_id_in_any_file(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    for day in range(3):
        journal.commit([inspection(day + 1)], encode, WALL_S + day * DAY_S)
    for number in (1, 2, 3):
        found = journal.find(inspection(number).result_id)
        assert found is not None
        assert (found.seq, found.frame_id) == (number, number)
    assert journal.find(b"0" * 16) is None


def test_counters_begin_anew_with_the_next_commit_and_keep_that_over_a_restart(tmp_path: Path) -> None:
    """What has its row is outside captured from then on; the records of that commit are counted already."""
    journal, _ = open_journal(tmp_path)
    journal.commit([inspection(1), lost(2, 4)], encode, WALL_S)
    journal.reset_counters(WALL_S + 60)
    journal.commit([inspection(5), inspection(7)], encode, WALL_S + 60)
    journal.close(clean=True)
    _, recovered = open_journal(tmp_path)
    assert (recovered.counters.accounted, recovered.counters.since_wall_s) == (2, WALL_S + 60)
    assert recovered.marks["top"] == Mark(5, ((7, 7),), 0, 4)
