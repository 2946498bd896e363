"""Counts what became of the frames of a stretch of numbers: the journal's files, read without the daemon's code."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

OK = 1
COMPLETED = 1


@dataclass
class Tally:
    """Of one camera's numbers `first` to `last`."""

    captured: int
    rows: Counter[int] = field(default_factory=Counter)
    """Number → rows that cover it."""
    codes: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    """Frames that were not inspected to their end and in time."""
    worst_s: float = 0.0
    """The longest latency of one that was inspected."""
    ok_without: list[str] = field(default_factory=list)

    @property
    def accounted(self) -> int:
        """Numbers with exactly one row."""
        return sum(count == 1 for count in self.rows.values())


def tally(files: Sequence[Path], camera: str, first: int, last: int, required: Collection[str]) -> Tally:
    """Count; `required` are the models without which nothing is OK."""
    found = Tally(last - first + 1)
    for path in files:
        with (
            suppress(sqlite3.DatabaseError),
            closing(_read(path)) as connection,
        ):  # spoiled: frames miss
            for number, payload in connection.execute(
                "SELECT frame, payload FROM results WHERE camera = ? AND frame BETWEEN ? AND ?", (camera, first, last)
            ):
                document = json.loads(zlib.decompress(payload))
                found.rows[number] += 1
                found.codes[document["resultEvaluationCode"]] += 1
                inspected = is_inspected(document, required)
                found.lost += not inspected
                if inspected:
                    found.worst_s = max(found.worst_s, document["latencyMs"] / 1000)
                if document["resultEvaluation"] == OK and not inspected:
                    found.ok_without.append(document["resultId"])
            for begin, end, code in connection.execute(
                "SELECT from_frame, to_frame, code FROM runs WHERE camera = ? AND to_frame >= ? AND from_frame <= ?",
                (camera, first, last),
            ):
                numbers = range(max(begin, first), min(end, last) + 1)
                found.rows.update(numbers)
                found.codes[code] += len(numbers)
                found.lost += len(numbers)
    return found


def add_delivered(found: Tally, results: Sequence[dict[str, Any]], first: int, last: int) -> None:
    """Where a journal file was spoiled: what is in no file any more, and was delivered before, had its row."""
    for document in results:
        number = document["acquisition"]["frameId"]
        if first <= number <= last and number not in found.rows:
            found.rows[number] = 1
            found.codes[document["resultEvaluationCode"]] += 1


def is_inspected(document: dict[str, Any], required: Collection[str]) -> bool:
    """Whether every required model completed on this very frame, in time."""
    outcomes = {model["model"]: model["outcome"] for model in document["models"]}
    completed = all(outcomes.get(model) == "done" for model in required)
    return bool(completed and document["resultState"] == COMPLETED and not document["isLate"])


def first_inspected_after(
    files: Sequence[Path], camera: str, wall_s: float, above: int, required: Collection[str]
) -> float | None:
    """When (wall clock) the first frame above a number that was captured after a moment was decided; None: not yet."""
    for path in files:
        with suppress(sqlite3.DatabaseError), closing(_read(path)) as connection:
            rows = connection.execute(
                "SELECT payload FROM results WHERE camera = ? AND frame > ? ORDER BY seq", (camera, above)
            )
            for (payload,) in rows:
                document = json.loads(zlib.decompress(payload))
                if is_inspected(document, required) and seconds(document["acquisition"]["captureTime"]) > wall_s:
                    return seconds(document["creationTime"])
    return None


def seconds(time: str) -> float:
    """Epoch seconds of a time on the wire."""
    return datetime.fromisoformat(time).timestamp()


def _read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
