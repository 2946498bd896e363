"""What a process uses, read from /proc by its pid: CPU, memory, descriptors, bytes written to the disk."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
"""Places in /proc/PID/stat behind the name; proc_pid_stat(5) calls them 14 and 15."""
_KIB = 1024


class NotMeasured(Exception):
    """A figure could not be had; the others can."""


class Gone(NotMeasured):
    """The process has ended: what was measured of it means nothing."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One process, in bytes."""

    rss: int
    anonymous: int
    """RssAnon: what it has allocated, as the daemon's own ceiling counts it."""
    pss: int
    """Each page divided by how many processes have it: the sum over processes counts every page once."""
    pss_shared: int
    """Of that, frame pools (memfd)."""


def cpu_s(pid: int) -> float:
    """CPU of all threads so far, user and system. Raises Gone."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / TICKS_PER_S


def written_bytes(pid: int) -> int:
    """Bytes that it has caused to be written to a disk (0 on tmpfs). Raises Gone."""
    return _number(_read(pid, "io"), "write_bytes")


def memory(pid: int) -> Memory:
    """Memory now. Raises Gone."""
    status, rollup = _read(pid, "status"), _read(pid, "smaps_rollup")
    return Memory(
        rss=_number(status, "VmRSS") * _KIB,
        anonymous=_number(status, "RssAnon") * _KIB,
        pss=_number(rollup, "Pss") * _KIB,
        pss_shared=_number(rollup, "Pss_Shmem") * _KIB,
    )


def descriptors(pid: int) -> int:
    """Open descriptors now. Raises Gone."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        raise Gone(f"process {pid} has ended") from None


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed; nan of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        raise Gone(f"process {pid} has ended") from None


def _number(text: str, key: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    return 0  # a process that has just become a zombie has no memory any more
