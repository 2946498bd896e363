"""The PC's own numbers: processor, memory, temperature, throttling. Reads a few files of the kernel, never waits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from inspectd.publish.healthreport import HostHealth

SYS = Path("/sys")
_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""hwmon drivers of processors: Intel, AMD (twice), ARM boards."""
_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc-thermal")
"""Thermal zones of processors, where there is no such chip."""


class HostWatch:
    """Measures from call to call. Which files there are is found out once: asking every sensor can take long."""

    def __init__(self, sys: Path = SYS) -> None:
        self._temperatures = _temperature_files(sys)
        self._throttles = _throttle_files(sys)
        self._throttle_counts = _numbers(self._throttles)
        psutil.cpu_percent(None)  # the first call has nothing to compare with

    def read(self) -> HostHealth:
        """Give the numbers of the time since the last call."""
        memory = psutil.virtual_memory()
        counts, before = _numbers(self._throttles), self._throttle_counts
        self._throttle_counts = counts
        return HostHealth(
            cpu_percent=psutil.cpu_percent(None),
            memory_bytes=memory.total - memory.available,
            temperature_c=max((milli / 1000 for milli in _numbers(self._temperatures).values()), default=None),
            throttled=any(count > before.get(file, count) for file, count in counts.items()) if counts else None,
        )


def rss_bytes(pid: int | None) -> int | None:
    """Give what a child holds of the memory; None where there is no such process (any more)."""
    if pid is None:
        return None
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return None


def free_bytes(folder: Path) -> int | None:
    """Give the space that is left where the folder lies; None where the disk does not say."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


class FolderSize:
    """What a folder's files of one kind take.

    Only the last by name is written, so the others are looked at in turn: a thousand must not cost a thousand looks.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._suffix = folder, suffix
        self._sizes: dict[str, int] = {}
        self._turn = 0

    def read(self) -> int:
        """Give the size in bytes; 0 of a folder that is not there."""
        try:
            with os.scandir(self._folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(self._suffix))
        except OSError:
            names = []
        if not names:
            return 0
        self._turn = (self._turn + 1) % len(names)
        looked_at = {names[-1], names[self._turn]}
        known = self._sizes
        self._sizes = {
            name: known[name] if name in known and name not in looked_at else self._look(name) for name in names
        }
        return sum(self._sizes.values())

    def _look(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_size
        except OSError:
            return 0  # it has just been removed


def _temperature_files(sys: Path) -> list[Path]:
    """Temperatures of the processor itself, of its chip or else of a thermal zone."""
    chips = [name.parent for name in sorted(sys.glob("class/hwmon/*/name")) if _text(name) in _CHIPS]
    files = [file for chip in chips for file in sorted(chip.glob("temp*_input"))]
    zones = [
        kind.parent / "temp" for kind in sorted(sys.glob("class/thermal/thermal_zone*/type")) if _text(kind) in _ZONES
    ]
    return files or zones


def _throttle_files(sys: Path) -> list[Path]:
    """How often each core, and its package, was slowed down for its heat (Intel)."""
    return sorted(sys.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count"))


def _numbers(files: Iterable[Path]) -> dict[Path, int]:
    """What the files say; one that cannot be read now (a sensor that sleeps) says nothing."""
    found: dict[Path, int] = {}
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            found[file] = int(file.read_text("ascii"))
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
