"""One model's lane: what waits, what is in the child, what is late, what is tried again. Pure: decides, acts nowhere.

Each method returns the actions that its caller has to carry out, in order. Every job that was offered gets exactly one
`Finish`, by its deadline at the latest. Giving up an attempt does not free its request: it counts as lost until the
child answers or is gone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from statistics import median

from inspectd.lane.actions import Action, Cancel, Finish, Kill, Release, Start
from inspectd.lane.guard import Guard
from inspectd.lane.inbox import Inbox, Job
from inspectd.lane.policy import LanePolicy
from inspectd.lane.stats import LaneStats
from inspectd.lane.words import Words
from inspectd.records import Code, Done, Failed, Frame, Outcome, TimedOut, Unavailable

TYPICAL_OF = 32
"""The typical duration is the median of so many answers: follows a change of load within a second or two."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    job: Job
    limit_s: float
    """Monotonic clock. While running: when it is given up. Once lost: when the child is given up."""
    child: int


class Lane:
    """Lane of one model. `now` is the monotonic clock."""

    def __init__(self, policy: LanePolicy) -> None:
        self.policy = policy
        self.stats = LaneStats()
        self.child = 0
        """Number of the child that new attempts go to. One before it may still finish what it has."""
        self._guard = Guard(policy)
        self.breaker, self.levels = self._guard.breaker, self._guard.levels
        self._words = Words(policy.model, policy.timeout_s, policy.retries)
        self._inbox = Inbox(policy.shares, policy.when_full)
        self._running: dict[int, _Attempt] = {}
        self._lost: dict[int, _Attempt] = {}
        self._requests = 0
        self._next_attempt = 1
        self._unavailable: str | None = None
        self._killing = False
        self._killed: set[int] = set()
        """Children before the one that serves, whose end was asked for."""
        self._recent_s: deque[float] = deque(maxlen=TYPICAL_OF)

    @property
    def waiting(self) -> int:
        """Jobs that no child has."""
        return len(self._inbox)

    @property
    def busy(self) -> int:
        """Requests of the child that serves, at work or lost."""
        return self.held_by(self.child)

    @property
    def lost(self) -> int:
        """Requests that were given up and have not come back."""
        return len(self._lost)

    @property
    def requests(self) -> int:
        """Requests of the child; 0 without one."""
        return self._requests

    def held_by(self, child: int) -> int:
        """Requests of a child, at work or lost."""
        attempts = (*self._running.values(), *self._lost.values())
        return sum(attempt.child == child for attempt in attempts)

    def frame_of(self, attempt: int) -> Frame | None:
        """The frame of an attempt that has not been answered yet."""
        found = self._running.get(attempt) or self._lost.get(attempt)
        return None if found is None else found.job.frame

    def offer(self, frame: Frame, deadline_s: float, now: float) -> list[Action]:
        """A camera gives a frame."""
        self.stats.submitted += 1
        job = Job(frame, deadline_s, now)
        refusal = self._refusal(now)
        if refusal is not None:
            return [self._finish(job, Unavailable(refusal))]
        displaced = self._inbox.put(job)
        actions: list[Action] = []
        if displaced is not None:
            depth = self.policy.shares[frame.camera].depth
            actions.append(self._finish(displaced, self._words.queue_full(displaced, depth)))
        return actions + self._pump(now)

    def note_skipped(self) -> None:
        """A camera's frame was left out by the skip policy: it is counted, and never offered."""
        self.stats.note_skipped()

    def child_ready(self, requests: int, now: float) -> list[Action]:
        """A child was admitted: from now on it gets every new attempt. One before it finishes what it has."""
        self.child += 1
        self._requests, self._unavailable, self._killing = requests, None, False
        self._guard.child_ready(now)
        return self._pump(now)

    def child_gone(self, reason: str, now: float, child: int | None = None) -> list[Action]:
        """A child is gone: it reads no slot any more, and what it had is tried again or has failed.

        `child`: its number, if it was not the one that serves.
        """
        if child is None or child == self.child:
            child, self._requests = self.child, 0
        self._killed.discard(child)
        lost = _take(self._lost, child)
        actions: list[Action] = [Release(number, attempt.job.frame) for number, attempt in lost.items()]
        running = _take(self._running, child)
        if running and child == self.child:
            actions += self._once(self._guard.child_gone(reason, now))
        for number, attempt in reversed(running.items()):  # each goes before the others: the oldest last
            actions.append(Release(number, attempt.job.frame))
            actions += self._again_or(attempt.job, Failed(Code.MODEL_ERROR, reason, attempt.job.attempts), now)
        return actions + self._pump(now)

    def hold(self) -> None:
        """The child is dying: begin nothing more on it. Ends with child_ready."""
        self._killing = True

    def give_up(self, reason: str) -> list[Action]:
        """There is no child and none is expected soon: frames are answered at once until child_ready."""
        self._unavailable = reason
        return [self._finish(job, Unavailable(reason, job.attempts)) for job in self._inbox.take_all()]

    def answer(
        self, attempt: int, outcome: Done | Failed, now: float, *, again: bool = True, blameless: bool = False
    ) -> list[Action]:
        """The child answered an attempt.

        `again` False: another attempt would end the same way. `blameless`: what failed lay on the camera's side.
        """
        lost = self._lost.pop(attempt, None)
        if lost is not None:
            self.stats.busy_s += outcome.duration_s if isinstance(outcome, Done) else 0.0
            return [Release(attempt, lost.job.frame), *self._pump(now)]
        running = self._running.pop(attempt, None)
        if running is None:
            return []  # of a child before this one
        actions: list[Action] = [Release(attempt, running.job.frame)]
        outcome = replace(outcome, attempts=running.job.attempts)
        actions += self._once(self._guard.ended(attempt, running.job, outcome, now, blameless=blameless))
        if isinstance(outcome, Done):
            self._recent_s.append(outcome.duration_s)
            self.stats.durations_s.append(outcome.duration_s)
            self.stats.busy_s += outcome.duration_s
            self.stats.last_done_s = now
            actions.append(self._finish(running.job, outcome))
        elif again:
            actions += self._again_or(running.job, outcome, now)
        else:
            actions.append(self._finish(running.job, outcome))
        return actions + self._pump(now)

    def tick(self, now: float) -> list[Action]:
        """Time has passed: give up what is late. Call at next_due_s()."""
        actions: list[Action] = []
        for number, attempt in [(n, a) for n, a in self._running.items() if a.limit_s <= now]:
            del self._running[number]
            self._lost[number] = replace(attempt, limit_s=now + self.policy.kill_after_s)
            actions.append(Cancel(number))
            late = self._words.too_late(attempt.job, now)
            actions += self._once(self._guard.ended(number, attempt.job, late, now))
            actions += self._again_or(attempt.job, late, now)
        actions += [self._finish(job, self._expired(job)) for job in self._inbox.take_expired(now)]
        for attempt in [attempt for attempt in self._lost.values() if attempt.limit_s <= now]:
            if self._is_killing(attempt.child):
                continue
            reason = self._words.stuck(attempt.job, self.policy.kill_after_s)
            if attempt.child == self.child:
                self._killing = True
                actions.append(Kill(reason))
            else:
                self._killed.add(attempt.child)
                actions.append(Kill(reason, attempt.child))
        return actions + self._pump(now)

    def next_due_s(self) -> float | None:
        """When tick has something to do, if nothing else happens before."""
        due = [attempt.limit_s for attempt in self._running.values()]
        due += [attempt.limit_s for attempt in self._lost.values() if not self._is_killing(attempt.child)]
        waiting = self._inbox.next_deadline_s()
        return min(due if waiting is None else [*due, waiting], default=None)

    def _pump(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self.busy < self._requests and not self._killing and self.breaker.allows(now):
            job = self._inbox.take(self._guard.demoted)
            if job is None:
                break
            typical_s = self._typical_s()
            actions += self._guard.turn_came(job, typical_s, now)
            if job.deadline_s <= now:
                actions.append(self._finish(job, self._expired(job)))
                continue
            if self._is_hopeless(job, typical_s, now):
                may_skip = self.policy.shares[job.frame.camera].may_skip
                actions.append(self._finish(job, self._words.hopeless(job, typical_s, may_skip=may_skip)))
                continue
            number, self._next_attempt = self._next_attempt, self._next_attempt + 1
            if not job.attempts:
                self.stats.waits_s.append(now - job.frame.captured_s)
            job = replace(job, attempts=job.attempts + 1)
            self._running[number] = _Attempt(job, min(now + self.policy.timeout_s, job.deadline_s), self.child)
            self.breaker.begun(number)
            actions.append(Start(number, job.frame))
        refusal = self._refusal(now)
        if refusal is not None:
            actions += [self._finish(job, Unavailable(refusal, job.attempts)) for job in self._inbox.take_all()]
        return actions

    def _refusal(self, now: float) -> str | None:
        """Why frames are unavailable at once; None if they may wait for their turn."""
        if self._unavailable is not None:
            return self._unavailable
        if self.breaker.reason and (self._killing or not self._requests):
            return self.breaker.reason  # and nobody could be asked whether that is over
        return self.breaker.refusal(now)

    def _once(self, actions: list[Action]) -> list[Action]:
        """The child that serves is killed once, and only if there is one."""
        if self._killing or not self._requests:
            return [action for action in actions if not isinstance(action, Kill)]
        self._killing = any(isinstance(action, Kill) for action in actions)
        return actions

    def _is_killing(self, child: int) -> bool:
        return self._killing if child == self.child else child in self._killed

    def _again_or(self, job: Job, outcome: TimedOut | Failed, now: float) -> list[Action]:
        """Another attempt if one is left and the deadline leaves room for a typical inference."""
        single = job.frame.camera in self._guard.demoted or not self.breaker.allows(now)
        if job.attempts > (0 if single else self.policy.retries) or now + self._typical_s() >= job.deadline_s:
            return [self._finish(job, outcome)]
        self.stats.retried += 1
        self._inbox.put_back(job)
        return []

    def _is_hopeless(self, job: Job, typical_s: float, now: float) -> bool:
        """Whether an attempt would only take the device from frames that can still be in time.

        With nobody else waiting it is tried all the same: how else would a typical duration come down again?
        """
        return len(self._inbox) > 0 and now + typical_s >= job.deadline_s

    def _typical_s(self) -> float:
        return median(self._recent_s) if self._recent_s else 0.0

    def _finish(self, job: Job, outcome: Outcome) -> Finish:
        self.stats.note(outcome)
        return Finish(job.frame, outcome)

    def _expired(self, job: Job) -> Outcome:
        return self._words.expired(job, has_child=self._requests > 0)


def _take(attempts: dict[int, _Attempt], child: int) -> dict[int, _Attempt]:
    """Take a child's attempts out of all."""
    taken = {number: attempt for number, attempt in attempts.items() if attempt.child == child}
    for number in taken:
        del attempts[number]
    return taken
