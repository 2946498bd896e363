"""What went into a rung and what came back, frame by frame, and what a round of that says. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tests.bench.measure import percentile

_MEDIANS = ("frames_per_s", "cpu_ms", "p50_ms", "p99_ms", "interval_p99_ms", "anonymous_mb")
_SUMS = ("given", "answered", "told")


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one rung."""

    given: int
    """Frames that the rung took."""
    answered: int
    """Of these, each with a result of its own."""
    told: int
    """Of these, each with an error that named it."""
    frames_per_s: float
    cpu_ms: float
    """Per result."""
    p50_ms: float
    """From taking the frame to its result."""
    p99_ms: float
    interval_p99_ms: float
    """Between results, in the order in which they came."""
    anonymous_mb: float
    """RssAnon of all processes of the rung."""
    is_stuck: bool = False
    """It did not come back by itself."""

    @property
    def lost(self) -> int:
        """Frames with neither a result nor an error that named them."""
        return self.given - self.answered - self.told

    @classmethod
    def of_plain(cls, document: dict[str, Any]) -> Round:
        """Read what `asdict` gave."""
        return cls(**document)


class Tally:
    """Counts frames while a rung runs. Any thread may call it: each method makes one step that cannot be divided."""

    def __init__(self, now: Callable[[], float], seconds: float, frames_min: int = 0, seconds_max: float = 0.0) -> None:
        self._now = now
        self._begun_s = now()
        self._seconds, self._frames_min, self._seconds_max = seconds, frames_min, seconds_max
        self._numbers = itertools.count()
        self._taken_s: dict[int, float] = {}
        self._answers: list[tuple[int, float]] = []
        self._told: set[int] = set()

    def take(self) -> int | None:
        """Give the next frame's number. None: the time is over, and there were enough of them or it is far over."""
        now = self._now()
        passed_s = now - self._begun_s
        if passed_s >= self._seconds and (len(self._taken_s) >= self._frames_min or passed_s >= self._seconds_max):
            return None
        frame = next(self._numbers)
        self._taken_s[frame] = now
        return frame

    def answered(self, frame: int) -> None:
        self._answers.append((frame, self._now()))

    def told(self, frame: int) -> None:
        """The rung knows that this very frame failed."""
        self._told.add(frame)

    def round(self, cpu_s: float, anonymous_mb: float, *, is_stuck: bool = False) -> Round:
        """Say what became of it."""
        answers, taken_s = list(self._answers), dict(self._taken_s)
        distinct = {frame for frame, _ in answers}
        at_s = [at for _, at in answers]
        latencies_ms = [(at - taken_s[frame]) * 1000 for frame, at in answers]
        seconds = at_s[-1] - self._begun_s if at_s else 0.0
        return Round(
            given=len(taken_s),
            answered=len(distinct),
            told=len(self._told - distinct),
            frames_per_s=len(distinct) / seconds if seconds else 0.0,
            cpu_ms=cpu_s / len(distinct) * 1000 if distinct else float("nan"),
            p50_ms=percentile(latencies_ms, 50),
            p99_ms=percentile(latencies_ms, 99),
            interval_p99_ms=percentile(intervals_ms(at_s), 99),
            anonymous_mb=anonymous_mb,
            is_stuck=is_stuck,
        )


def intervals_ms(at_s: Sequence[float]) -> list[float]:
    """Times between neighbours, whatever the order in which threads noted them."""
    return [(later - earlier) * 1000 for earlier, later in itertools.pairwise(sorted(at_s))]


def over_rounds(rounds: Sequence[Round]) -> Round:
    """Medians of the figures and sums of the counts."""
    medians = {name: median(getattr(one, name) for one in rounds) for name in _MEDIANS}
    sums = {name: sum(getattr(one, name) for one in rounds) for name in _SUMS}
    return replace(rounds[0], **medians, **sums, is_stuck=any(one.is_stuck for one in rounds))
