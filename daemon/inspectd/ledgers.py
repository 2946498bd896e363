"""Opens the ledger of every camera, also one that a process of an earlier daemon holds: killed, but not ended.

Whoever holds the folder's lock knows that no other daemon lives. A process that still holds a ledger then belongs to
one that is gone: it was killed with it, and ends within milliseconds, or is frozen or stuck in a driver for ever.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from inspectd.errors import OutsideError
from inspectd.ledger import Ledger, LedgerHeld
from inspectd.publish.sqlitefile import DiskFull
from inspectd.survivors import Survivor, catch_holders

log = logging.getLogger(__name__)

END_LIMIT_S = 2.0
"""Killed processes that have not ended after this are stuck: their ledgers are succeeded. For all cameras together."""
STEP_S = 0.02

Survivors = dict[str, list[Survivor]]
"""By camera: processes of earlier daemons that were killed and have not ended."""


def camera_names(folder: Path) -> list[str]:
    """Cameras that have a ledger. Names with a point are not theirs."""
    if not folder.is_dir():
        return []
    return [file.name for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]


def open_ledgers(folder: Path, cameras: Iterable[str]) -> tuple[dict[str, Ledger], Survivors]:
    """Open or make the ledger of each camera. Raises OutsideError, and DiskFull for a ledger that has to be made."""
    with ExitStack() as undo:
        ledgers: dict[str, Ledger] = {}
        held: list[Path] = []
        for path in sorted(folder / camera for camera in cameras):
            try:
                ledgers[path.name] = _open(path)
                undo.callback(ledgers[path.name].close)
            except LedgerHeld:
                held.append(path)
        for path in held:
            for holder in _holders(path, path.name):
                holder.close()  # killed is all that it has to be, for now
        deadline_s = time.monotonic() + END_LIMIT_S
        for path in held:
            ledgers[path.name] = _wait_for(path, deadline_s)
            undo.callback(ledgers[path.name].close)
        survivors = {camera: found for camera in ledgers if (found := _left_behind(folder / camera))}
        undo.pop_all()
    return ledgers, survivors


def stuck(survivors: Mapping[str, Iterable[Survivor]]) -> dict[str, tuple[int, ...]]:
    """By camera: process ids of those that have still not ended."""
    alive = {camera: tuple(one.pid for one in found if one.is_alive) for camera, found in survivors.items()}
    return {camera: pids for camera, pids in alive.items() if pids}


def _wait_for(path: Path, deadline_s: float) -> Ledger:
    """Wait for the end of those that hold the ledger; a copy of it is ours when they do not end in time."""
    while time.monotonic() < deadline_s:
        try:
            return _open(path)
        except LedgerHeld:
            time.sleep(STEP_S)
    log.error("camera %s: a process of an earlier inspectd does not let its ledger go: a copy is used", path.name)
    with _told(path):
        set_aside = path.with_name(f".{path.name}.held-{path.stat().st_ino}")
        return Ledger.succeed(path, path.with_name(f".{path.name}.new"), set_aside)


def _left_behind(path: Path) -> list[Survivor]:
    """Give the processes that hold what was set aside of this ledger; what nobody holds any more is removed."""
    survivors: list[Survivor] = []
    for set_aside in path.parent.glob(f".{path.name}.held-*"):
        with _told(set_aside):
            # The same file: a daemon was killed between setting it aside and putting the copy in its place.
            if set_aside.samefile(path) or not _is_held(set_aside):
                set_aside.unlink()
                continue
        survivors += _holders(set_aside, path.name)
    if survivors:
        pids = ", ".join(str(one.pid) for one in survivors)
        log.warning("camera %s: killed with an earlier inspectd, but not ended: process %s", path.name, pids)
    return survivors


def _open(path: Path) -> Ledger:
    with _told(path):
        return Ledger.open(path)


def _holders(path: Path, name: str) -> list[Survivor]:
    with _told(path), path.open("r+b", buffering=0) as file:
        return catch_holders(file.fileno(), name)


def _is_held(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what the disk says into what the caller may do."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"{path}: {error.strerror}") from error
        raise OutsideError(f"{path}: {error.strerror}; inspectd must be able to write it") from error
