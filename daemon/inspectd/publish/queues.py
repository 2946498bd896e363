"""Messages that wait for a place in flight: verdicts, direct ones, replays; each queue has its bound. Pure."""

from __future__ import annotations

from collections import deque

from inspectd.publish.effects import Kind, Message

QUEUE_MESSAGES = 256
"""Verdicts, and direct messages, that wait for the connection; then the oldest is dropped and counted."""
REPLAY_MESSAGES = 64


class Queues:
    """Each in its own order. What has to go is given back: the outbox counts it and tells its sender."""

    def __init__(self) -> None:
        self._of_kind: dict[Kind, deque[Message]] = {kind: deque() for kind in Kind if kind is not Kind.RESULT}

    def add(self, kind: Kind, message: Message) -> Message | None:
        """Take one to its end; gives the oldest if the queue was full."""
        queue = self._of_kind[kind]
        oldest = queue.popleft() if len(queue) >= QUEUE_MESSAGES else None
        queue.append(message)
        return oldest

    def again(self, kind: Kind, message: Message) -> None:
        """Put one back to where it was."""
        self._of_kind[kind].appendleft(message)

    def take(self, kind: Kind) -> Message:
        """Give the next one; there must be one."""
        return self._of_kind[kind].popleft()

    def waiting(self, kind: Kind) -> int:
        """Give how many wait."""
        return len(self._of_kind[kind])

    def take_overdue(self, kind: Kind, now: float) -> list[Message]:
        """Take out those whose time is over."""
        queue = self._of_kind[kind]
        overdue = [message for message in queue if message.is_over(now)]
        if overdue:
            self._of_kind[kind] = deque(message for message in queue if not message.is_over(now))
        return overdue

    def connection_ended(self) -> list[Message]:
        """Take out what must not outlive its connection: replays, and heartbeats, which say what was the case then."""
        direct, replays = self._of_kind[Kind.STATE], self._of_kind[Kind.REPLAY]
        gone = [*(message for message in direct if message.qos == 0), *replays]
        self._of_kind[Kind.STATE] = deque(message for message in direct if message.qos)
        replays.clear()
        return gone
