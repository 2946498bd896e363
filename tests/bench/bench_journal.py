"""What the journal costs: bytes written per result, commit times, results per second, opening and checking.

`PYTHONPATH=daemon:. python tests/bench/bench_journal.py [--seconds 30] [--rate 120] [--folder DIR]`
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.journaling import BOOT_ID, LARGE, WALL_S, inspection, open_journal

from inspectd.publish.journal import Encode, Loss, Recovered
from inspectd.publish.journalfile import JournalFile
from inspectd.publish.retention import Limits
from inspectd.publish.writer import Writer
from inspectd.publish.writerport import Commit, CountersReset
from inspectd.records import Evaluation, Inspection

BUDGET_BYTES = 8000
"""DESIGN "Budgets": disk writes per result at 120/s."""
CAMERAS = ("top", "side", "left", "right")


def result(record: Inspection, seq: int) -> bytes:
    """Word a result of 2.2 kB with seven detections, which compresses as the real ones do (0.8 kB)."""
    chance = random.Random(seq)
    detections = [
        {
            "detectionId": number,
            "classId": number % 6,
            "className": ("open", "short", "mousebite", "spur", "copper", "pinhole")[number % 6],
            "confidence": round(chance.random(), 4),
            "bbox": {edge: round(chance.random() * 640, 1) for edge in "xywh"},
            "model": "defects",
        }
        for number in range(7)
    ]
    document: dict[str, Any] = {
        "schema": "inspectd.result/1.0",
        "seq": seq,
        "frameId": record.frame_id,
        "resultId": record.result_id.hex(),
        "hashes": [base64.b64encode(random.Random(number).randbytes(300)).decode() for number in (1,)],
        "ids": base64.b64encode(chance.randbytes(40)).decode(),
        "texts": "the same words in every result " * 12,
        "resultContent": {"detections": detections},
    }
    return json.dumps(document, separators=(",", ":")).encode()


class Gatherer:
    """Keeps the times of the commits."""

    def __init__(self) -> None:
        self.commits_s: list[float] = []
        self.rows = 0
        self.done = asyncio.Event()
        self.wanted = 0

    def on_commit(self, commit: Commit) -> None:
        self.commits_s.append(commit.commit_s)
        self.rows += len(commit.rows)
        if self.rows >= self.wanted:
            self.done.set()

    def on_events(self, last_event: int) -> None:
        """There are none."""

    def on_counters_reset(self, reset: CountersReset) -> None:
        """There is none."""

    def on_uncommitted(self, records: tuple[Inspection, ...]) -> None:
        raise SystemExit(f"{len(records)} results could not be committed")

    def on_trouble(self, reason: str | None) -> None:
        raise SystemExit(reason)

    def on_loss(self, loss: Loss) -> None:
        raise SystemExit(str(loss))

    def on_new_stream(self, recovered: Recovered) -> None:
        raise SystemExit(recovered.damaged)

    def on_failure(self, error: Exception) -> None:
        raise SystemExit(str(error))


def written_bytes() -> int:
    """Ask the kernel what this process has sent to the disk."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        if line.startswith("write_bytes"):
            return int(line.split()[1])
    raise SystemExit("no /proc/self/io here")


def encoder(_: str) -> Encode:
    """Give the same words for every stream."""
    return result


