"""Whether the watchdog's time is enough for the slowest legitimate step of every stage. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from inspectd.health.assess import SLACK_S, Stage


@dataclass(frozen=True, slots=True)
class TooShort:
    """The watchdog would end a daemon that works."""

    needed_s: float
    text: str
    """The arithmetic, and what to do."""


def too_short(watchdog_s: float, stages: Collection[Stage], tick_s: float) -> TooShort | None:
    """Compare; None: the time is enough. `tick_s`: between two assessments."""
    slowest = max(stages, key=lambda stage: stage.longest_s)
    needed_s = slowest.longest_s + 2 * SLACK_S + tick_s
    if watchdog_s >= needed_s:
        return None
    return TooShort(
        needed_s,
        f"the watchdog's {watchdog_s:g} s are too short: {slowest.name} may take {slowest.longest_s:g} s for one piece "
        f"of its work, + 2 × {SLACK_S:g} s for a busy host + {tick_s:g} s between two looks = {needed_s:g} s; it is "
        f"lengthened to that. Set WatchdogSec to at least {needed_s:g} s, or lower the cameras' deadline_ms",
    )
