"""How `inspectd results` looks: a table for people, JSON lines and CSV for programs. Pure but for the writing."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Literal, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inspectd.publish.journalquery import JournalRow
from inspectd.publish.wire import time_text
from inspectd.records import Evaluation
from inspectd.results_times import local

Form = Literal["table", "jsonl", "csv"]
_WIDTH = 120
"""Columns where there is no terminal."""
_COLOURS = {
    Evaluation.OK: "green",
    Evaluation.NOT_OK: "red",
    Evaluation.NOT_DECIDABLE: "yellow",
    Evaluation.UNDEFINED: "magenta",
}
"""Of a stack light; never by colour alone."""
_ORDER = (Evaluation.OK, Evaluation.NOT_OK, Evaluation.NOT_DECIDABLE, Evaluation.UNDEFINED)
_ROW_FIELDS = (
    *("seq", "resultId", "cameraId", "fromFrameId", "toFrameId", "frames", "framesIsUpperBound", "captureTime"),
    *("resultState", "resultEvaluation", "evaluation", "resultEvaluationCode", "resultEvaluationDetails"),
)
"""Those that a result message has too are as there; `evaluation` is the word that `--evaluation` takes."""
_BUCKET_FIELDS = ("from", "to", *(evaluation.word for evaluation in _ORDER), "total")


@dataclass(frozen=True, slots=True)
class Bucket:
    """The frames of one hour, shift or day."""

    begin_s: float
    end_s: float
    counts: Mapping[Evaluation, int]


def write_rows(rows: Iterable[JournalRow], form: Form, zone: tzinfo, out: TextIO) -> None:
    """Write rows, newest last."""
    if form == "table":
        _print_rows(rows, zone, out)
    else:
        _write((_row_document(row) for row in rows), _ROW_FIELDS, form, out)


def write_buckets(buckets: Iterable[Bucket], form: Form, zone: tzinfo, out: TextIO) -> None:
    """Write counts, newest last. Begin and end are local, with the offset from UTC that they had."""
    if form == "table":
        _print_buckets(buckets, zone, out)
    else:
        _write((_bucket_document(bucket, zone) for bucket in buckets), _BUCKET_FIELDS, form, out)


def _write(documents: Iterable[dict[str, Any]], fields: tuple[str, ...], form: Form, out: TextIO) -> None:
    if form == "csv":
        writer = csv.DictWriter(out, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(documents)
        return
    for document in documents:
        line = json.dumps({name: value for name, value in document.items() if value is not None}, ensure_ascii=False)
        out.write(f"{line}\n")


def _row_document(row: JournalRow) -> dict[str, Any]:
    values = (
        row.seq,
        row.result_id,
        row.camera,
        row.from_frame_id,
        row.to_frame_id,
        row.count,
        row.count_is_upper_bound,
        time_text(row.wall_s),
        row.state,
        int(row.evaluation),
        row.evaluation.word,
        row.code,
        row.details,
    )
    return dict(zip(_ROW_FIELDS, values, strict=True))


def _bucket_document(bucket: Bucket, zone: tzinfo) -> dict[str, Any]:
    times = (local(wall_s, zone).isoformat(timespec="minutes") for wall_s in (bucket.begin_s, bucket.end_s))
    numbers = [bucket.counts.get(evaluation, 0) for evaluation in _ORDER]
    return dict(zip(_BUCKET_FIELDS, (*times, *numbers, sum(numbers)), strict=True))


def _print_rows(rows: Iterable[JournalRow], zone: tzinfo, out: TextIO) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for name, justify in (("captured", "left"), ("camera", "left"), ("frame", "right"), ("seq", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("evaluation", no_wrap=True)
    table.add_column("code", justify="right", no_wrap=True)
    table.add_column("details", overflow="fold")
    for row in rows:
        table.add_row(
            local(row.wall_s, zone).isoformat(" ", timespec="milliseconds"),
            Text(row.camera),
            _frames_text(row),
            "" if row.seq is None else str(row.seq),
            Text(row.evaluation.word, _COLOURS[row.evaluation]),
            str(row.code),
            Text(row.details),
        )
    if table.row_count:
        _console(out).print(table)


def _frames_text(row: JournalRow) -> str:
    if row.count == 1:
        return str(row.from_frame_id)
    at_most = "at most " if row.count_is_upper_bound else ""
    return f"{row.from_frame_id}…{row.to_frame_id} ({at_most}{row.count})"


def _print_buckets(buckets: Iterable[Bucket], zone: tzinfo, out: TextIO) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("from", no_wrap=True)
    table.add_column("to", no_wrap=True)
    for evaluation in _ORDER:
        table.add_column(Text(evaluation.word, _COLOURS[evaluation]), justify="right")
    table.add_column("total", justify="right")
    for bucket in buckets:
        times = (local(wall_s, zone).strftime("%Y-%m-%d %H:%M %z") for wall_s in (bucket.begin_s, bucket.end_s))
        numbers = [bucket.counts.get(evaluation, 0) for evaluation in _ORDER]
        table.add_row(*times, *map(str, numbers), str(sum(numbers)))
    if table.row_count:
        _console(out).print(table)


def _console(out: TextIO) -> Console:
    console = Console(file=out, highlight=False)
    return console if console.is_terminal else Console(file=out, highlight=False, width=_WIDTH)
