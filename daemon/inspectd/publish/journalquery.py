"""Reads a journal that a daemon may be writing: rows and counts, newest files first.

Not for the daemon's own process (`journalaccess` says why).
"""

from __future__ import annotations

import heapq
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from inspectd.errors import OutsideError
from inspectd.publish.journalaccess import Query, Row, Unreadable, fetch
from inspectd.publish.journalstate import SCHEMA_VERSION
from inspectd.publish.retention import DAY_S
from inspectd.publish.uuid7 import uuid_text
from inspectd.records import Evaluation

CHUNK_ROWS = 2000
"""Read in one piece. Between pieces nothing is held, however slow the reader is."""
MARGIN_S = 3600.0
"""A row may be so much older than its file (the disk was away), or a clock set so far."""
SLOT_S = 60
"""Counts are given per minute: hours, shifts and days of every time zone begin with one."""
_Order = Literal["ASC", "DESC"]
_NAME = re.compile(r"\d{8}\.sqlite")


@dataclass(frozen=True, slots=True)
class Filter:
    """What is asked for; None: any. `to_s` is outside."""

    camera: str | None = None
    evaluation: Evaluation | None = None
    code: int | None = None
    from_s: float | None = None
    to_s: float | None = None

    def sql(self) -> tuple[str, tuple[str | int, ...]]:
        """Give a condition on columns that results and runs have, and its values."""
        conditions: list[tuple[str, str | int | None]] = [
            ("camera = ?", self.camera),
            ("evaluation = ?", self.evaluation),
            ("code = ?", self.code),
            ("wall_ms >= ?", None if self.from_s is None else round(self.from_s * 1000)),
            ("wall_ms < ?", None if self.to_s is None else round(self.to_s * 1000)),
        ]
        asked = [(text, value) for text, value in conditions if value is not None]
        return " AND ".join(["TRUE", *(text for text, _ in asked)]), tuple(value for _, value in asked)


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A result, or a run of frames that share a row."""

    camera: str
    from_frame_id: int
    to_frame_id: int
    evaluation: Evaluation
    state: int
    code: int
    wall_s: float
    """When the picture was taken; of a run: when it began."""
    details: str
    seq: int | None = None
    """None: a run, which is not published."""
    result_id: str | None = None
    count_is_upper_bound: bool = False

    @property
    def count(self) -> int:
        """How many frames."""
        return self.to_frame_id - self.from_frame_id + 1


@dataclass(frozen=True, slots=True)
class JournalPart:
    """One file, and between which times its rows are."""

    path: Path
    earliest_s: float
    latest_s: float

    def may_have(self, asked: Filter) -> bool:
        """Whether a row may fit the filter's times."""
        return (asked.from_s is None or asked.from_s <= self.latest_s) and (
            asked.to_s is None or asked.to_s > self.earliest_s
        )


def parts_of(folder: Path, warn: Callable[[str], None]) -> list[JournalPart]:
    """Find the files of a journal, oldest first. Raises OutsideError if there is no journal, or another major's."""
    created: list[tuple[Path, float]] = []
    for path in sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name)):
        try:
            (heads,) = fetch(path, ("SELECT schema_version, software_version, created_wall_s FROM state", ()))
        except Unreadable as error:
            warn(f"{error}; it is left out")
            continue
        for schema_version, software_version, created_wall_s in heads:
            if str(schema_version).partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
                raise OutsideError(
                    f"{path} was written by inspectd {software_version} (journal schema {schema_version}); this one"
                    f" reads {SCHEMA_VERSION.partition('.')[0]}.x: use that release's `inspectd results`"
                )
            created.append((path, float(created_wall_s)))
    parts = []
    for place, (path, begun_s) in enumerate(created):
        is_newest = place == len(created) - 1
        next_s = float("inf") if is_newest else created[place + 1][1]
        parts.append(JournalPart(path, min(begun_s, next_s) - MARGIN_S, max(begun_s + DAY_S, next_s) + MARGIN_S))
    return parts


