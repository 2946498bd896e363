"""Makes the socket: never open to more than its group; a dead daemon's is replaced, a living one's is not."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from inspectd.door.place import PATH_MAX_BYTES, fits
from inspectd.errors import OutsideError

MODE = 0o660
BACKLOG = 32


def listen(path: Path) -> socket.socket:
    """Give a listening socket at `path`, of this process's group. Raises OutsideError."""
    if not fits(path):
        length = len(os.fsencode(path))
        raise OutsideError(
            f"{path}: {length} bytes, and a socket's path may have {PATH_MAX_BYTES}; give a shorter storage.path"
        )
    try:
        _make_room(path)
        return _bound(path)
    except OSError as error:
        raise OutsideError(f"{path}: {error.strerror}") from error


def remove(path: Path, listener: socket.socket, inode: tuple[int, int]) -> None:
    """Close it, and take its file away if it is still ours."""
    listener.close()
    if identity(path) == inode:
        path.unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None: it is not there."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make_room(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OutsideError(f"{path}: is there and is no socket; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a daemon that hangs has its backlog full, and lives
        answer = probe.connect_ex(str(path))
    if answer == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif answer != errno.ENOENT:
        raise OutsideError(f"{path}: another daemon answers there; give each its own storage.path")


def _bound(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        # The kernel gives the file the mode of the socket less the umask: narrower than wanted first, never wider.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        path.chmod(MODE)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
