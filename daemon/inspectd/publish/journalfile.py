"""One file of the journal: schema, rows, state. One thread at a time; every call may wait for the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from inspectd.errors import StorageError
from inspectd.publish.journalrows import (
    INSERT_EVENT,
    INSERT_RESULT,
    INSERT_RUN,
    INSERT_STATE,
    SCHEMA,
    SELECT_RESULT,
    UPDATE_STATE,
    EventRow,
    Head,
    ResultRow,
    RunRow,
    StoredEvent,
    StoredResult,
    compressed,
    head_of,
    stored_results,
    values_of,
)
from inspectd.publish.journalstate import SCHEMA_VERSION, JournalState
from inspectd.publish.sqlitefile import JournalDamaged, connect, discard, log_of, mapped, put_in_place, sync_folder
from inspectd.records import Evaluation

PAGE_BYTES = 1024
"""Each commit writes whole pages of rows, index and state. Measured at 120/s with three results of 0.8 kB (compressed)
a commit, checkpoints included, with a bare table: 5.4 kB written per result with pages of 1024, 7.0 with 2048, 9.8 with
4096. All of the journal with 1024: 6.2 (tests/bench/bench_journal.py)."""
LOG_MAX_FRAMES = 16_000
"""Should `checkpoint_if_due` not be called, or estimate too little."""


def create(path: Path, state: JournalState, now_wall_s: float) -> None:
    """Make the file whole under another name, then give it its own: a crash leaves the old row of files, or the new.

    The caller takes it for the newest from here on, whatever happens, and makes the name durable by syncing the folder.
    """
    unfinished = path.with_suffix(".new")
    with mapped(path):
        discard(unfinished)
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {SCHEMA}")
            connection.execute(
                INSERT_STATE, (SCHEMA_VERSION, state.next_seq, state.next_event, now_wall_s, *values_of(state))
            )
            connection.execute("COMMIT")
        put_in_place(unfinished, path)


class JournalFile:
    """An existing file. Connects when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._frames = 0

    @property
    def size_bytes(self) -> int:
        """Size on disk, without the log; 0 if somebody removed it."""
        return self.path.stat().st_size if self.path.exists() else 0

    def head(self) -> Head:
        """Read the state. Raises JournalDamaged, and OutsideError if a release of another major wrote it."""
        with self._use() as connection:
            columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(state)")]
            row = connection.execute("SELECT * FROM state").fetchone()
        return head_of(dict(zip(columns, row or (), strict=False)), self.path)

    def check(self) -> None:
        """Look at every page. Raises JournalDamaged."""
        with self._use() as connection:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            last_seq = connection.execute("SELECT max(seq) FROM results").fetchone()[0] or 0
            next_seq = connection.execute("SELECT next_seq FROM state").fetchone()[0]
            last_event, next_event = 0, 1
            if "events" in _tables(connection):
                last_event = connection.execute("SELECT max(event_seq) FROM events").fetchone()[0] or 0
                next_event = connection.execute("SELECT next_event FROM state").fetchone()[0]
        if answer != "ok":
            raise JournalDamaged(f"{self.path}: {answer}")
        if last_seq >= next_seq:
            raise JournalDamaged(f"{self.path}: has result {last_seq}, but its state says that {next_seq} is next")
        if last_event >= next_event:
            raise JournalDamaged(f"{self.path}: has event {last_event}, but its state says that {next_event} is next")

    def write(
        self,
        state: JournalState,
        results: Sequence[ResultRow] = (),
        runs: Sequence[RunRow] = (),
        events: Sequence[EventRow] = (),
    ) -> None:
        """Commit rows and state in one transaction. After an error nothing of it is there."""
        rows = [(*row[:8], compressed(row[8])) for row in results]
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT_RESULT, rows)
            connection.executemany(INSERT_RUN, runs)
            connection.executemany(INSERT_EVENT, events)
            connection.execute(UPDATE_STATE, values_of(state))
            connection.execute("COMMIT")
        self._frames += 8 + len(runs) // 8
        sizes = (*(len(row[8]) for row in rows), *(len(row[2]) for row in events))
        self._frames += sum(1 + size // PAGE_BYTES for size in sizes)

    def checkpoint_if_due(self, log_bytes: int) -> bool:
        """Move the log into the file once it is so long: not within a commit, so that no result waits for it."""
        if self._frames * PAGE_BYTES < log_bytes:
            return False
        self._frames = 0
        with self._use() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        return True

    def read(self, from_seq: int, to_seq: int, limit: int) -> list[StoredResult]:
        """Read rows of a range, in order."""
        with self._use() as connection:
            rows = connection.execute(
                f"{SELECT_RESULT} WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?", (from_seq, to_seq, limit)
            ).fetchall()
        return stored_results(rows, self.path, f"{from_seq}…{to_seq}")

    def find(self, result_id: bytes) -> StoredResult | None:
        """Find a result by its id."""
        with self._use() as connection:
            rows = connection.execute(f"{SELECT_RESULT} WHERE result_id = ?", (result_id,)).fetchall()
        return next(iter(stored_results(rows, self.path, result_id.hex())), None)

    def read_events(self, from_event: int, limit: int) -> list[StoredEvent]:
        """Read events from a number on, in order. Only of a file that has events."""
        with self._use() as connection:
            rows = connection.execute(
                "SELECT event_seq, payload FROM events WHERE event_seq >= ? ORDER BY event_seq LIMIT ?",
                (from_event, limit),
            )
            return [StoredEvent(*row) for row in rows]

    def bury(self, seq: int, reason: str, substitute: bytes | None, now_wall_s: float) -> bool:
        """Move a payload to the dead letters and put its substitute in its place; False if the row is not here."""
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute(
                "INSERT INTO dead_letters(seq, reason, wall_ms, payload) SELECT seq, ?, ?, payload FROM results"
                " WHERE seq = ?",
                (reason, int(now_wall_s * 1000), seq),
            ).rowcount
            if substitute is not None:
                connection.execute("UPDATE results SET payload = ? WHERE seq = ?", (compressed(substitute), seq))
            connection.execute("COMMIT")
        return found > 0

    def seqs(self, acked_seq: int, evaluation: Evaluation | None = None) -> list[int]:
        """Give the seqs above `acked_seq`; all, or those of one evaluation."""
        condition = "" if evaluation is None else f" AND evaluation = {int(evaluation)}"
        with self._use() as connection:
            rows = connection.execute(f"SELECT seq FROM results WHERE seq > ?{condition} ORDER BY seq", (acked_seq,))  # noqa: S608
            return [seq for (seq,) in rows]

    def compact(self, acked_seq: int, without: Evaluation | None, acked_event: int = 0) -> None:
        """Write the file again without what is delivered, and without the unsent results of one evaluation.

        Deleting in place would write the whole file into the log, on a disk that is full.
        """
        condition = "TRUE" if without is None else f"evaluation <> {int(without)}"
        unfinished = self.path.with_suffix(".new")
        try:
            with self._use() as connection:
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if busy:
                    raise StorageError(f"{self.path}: another program is reading it")
                discard(unfinished)
                tables = _tables(connection)
                connection.execute("ATTACH ? AS kept", (str(unfinished),))
                connection.execute(f"PRAGMA kept.page_size = {PAGE_BYTES}")
                connection.execute("BEGIN")
                for sql in tables.values():
                    connection.execute(sql.replace("CREATE TABLE ", "CREATE TABLE kept.", 1))
                for table in tables.keys() - {"results", "events"}:
                    connection.execute(f"INSERT INTO kept.{table} SELECT * FROM main.{table}")  # noqa: S608
                connection.execute(
                    f"INSERT INTO kept.results SELECT * FROM main.results WHERE seq > ? AND {condition} ORDER BY seq",  # noqa: S608
                    (acked_seq,),
                )
                if "events" in tables:
                    connection.execute(
                        "INSERT INTO kept.events SELECT * FROM main.events WHERE event_seq > ? ORDER BY event_seq",
                        (acked_event,),
                    )
                connection.execute("COMMIT")
                connection.execute("PRAGMA kept.journal_mode = WAL")
        finally:
            self.close()
        with mapped(self.path):
            if log_of(self.path).exists():
                # The program that still has it open would read the new file by the old one's index of the log.
                discard(unfinished)
                raise StorageError(f"{self.path}: another program has it open")
            put_in_place(unfinished, self.path)
            sync_folder(self.path.parent)

    def close(self) -> None:
        """Disconnect; the last connection takes the log away with it. Never raises: what was committed is safe."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """Give the connection; an error rolls back.

        It is not closed: a commit whose fsync failed may be whole in the log. This connection knows that it is not
        valid and writes over it; one that opens the file anew would find it, and the records would be there twice.
        """
        with mapped(self.path):
            if self._connection is None:
                self._connection = connect(self.path, LOG_MAX_FRAMES)
            try:
                yield self._connection
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.rollback()
                raise


def _tables(connection: sqlite3.Connection) -> dict[str, str]:
    """Give the SQL of each table: of another minor there are more, or fewer."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