def last_rows(parts: Sequence[JournalPart], asked: Filter, last: int, warn: Callable[[str], None]) -> list[JournalRow]:
    """Give the last rows that fit, newest last. Results stay in their order; runs stand where their time is."""
    found: list[JournalRow] = []
    for part in reversed([part for part in parts if part.may_have(asked)]):
        missing = last - len(found)
        if missing <= 0:
            break
        try:
            results, runs = fetch(part.path, _results(asked, missing, "DESC"), _runs(asked, missing, "DESC"))
        except Unreadable as error:
            warn(f"{error}; it is left out")
            continue
        found = [*_merged(map(_result, results[::-1]), map(_run, runs[::-1])), *found][-last:]
    return found


def all_rows(parts: Sequence[JournalPart], asked: Filter, warn: Callable[[str], None]) -> Iterator[JournalRow]:
    """Give every row that fits, newest last."""
    for part in parts:
        if part.may_have(asked):
            try:
                yield from _merged(_every(part.path, asked, _results, _result), _every(part.path, asked, _runs, _run))
            except Unreadable as error:
                warn(f"{error}; the rest of it is left out")


def counts(part: JournalPart, asked: Filter) -> Counter[tuple[int, Evaluation]]:
    """Count the frames of a file by (minute since 1970, evaluation), runs included. Raises Unreadable.

    Numbers of which it is not certain that a picture was taken are outside every count.
    """
    condition, values = asked.sql()
    slot = f"wall_ms / {SLOT_S * 1000}"
    columns = (
        "count(*) FROM results WHERE TRUE",
        "sum(to_frame - from_frame + 1) FROM runs WHERE NOT upper_bound",
    )
    queries = [(f"SELECT {slot}, evaluation, {text} AND {condition} GROUP BY 1, 2", values) for text in columns]
    found: Counter[tuple[int, Evaluation]] = Counter()
    for minute, evaluation, count in chain.from_iterable(fetch(part.path, *queries)):
        found[minute, Evaluation(evaluation)] += count
    return found


def _results(asked: Filter, limit: int, order: _Order, after: int = 0) -> Query:
    condition, values = asked.sql()
    return (
        (
            "SELECT seq, result_id, camera, frame, evaluation, state, code, wall_ms, payload FROM results"  # noqa: S608
            f" WHERE {condition} AND seq > ? ORDER BY seq {order} LIMIT ?"
        ),
        (*values, after, limit),
    )


def _runs(asked: Filter, limit: int, order: _Order, after: int = 0) -> Query:
    condition, values = asked.sql()
    return (
        (
            "SELECT id, camera, from_frame, to_frame, evaluation, state, code, wall_ms, upper_bound, reason FROM runs"  # noqa: S608
            f" WHERE {condition} AND id > ? ORDER BY id {order} LIMIT ?"
        ),
        (*values, after, limit),
    )


def _every(
    path: Path, asked: Filter, query: Callable[[Filter, int, _Order, int], Query], row_of: Callable[[Row], JournalRow]
) -> Iterator[JournalRow]:
    """Go through a table in pieces."""
    after = 0
    while True:
        (rows,) = fetch(path, query(asked, CHUNK_ROWS, "ASC", after))
        yield from map(row_of, rows)
        if len(rows) < CHUNK_ROWS:
            return
        after = rows[-1][0]


def _merged(results: Iterator[JournalRow], runs: Iterator[JournalRow]) -> Iterator[JournalRow]:
    return heapq.merge(results, runs, key=lambda row: row.wall_s)


def _result(row: Row) -> JournalRow:
    seq, result_id, camera, frame, evaluation, state, code, wall_ms, payload = row
    judged = Evaluation(evaluation)
    details = _details(payload)
    return JournalRow(
        camera, frame, frame, judged, state, code, wall_ms / 1000, details, seq=seq, result_id=uuid_text(result_id)
    )


def _run(row: Row) -> JournalRow:
    _, camera, first, last, evaluation, state, code, wall_ms, upper_bound, reason = row
    judged = Evaluation(evaluation)
    return JournalRow(
        camera, first, last, judged, state, code, wall_ms / 1000, reason, count_is_upper_bound=bool(upper_bound)
    )


def _details(payload: bytes) -> str:
    try:
        return str(json.loads(zlib.decompress(payload)).get("resultEvaluationDetails", ""))
    except (zlib.error, ValueError):
        return "(the message cannot be read)"
