"""What a commit costs on this disk just now: one row at a time, WAL, synchronous=FULL, beside whatever runs."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

ROW_BYTES = 900
"""A result's payload, compressed."""


@contextmanager
def commit_probe(folder: Path, period_s: float) -> Iterator[list[float]]:
    """Commit a row every so often while the block runs; the list gets how long each commit took, in s."""
    times_s: list[float] = []
    ended = threading.Event()
    thread = threading.Thread(target=_probe, args=(folder / "probe.sqlite", period_s, times_s, ended), name="probe")
    thread.start()
    try:
        yield times_s
    finally:
        ended.set()
        thread.join()


def _probe(path: Path, period_s: float, times_s: list[float], ended: threading.Event) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, payload BLOB)")
        while not ended.wait(period_s):
            payload = os.urandom(ROW_BYTES)
            begun_s = time.monotonic()
            connection.execute("INSERT INTO rows (payload) VALUES (?)", (payload,))
            times_s.append(time.monotonic() - begun_s)
