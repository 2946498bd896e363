"""`on_timeout: demote`: a camera whose frames take too long gives way to the others until enough were in time. Pure.

A demoted camera has an eighth of its weight (turns.DEMOTED_SHARE) and one attempt per frame, so that its slow pictures
do not take the device from cameras whose pictures are quick. It is never left out: what it gives is still inspected.
With one camera, or when all are demoted alike, only the retries go.

Counted in frames, not in time: a camera that stands still for a night is in the morning what it was in the evening.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inspectd.records import Done, Outcome, TimedOut

IN_TIME = 20
"""A second or two of a quick camera: long enough that one lucky picture between slow ones does not count."""


@dataclass(slots=True)
class DemotionStats:
    """Counts since the start."""

    demoted: int = 0
    restored: int = 0


class Demotion:
    """Which cameras of one lane are demoted. For `on_timeout: give_up` the lane has none of this."""

    def __init__(self, model: str, cameras: Iterable[str], in_time: int = IN_TIME) -> None:
        if in_time < 1:
            raise ValueError(f"{model}: demoted until {in_time} frames were in time; give 1 or more")
        self.stats = DemotionStats()
        self._model, self._in_time = model, in_time
        self._left = dict.fromkeys(cameras, 0)
        """Frames in time that are still wanted; 0: not demoted."""
        self._why: dict[str, str] = {}

    @property
    def demoted(self) -> frozenset[str]:
        """The cameras that give way now."""
        return frozenset(self._why)

    @property
    def why(self) -> dict[str, str]:
        """Camera → in words, for the log and for health."""
        return dict(self._why)

    def ended(self, camera: str, outcome: Outcome) -> bool:
        """An attempt on the camera's frame ended so. True when the camera was demoted or restored by it.

        An attempt that its frame's deadline cut short may only have begun late, and an error has no duration: both
        count neither way.
        """
        if isinstance(outcome, TimedOut) and not outcome.deadline:
            return self._demote(camera, outcome)
        if not isinstance(outcome, Done) or self._left[camera] == 0:
            return False
        self._left[camera] -= 1
        if self._left[camera] > 0:
            return False
        del self._why[camera]
        self.stats.restored += 1
        return True

    def _demote(self, camera: str, outcome: TimedOut) -> bool:
        """A further timeout begins the count again."""
        is_new = self._left[camera] == 0
        self._left[camera] = self._in_time
        if is_new:
            self.stats.demoted += 1
            self._why[camera] = (
                f"{camera}/{self._model}: gives way to other cameras until {self._in_time} frames in a row are in time"
                f" (no result within {outcome.limit_s:.3f} s)"
            )
        return is_new
