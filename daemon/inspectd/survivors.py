"""Finds the processes that hold a file's flock, by what the kernel tells of their descriptors; kills and watches them.

It never waits for such a process. Of a process that is stuck in a driver only files are read that do not need its
memory map: its `cmdline` and `maps` would hang the reader as well, and so might `fdinfo` of a device.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""struct flock of fcntl(2)."""


class Survivor:
    """A killed process that has not ended. It is held by a pidfd: another process that gets its pid is not meant."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid, self._pidfd = pid, pidfd

    @property
    def is_alive(self) -> bool:
        """Whether any of its threads is still there."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return not poller.poll(0)

    def kill(self) -> None:
        """Send SIGKILL. The kernel has mostly done that at its main's death; once more does no harm."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Watch it no longer."""
        os.close(self._pidfd)


def catch_holders(descriptor: int, name: str) -> list[Survivor]:
    """Kill whoever holds the flock on the open file, whose name is or was `name`; gives those that are caught.

    The caller knows that none of them is wanted. A lock that was taken through `descriptor` itself is not seen: the
    file must be opened anew. A holder that this process may not look at, or that has not taken the descriptor out of
    its socket yet, is not found.
    """
    lock = _as_the_kernel_names_it(descriptor)
    caught: list[Survivor] = []
    for pid in _processes():
        if not _holds(pid, lock, name):
            continue
        with contextlib.suppress(ProcessLookupError):
            survivor = Survivor(pid, os.pidfd_open(pid))
            if _holds(pid, lock, name):  # asked again: the pidfd is that of the process that was looked at
                survivor.kill()
                caught.append(survivor)
            else:
                survivor.close()
    return caught


def _as_the_kernel_names_it(descriptor: int) -> str:
    """Give device and inode as they stand in a lock's line.

    stat has another device on btrfs and overlayfs. Therefore we take a lock of another kind (the two do not meet) and
    read how ours is written. It goes with the descriptor.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    text = (_PROC / "self" / "fdinfo" / str(descriptor)).read_text("ascii")
    return next(words[6] for words in _locks(text) if words[2] == "OFDLCK")


def _locks(fdinfo: str) -> Iterator[list[str]]:
    """Lines like `lock: 1: FLOCK ADVISORY WRITE 4711 fe:00:2146337 0 EOF`, in words."""
    for line in fdinfo.splitlines():
        words = line.split()
        if words[:1] == ["lock:"] and len(words) > 6:
            yield words


def _processes() -> Iterator[int]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            yield int(entry.name)


def _holds(pid: int, lock: str, name: str) -> bool:
    """Whether the process has the descriptor that the lock belongs to; False where we may not look, or it has ended."""
    with contextlib.suppress(OSError):
        return any(
            words[2] == "FLOCK" and words[6] == lock
            for fdinfo in _descriptors_of(pid, name)
            for words in _locks(fdinfo.read_text("ascii"))
        )
    return False


def _descriptors_of(pid: int, name: str) -> Iterator[Path]:
    """Give the fdinfo of each descriptor of a file of that name, from every thread's view.

    The first thread of a killed process may be gone, and its descriptors with it, while another one is stuck.
    """
    for thread in (_PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for entry in (thread / "fd").iterdir():
                # Only the text of the link: to follow it would ask a disk or a device that may hang.
                if entry.readlink().name.removesuffix(" (deleted)") == name:
                    yield thread / "fdinfo" / entry.name
