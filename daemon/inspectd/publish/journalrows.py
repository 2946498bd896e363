"""How a journal file keeps what it has: tables, statements, and the values made of their rows. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from inspectd.errors import OutsideError
from inspectd.publish.counters import Counters
from inspectd.publish.journalstate import SCHEMA_VERSION, JournalState, marks_from_json, marks_to_json
from inspectd.publish.sqlitefile import JournalDamaged
from inspectd.records import Evaluation, Inspection, LostRun, ResultState

_COMPRESSION = 1
SCHEMA = """
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
CREATE TABLE events(event_seq INTEGER PRIMARY KEY, wall_ms INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE state(
    id INTEGER PRIMARY KEY CHECK (id = 1), schema_version TEXT NOT NULL, first_seq INTEGER NOT NULL,
    created_wall_s REAL NOT NULL, stream_id TEXT NOT NULL, next_seq INTEGER NOT NULL, acked_seq INTEGER NOT NULL,
    kernel_boot_id TEXT NOT NULL, clean INTEGER NOT NULL, software_version TEXT NOT NULL, counters TEXT NOT NULL,
    marks TEXT NOT NULL, first_event INTEGER NOT NULL, next_event INTEGER NOT NULL, acked_event INTEGER NOT NULL,
    memo TEXT NOT NULL);
"""
INSERT_RESULT = (
    "INSERT INTO results(seq, result_id, camera, frame, evaluation, state, code, wall_ms, payload)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_RUN = (
    "INSERT INTO runs(camera, from_frame, to_frame, code, evaluation, state, upper_bound, wall_ms, reason)"
    " VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?)"
)
INSERT_EVENT = "INSERT INTO events(event_seq, wall_ms, payload) VALUES (?, ?, ?)"
_STATE_COLUMNS = (
    *("stream_id", "next_seq", "acked_seq", "kernel_boot_id", "clean", "software_version", "counters", "marks"),
    *("next_event", "acked_event", "memo"),
)
"""In the order of `values_of`."""
UPDATE_STATE = f"UPDATE state SET {', '.join(f'{name} = ?' for name in _STATE_COLUMNS)}"  # noqa: S608  names of our own
INSERT_STATE = (
    f"INSERT INTO state(id, schema_version, first_seq, first_event, created_wall_s, {', '.join(_STATE_COLUMNS)})"  # noqa: S608
    f" VALUES (1, ?, ?, ?, ?{', ?' * len(_STATE_COLUMNS)})"
)
SELECT_RESULT = "SELECT seq, result_id, camera, frame, evaluation, state, code, wall_ms, payload FROM results"
ResultRow = tuple[int, bytes, str, int, int, int, int, int, bytes]
"""seq, result_id, camera, frame, evaluation, state, code, wall_ms, the payload's exact bytes."""
RunRow = tuple[str, int, int, int, int, int, int, str]
"""camera, from_frame, to_frame, code, state, upper_bound, wall_ms, reason."""
EventRow = tuple[int, int, bytes]
"""event_seq, wall_ms, the payload's exact bytes."""


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
class StoredEvent:
    """One event, as it was committed. `payload` never changes."""

    event_seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What a file says of itself."""

    first_seq: int
    first_event: int
    created_wall_s: float
    has_events: bool
    """False: a release that knew no events wrote it; it is read, and never written again."""
    state: JournalState


def result_row(record: Inspection, seq: int, payload: bytes) -> ResultRow:
    """Give a result's row; its payload is not compressed yet."""
    decision = record.decision
    return (
        seq,
        record.result_id,
        record.camera,
        record.frame_id,
        int(decision.evaluation),
        int(decision.state),
        int(decision.code),
        int(record.captured_wall_s * 1000),
        payload,
    )


def run_row(record: LostRun) -> RunRow:
    """Give a run's row."""
    # MQTT-CONTRACT "Fail-safe": 300…304 are aborted, everything else that ends without an inspection has failed.
    state = ResultState.ABORTED if 300 <= record.code < 400 else ResultState.FAILED
    return (
        record.camera,
        record.from_frame_id,
        record.to_frame_id,
        int(record.code),
        int(state),
        int(record.count_is_upper_bound),
        int(record.wall_s * 1000),
        record.reason,
    )


def compressed(payload: bytes) -> bytes:
    """Give a result's payload as it is kept: a third of its size."""
    return zlib.compress(payload, _COMPRESSION)


def stored_results(rows: Iterable[ResultRow], path: Path, which: str) -> list[StoredResult]:
    """Give rows as values; `which` names them in the error. Raises JournalDamaged."""
    try:
        return [
            StoredResult(seq, result_id, camera, frame, Evaluation(judged), state, code, ms / 1000, zlib.decompress(z))
            for seq, result_id, camera, frame, judged, state, code, ms, z in rows
        ]
    except (zlib.error, ValueError, TypeError) as error:
        raise JournalDamaged(f"{path}: a result in {which} cannot be read ({error})") from error


def head_of(row: Mapping[str, object], path: Path) -> Head:
    """Give the state row's values. Raises JournalDamaged, and OutsideError if a release of another major wrote it."""
    try:
        return _head(row, path)
    except (KeyError, TypeError, ValueError) as error:
        raise JournalDamaged(f"{path}: its state cannot be read ({error})") from error


def values_of(state: JournalState) -> tuple[str | int, ...]:
    """Give the state's columns."""
    return (
        state.stream_id,
        state.next_seq,
        state.acked_seq,
        state.kernel_boot_id,
        int(state.clean),
        state.software_version,
        state.counters.to_json(),
        marks_to_json(state.marks),
        state.next_event,
        state.acked_event,
        state.memo,
    )


def _head(row: Mapping[str, object], path: Path) -> Head:
    version = str(row["schema_version"])
    major = SCHEMA_VERSION.partition(".")[0]
    if version.partition(".")[0] != major:
        raise OutsideError(
            f"{path} was written by inspectd {row['software_version']} (journal schema {version}); this one"
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
        next_event=int(str(row.get("next_event", 1))),
        acked_event=int(str(row.get("acked_event", 0))),
        memo=str(row.get("memo", "")),
    )
    first_event = int(str(row.get("first_event", 1)))
    created_wall_s = float(str(row["created_wall_s"]))
    return Head(int(str(row["first_seq"])), first_event, created_wall_s, "first_event" in row, state)
