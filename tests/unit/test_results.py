"""`inspectd results`: times, buckets over clock changes, filters, formats, and what is said when it cannot be done."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from jsonschema import Draft202012Validator
from tests.contract.schemas import published_schema
from tests.journaling import WALL_S, close_journals, encode, inspection, lost, make_older, open_journal

from inspectd.errors import ConfigurationError, OutsideError, UsageError
from inspectd.publish.retention import DAY_S
from inspectd.records import Code, Evaluation, Inspection, LostRun, Record
from inspectd.results_command import Question, list_results
from inspectd.results_report import Form
from inspectd.results_times import begins, moment

BERLIN = ZoneInfo("Europe/Berlin")
SHIFTS = ("06:00", "14:00", "22:00")


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    """Python tells of a connection that nobody closed."""
    yield
    close_journals()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def record(record: Record, wall_s: float) -> Record:
    """Move a record to another time."""
    if isinstance(record, LostRun):
        return replace(record, wall_s=wall_s)
    return replace(record, captured_wall_s=wall_s)


def word(inspected: Inspection, seq: int) -> bytes:
    return json.dumps({"seq": seq, "resultEvaluationDetails": f"details of {inspected.frame_id}"}).encode()


def make_journal(folder: Path, records: list[tuple[Record, float]]) -> None:
    """Commit records one by one at the times that they are of."""
    journal, _ = open_journal(folder, now_wall_s=records[0][1])
    for made, wall_s in records:
        journal.commit([record(made, wall_s)], word, wall_s)
    journal.close(clean=True)


def ask(
    folder: Path,
    question: Question,
    form: Form = "jsonl",
    config: Path = Path("no-such-file.yaml"),
    now_s: float = WALL_S,
) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = list_results(question, config, {}, journal=folder, form=form, out=out, err=err, wall=lambda: now_s)
    assert code == 0
    return out.getvalue(), err.getvalue()


def documents(folder: Path, question: Question, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ask(folder, question, **more)[0].splitlines()]


def configuration(folder: Path, station: str = "") -> Path:
    path = folder / "inspectd.yaml"
    path.write_text(
        "version: 1\n"
        "station: {enterprise: e, site: s, area: a, line: l, id: i" + station + "}\n"
        f"storage: {{path: {folder}/state}}\n"
        "mqtt: {host: localhost}\n"
        "models: {defects: {path: not-there.xml, task: detect}}\n"
        "cameras: {top: {source: {kind: simulator}, models: [defects]}}\n"
        "decision: {rules: []}\n"
    )
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-29", "2026-03-29T00:00+01:00"),
        ("2026-03-29T12:00", "2026-03-29T12:00+02:00"),
        ("2026-03-29 12:00:30Z", "2026-03-29T12:00:30+00:00"),
        ("2h", "2026-11-29T22:53:20+00:00"),
        ("30 min", "2026-11-30T00:23:20+00:00"),
        ("1.5d", "2026-11-28T12:53:20+00:00"),
        ("today", "2026-11-30T00:00+01:00"),
        ("Yesterday", "2026-11-29T00:00+01:00"),
        ("now", "2026-11-30T00:53:20+00:00"),
    ],
)
def test_times_are_local_unless_they_say_otherwise(text: str, expected: str) -> None:
    assert moment("--from", text, WALL_S, BERLIN) == at(expected)


@pytest.mark.parametrize("text", ["", "soon", "2 hours", "2026-13-01", "-2h", "12:00"])
def test_what_is_no_time_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"--to .*give 2026-03-31"):
        moment("--to", text, WALL_S, BERLIN)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)])
def test_a_day_has_the_hours_that_it_has(day: str, hours: int) -> None:
    """Clocks go forward in March and back in October: no hour of nothing, and the hour that comes twice is two."""
    edges = begins("day", at(f"{day}T12:00+01:00"), at(f"{day}T12:00+01:00"), BERLIN, ())
    assert (edges[1] - edges[0]) / 3600 == hours
    of_day = begins("hour", edges[0], edges[1] - 1, BERLIN, ())
    assert [end - begin for begin, end in pairwise(of_day)] == [3600.0] * hours


def test_a_shift_goes_over_midnight_and_over_a_clock_change() -> None:
    edges = begins("shift", at("2026-03-28T23:00+01:00"), at("2026-03-29T07:00+02:00"), BERLIN, SHIFTS)
    assert edges == [
        at("2026-03-28T22:00+01:00"),
        at("2026-03-29T06:00+02:00"),  # seven hours later
        at("2026-03-29T14:00+02:00"),
    ]


def test_hours_of_a_zone_that_changes_by_half_an_hour_are_whole_or_cut_at_the_change() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    first_s, last_s = at("2026-10-03T13:00+00:00"), at("2026-10-03T18:00+00:00")
    edges = begins("hour", first_s, last_s, zone, ())
    assert {round(end - begin) for begin, end in pairwise(edges)} <= {1800, 3600}
    assert all(datetime.fromtimestamp(edge, zone).minute in {0, 30} for edge in edges)


def test_a_day_that_begins_at_one_oclock_begins_there() -> None:
    """Where the clocks go forward at midnight there is no midnight."""
    zone = ZoneInfo("Africa/Cairo")
    noon_s = at("2026-04-24T12:00+03:00")
    begin_s, end_s = begins("day", noon_s, noon_s, zone, ())
    assert datetime.fromtimestamp(begin_s, zone).hour == 1
    assert (end_s - begin_s) / 3600 == 23


def test_the_last_rows_are_listed_with_runs_between_them_newest_last(tmp_path: Path) -> None:
    """Over files; of a run all numbers, and the reason."""
    make_journal(
        tmp_path,
        [
            (inspection(1), WALL_S),
            (inspection(2, Evaluation.NOT_OK), WALL_S + 1),
            (lost(3, 9, Code.QUEUE_FULL), WALL_S + DAY_S),
            (inspection(10), WALL_S + DAY_S + 1),
            (lost(11, 99, Code.INTERRUPTED, upper_bound=True), WALL_S + DAY_S + 2),
        ],
    )
    rows = documents(tmp_path, Question(last=4))
    assert [(row["fromFrameId"], row["toFrameId"], row["frames"]) for row in rows] == [
        (2, 2, 1),
        (3, 9, 7),
        (10, 10, 1),
        (11, 99, 89),
    ]
    assert rows[0] == {
        "seq": 2,
        "resultId": "20746f70-3030-3030-3030-303030303032",
        "cameraId": "top",
        "fromFrameId": 2,
        "toFrameId": 2,
        "frames": 1,
        "framesIsUpperBound": False,
        "captureTime": "2026-11-30T00:53:21.000Z",
        "resultState": 1,
        "resultEvaluation": 2,
        "evaluation": "notOk",
        "resultEvaluationCode": 110,
        "resultEvaluationDetails": "details of 2",
    }
    assert "seq" not in rows[1]
    assert rows[1]["resultEvaluationDetails"] == "test"
    assert [row["framesIsUpperBound"] for row in rows] == [False, False, False, True]
    assert documents(tmp_path, Question(last=0))[1:] == rows


@pytest.mark.parametrize(
    ("question", "frames"),
    [
        (Question(camera="side"), [3]),
        (Question(evaluation="notOk"), [2, 3]),
        (Question(code=301), [4]),
        (Question(begin="2026-11-30T00:53:22Z"), [3, 4, 9]),
        (Question(end="2026-11-30T00:53:22Z"), [1, 2]),
        (Question(begin="4s", end="2s"), [2, 3]),
        (Question(last=2), [4, 9]),
        (Question(last=0), [1, 2, 3, 4, 9]),
        (Question(camera="top", evaluation="undefined", last=0), [4]),
    ],
)
def test_filters_hold_for_results_and_runs(tmp_path: Path, question: Question, frames: list[int]) -> None:
    make_journal(
        tmp_path,
        [
            (inspection(1), WALL_S),
            (inspection(2, Evaluation.NOT_OK), WALL_S + 1),
            (inspection(3, Evaluation.NOT_OK, camera="side"), WALL_S + 2),
            (lost(4, 8), WALL_S + 3),
            (inspection(9), WALL_S + 4),
        ],
    )
    assert [row["fromFrameId"] for row in documents(tmp_path, question, now_s=WALL_S + 5)] == frames


def test_frames_are_counted_by_hour_shift_and_day_of_the_plant(tmp_path: Path) -> None:
    """Runs with every frame; numbers that are only possibly lost are no frames. Begin and end say their offset."""
    begin_s = at("2026-10-25T01:30+02:00")
    records: list[tuple[Record, float]] = [
        (inspection(hour + 1, Evaluation(hour % 4)), begin_s + hour * 3600) for hour in range(8)
    ]
    records += [(lost(10, 19), begin_s + 8 * 3600), (lost(20, 90, upper_bound=True), begin_s + 8 * 3600)]
    make_journal(tmp_path / "state" / "journal", records)
    config = configuration(tmp_path, ", time_zone: Europe/Berlin, shifts: ['06:00', '14:00', '22:00']")
    folder = tmp_path / "state" / "journal"
    hours = documents(folder, Question(by="hour"), config=config)
    assert [hour["from"] for hour in hours][:4] == [
        "2026-10-25T01:00+02:00",
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
    ]
    assert [hour["total"] for hour in hours] == [1] * 8 + [10]
    shifts = documents(folder, Question(by="shift"), config=config)
    assert shifts == [
        {
            "from": "2026-10-24T22:00+02:00",
            "to": "2026-10-25T06:00+01:00",
            "ok": 2,
            "notOk": 1,
            "notDecidable": 1,
            "undefined": 2,
            "total": 6,
        },
        {
            "from": "2026-10-25T06:00+01:00",
            "to": "2026-10-25T14:00+01:00",
            "ok": 0,
            "notOk": 1,
            "notDecidable": 1,
            "undefined": 10,
            "total": 12,
        },
    ]
    (day,) = documents(folder, Question(by="day"), config=config)
    assert (day["from"], day["to"], day["total"]) == ("2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00", 18)
    assert documents(folder, Question(by="hour", last=2), config=config) == hours[-2:]
    assert documents(folder, Question(by="hour", last=0, evaluation="notOk"), config=config)[0]["total"] == 1


def test_counts_go_back_no_further_than_they_must_and_are_whole(tmp_path: Path) -> None:
    """A bucket whose frames are in two files is whole; older files are not needed."""
    begin_s = at("2026-11-30T22:30+00:00")
    make_journal(tmp_path, [(inspection(n), begin_s + n * 1800) for n in range(1, 200)])
    days = documents(tmp_path, Question(by="day", last=3))
    assert [day["total"] for day in days] == [48, 48, 5]
    every = documents(tmp_path, Question(by="day", last=0))
    assert sum(day["total"] for day in every) == 199
    assert every[-3:] == days


def test_a_field_that_a_result_message_has_too_is_as_there(tmp_path: Path) -> None:
    """`resultEvaluation` was a word here and a number on the wire: a script that asked for 1 found no good part."""
    make_journal(tmp_path, [(inspection(1), WALL_S), (lost(2, 3), WALL_S + 1)])
    result = published_schema("result")
    for row in documents(tmp_path, Question()):
        for name in row.keys() & result["properties"].keys() - {"resultId"}:  # this journal's are made up
            rule = {**result["properties"][name], "$defs": result["$defs"]}
            assert Draft202012Validator(rule).is_valid(row[name]), (name, row[name])
        assert row["evaluation"] == Evaluation(row["resultEvaluation"]).word


def test_csv_has_the_same_fields_with_a_head_and_empty_places(tmp_path: Path) -> None:
    make_journal(tmp_path, [(inspection(1), WALL_S), (lost(2, 3), WALL_S + 1)])
    text, _ = ask(tmp_path, Question(), form="csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["fromFrameId"] for row in rows] == ["1", "2"]
    assert (rows[0]["seq"], rows[1]["seq"]) == ("1", "")
    assert list(rows[0]) == list(documents(tmp_path, Question())[0])
    counted, _ = ask(tmp_path, Question(by="day"), form="csv")
    assert counted.splitlines()[1] == "2026-11-30T00:00+00:00,2026-12-01T00:00+00:00,1,0,0,2,3"


def test_a_table_names_frames_evaluation_and_reason_in_words(tmp_path: Path) -> None:
    """Markup in a reason is text."""
    make_journal(tmp_path, [(inspection(1, Evaluation.NOT_DECIDABLE), WALL_S), (lost(2, 9, upper_bound=True), WALL_S)])
    text, _ = ask(tmp_path, Question(), form="table")
    assert "notDecidable" in text
    assert "details of 1" in text
    assert "2…9 (at most 8)" in text
    assert "2026-11-30 00:53:20.000+00:00" in text
    counted, _ = ask(tmp_path, Question(by="hour"), form="table")
    assert "2026-11-30 00:00 +0000" in counted


def test_a_journal_of_an_older_release_and_a_damaged_file_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    """What is left out is told; the other files are listed."""
    make_journal(tmp_path, [(inspection(day + 1), WALL_S + day * DAY_S) for day in range(3)])
    make_older(tmp_path / "00000001.sqlite")
    (tmp_path / "00000002.sqlite").write_bytes(b"spoiled" * 1000)
    text, told = ask(tmp_path, Question())
    assert [json.loads(line)["fromFrameId"] for line in text.splitlines()] == [1, 3]
    assert "00000002.sqlite" in told
    assert "left out" in told


def test_a_payload_that_cannot_be_read_does_not_hide_the_row(tmp_path: Path) -> None:
    make_journal(tmp_path, [(inspection(1), WALL_S), (inspection(2), WALL_S)])
    with closing(sqlite3.connect(tmp_path / "00000001.sqlite")) as connection, connection:
        connection.execute("UPDATE results SET payload = ? WHERE seq = 1", (b"spoiled",))
        connection.execute("UPDATE results SET payload = ? WHERE seq = 2", (zlib.compress(b"{}"),))
    rows = documents(tmp_path, Question())
    assert [row["resultEvaluationDetails"] for row in rows] == ["(the message cannot be read)", ""]


def test_a_log_without_its_index_is_read_in_a_copy(tmp_path: Path) -> None:
    """As after a power cut, or in a copy that somebody made: nothing is created beside it."""
    journal, _ = open_journal(tmp_path / "live")
    journal.commit([inspection(1)], encode, WALL_S)
    (tmp_path / "copy").mkdir()
    for name in ("00000001.sqlite", "00000001.sqlite-wal"):
        shutil.copy(tmp_path / "live" / name, tmp_path / "copy")
    assert [row["fromFrameId"] for row in documents(tmp_path / "copy", Question())] == [1]
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["00000001.sqlite", "00000001.sqlite-wal"]


def test_reading_a_closed_journal_leaves_no_trace(tmp_path: Path) -> None:
    make_journal(tmp_path, [(inspection(day + 1), WALL_S + day * DAY_S) for day in range(3)])
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()}
    documents(tmp_path, Question())
    documents(tmp_path, Question(by="day"))
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Question(evaluation="notok"), "--evaluation notok: is none, did you mean `notOk`"),
        (Question(begin="tomorrow"), "--from tomorrow: is no time"),
        (Question(begin="1h", end="2h"), "--from 1h is not before --to 2h"),
        (Question(last=-1), "--last -1"),
        (Question(by="shift"), "names no shifts; add station.shifts"),
    ],
)
def test_a_bad_argument_is_named_with_what_would_be_right(tmp_path: Path, question: Question, words: str) -> None:
    make_journal(tmp_path, [(inspection(1), WALL_S)])
    with pytest.raises(UsageError) as fault:
        ask(tmp_path, question)
    assert words in str(fault.value)


def test_a_journal_that_is_not_there_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match=r"nowhere: there is no journal; give the configuration .*--journal"):
        ask(tmp_path / "nowhere", Question())
    with pytest.raises(OutsideError, match="there is no result in it yet"):
        ask(tmp_path, Question())
    (tmp_path / "file").write_text("")
    with pytest.raises(OutsideError, match="is no folder"):
        ask(tmp_path / "file", Question())


def test_another_majors_journal_is_refused_with_the_release_that_reads_it(tmp_path: Path) -> None:
    make_journal(tmp_path, [(inspection(1), WALL_S)])
    with closing(sqlite3.connect(tmp_path / "00000001.sqlite")) as connection, connection:
        connection.execute("UPDATE state SET schema_version = '2.0', software_version = '9.1.0'")
    with pytest.raises(OutsideError, match=r"inspectd 9\.1\.0 \(journal schema 2\.0\)"):
        ask(tmp_path, Question())


def test_only_station_and_storage_of_the_configuration_have_to_be_right(tmp_path: Path) -> None:
    """The model file is not there, and that does not matter here; a wrong time zone does."""
    make_journal(tmp_path / "state" / "journal", [(inspection(1), WALL_S)])
    config = configuration(tmp_path, ", time_zone: Asia/Shanghai")
    out = io.StringIO()
    assert list_results(Question(), config, {}, out=out, err=io.StringIO()) == 0
    assert "2026-11-30 08:53:20.000+08:00" in out.getvalue()
    broken = configuration(tmp_path, ", shifts: 6")
    with pytest.raises(ConfigurationError, match="shifts"):
        list_results(Question(), broken, {}, out=out, err=io.StringIO())


def test_an_output_file_gets_the_rows_and_is_never_one_of_the_journals(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    make_journal(journal, [(inspection(1), WALL_S)])
    out, config = io.StringIO(), Path("no-such-file.yaml")
    target = tmp_path / "rows.csv"
    list_results(Question(), config, {}, journal=journal, form="csv", output=target, out=out, err=out)
    assert target.read_text().count("\n") == 2
    assert out.getvalue() == ""
    with pytest.raises(UsageError, match="that is in the journal itself"):
        list_results(Question(), config, {}, journal=journal, output=journal / "00000001.sqlite", out=out, err=out)
    with pytest.raises(OutsideError, match="--output"):
        list_results(Question(), config, {}, journal=journal, output=tmp_path / "no" / "x", out=out, err=out)


def test_nothing_that_fits_is_said_in_words(tmp_path: Path) -> None:
    make_journal(tmp_path, [(inspection(1), WALL_S)])
    assert ask(tmp_path, Question(camera="left"), form="table") == ("", "nothing in the journal fits\n")
