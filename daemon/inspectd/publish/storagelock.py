"""One daemon per storage path: a lock file held by flock, which the kernel gives back when the holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from inspectd.errors import OutsideError


class StorageLock:
    """The lock on `storage.path`. The file holds the holder's process id in text."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> StorageLock:
        """Lock the folder (made if it is not there). Raises OutsideError with the pid of the daemon that has it."""
        lock = path / "lock"
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OutsideError(
                f"{lock}: {error.strerror}; give storage.path a folder that inspectd may write"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise OutsideError(
                f"{path} is in use by the inspectd with pid {holder}; stop that one,"
                " or give this one a storage.path of its own"
            ) from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the pid in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Give the folder back. The file stays: unlinking it would let two daemons lock two files of one name."""
        os.close(self._descriptor)
