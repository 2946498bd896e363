"""Says whether the daemon works: every stage that has work must finish some. Pure; the clock is passed in.

The watchdog is fed with this verdict, so a stage that hangs is not hidden by a timer that still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass

SLACK_S = 2.0
"""A busy host may make the slowest piece of work so much slower before it is told as a stall; so much again passes
before the watchdog's time is over."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A stage at one moment."""

    mark: Hashable
    """Another value whenever a piece of work has ended, in any way."""
    has_work: bool
    excuse: str = ""
    """A reported state in which it may wait for something outside, in words."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage that has to make progress."""

    name: str
    longest_s: float
    """How long one piece of its work may take."""
    read: Callable[[float], Reading]
    """Takes the moment."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one moment."""

    feed: bool
    """Each stage has finished some of its work since the last time that this was true, or had none, or may wait."""
    stalled: Mapping[str, str]
    """Stage → in words: those that stand still for longer than any piece of their work may take."""


class Patience:
    """Lets a stage wait for somebody outside, for a while: beyond it the fault is ours all the same."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._mark: Hashable = None
        self._since_s: float | None = None

    def lasts(self, mark: Hashable, now: float, *, waits: bool) -> bool:
        """Whether it may (still) wait; each change of the mark begins anew."""
        if not waits or self._since_s is None or mark != self._mark:
            self._mark, self._since_s = mark, now
        return now - self._since_s <= self._limit_s


class Assessor:
    """Watches all stages. Call `assess` several times within the watchdog's time."""

    def __init__(self, stages: Collection[Stage], now: float) -> None:
        self._stages = stages
        self._seen: dict[str, tuple[Hashable, float]] = {stage.name: (None, now) for stage in stages}
        """Mark, and when the stage was last seen at work, idle or excused."""
        self._fed_s = now

    def assess(self, now: float) -> Verdict:
        """Judge this moment. `now` is the monotonic clock."""
        stalled: dict[str, str] = {}
        feed = True
        for stage in self._stages:
            reading = stage.read(now)
            mark, since_s = self._seen[stage.name]
            if reading.mark != mark or not reading.has_work or reading.excuse:
                self._seen[stage.name] = reading.mark, now
                continue
            feed = feed and since_s > self._fed_s
            if now - since_s > stage.longest_s + SLACK_S:
                stalled[stage.name] = (
                    f"{stage.name}: has work and has finished none for {now - since_s:.1f} s "
                    f"(a piece of it takes {stage.longest_s:.1f} s at most)"
                )
        if feed:
            self._fed_s = now
        return Verdict(feed, stalled)
