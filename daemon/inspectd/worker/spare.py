"""When a model needs a second child beside the one that serves: for the way back, or because memory grew. Pure.

The second child is warmed and checked while the first one goes on; frames go to it from its admission, and the first
one ends when it has answered what it has: no frame is lost. There is one second child at a time, and one that is not
admitted changes nothing but the time of the next try.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RETRY_S = 60.0
"""After a second child that was not admitted: its warm-up costs the host what the first one needs."""
FRESH_ROOM_BYTES = 256 * 2**20
"""Least growth that `auto` allows: arenas and caches fill in the first minutes."""
PEAK = 2
"""Times what a fresh child keeps: a warm-up holds the file and the compiled model for a moment."""
ROOM_LEFT_BYTES = 64 * 2**20
"""For everybody else while a second child is warmed."""
HARD = 2
"""Times the limit: the child is killed before it takes the host's memory from the cameras."""


class Wish(StrEnum):
    """What the child that serves needs now."""

    WAY_BACK = "wayBack"
    """A second child on the first device."""
    RECYCLE = "recycle"
    """A second child on the same device."""
    KILL = "kill"
    """Its end: a second child cannot be waited for."""


@dataclass(slots=True)
class SpareStats:
    """Counts since the start."""

    recycled: int = 0
    killed: int = 0
    failed: int = 0


class Spare:
    """Watches the child of one model that serves. `now` is the monotonic clock, memory is RssAnon in bytes."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.warming: Wish | None = None
        """Why a second child is being warmed; None: there is none."""
        self.limit_bytes: int | None = None
        """That holds for this child; None before its first reading."""
        self.reason = ""
        """Of the last wish for memory's sake, in words."""
        self.fresh_bytes = 0
        """What this child had at its first reading."""
        self.stats = SpareStats()
        self._configured_bytes = limit_bytes
        self._not_before_s = 0.0
        self._condemned = False

    def serving(self) -> None:
        """Another child serves from now on: its memory is judged anew."""
        self.limit_bytes, self._condemned = None, False

    def lack_of_room(self, available_bytes: int) -> str | None:
        """Say why the host has no memory for a second child now; None if it has."""
        needed_bytes = PEAK * self.fresh_bytes + ROOM_LEFT_BYTES
        if available_bytes >= needed_bytes:
            return None
        return f"a second process needs {needed_bytes >> 20} MB, {available_bytes >> 20} MB are available"

    def watch(self, rss_bytes: int, now: float, *, way_back_due: bool) -> Wish | None:
        """Call once a second while a child serves. What is wanted is begun by the caller, and not asked for twice."""
        if self.limit_bytes is None:
            self.fresh_bytes, self.limit_bytes = rss_bytes, _limit_bytes(self._configured_bytes, rss_bytes)
        if self._condemned:
            return None
        if rss_bytes >= HARD * self.limit_bytes:
            self._condemned = True
            self.stats.killed += 1
            self.reason = _words(rss_bytes, HARD * self.limit_bytes, "the hard limit")
            return Wish.KILL
        if self.warming is not None or now < self._not_before_s:
            return None
        if rss_bytes >= self.limit_bytes:
            self.reason = _words(rss_bytes, self.limit_bytes, "the limit")
            self.warming = Wish.RECYCLE
        elif way_back_due:
            self.warming = Wish.WAY_BACK
        return self.warming

    def admitted(self) -> None:
        """The second child passed its warm-up and serves from now on."""
        if self.warming is Wish.RECYCLE:
            self.stats.recycled += 1
        self.warming = None
        self.serving()

    def alone(self) -> None:
        """The child that served is gone: one that was warmed beside it is the only one now."""
        self.warming = None

    def failed(self, now: float) -> None:
        """The second child was not admitted."""
        self.stats.failed += 1
        self.warming = None
        self._not_before_s = now + RETRY_S


def _limit_bytes(configured_bytes: int | None, fresh_bytes: int) -> int:
    """What is configured, unless a fresh child has more already: it would be replaced without end."""
    if configured_bytes is not None and configured_bytes > fresh_bytes:
        return configured_bytes
    return fresh_bytes + max(FRESH_ROOM_BYTES, fresh_bytes // 2)


def _words(rss_bytes: int, limit_bytes: int, which: str) -> str:
    return f"its process has {rss_bytes >> 20} MB, {which} is {limit_bytes >> 20} MB"
