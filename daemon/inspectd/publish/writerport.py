"""What passes between the loop and the writer's thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from inspectd.publish.counters import Counters
from inspectd.publish.journal import Committed, Loss, Recovered
from inspectd.publish.ring import Ring
from inspectd.records import Inspection


@dataclass(frozen=True, slots=True)
class Commit:
    """What is on the disk now."""

    rows: tuple[Committed, ...]
    counters: Counters
    next_seq: int
    commit_s: float


class Listener(Protocol):
    """Whoever is told, in the loop's thread, in the order in which it happened."""

    def on_commit(self, commit: Commit) -> None:
        """Take what is committed; also without rows, when only an acknowledgement was written."""

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
class Notes:
    """What waits to be written with the next commit."""

    acked: tuple[str, int] | None = None
    """The stream that the seq is of, and the seq."""
    reserved: dict[str, int] = field(default_factory=dict)
    triggers_accepted: int = 0
    triggers_missed: int = 0
    verdicts_expired: int = 0
    since_s: float | None = None


@dataclass(slots=True)
class Shared:
    """What loop and thread share. Only touched under `changed`, which is never held over I/O."""

    ring: Ring
    changed: threading.Condition = field(default_factory=threading.Condition)
    urgent: bool = False
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
