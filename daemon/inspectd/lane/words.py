"""What a lane says of a frame that it gave up: the outcome, with camera, model and numbers. Pure."""

from __future__ import annotations

from inspectd.lane.inbox import Job
from inspectd.records import Code, Dropped, TimedOut, Unavailable


class Words:
    """One model's wording; `timeout_s` and `retries` are its limits."""

    def __init__(self, model: str, timeout_s: float, retries: int) -> None:
        self._model, self._timeout_s, self._tries = model, timeout_s, retries + 1

    def queue_full(self, job: Job, depth: int) -> Dropped:
        """It had to give way to another frame of its camera."""
        return Dropped(Code.QUEUE_FULL, f"{self._name(job)}: queue full ({depth} waiting)", job.attempts)

    def hopeless(self, job: Job, typical_s: float, *, may_skip: bool) -> Dropped | TimedOut:
        """It never reached the device, or not again, because its answer would come too late.

        Left out by policy (303) only where frames may be; a triggered part is late (300), as is a frame that was tried.
        """
        reason = f"{self._name(job)}: overload: an inference of {typical_s:.3f} s would end after the deadline"
        if may_skip and not job.attempts:
            return Dropped(Code.SKIPPED_BY_POLICY, reason)
        return TimedOut(self._timeout_s, job.attempts, reason, deadline=True)

    def too_late(self, job: Job, now: float) -> TimedOut:
        """Its attempt was given up."""
        if job.deadline_s <= now:
            reason = f"{self._name(job)}: the frame's deadline passed during attempt {job.attempts}"
            return TimedOut(self._timeout_s, job.attempts, reason, deadline=True)
        reason = (
            f"{self._name(job)}: no result within {self._timeout_s:.3f} s (attempt {job.attempts} of {self._tries})"
        )
        return TimedOut(self._timeout_s, job.attempts, reason)

    def expired(self, job: Job, *, has_child: bool) -> TimedOut | Unavailable:
        """Its deadline passed while it waited."""
        if not has_child:
            return Unavailable(f"{self._name(job)}: no model process until the frame's deadline", job.attempts)
        reason = f"{self._name(job)}: the frame's deadline passed while it waited"
        return TimedOut(self._timeout_s, job.attempts, reason, deadline=True)

    def stuck(self, job: Job, kill_after_s: float) -> str:
        """Say why a child has to go."""
        return (
            f"{self._name(job)}: frame {job.frame.frame_id} was cancelled and its request has not come back "
            f"within {kill_after_s:.1f} s"
        )

    def _name(self, job: Job) -> str:
        return f"{job.frame.camera}/{self._model}"
