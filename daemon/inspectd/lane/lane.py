"""One model's lane: what waits, what is in the child, what is late, what is tried again. Pure: decides, acts nowhere.

Each method returns the actions that its caller has to carry out, in order. Every job that was offered gets exactly one
`Finish`, by its deadline at the latest. Giving up an attempt does not free its request: it counts as lost until the
child answers or is gone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from statistics import median

from inspectd.lane.inbox import CameraShare, Inbox, Job, WhenFull
from inspectd.lane.stats import LaneStats
from inspectd.records import Code, Done, Dropped, Failed, Frame, Outcome, TimedOut, Unavailable

TYPICAL_OF = 32
"""The typical duration is the median of so many answers: follows a change of load within a second or two."""


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """One model's knobs, in seconds."""

    model: str
    timeout_s: float
    kill_after_s: float
    retries: int
    when_full: WhenFull
    shares: dict[str, CameraShare]


@dataclass(frozen=True, slots=True)
class Start:
    """Send the frame to the child."""

    attempt: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell the child that nobody waits for this attempt any more."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Release:
    """The child does not read this attempt's slot any more."""

    attempt: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Finish:
    """This is the model's word on the frame."""

    frame: Frame
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Kill:
    """The child does not give its request back: replace it."""

    reason: str


Action = Start | Cancel | Release | Finish | Kill


@dataclass(frozen=True, slots=True)
class _Attempt:
    job: Job
    limit_s: float
    """Monotonic clock. While running: when it is given up. Once lost: when the child is given up."""


