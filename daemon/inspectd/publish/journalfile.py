"""One file of the journal: schema, rows, state. One thread at a time; every call may wait for the disk."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from inspectd.errors import OutsideError, StorageError
from inspectd.publish.counters import Counters
from inspectd.publish.journalstate import SCHEMA_VERSION, JournalState, marks_from_json, marks_to_json
from inspectd.publish.sqlitefile import JournalDamaged, connect, discard, mapped, put_in_place, sync_folder
from inspectd.records import Evaluation

PAGE_BYTES = 1024
"""Each commit writes whole pages of rows, index and state. Measured at 120/s with three results of 0.8 kB (compressed)
a commit, checkpoints included, with a bare table: 5.4 kB written per result with pages of 1024, 7.0 with 2048, 9.8 with
4096. All of the journal with 1024: 6.2 (tests/bench/bench_journal.py)."""
LOG_MAX_FRAMES = 16_000
"""Should `checkpoint_if_due` not be called, or estimate too little."""
COMPRESSION = 1

_SCHEMA = """
CREATE TABLE results(
    seq INTEGER PRIMARY KEY, result_id BLOB NOT NULL UNIQUE, camera TEXT NOT NULL, frame INTEGER NOT NULL,
    evaluation INTEGER NOT NULL, state INTEGER NOT NULL, code INTEGER NOT NULL, wall_ms INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, camera TEXT NOT NULL, from_frame INTEGER NOT NULL, to_frame INTEGER NOT NULL,
    code INTEGER NOT NULL, evaluation INTEGER NOT NULL, state INTEGER NOT NULL, upper_bound INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE dead_letters(
    id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, reason TEXT NOT NULL, wall_ms INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE state(
    id INTEGER PRIMARY KEY CHECK (id = 1), schema_version TEXT NOT NULL, first_seq INTEGER NOT NULL,
    created_wall_s REAL NOT NULL, stream_id TEXT NOT NULL, next_seq INTEGER NOT NULL, acked_seq INTEGER NOT NULL,
    kernel_boot_id TEXT NOT NULL, clean INTEGER NOT NULL, software_version TEXT NOT NULL, counters TEXT NOT NULL,
    marks TEXT NOT NULL);
"""
_INSERT_RESULT = (
    "INSERT INTO results(seq, result_id, camera, frame, evaluation, state, code, wall_ms, payload)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_RUN = (
    "INSERT INTO runs(camera, from_frame, to_frame, code, evaluation, state, upper_bound, wall_ms, reason)"
    " VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?)"
)
_UPDATE_STATE = (
    "UPDATE state SET stream_id = ?, next_seq = ?, acked_seq = ?, kernel_boot_id = ?, clean = ?, software_version = ?,"
    " counters = ?, marks = ?"
)
ResultRow = tuple[int, bytes, str, int, int, int, int, int, bytes]
"""seq, result_id, camera, frame, evaluation, state, code, wall_ms, the payload's exact bytes."""
RunRow = tuple[str, int, int, int, int, int, int, str]
"""camera, from_frame, to_frame, code, state, upper_bound, wall_ms, reason."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One row, as it was committed. `payload` never changes (but for a dead letter's substitute)."""

    seq: int
    result_id: bytes
    camera: str
    frame_id: int
    evaluation: Evaluation
    state: int
    code: int
    wall_s: float
    payload: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What a file says of itself."""

    first_seq: int
    created_wall_s: float
    state: JournalState


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
            connection.executescript(f"BEGIN; {_SCHEMA}")
            connection.execute(
                "INSERT INTO state VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (SCHEMA_VERSION, state.next_seq, now_wall_s, *_values_of(state)),
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
        try:
            return self._head(dict(zip(columns, row, strict=True)))
        except (KeyError, TypeError, ValueError) as error:
            raise JournalDamaged(f"{self.path}: its state cannot be read ({error})") from error

    def check(self) -> None:
        """Look at every page. Raises JournalDamaged."""
        with self._use() as connection:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            last_seq = connection.execute("SELECT max(seq) FROM results").fetchone()[0] or 0
            next_seq = connection.execute("SELECT next_seq FROM state").fetchone()[0]
        if answer != "ok":
            raise JournalDamaged(f"{self.path}: {answer}")
        if last_seq >= next_seq:
            raise JournalDamaged(f"{self.path}: has result {last_seq}, but its state says that {next_seq} is next")

    def write(self, state: JournalState, results: Sequence[ResultRow] = (), runs: Sequence[RunRow] = ()) -> None:
        """Commit rows and state in one transaction. After an error nothing of it is there."""
        rows = [(*row[:8], zlib.compress(row[8], COMPRESSION)) for row in results]
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_INSERT_RESULT, rows)
            connection.executemany(_INSERT_RUN, runs)
            connection.execute(_UPDATE_STATE, _values_of(state))
            connection.execute("COMMIT")
        self._frames += 8 + sum(1 + len(row[8]) // PAGE_BYTES for row in rows) + len(runs) // 8

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
                "SELECT seq, result_id, camera, frame, evaluation, state, code, wall_ms, payload FROM results"
                " WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?",
                (from_seq, to_seq, limit),
            ).fetchall()
        try:
            return [
                StoredResult(
                    seq, result_id, camera, frame, Evaluation(judged), state, code, ms / 1000, zlib.decompress(z)
                )
                for seq, result_id, camera, frame, judged, state, code, ms, z in rows
            ]
        except (zlib.error, ValueError, TypeError) as error:
            raise JournalDamaged(f"{self.path}: a result in {from_seq}…{to_seq} cannot be read ({error})") from error

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
                payload = zlib.compress(substitute, COMPRESSION)
                connection.execute("UPDATE results SET payload = ? WHERE seq = ?", (payload, seq))
            connection.execute("COMMIT")
        return found > 0

    def seqs(self, acked_seq: int, evaluation: Evaluation | None = None) -> list[int]:
        """Give the seqs above `acked_seq`; all, or those of one evaluation."""
        condition = "" if evaluation is None else f" AND evaluation = {int(evaluation)}"
        with self._use() as connection:
            rows = connection.execute(f"SELECT seq FROM results WHERE seq > ?{condition} ORDER BY seq", (acked_seq,))  # noqa: S608
            return [seq for (seq,) in rows]

    def compact(self, acked_seq: int, without: Evaluation | None) -> None:
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
                schema = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'table'")]
                connection.execute("ATTACH ? AS kept", (str(unfinished),))
                connection.execute(f"PRAGMA kept.page_size = {PAGE_BYTES}")
                connection.execute("BEGIN")
                for sql in schema:
                    connection.execute(sql.replace("CREATE TABLE ", "CREATE TABLE kept.", 1))
                for table in ("state", "runs", "dead_letters"):
                    connection.execute(f"INSERT INTO kept.{table} SELECT * FROM main.{table}")  # noqa: S608
                connection.execute(
                    f"INSERT INTO kept.results SELECT * FROM main.results WHERE seq > ? AND {condition} ORDER BY seq",  # noqa: S608
                    (acked_seq,),
                )
                connection.execute("COMMIT")
                connection.execute("PRAGMA kept.journal_mode = WAL")
        finally:
            self.close()
        with mapped(self.path):
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

    def _head(self, row: dict[str, object]) -> Head:
        version = str(row["schema_version"])
        major = SCHEMA_VERSION.partition(".")[0]
        if version.partition(".")[0] != major:
            raise OutsideError(
                f"{self.path} was written by inspectd {row['software_version']} (journal schema {version}); this one"
                f" reads {major}.x. Install that release again, or move the folder away to begin anew"
            )
        state = JournalState(
            stream_id=str(row["stream_id"]),
            next_seq=int(str(row["next_seq"])),
            acked_seq=int(str(row["acked_seq"])),
            counters=Counters.from_json(str(row["counters"])),
            kernel_boot_id=str(row["kernel_boot_id"]),
            clean=bool(row["clean"]),
            software_version=str(row["software_version"]),
            marks=marks_from_json(str(row["marks"])),
        )
        return Head(int(str(row["first_seq"])), float(str(row["created_wall_s"])), state)


def _values_of(state: JournalState) -> tuple[str | int, ...]:
    return (
        state.stream_id,
        state.next_seq,
        state.acked_seq,
        state.kernel_boot_id,
        int(state.clean),
        state.software_version,
        state.counters.to_json(),
        marks_to_json(state.marks),
    )
