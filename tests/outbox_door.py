"""The journal and the way to the broker, as a process of their own: results come in at a rate, and it may be killed.

`python -m tests.outbox_door FOLDER PORT LAST_FRAME RATE_PER_S`: goes on with the frame after the last committed one,
sends verdicts, and writes a line per commit and one when all is delivered. Real Writer, Announcer, Publisher.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from tests.journaling import BOOT_ID, LARGE, encode, inspection

from inspectd.publish import reports
from inspectd.publish.announcer import Announcer, Wording
from inspectd.publish.broker import BrokerSettings
from inspectd.publish.commands import Answer
from inspectd.publish.journal import Encode, Journal
from inspectd.publish.journal_door import Journal as JournalPort
from inspectd.publish.publisher import Publisher
from inspectd.publish.reports import Vision
from inspectd.publish.writer import Writer
from inspectd.publish.writerport import Commit
from inspectd.records import Inspection

BASE = "outbox/door"
STEP_S = 0.01
DEADLINE_S = 60.0
DRAIN_S = 600.0


def worded(record: Inspection, seq: int) -> bytes:
    """The payload of a result, the same whenever it is made."""
    return encode(record, seq)


def verdict(record: Inspection, seq: int) -> bytes:
    """A verdict that says when its picture was taken."""
    return b'{"seq":%d,"frame":%d,"captured":%.6f}' % (seq, record.frame_id, record.captured_s)


def last_result(_record: Inspection, seq: int) -> bytes:
    """The retained last result, as far as it matters here."""
    return b'{"seq":%d}' % seq


class _Announcer(Announcer):
    def on_commit(self, commit: Commit) -> None:
        super().on_commit(commit)
        if commit.rows:
            os.write(1, b"committed %d\n" % max(row.seq or 0 for row in commit.rows))


async def main(folder: Path, port: int, last_frame: int, rate_per_s: float) -> None:
    """Live until everything is delivered."""
    journal, recovered = Journal.open(
        folder, kernel_boot_id=BOOT_ID, now_wall_s=time.time(), limits=LARGE, software_version="0.0.test"
    )
    journal.commit((), worded, time.time())
    loop = asyncio.get_running_loop()
    progress = asyncio.Event()
    part = SimpleNamespace()
    announcer = _Announcer(
        lambda: part.publisher,
        {},
        recovered.counters,
        Wording(verdict, last_result),
        time.monotonic,
    )

    announcer.on_progress = progress.set

    def encoder(_stream_id: str) -> Encode:
        return worded

    writer = Writer(journal, encoder, announcer, loop, boot_id=BOOT_ID)

    async def put_aside(seq: int, reason: str) -> bytes | None:
        raise AssertionError(f"{seq}: {reason}")

    def acknowledge(seq: int) -> None:
        writer.ack(recovered.stream_id, seq)

    def answered(given: Answer) -> bytes:
        return reports.response(given, Vision.OPERATIONAL, time.time())

    door = JournalPort(
        recovered.stream_id, recovered.acked_seq, recovered.next_seq - 1, writer.read, acknowledge, put_aside
    )
    settings = BrokerSettings("127.0.0.1", port, BASE, lambda: b"{}", keepalive_s=2, connect_limit_s=2.0)
    part.publisher = publisher = Publisher(settings, door, answered)
    writer.start()
    running = asyncio.create_task(publisher.run())
    publisher.retain("status", b'{"status":"online"}', 1)
    mark = recovered.marks.get("top")
    first_frame = frame = 1 if mark is None else mark.accounted_to + 1
    began_s = time.monotonic()
    while frame <= last_frame:
        due = first_frame + int((time.monotonic() - began_s) * rate_per_s)
        while frame <= min(due, last_frame):
            writer.submit(replace(inspection(frame), captured_s=time.monotonic(), deadline_s=DEADLINE_S))
            frame += 1
        await asyncio.sleep(STEP_S)
    while publisher.stats().last_seq < last_frame:
        progress.clear()
        await progress.wait()
    await publisher.drained(DRAIN_S)
    os.write(1, b"delivered %d\n" % publisher.stats().acked_seq)
    await running


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
