"""Waiting frames of one model: a bounded queue per camera, served in weighted turn. Never blocks. Pure.

When a camera's queue is full, `drop_oldest` gives the oldest waiting job back (the new one enters), `drop_newest`
the new one. Another camera's jobs are never touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from inspectd.lane.turns import Turns
from inspectd.records import Frame


class WhenFull(StrEnum):
    """What gives way in a full queue."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"


@dataclass(frozen=True, slots=True)
class Job:
    """One frame that one model has to see."""

    frame: Frame
    deadline_s: float
    """Monotonic clock: no attempt begins or goes on after it."""
    offered_s: float = 0.0
    """Monotonic clock: since then it waits."""
    attempts: int = 0
    """Attempts that were begun."""


@dataclass(frozen=True, slots=True)
class CameraShare:
    """What one camera gets of the lane."""

    depth: int
    weight: int = 1
    may_skip: bool = True
    """False: its frames are never left out on purpose (triggered, or a source that waits): what is late is late."""


class Inbox:
    """Bounded per camera, fair between them: how long one can be kept waiting is the bound of its turns."""

    def __init__(self, shares: dict[str, CameraShare], when_full: WhenFull) -> None:
        self._shares, self._when_full = shares, when_full
        self._queues: dict[str, deque[Job]] = {camera: deque() for camera in shares}
        self.turns = Turns({camera: share.weight for camera, share in shares.items()})

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, job: Job) -> Job | None:
        """Queue a job; returns the one that had to give way, if any."""
        queue = self._queues[job.frame.camera]
        if len(queue) < self._shares[job.frame.camera].depth:
            queue.append(job)
            return None
        if self._when_full is WhenFull.DROP_NEWEST:
            return job
        oldest = queue.popleft()
        queue.append(job)
        return oldest

    def put_back(self, job: Job) -> None:
        """Queue a job for another attempt, before its camera's others.

        Does not look at the depth: it was taken from the queue, and there are at most as many as requests.
        """
        self._queues[job.frame.camera].appendleft(job)

    def take(self, demoted: Collection[str] = ()) -> Job | None:
        """The next job in weighted turn; cameras that are demoted have a part of their weight."""
        waiting = [camera for camera, queue in self._queues.items() if queue]
        return self._queues[self.turns.take(waiting, demoted)].popleft() if waiting else None

    def take_expired(self, now: float) -> list[Job]:
        """Jobs whose deadline has passed while they waited."""
        expired: list[Job] = []
        for camera, queue in self._queues.items():
            if any(job.deadline_s <= now for job in queue):
                expired += [job for job in queue if job.deadline_s <= now]
                self._queues[camera] = deque(job for job in queue if job.deadline_s > now)
        return expired

    def take_all(self) -> list[Job]:
        """Everything that waits."""
        jobs = [job for queue in self._queues.values() for job in queue]
        for queue in self._queues.values():
            queue.clear()
        return jobs

    def next_deadline_s(self) -> float | None:
        """When take_expired would give something."""
        return min((job.deadline_s for queue in self._queues.values() for job in queue), default=None)
