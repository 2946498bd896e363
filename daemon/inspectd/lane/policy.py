"""One model's knobs, as its lane needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

from inspectd.lane.breaker import BreakerPolicy
from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.skip import SkipPolicy


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """In seconds."""

    model: str
    timeout_s: float
    kill_after_s: float
    retries: int
    when_full: WhenFull
    shares: dict[str, CameraShare]
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    skip: SkipPolicy = field(default_factory=SkipPolicy)
    demotes: bool = False
    """A camera whose frames take too long gives way to the others."""