class Lane:
    """Lane of one model. `now` is the monotonic clock."""

    def __init__(self, policy: LanePolicy) -> None:
        self.policy = policy
        self.stats = LaneStats()
        self._inbox = Inbox(policy.shares, policy.when_full)
        self._running: dict[int, _Attempt] = {}
        self._lost: dict[int, _Attempt] = {}
        self._requests = 0
        self._next_attempt = 1
        self._unavailable: str | None = None
        self._killing = False
        self._recent_s: deque[float] = deque(maxlen=TYPICAL_OF)

    @property
    def waiting(self) -> int:
        """Jobs that no child has."""
        return len(self._inbox)

    @property
    def busy(self) -> int:
        """Requests that are at work or lost."""
        return len(self._running) + len(self._lost)

    @property
    def lost(self) -> int:
        """Requests that were given up and have not come back."""
        return len(self._lost)

    @property
    def requests(self) -> int:
        """Requests of the child; 0 without one."""
        return self._requests

    def frame_of(self, attempt: int) -> Frame | None:
        """The frame of an attempt that has not been answered yet."""
        found = self._running.get(attempt) or self._lost.get(attempt)
        return None if found is None else found.job.frame

    def offer(self, frame: Frame, deadline_s: float, now: float) -> list[Action]:
        """A camera gives a frame."""
        self.stats.submitted += 1
        job = Job(frame, deadline_s)
        if self._unavailable is not None:
            return [self._finish(job, Unavailable(self._unavailable))]
        displaced = self._inbox.put(job)
        actions: list[Action] = []
        if displaced is not None:
            actions.append(self._finish(displaced, self._dropped(displaced)))
        return actions + self._pump(now)

    def child_ready(self, requests: int, now: float) -> list[Action]:
        """A child was admitted."""
        self._requests, self._unavailable, self._killing = requests, None, False
        return self._pump(now)

    def child_gone(self, reason: str, now: float) -> list[Action]:
        """The child is reaped: it reads no slot any more, and what it had is tried again or has failed."""
        self._requests = 0
        actions: list[Action] = [Release(number, lost.job.frame) for number, lost in self._lost.items()]
        self._lost.clear()
        running, self._running = self._running, {}
        for number, attempt in running.items():
            actions.append(Release(number, attempt.job.frame))
            actions += self._again_or(attempt.job, Failed(Code.MODEL_ERROR, reason, attempt.job.attempts), now)
        return actions

    def hold(self) -> None:
        """The child is dying: begin nothing more on it. Ends with child_ready."""
        self._killing = True

    def give_up(self, reason: str) -> list[Action]:
        """There is no child and none is expected soon: frames are answered at once until child_ready."""
        self._unavailable = reason
        return [self._finish(job, Unavailable(reason, job.attempts)) for job in self._inbox.take_all()]

    def answer(self, attempt: int, outcome: Done | Failed, now: float, *, again: bool = True) -> list[Action]:
        """The child answered an attempt. `again` False: another attempt would end the same way."""
        lost = self._lost.pop(attempt, None)
        if lost is not None:
            self.stats.busy_s += outcome.duration_s if isinstance(outcome, Done) else 0.0
            return [Release(attempt, lost.job.frame), *self._pump(now)]
        running = self._running.pop(attempt, None)
        if running is None:
            return []  # of a child before this one
        actions: list[Action] = [Release(attempt, running.job.frame)]
        outcome = replace(outcome, attempts=running.job.attempts)
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
            actions += self._again_or(attempt.job, self._too_late(attempt.job, now), now)
        for job in self._inbox.take_expired(now):
            actions.append(self._finish(job, self._expired(job)))
        overdue = [attempt for attempt in self._lost.values() if attempt.limit_s <= now]
        if overdue and not self._killing:
            self._killing = True
            actions.append(Kill(self._stuck(overdue[0].job)))
        return actions + self._pump(now)

    def next_due_s(self) -> float | None:
        """When tick has something to do, if nothing else happens before."""
        due = [attempt.limit_s for attempt in self._running.values()]
        if not self._killing:
            due += [attempt.limit_s for attempt in self._lost.values()]
        waiting = self._inbox.next_deadline_s()
        return min(due if waiting is None else [*due, waiting], default=None)

    def _pump(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self.busy < self._requests and not self._killing:
            job = self._inbox.take()
            if job is None:
                break
            if job.deadline_s <= now:
                actions.append(self._finish(job, self._expired(job)))
                continue
            if self._is_hopeless(job, now):
                actions.append(self._finish(job, self._skipped(job)))
                continue
            number, self._next_attempt = self._next_attempt, self._next_attempt + 1
            if not job.attempts:
                self.stats.waits_s.append(now - job.frame.captured_s)
            job = replace(job, attempts=job.attempts + 1)
            self._running[number] = _Attempt(job, min(now + self.policy.timeout_s, job.deadline_s))
            actions.append(Start(number, job.frame))
        return actions

    def _again_or(self, job: Job, outcome: TimedOut | Failed, now: float) -> list[Action]:
        """Another attempt if one is left and the deadline leaves room for a typical inference."""
        if job.attempts > self.policy.retries or now + self._typical_s() >= job.deadline_s:
            return [self._finish(job, outcome)]
        self.stats.retried += 1
        self._inbox.put_back(job)
        return []

    def _is_hopeless(self, job: Job, now: float) -> bool:
        """Whether an attempt would only take the device from frames that can still be in time.

        With nobody else waiting it is tried all the same: how else would a typical duration come down again?
        """
        return len(self._inbox) > 0 and now + self._typical_s() >= job.deadline_s

    def _typical_s(self) -> float:
        return median(self._recent_s) if self._recent_s else 0.0

    def _finish(self, job: Job, outcome: Outcome) -> Finish:
        stats = self.stats
        match outcome:
            case Done():
                stats.done += 1
            case TimedOut():
                stats.timed_out += 1
            case Dropped():
                stats.dropped += 1
                stats.skipped += outcome.code is Code.SKIPPED_BY_POLICY
            case Failed():
                stats.failed += 1
            case Unavailable():
                stats.unavailable += 1
        return Finish(job.frame, outcome)

    def _name(self, job: Job) -> str:
        return f"{job.frame.camera}/{self.policy.model}"

    def _dropped(self, job: Job) -> Dropped:
        depth = self.policy.shares[job.frame.camera].depth
        return Dropped(Code.QUEUE_FULL, f"{self._name(job)}: queue full ({depth} waiting)", job.attempts)

    def _skipped(self, job: Job) -> Dropped:
        reason = f"{self._name(job)}: overload: an inference of {self._typical_s():.3f} s would end after the deadline"
        return Dropped(Code.SKIPPED_BY_POLICY, reason, job.attempts)

    def _too_late(self, job: Job, now: float) -> TimedOut:
        limit_s = self.policy.timeout_s
        if job.deadline_s <= now:
            reason = f"{self._name(job)}: the frame's deadline passed during attempt {job.attempts}"
            return TimedOut(limit_s, job.attempts, reason, deadline=True)
        tries = self.policy.retries + 1
        reason = f"{self._name(job)}: no result within {limit_s:.3f} s (attempt {job.attempts} of {tries})"
        return TimedOut(limit_s, job.attempts, reason)

    def _expired(self, job: Job) -> Outcome:
        if self._requests == 0:
            return Unavailable(f"{self._name(job)}: no model process until the frame's deadline", job.attempts)
        reason = f"{self._name(job)}: the frame's deadline passed while it waited"
        return TimedOut(self.policy.timeout_s, job.attempts, reason, deadline=True)

    def _stuck(self, job: Job) -> str:
        return (
            f"{self._name(job)}: frame {job.frame.frame_id} was cancelled and its request has not come back "
            f"within {self.policy.kill_after_s:.1f} s"
        )
