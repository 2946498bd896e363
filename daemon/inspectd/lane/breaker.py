"""Stops asking a model that only fails: closed → open → probing → closed, with its reason. Pure.

While it is open nothing is begun and nothing is waited for: frames are `Unavailable` at once. After `open_s`, or when
the child was replaced, one attempt is let through alone; its answer closes the breaker or opens it again.

It counts attempts by their numbers, which only rise. Attempts that were out together when one failed are one failure:
a device that stands still for a moment lets them all time out at once. What says nothing about the model counts neither
way: a frame whose deadline passed, a slot that was given away (the camera's side), a frame that never got an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inspectd.records import Done, Dropped, Failed, Outcome, TimedOut, Unavailable


class BreakerState(StrEnum):
    """As health tells it."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """One model's knobs."""

    failures: int = 5
    """In a row, to open."""
    open_s: float = 5.0
    """Until one attempt is let through."""


@dataclass(slots=True)
class BreakerStats:
    """Counts since the start."""

    opened: int = 0
    probes: int = 0


class Breaker:
    """One lane's breaker. `now` is the monotonic clock."""

    def __init__(self, model: str, policy: BreakerPolicy) -> None:
        self.state = BreakerState.CLOSED
        self.openings = 0
        """In a row without a success: from the second on, waiting alone does not help, and the child is to go."""
        self.reason = ""
        """Why it is not closed, in words; empty while it is closed."""
        self.stats = BreakerStats()
        self._model, self._policy = model, policy
        self._failures = 0
        self._until_s = 0.0
        self._probe: int | None = None
        self._first = 0
        """Attempts before this one were begun before it opened: they say nothing new."""
        self._newest = self._out_at_failure = 0
        """Newest attempt of all, and of those that were out at the last failure: their failing is the same failure."""

    def allows(self, now: float) -> bool:
        """Whether an attempt may be begun. Changes nothing."""
        return self.state is BreakerState.CLOSED or (self.state is BreakerState.OPEN and now >= self._until_s)

    def refusal(self, now: float) -> str | None:
        """Why a frame is unavailable now, or None if it may wait for its attempt. Changes nothing."""
        return None if self.allows(now) else self.reason

    def begun(self, attempt: int) -> None:
        """An attempt was begun, which `allows` had allowed."""
        self._newest = attempt
        if self.state is BreakerState.OPEN:
            self.state, self._probe, self._first = BreakerState.PROBING, attempt, attempt
            self.stats.probes += 1

    def ended(self, attempt: int, outcome: Outcome, now: float, *, blameless: bool = False) -> bool:
        """An attempt ended so. True when this opened the breaker. `blameless`: the fault lay on the camera's side."""
        probing = self.state is BreakerState.PROBING
        if attempt < self._first or self.state is BreakerState.OPEN or (probing and attempt != self._probe):
            return False
        if isinstance(outcome, Done):
            self._close()
        elif not blameless and _blames_model(outcome):
            return attempt > self._out_at_failure and self._failed(outcome.reason, now)
        elif probing:
            self._open_until(now)  # the probe told nothing: the next attempt is the probe
        return False

    def child_gone(self, reason: str, now: float) -> bool:
        """The child ended with attempts in hand: one failure, however many they were. True when this opened it."""
        return self.state is not BreakerState.OPEN and self._failed(reason, now)

    def repaired(self, now: float) -> None:
        """A new child was admitted: one attempt will tell at once whether that has mended it."""
        if self.state is not BreakerState.CLOSED:
            self._open_until(now)

    def _failed(self, reason: str, now: float) -> bool:
        self._failures += 1
        self._out_at_failure = self._newest
        if self.state is BreakerState.CLOSED and self._failures < self._policy.failures:
            return False
        self.openings += 1
        self.stats.opened += 1
        self.reason = f"{self._model}: stopped asking after {self._failures} failures in a row, the last: {reason}"
        self._open_until(now + self._policy.open_s)
        return True

    def _open_until(self, until_s: float) -> None:
        self.state, self._probe, self._until_s = BreakerState.OPEN, None, until_s

    def _close(self) -> None:
        self.state, self._probe, self.reason = BreakerState.CLOSED, None, ""
        self._failures = self.openings = 0


def _blames_model(outcome: TimedOut | Failed | Dropped | Unavailable) -> bool:
    """Whether the model had its time and gave no answer."""
    return isinstance(outcome, Failed) or (isinstance(outcome, TimedOut) and not outcome.deadline)
