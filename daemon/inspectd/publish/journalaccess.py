"""Reads a journal's file beside the daemon that may be writing it. Creates nothing, changes nothing, holds nothing.

Only for another process than the daemon's: a file that is closed here gives up POSIX locks of the whole process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from inspectd.errors import OutsideError
from inspectd.publish.sqlitefile import index_of, log_of

_LOCK_FIRST, _LOCK_COUNT = 0x4000_0002, 510
"""SQLite's SHARED lock (its file os_unix.c): who holds it keeps others from taking the log away while they close."""
_LOCK_WAIT_S, _LOCK_STEP_S = 2.0, 0.01


Query = tuple[str, Sequence[str | int]]
"""SQL and its values."""
Row = tuple[Any, ...]


class Unreadable(OutsideError):
    """One file cannot be read; the others can."""


def fetch(path: Path, *queries: Query) -> list[list[Row]]:
    """Give the rows of each query, all of one state of the file; none if it is gone by now.

    Raises Unreadable, and PermissionError. Read twice where it fails: a file can be taken for closed in the moment in
    which the daemon opens it.
    """
    try:
        try:
            return _fetch(path, queries)
        except sqlite3.Error:
            return _fetch(path, queries)
    except sqlite3.Error as error:
        raise Unreadable(f"{path}: {error}") from error
    except FileNotFoundError:
        return [[] for _ in queries]


def _fetch(path: Path, queries: Sequence[Query]) -> list[list[Row]]:
    """SQLite makes a log and its index where there are none, even for a connection that only reads.

    So it is told of a log only where both are there, and they are held there; else that the file does not change. A
    log without its index (after a power cut) is read in a copy.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _hold(path, descriptor)
        log = log_of(path)
        if log.exists() and index_of(path).exists():
            return _answer(path, "mode=ro&readonly_shm=1", queries)
        if not log.exists() or not log.stat().st_size:
            return _answer(path, "immutable=1", queries)
        with tempfile.TemporaryDirectory(prefix="inspectd-results-") as folder:
            for original in (path, log):
                shutil.copy(original, folder)
            return _answer(Path(folder, path.name), "mode=rw", queries)
    finally:
        os.close(descriptor)


def _answer(path: Path, options: str, queries: Sequence[Query]) -> list[list[Row]]:
    address = f"file:{quote(str(path))}?{options}"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        return [connection.execute(*query).fetchall() for query in queries]


def _hold(path: Path, descriptor: int) -> None:
    """Share the file. Only while a daemon closes it is it not to be had."""
    give_up_s = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, _LOCK_COUNT, _LOCK_FIRST)
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() >= give_up_s:
                raise Unreadable(f"{path}: another program has locked it") from error
            time.sleep(_LOCK_STEP_S)
        else:
            return
