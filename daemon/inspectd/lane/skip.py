"""Overload of a continuous camera: take every n-th frame; n rises and falls with hysteresis. Pure.

n is counted in quarters, so that it need not be whole: at 1¼ four of five frames are taken. With whole n a device that
is a tenth too slow would get half of the frames.

One `SkipLevel` per lane and camera says how many frames the lane's device can bear; which frames those are is decided
once for all models of the camera (everynth.py).

n rises when frames that begin have waited too long, measured by the room that their deadline leaves beside a typical
inference; it falls after a calm period. A frame that was offered before n last changed says nothing about this n. An
n that was too small is remembered and tried again only after a longer calm, which doubles each time that it fails: at a
steady load n changes ever less often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

QUARTERS = 4
"""Of one: n = 1, every frame is taken."""
OLD_SHARE = 0.5
"""Of the room: a frame that waited longer is too old."""
CALM_SHARE = 0.2
"""Of the room: a frame that waited less is calm. What lies between changes nothing."""
SHRINKING = 0.95
"""Waits that fell by more within `rise_s` are of a queue that is being worked off: n is large enough already."""
TRIAL_LATEST_S = 30.0
"""Calm before an n that was too small is tried again, at most. A trial costs half a second of old frames; not to try
costs good frames for as long as the overload is gone."""


@dataclass(frozen=True, slots=True)
class SkipPolicy:
    """One lane's knobs."""

    most: int = 16
    """Largest n; 1: no frame is ever skipped."""
    rise_s: float = 0.5
    """So long there must be old frames again and again: one slow inference skips nothing."""
    fall_s: float = 2.0
    """The first calm period."""


@dataclass(slots=True)
class SkipStats:
    """Counts since the start."""

    rises: int = 0
    falls: int = 0


class SkipLevel:
    """How many frames of one camera one lane can bear. `now` is the monotonic clock."""

    def __init__(self, name: str, policy: SkipPolicy) -> None:
        self.name = name
        """`camera/model`."""
        self.quarters = QUARTERS
        """n, in quarters."""
        self.is_overloaded = False
        """From the first rise until every frame was taken through a whole trial: does not change with each trial."""
        self.reason = ""
        """Why not every frame is taken; empty if every one is. The same text for as long as n stays."""
        self.stats = SkipStats()
        self._policy = policy
        self._changed_s = -math.inf
        self._mark_s = self._last_old_s = -math.inf
        """Old frames that came without a pause of `rise_s`: the one that the present is compared with, and the last."""
        self._mark_wait_s = 0.0
        self._calm_since_s: float | None = None
        self._too_small = 0
        """Largest n (in quarters) that is known to be too small for the load; 0: none is."""
        self._trial_s = 2 * policy.fall_s
        """Calm before `_too_small` is tried again."""
        self._held = 0
        """Trials in a row that were calm."""
        self._step = QUARTERS * policy.most
        """Most of the next rise, in quarters: doubles with each, from 1 after a failed trial."""
        self._why = ""

    @property
    def every(self) -> float:
        """n: of how many frames one is taken, on average."""
        return self.quarters / QUARTERS

    def begun(self, offered_s: float, deadline_s: float, typical_s: float, now: float) -> bool:
        """A frame's turn has come: an attempt begins, or would if it were not too late. True when n changed."""
        if offered_s < self._changed_s:
            return False
        waited_s, room_s = now - offered_s, max(0.0, deadline_s - offered_s - typical_s)
        if waited_s > OLD_SHARE * room_s:
            self._calm_since_s = None
            if self._persists(waited_s, now) and self.quarters < self._policy.most * QUARTERS:
                self._why = f"frames waited {waited_s:.3f} s of the {room_s:.3f} s that their deadline leaves"
                return self._rise(now)
        elif waited_s <= CALM_SHARE * room_s:
            self._calm_since_s = now if self._calm_since_s is None else self._calm_since_s
            needed_s = self._trial_s if self.quarters in {QUARTERS, self._too_small + 1} else self._policy.fall_s
            return now - self._calm_since_s >= needed_s and self._fall(now)
        else:
            self._calm_since_s = None
        return False

    def restarted(self, now: float) -> None:
        """A child was admitted: what piled up without one is no overload."""
        self._changed_s, self._last_old_s = now, -math.inf

    def _persists(self, waited_s: float, now: float) -> bool:
        """Whether old frames came for `rise_s` without a pause of that length, and do not get younger."""
        paused = now - self._last_old_s > self._policy.rise_s
        self._last_old_s = now
        if not paused and now - self._mark_s < self._policy.rise_s:
            return False
        shrinking = waited_s < SHRINKING * self._mark_wait_s
        self._mark_s, self._mark_wait_s = now, waited_s
        return not paused and not shrinking

    def _rise(self, now: float) -> bool:
        """By half of n, so that ten times the load is met within seconds; after a failed trial just back, then more."""
        self.stats.rises += 1
        self.is_overloaded = True
        self._held = 0
        if self.quarters == self._too_small:
            self._trial_s, self._step = min(TRIAL_LATEST_S, 2 * self._trial_s), 1
        step = min(self._step, self.quarters // 2)
        self._too_small, self._step = self.quarters, 2 * step
        return self._change(min(self._policy.most * QUARTERS, self.quarters + step), now)

    def _fall(self, now: float) -> bool:
        """Half of the way down to what is known to be too small, and then that one, for trial."""
        if self.quarters == QUARTERS:
            self.is_overloaded = False
            self._forget()
            return False
        self.stats.falls += 1
        if self.quarters == self._too_small:
            self._held += 1
            self._too_small -= 1
            if self._held > 1:
                self._forget()
        lowest = max(QUARTERS, self._too_small + 1)
        at_lowest = self.quarters == lowest
        return self._change(self._too_small if at_lowest else (self.quarters + lowest) // 2, now)

    def _forget(self) -> None:
        """The load is less than it was, and not just at the edge: what was too small need not be so now."""
        self._too_small, self._trial_s, self._step = 0, 2 * self._policy.fall_s, QUARTERS * self._policy.most

    def _change(self, quarters: int, now: float) -> bool:
        self.quarters, self._changed_s = quarters, now
        self._last_old_s, self._calm_since_s = -math.inf, None
        taken = Fraction(QUARTERS, quarters)
        share = f"{taken.numerator} of {taken.denominator} frames are taken"
        self.reason = "" if taken == 1 else f"{self.name}: overload: {share}; {self._why}"
        return True
