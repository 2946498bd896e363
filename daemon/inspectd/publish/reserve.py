"""Disk space that is kept for the journal: a file of zeros, given up when the disk is full, filled again later."""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

NAME = "reserve"
REFILL_FACTOR = 2
"""It is filled only where so many times its size is free, so that it is not what fills the disk."""


class Reserve:
    """`storage.reserve_mb`. Without it results simply become 700 a little earlier; so no error here stops anything."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._path, self._size_bytes = folder / NAME, size_bytes

    def fill(self) -> None:
        """Take the space, if there is plenty."""
        try:
            have = self._path.stat().st_size if self._path.exists() else 0
            disk = os.statvfs(self._path.parent)
            if have >= self._size_bytes or disk.f_bavail * disk.f_frsize < REFILL_FACTOR * self._size_bytes:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("%s: no space is kept for the journal: %s", self._path, error.strerror)

    def give_up(self) -> bool:
        """Give the space to whoever writes next; gives whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        log.warning(
            "the disk is full: %d MB that were kept for the journal are given up", self._size_bytes // 1_000_000
        )
        return True
