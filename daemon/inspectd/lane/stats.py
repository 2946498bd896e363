"""What one lane has counted and measured since the daemon's start. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from inspectd.records import Code, Done, Dropped, Failed, Outcome, TimedOut, Unavailable

KEPT = 256
"""Durations and waits: about what a fast camera gives in a period of the health message."""


@dataclass(slots=True)
class LaneStats:
    """Counts since the daemon's start."""

    submitted: int = 0
    done: int = 0
    timed_out: int = 0
    retried: int = 0
    dropped: int = 0
    """Skipped ones among them."""
    skipped: int = 0
    """By the overload policy."""
    failed: int = 0
    unavailable: int = 0
    durations_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Of the last inferences, in the child."""
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    """From capture to the first attempt's beginning, of the last frames."""
    busy_s: float = 0.0
    """Sum of the inferences' durations, late ones too."""
    last_done_s: float | None = None
    """Monotonic clock."""

    def note(self, outcome: Outcome) -> None:
        """Count a frame's end."""
        match outcome:
            case Done():
                self.done += 1
            case TimedOut():
                self.timed_out += 1
            case Dropped():
                self.dropped += 1
                self.skipped += outcome.code is Code.SKIPPED_BY_POLICY
            case Failed():
                self.failed += 1
            case Unavailable():
                self.unavailable += 1

    def note_skipped(self) -> None:
        """Count a frame that was for this model and was left out before it was offered."""
        self.submitted += 1
        self.dropped += 1
        self.skipped += 1
