"""One daemon per storage path: the folder is held by flock, which the kernel gives back when the holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from inspectd.errors import OutsideError


class StorageLock:
    """The lock on `storage.path`. It is on the folder, for a file could be removed, and a second daemon make it anew.

    Whoever has it may end what is left of an earlier daemon. The file `lock` holds the holder's process id in text.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> StorageLock:
        """Lock the folder (made if it is not there). Raises OutsideError with the pid of the daemon that has it."""
        lock = path / "lock"
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock.touch(0o600)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OutsideError(
                f"{lock}: {error.strerror}; give storage.path a folder that inspectd may write"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            holder = lock.read_text("ascii", "replace").strip() or "unknown"
            raise OutsideError(
                f"{path} is in use by the inspectd with pid {holder}; stop that one,"
                " or give this one a storage.path of its own"
            ) from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the pid in it
            lock.write_text(f"{os.getpid()}\n", "ascii")
        return cls(descriptor)

    def release(self) -> None:
        """Give the folder back. The file with the pid stays."""
        os.close(self._descriptor)
