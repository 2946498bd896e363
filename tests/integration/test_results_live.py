"""`inspectd results` beside a writer that does not stop: exact, harmless, also for a user who may only read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_writer import Recorder
from tests.journaling import BOOT_ID, WALL_S, audit, close_journals, encode, inspection, lost, open_journal

from inspectd.publish.retention import Limits
from inspectd.publish.writer import Writer
from inspectd.records import Evaluation

LISTER = """
import os, sys
from pathlib import Path
from inspectd.errors import InspectdError
from inspectd.results_command import Question, list_results

folder, by, last, user = sys.argv[1:5]
if int(user):
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
try:
    question = Question(by=by or None, last=int(last))
    config = Path("no-such-file.yaml")
    list_results(question, config, {}, journal=Path(folder), form="jsonl", out=sys.stdout, err=sys.stderr)
except InspectdError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
NOBODY = 65534


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    """Python tells of a connection that nobody closed."""
    yield
    close_journals()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user may get to: pytest's own is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="inspectd-results-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def ask(folder: Path, by: str = "", last: int = 20, user: int = 0) -> tuple[list[dict[str, Any]], str]:
    """List in a process of its own: within the writer's it would give up the writer's locks."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LISTER, str(folder), by, str(last), str(user)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    out, err = await process.communicate()
    return [json.loads(line) for line in out.splitlines()], err.decode()


def begin(folder: Path) -> tuple[Writer, Recorder]:
    """Start a writer that begins a new file every 64 kB, and gives the oldest up all the time."""
    journal, _ = open_journal(folder, Limits(max_bytes=4 << 20, file_max_bytes=64 * 1024))
    recorder = Recorder()
    writer = Writer(
        journal, lambda _: encode, recorder, asyncio.get_running_loop(), wall=lambda: WALL_S, boot_id=BOOT_ID
    )
    writer.start()
    return writer, recorder


def others(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.suffix != ".sqlite"]


async def write_on(writer: Writer, stop: asyncio.Event) -> int:
    """Write 40 results and a run at a time, all delivered at once; give how many numbers were used."""
    number = 0
    while not stop.is_set():
        for _ in range(40):
            number += 1
            result = inspection(number, Evaluation(1 + number % 3))
            writer.submit(replace(result, captured_wall_s=WALL_S + number / 100))
        writer.submit(replace(lost(number + 1, number + 5), wall_s=WALL_S + (number + 1) / 100))
        number += 5
        writer.ack(writer.stream_id, number * 8 // 10)
        await asyncio.sleep(0.03)
    return number


async def test_results_are_listed_and_counted_while_they_are_written(tmp_path: Path) -> None:
    """Each answer is a whole state of the journal: no gap, no number twice; and the writer never notices."""
    writer, recorder = begin(tmp_path)
    stop = asyncio.Event()
    writing = asyncio.create_task(write_on(writer, stop))
    await recorder.until(lambda: len(recorder.rows) > 200)
    heights: list[int] = []
    for _ in range(6):
        (rows, told), (counted, told_too) = await asyncio.gather(ask(tmp_path, last=100), ask(tmp_path, by="day"))
        assert (told, told_too) == ("", "")
        numbers = [number for row in rows for number in range(row["fromFrameId"], row["toFrameId"] + 1)]
        assert len(rows) == 100
        assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))
        seqs = [row["seq"] for row in rows if "seq" in row]
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        (day,) = counted
        assert day["total"] == day["ok"] + day["notOk"] + day["notDecidable"] + day["undefined"]
        heights.append(max(numbers))
    assert heights == sorted(set(heights)), "each listing is newer than the one before"
    stop.set()
    number = await writing
    assert await writer.close(10)
    assert recorder.troubles == []
    assert recorder.streams == []
    assert recorder.failures == []
    (day,), told = await ask(tmp_path, by="day")
    _, frames, evaluations = audit(tmp_path)
    assert told == ""
    assert day["total"] == sum(frames.values()) == evaluations.total()
    assert max(frame for _, frame in frames) == number
    assert others(tmp_path) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_a_user_of_the_group_may_read_and_one_outside_is_told_the_group(open_folder: Path) -> None:
    """As the unit has it: folder 0750, files 0640. Whoever may only read changes nothing."""
    folder = open_folder / "journal"
    mask = os.umask(0o027)
    writer, recorder = begin(folder)
    writer.submit(inspection(1))
    await recorder.until(lambda: recorder.rows)
    try:
        rows, told = await ask(folder, user=NOBODY)
        assert rows == []
        assert told.startswith("OutsideError: ")
        assert "nobody may not read it" in told
        assert "belongs to the group root" in told
        os.chown(folder, 0, NOBODY)
        rows, told = await ask(folder, user=NOBODY)
        assert rows == []
        assert "00000001.sqlite: nobody may not read it" in told
        for path in folder.iterdir():
            os.chown(path, 0, NOBODY)
        writer.submit(inspection(2))
        await recorder.until(lambda: len(recorder.rows) == 2)
        before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        rows, told = await ask(folder, user=NOBODY)
        assert (told, [row["fromFrameId"] for row in rows]) == ("", [1, 2])
        assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    finally:
        os.umask(mask)
        assert await writer.close(5)


async def test_what_a_killed_daemon_left_is_read_as_it_is(tmp_path: Path) -> None:
    """Its log and the index are still there; they stay, and no other file comes."""
    journal, _ = open_journal(tmp_path / "live")
    journal.commit([inspection(1), inspection(2)], encode, WALL_S)
    shutil.copytree(tmp_path / "live", tmp_path / "left")
    before = {path.name: path.read_bytes() for path in (tmp_path / "left").iterdir()}
    assert len(before) == 3
    rows, told = await ask(tmp_path / "left")
    assert (told, [row["fromFrameId"] for row in rows]) == ("", [1, 2])
    assert {path.name: path.read_bytes() for path in (tmp_path / "left").iterdir()} == before
