"""SQLite and the disk under one file: connecting, errors by what the caller may do, names that survive a power cut."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from inspectd.errors import StorageError

BUSY_S = 0.2
"""Somebody else's write lock (a sqlite3 shell): wait so long, then try again later."""
_FILES = ("", "-wal", "-shm")
_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR_READ,
        sqlite3.SQLITE_IOERR_SHORT_READ,
        sqlite3.SQLITE_IOERR_CORRUPTFS,
    }
)


class JournalDamaged(StorageError):
    """The file cannot be believed any more: set it aside. Trying again does not help."""


class DiskFull(StorageError):
    """There is no room: make some."""


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """Turn what the disk and SQLite raise into what the caller may do; programming errors stay what they are."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.Error as error:
        raise _error_class(error)(f"{path}: {error}") from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise (DiskFull if full else StorageError)(f"{path}: {error.strerror}") from error


def _error_class(error: sqlite3.Error) -> type[StorageError]:
    """Say what the caller may do. An error without a code is text that is not UTF-8; our tables are never missing."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or code in _DAMAGE or code & 0xFF in _DAMAGE or str(error).startswith("no such "):
        return JournalDamaged
    return DiskFull if code == sqlite3.SQLITE_FULL else StorageError


def connect(path: Path, checkpoint_frames: int) -> sqlite3.Connection:
    """Connect to a file that is there; it checkpoints itself only after so many frames.

    The journal is opened by main's thread and then belongs to the writer's.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_S
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_frames}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a closed, complete file its name. Durable once the folder is synced."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.rename(path)


def sync_folder(folder: Path) -> None:
    """Make the folder's names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def log_of(path: Path) -> Path:
    """Give the name of a file's write-ahead log: it is there while a connection is open, and after a kill."""
    return path.with_name(path.name + "-wal")


def index_of(path: Path) -> Path:
    """Give the name of the log's index, which its readers and writers share."""
    return path.with_name(path.name + "-shm")


def discard(path: Path) -> None:
    """Unlink a journal file with its log; the log last, because a file without its log lacks rows."""
    for suffix in _FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def rename(path: Path, new_path: Path) -> None:
    """Rename a journal file with its log, and make it durable; the file last, because without it the log is lost."""
    for suffix in reversed(_FILES):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(new_path.with_name(new_path.name + suffix))
    sync_folder(path.parent)
