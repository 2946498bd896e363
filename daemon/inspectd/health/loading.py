"""Whether processes that are waited for at the start really work: real progress of a compile is CPU time used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SHARE = 0.05
"""Of one core. A compile uses at least one; a process that only waits wakes up now and then, and uses a hundredth."""
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Loading:
    """Compares what the processes have used with what they had used at the last look."""

    def __init__(self) -> None:
        self._used_s: dict[int, float] = {}
        self._looked_s: float | None = None

    def works(self, used_s: Mapping[int, float], now: float) -> bool:
        """Whether one of these (process id → CPU seconds) has worked since the last look. A new one tells nothing."""
        before_s, last_s = self._used_s, self._looked_s
        self._used_s, self._looked_s = dict(used_s), now
        if last_s is None or now <= last_s:
            return False
        grown_s = [used - before_s[pid] for pid, used in used_s.items() if pid in before_s]
        return max(grown_s, default=0.0) >= SHARE * (now - last_s)


def cpu_s(pid: int) -> float | None:
    """CPU time of a process, its threads together; None: it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # its name, before that, may have spaces
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
