"""Opens what must survive and accounts for what the last run left open: lock, ledgers, journal, in this order.

Every number that a ledger gave and that has no row gets one (302) in the first commit, before any camera takes a new
number. Cameras that are not configured any more are included: their last frames count as well.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inspectd.accounts import Mark, recover
from inspectd.ledger import Ledger
from inspectd.ledgers import Survivors, camera_names, open_ledgers
from inspectd.publish.journal import Encode, Journal, Recovered
from inspectd.publish.reserve import Reserve
from inspectd.publish.retention import Limits
from inspectd.publish.sqlitefile import DiskFull
from inspectd.publish.storagelock import StorageLock
from inspectd.records import Code, LostRun

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Where, and how much of it."""

    path: Path
    limits: Limits
    kernel_boot_id: str
    """Another one: the machine went down meanwhile."""
    software_version: str
    reserve_bytes: int
    """Kept free for the journal."""


@dataclass(frozen=True, slots=True)
class CameraNumbers:
    """What numbering needs to know of a configured camera."""

    ahead: int
    """How many numbers it may take before its next commit."""
    simulated: bool


@dataclass(slots=True)
class Storage:
    """Everything that is open, and what was found."""

    lock: StorageLock
    reserve: Reserve
    journal: Journal
    recovered: Recovered
    ledgers: dict[str, Ledger]
    """By camera, configured or not."""
    excluded: dict[str, int]
    """Numbers of each camera that are outside `captured`."""
    survivors: Survivors
    """Camera processes of earlier daemons that were killed and had not ended when the ledgers were opened."""

    def close(self) -> None:
        """Give the ledgers and the folder back (the journal belongs to its writer)."""
        for ledger in self.ledgers.values():
            ledger.close()
        for survivor in itertools.chain.from_iterable(self.survivors.values()):
            survivor.close()
        self.lock.release()


def open_storage(
    settings: StorageSettings,
    cameras: Mapping[str, CameraNumbers],
    encoder: Callable[[str], Encode],
) -> Storage:
    """Open everything and bring ledger and journal together; on a full disk with what was kept free for that.

    Raises OutsideError (another daemon, a folder that cannot be used) and StorageError.
    """
    try:
        return _open(settings, cameras, encoder)
    except DiskFull:
        if not Reserve(settings.path, settings.reserve_bytes).give_up():
            raise
        return _open(settings, cameras, encoder)


def _open(settings: StorageSettings, cameras: Mapping[str, CameraNumbers], encoder: Callable[[str], Encode]) -> Storage:
    with contextlib.ExitStack() as undo:
        lock = StorageLock.acquire(settings.path)
        undo.callback(lock.release)
        folder = settings.path / "ledger"
        ledgers, survivors = open_ledgers(folder, {*cameras, *camera_names(folder)})
        for ledger in ledgers.values():
            undo.callback(ledger.close)
        journal, recovered = Journal.open(
            settings.path / "journal",
            kernel_boot_id=settings.kernel_boot_id,
            now_wall_s=time.time(),
            limits=settings.limits,
            software_version=settings.software_version,
            ledger_last={camera: ledger.last for camera, ledger in ledgers.items() if ledger.valid},
        )
        if recovered.damaged:
            log.error("journal: %s", recovered.damaged)
        missing, their_survivors = open_ledgers(folder, recovered.marks.keys() - ledgers.keys())
        for ledger in missing.values():
            undo.callback(ledger.close)
        ledgers |= missing
        survivors |= their_survivors
        reserve = Reserve(settings.path, settings.reserve_bytes)
        storage = Storage(lock, reserve, journal, recovered, ledgers, {}, survivors)
        _reconcile(storage, encoder, cameras)
        reserve.fill()
        undo.pop_all()
        return storage


def _reconcile(storage: Storage, encoder: Callable[[str], Encode], cameras: Mapping[str, CameraNumbers]) -> None:
    """Give each number without a row its row, and let the ledgers go on above.

    A camera that is not configured any more takes no numbers: nothing is reserved for it.
    """
    now_wall_s, recovered = time.time(), storage.recovered
    lost: list[LostRun] = []
    last: dict[str, int] = {}
    for camera, ledger in storage.ledgers.items():
        mark = recovered.marks.get(camera, Mark())
        ahead = cameras[camera].ahead if camera in cameras else 0
        is_exact = not recovered.other_boot and recovered.damaged is None
        if recovered.damaged is not None:
            # What was reserved is lost with the journal, and a page that went through a power cut may be older.
            mark = replace(mark, reserved_to=mark.highest + ahead)
        recovery = recover(mark, ledger.last if ledger.valid else None, exact=is_exact)
        reason = "the daemon ended with the frame open"
        lost += [
            LostRun(camera, *span, Code.INTERRUPTED, reason, now_wall_s, simulated=ledger.simulated)
            for span in recovery.lost
        ]
        storage.excluded[camera] = mark.excluded
        if recovery.possibly_lost is not None:
            first, to = recovery.possibly_lost
            reason = "the machine went down: at most these frames were lost"
            lost.append(LostRun(camera, first, to, Code.INTERRUPTED, reason, now_wall_s, count_is_upper_bound=True))
            storage.excluded[camera] += to - first + 1
        last[camera] = recovery.last
        storage.journal.reserve(camera, recovery.last + ahead)
    storage.journal.commit(lost, encoder(recovered.stream_id), now_wall_s)
    for camera, ledger in storage.ledgers.items():
        ledger.begin(last[camera], simulated=cameras[camera].simulated if camera in cameras else ledger.simulated)
    for run in lost:
        what = "at most so many frames lost with the machine" if run.count_is_upper_bound else "frames left open"
        log.warning("camera %s: %s: %d (%d to %d)", run.camera, what, run.count, run.from_frame_id, run.to_frame_id)
