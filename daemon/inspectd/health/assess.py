"""Says whether the daemon works: every stage that has work must finish some. Pure; the clock is passed in.

The watchdog is fed with this verdict, so a stage that hangs is not hidden by a timer that still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A stage at one moment."""

    finished: int
    """Pieces of work that it has ended, in any way, since the start."""
    has_work: bool
    excuse: str | None = None
    """A reported state in which it may wait for something outside, in words."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage that has to make progress."""

    name: str
    limit_s: float
    """Longest time with work and without a piece finished."""
    read: Callable[[], Reading]


class Assessor:
    """Watches all stages. Call `assess` more often than the shortest limit."""

    def __init__(self, stages: list[Stage], now: float) -> None:
        self._stages = stages
        self._last = {stage.name: (-1, now) for stage in stages}

    def assess(self, now: float) -> dict[str, str]:
        """What stands still: stage → in words; empty when all is well. `now` is the monotonic clock."""
        stalled: dict[str, str] = {}
        for stage in self._stages:
            reading = stage.read()
            finished, since_s = self._last[stage.name]
            if reading.finished != finished or not reading.has_work or reading.excuse is not None:
                self._last[stage.name] = (reading.finished, now)
            elif now - since_s > stage.limit_s:
                stalled[stage.name] = (
                    f"{stage.name}: has work and finished none for {now - since_s:.1f} s (limit {stage.limit_s:g} s)"
                )
        return stalled