async def paced(folder: Path, seconds: float, rate: float) -> None:
    """Submit at a steady rate, as continuous cameras do."""
    journal, _ = open_journal(folder)
    gatherer = Gatherer()
    writer = Writer(journal, encoder, gatherer, asyncio.get_running_loop(), boot_id=BOOT_ID)
    count = gatherer.wanted = int(seconds * rate)
    before, begun_cpu_s, begun_s = written_bytes(), time.process_time(), time.monotonic()
    writer.start()
    for number in range(count):
        camera = CAMERAS[number % len(CAMERAS)]
        writer.submit(inspection(number // len(CAMERAS) + 1, Evaluation(number % 4), camera=camera))
        writer.ack(writer.stream_id, number)
        writer.reserve(camera, number + 300)
        await asyncio.sleep(max(0.0, begun_s + (number + 1) / rate - time.monotonic()))
    await gatherer.done.wait()
    cpu_s = time.process_time() - begun_cpu_s
    await writer.close(30)
    each = (written_bytes() - before) / count
    payload = statistics.mean(len(result(inspection(1), seq)) for seq in range(1, 50))
    times = sorted(gatherer.commits_s)
    print(
        f"{rate:.0f}/s for {seconds:.0f} s, results of {payload:.0f} bytes: {each:.0f} bytes written per result"
        f" (budget {BUDGET_BYTES} at 120/s); {len(times)} commits, p50 {times[len(times) // 2] * 1e3:.2f} ms,"
        f" p99 {times[int(len(times) * 0.99)] * 1e3:.2f} ms, longest {times[-1] * 1e3:.1f} ms;"
        f" CPU {cpu_s / count * 1e3:.3f} ms per result with its encoding"
    )


async def flooded(folder: Path, count: int) -> None:
    """Submit everything at once: how many results a second reach the disk, and are read back."""
    journal, _ = open_journal(folder)
    gatherer = Gatherer()
    gatherer.wanted = count
    writer = Writer(journal, encoder, gatherer, asyncio.get_running_loop(), boot_id=BOOT_ID)
    begun_s = time.monotonic()
    for number in range(1, count + 1):
        writer.submit(inspection(number))
    submitted_s = time.monotonic() - begun_s
    writer.start()
    await gatherer.done.wait()
    committed_s = time.monotonic() - begun_s
    begun_s = time.monotonic()
    for first in range(1, count + 1, 200):
        await writer.read(first, first + 199, 200)
    read_s = time.monotonic() - begun_s
    await writer.close(30)
    print(
        f"{count} at once: {count / committed_s:.0f} results/s committed, {count / read_s:.0f} read,"
        f" submit {submitted_s / count * 1e6:.0f} µs each"
    )


def large_file(folder: Path, mega_bytes: int) -> None:
    """Check a file as large as they get after a crash, and give up half of it, as on a full disk."""
    limits = Limits(max_bytes=LARGE.max_bytes * 8, file_max_bytes=1 << 40)
    journal, _ = open_journal(folder, limits)
    number = 0
    payload = random.Random(1).randbytes(750)
    while journal._files.total_bytes < mega_bytes << 20:
        kinds = [Evaluation.NOT_OK if place % 20 == 0 else Evaluation.OK for place in range(2000)]
        records = [inspection(number + place + 1, kind) for place, kind in enumerate(kinds)]
        journal.commit(records, lambda _, seq: payload + seq.to_bytes(4, "big"), WALL_S)
        journal.housekeep(WALL_S, ages_count=True)
        number += 2000
    journal.close(clean=False)
    file = JournalFile(folder / "00000001.sqlite")
    begun_s = time.monotonic()
    file.check()
    checked_s = time.monotonic() - begun_s
    begun_s = time.monotonic()
    file.compact(0, Evaluation.OK)
    compacted_s = time.monotonic() - begun_s
    print(
        f"file of {mega_bytes} MB, {number} rows: checked in {checked_s:.2f} s, OK ones removed in {compacted_s:.2f} s"
    )


def many_files(folder: Path, count: int) -> None:
    """Open a journal of many files."""
    journal, _ = open_journal(folder)
    for day in range(count):
        journal.commit([inspection(day + 1)], result, WALL_S + day * 86_400)
    journal.close(clean=True)
    begun_s = time.monotonic()
    open_journal(folder, now_wall_s=WALL_S + count * 86_400)
    print(f"journal of {count} files opened in {time.monotonic() - begun_s:.2f} s")


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=120.0)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to be measured")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-journal-", dir=arguments.folder))
    try:
        asyncio.run(paced(folder / "paced", arguments.seconds, arguments.rate))
        asyncio.run(flooded(folder / "flooded", 9000))
        large_file(folder / "large", 256)
        many_files(folder / "many", 300)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
