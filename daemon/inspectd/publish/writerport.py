"""What passes between the loop and the writer's thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from inspectd.publish.counters import Counters
from inspectd.publish.events import Occurrence
from inspectd.publish.journal import Committed, Loss, Recovered
from inspectd.publish.ring import Ring
from inspectd.records import Inspection

EVENTS_MAX = 1000
"""Durable events that wait for the disk."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What is on the disk now."""

    rows: tuple[Committed, ...]
    counters: Counters
    next_seq: int
    commit_s: float


@dataclass(frozen=True, slots=True)
class CountersReset:
    """A new period has begun, before the rows of the commit that is told next."""

    counters: Counters
    """As the period began."""
    excluded: Mapping[str, int]
    """By camera: numbers outside `captured` from here on."""


class Listener(Protocol):
    """Whoever is told, in the loop's thread, in the order in which it happened."""

    def on_commit(self, commit: Commit) -> None:
        """Take what is committed; also without rows, when only an acknowledgement was written."""

    def on_events(self, last_event: int) -> None:
        """Hear that durable events up to this number are on the disk: they may be read and sent."""

    def on_counters_reset(self, reset: CountersReset) -> None:
        """Take the beginning of a new period: counters and `excluded` in one step, so that the sum stays exact."""

    def on_uncommitted(self, records: tuple[Inspection, ...]) -> None:
        """Take results that could not be committed, as 700: each once. Their rows follow when the disk is back."""

    def on_trouble(self, reason: str | None) -> None:
        """Hear once that nothing can be committed, and once (None) that it can again."""

    def on_loss(self, loss: Loss) -> None:
        """Hear that unsent results had to be given up."""

    def on_new_stream(self, recovered: Recovered) -> None:
        """Hear that the journal was damaged and set aside. What was unsent is in the files set aside."""

    def on_failure(self, error: Exception) -> None:
        """Hear that the thread has ended by an error in the program: the daemon must end too."""


@dataclass(slots=True)
class Request:
    """A call to the journal that somebody in the loop waits for."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    stream_id: str
    """The stream that it speaks of."""


@dataclass(slots=True)
class Counts:
    """What is counted and has no record of its own."""

    triggers_accepted: int = 0
    triggers_missed: int = 0
    verdicts_expired: int = 0
    events_lost: int = 0


@dataclass(slots=True)
class Notes:
    """What waits to be written with the next commit."""

    acked: tuple[str, int] | None = None
    """The stream that the seq is of, and the seq."""
    acked_event: int = 0
    reserved: dict[str, int] = field(default_factory=dict)
    resets: list[asyncio.Future[Counters]] = field(default_factory=list)
    """Whoever waits for the counters to begin anew. `counts` has what was counted since."""
    counts: Counts = field(default_factory=Counts)
    memo: str | None = None
    since_s: float | None = None

    @property
    def urgent(self) -> bool:
        """Whether they do not wait for something that takes them along."""
        return self.memo is not None or bool(self.resets)


@dataclass(slots=True)
class Shared:
    """What loop and thread share. Only touched under `changed`, which is never held over I/O."""

    ring: Ring
    changed: threading.Condition = field(default_factory=threading.Condition)
    urgent: bool = False
    events: deque[Occurrence] = field(default_factory=deque)
    notes: Notes = field(default_factory=Notes)
    requests: deque[Request] = field(default_factory=deque)
    committing: int = 0
    """So many of the oldest records are on their way to the disk."""
    ages_count: bool = False
    """The wall clock can be believed: what is old by it may go."""
    closing: bool = False
    clean: bool = False
    abandoned: bool = False
    """Nobody waits for the end any more."""
    ended: bool = False

    def add_event(self, event: Occurrence) -> None:
        """Let an event wait; beyond EVENTS_MAX the oldest is dropped and counted."""
        self.events.append(event)
        self._drop_events()

    def take_events(self, limit: int) -> list[Occurrence]:
        """Take the oldest events on their way to the disk."""
        return [self.events.popleft() for _ in range(min(limit, len(self.events)))]

    def give_back_events(self, events: list[Occurrence]) -> None:
        """Put events back that did not get there, before those that came since."""
        self.events.extendleft(reversed(events))
        self._drop_events()

    def _drop_events(self) -> None:
        while len(self.events) > EVENTS_MAX:
            self.events.popleft()
            self.notes.counts.events_lost += 1
