"""Records and an encoder for the journal's tests."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from inspectd.publish.events import Event, EventName, Occurrence
from inspectd.publish.journal import Journal, Recovered
from inspectd.publish.retention import Limits
from inspectd.records import Code, ConfigurationId, Decision, Evaluation, Inspection, LostRun, ResultState

WALL_S = 1_796_000_000.0
BOOT_ID = "11111111-1111-1111-1111-111111111111"
LARGE = Limits(max_bytes=1 << 30)
_opened: list[Journal] = []
_CONFIGURATION = ConfigurationId("inspectd", "1", "0" * 64)
_CODES = {Evaluation.OK: 0, Evaluation.NOT_OK: 110, Evaluation.NOT_DECIDABLE: 200, Evaluation.UNDEFINED: 501}


def inspection(
    frame_id: int,
    evaluation: Evaluation = Evaluation.OK,
    camera: str = "top",
    code: int | None = None,
    latency_s: float = 0.1,
    simulated: bool = False,
    salt: int = 0,
) -> Inspection:
    """Make one frame's record; its result id follows from camera, frame and salt."""
    state = ResultState.FAILED if evaluation is Evaluation.UNDEFINED else ResultState.COMPLETED
    number = _CODES[evaluation] if code is None else code
    return Inspection(
        result_id=f"{camera:>4.4}{salt:04d}{frame_id:08d}".encode("ascii"),
        job_id=f"{camera}-{frame_id}",
        camera=camera,
        frame_id=frame_id,
        frame=None,
        camera_facts=None,
        captured_s=100.0,
        captured_wall_s=WALL_S,
        closed_s=100.0 + latency_s,
        closed_wall_s=WALL_S + latency_s,
        deadline_s=0.3,
        decision=Decision(state, evaluation, number, "test"),
        runs=(),
        detections=(),
        recipe=_CONFIGURATION,
        configuration=_CONFIGURATION,
        simulated=simulated,
    )


def lost(
    first: int,
    last: int,
    code: Code = Code.QUEUE_FULL,
    camera: str = "top",
    upper_bound: bool = False,
    simulated: bool = False,
) -> LostRun:
    """Make one run of lost frames."""
    return LostRun(camera, first, last, code, "test", WALL_S, upper_bound, simulated)


def encode(record: Inspection, seq: int) -> bytes:
    """Word a result: enough to recognise it, and as hard to compress as a real one (0.8 kB)."""
    noise = base64.b64encode(random.Random(seq).randbytes(550)).decode("ascii")
    document = {"seq": seq, "camera": record.camera, "frame": record.frame_id, "code": record.decision.code, "n": noise}
    return json.dumps(document).encode("ascii")


def open_journal(
    folder: Path,
    limits: Limits = LARGE,
    boot_id: str = BOOT_ID,
    now_wall_s: float = WALL_S,
    ledger_last: dict[str, int] | None = None,
) -> tuple[Journal, Recovered]:
    """Open a journal with the tests' usual values."""
    journal, recovered = Journal.open(
        folder,
        kernel_boot_id=boot_id,
        now_wall_s=now_wall_s,
        limits=limits,
        software_version="0.0.test",
        ledger_last=ledger_last or {},
    )
    _opened.append(journal)
    return journal, recovered


def close_journals() -> None:
    """Disconnect from every journal that was opened, as the end of a process would; at the end of a test."""
    while _opened:
        _opened.pop().close(clean=False)


def make_older(path: Path) -> None:
    """Turn a closed file into one of schema 1.0, as releases without events wrote it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE events")
        for column in ("first_event", "next_event", "acked_event", "memo"):
            connection.execute(f"ALTER TABLE state DROP COLUMN {column}")
        connection.execute("UPDATE state SET schema_version = '1.0'")


def occurrence(number: int) -> Occurrence:
    """Make one durable event."""
    event = Event(EventName.TRIGGER_MISSED, "top", 300, {"number": number})
    return Occurrence(event, number.to_bytes(16, "big"), WALL_S, BOOT_ID)


def event_seqs(folder: Path) -> list[int]:
    """Read the numbers of all events without the journal's code, in the order of the files."""
    seqs: list[int] = []
    for path in sorted(folder.glob("????????.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone():
                seqs += [seq for (seq,) in connection.execute("SELECT event_seq FROM events ORDER BY event_seq")]
    return seqs


def audit(folder: Path) -> tuple[list[int], Counter[tuple[str, int]], Counter[int]]:
    """Read all files without the journal's code: seqs in order, rows per (camera, frame), frames per evaluation."""
    seqs: list[int] = []
    frames: Counter[tuple[str, int]] = Counter()
    evaluations: Counter[int] = Counter()
    for path in sorted(folder.glob("????????.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            for seq, camera, frame, evaluation in connection.execute(
                "SELECT seq, camera, frame, evaluation FROM results ORDER BY seq"
            ):
                seqs.append(seq)
                frames[camera, frame] += 1
                evaluations[evaluation] += 1
            for camera, first, last, bound in connection.execute(
                "SELECT camera, from_frame, to_frame, upper_bound FROM runs"
            ):
                frames.update((camera, frame) for frame in range(first, last + 1))
                evaluations[0] += 0 if bound else last - first + 1
    return seqs, frames, evaluations
