"""Counts what a daemon holds: processes, memfds, descriptors. Before and after a fault they must be the same."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import psutil
from tests.faults.fault import Leftovers
from tests.faults.outside import GIVEN_UP, STEP_S

LOOKS = 10


def members(groups: Collection[int]) -> list[int]:
    """Living processes of these process groups: a daemon and its children, orphans too."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) in groups and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def most(groups: Collection[int]) -> Leftovers:
    """Count several times: a connection or a reader may be away just now."""
    looks = []
    for _ in range(LOOKS):
        looks.append(count(groups))
        GIVEN_UP.wait(STEP_S)
    return max(looks, key=lambda found: found.descriptors)


def count(groups: Collection[int]) -> Leftovers:
    """Count; a memfd that several processes hold is one."""
    pids = members(groups)
    memfds, descriptors = set[tuple[int, int]](), 0
    for pid in pids:
        try:
            entries = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue  # it has just ended
        for entry in entries:
            try:
                if str(entry.readlink()).startswith("/memfd:"):
                    inode = entry.stat()
                    memfds.add((inode.st_dev, inode.st_ino))
                descriptors += 1
            except OSError:
                continue  # just closed
    return Leftovers(len(pids), len(memfds), descriptors)
