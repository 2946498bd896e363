"""Breaker, demotion and skip levels of one lane: what happened goes in, what has to be told or done comes out. Pure."""

from __future__ import annotations

from inspectd.lane.actions import Action, Kill, Tell
from inspectd.lane.breaker import Breaker, BreakerState
from inspectd.lane.demotion import Demotion
from inspectd.lane.inbox import Job
from inspectd.lane.policy import LanePolicy
from inspectd.lane.skip import SkipLevel
from inspectd.records import Outcome


class Guard:
    """Keeps one lane from asking what cannot be answered. `now` is the monotonic clock."""

    def __init__(self, policy: LanePolicy) -> None:
        self.breaker = Breaker(policy.model, policy.breaker)
        self.levels = {
            camera: SkipLevel(f"{camera}/{policy.model}", policy.skip)
            for camera, share in policy.shares.items()
            if share.may_skip
        }
        """By camera: how many of its frames the device can bear. Which ones is the line's choice, before it offers."""
        self._demotion = Demotion(policy.model, policy.shares) if policy.demotes else None
        self._model = policy.model

    @property
    def demoted(self) -> frozenset[str]:
        """Cameras that give way to the others."""
        return frozenset() if self._demotion is None else self._demotion.demoted

    def child_ready(self, now: float) -> None:
        """A child was admitted: what was before says little of it."""
        self.breaker.repaired(now)
        for level in self.levels.values():
            level.restarted(now)

    def child_gone(self, reason: str, now: float) -> list[Action]:
        """The child ended with attempts in hand."""
        return self._opened() if self.breaker.child_gone(reason, now) else []

    def turn_came(self, job: Job, typical_s: float, now: float) -> list[Action]:
        """How long a frame waited says whether its camera gives more than the device can bear."""
        level = self.levels.get(job.frame.camera)
        if level is None or job.attempts:
            return []
        was_overloaded = level.is_overloaded
        level.begun(job.offered_s, job.deadline_s, typical_s, now)
        if level.is_overloaded == was_overloaded:
            return []
        return [Tell(level.reason or f"{level.name}: overload is over: every frame is taken", not level.is_overloaded)]

    def ended(self, attempt: int, job: Job, outcome: Outcome, now: float, *, blameless: bool = False) -> list[Action]:
        """An attempt ended so. `blameless`: what failed lay on the camera's side."""
        actions = self._demote(job.frame.camera, outcome)
        was_closed = self.breaker.state is BreakerState.CLOSED
        if self.breaker.ended(attempt, outcome, now, blameless=blameless):
            actions += self._opened()
        elif self.breaker.state is BreakerState.CLOSED and not was_closed:
            actions.append(Tell(f"{self._model}: answers again", is_good=True))
        return actions

    def _demote(self, camera: str, outcome: Outcome) -> list[Action]:
        if self._demotion is None or not self._demotion.ended(camera, outcome):
            return []
        why = self._demotion.why.get(camera)
        return [Tell(why or f"{camera}/{self._model}: has its place among the cameras again", is_good=why is None)]

    def _opened(self) -> list[Action]:
        """Told the first time. From the second in a row on waiting alone has not helped: the child is to go."""
        reason = self.breaker.reason
        return [Tell(reason, is_good=False)] if self.breaker.openings == 1 else [Kill(reason)]
