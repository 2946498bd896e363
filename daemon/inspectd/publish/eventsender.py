"""Sends the journal's events in their order, one at a time, each until the broker has it: a break means once more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from inspectd.errors import StorageError
from inspectd.publish.journalrows import StoredEvent
from inspectd.publish.reasons import FAILURE, Refusal, refusal, words

READ_EVENTS = 100
REFUSED_RETRY_S = 30.0
AGAIN_S = 1.0

log = logging.getLogger(__name__)


class Wire(Protocol):
    """The publisher, as events need it."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""

    def confirmed(self, topic: str, payload: bytes) -> Awaitable[int | None]:
        """Publish at QoS 1; gives the MQTT reason code, or None if the connection ended first."""


class EventSender:
    """Of the stream of the moment. Nothing waits here: what is not sent lies in the journal."""

    def __init__(
        self,
        wire: Callable[[], Wire],
        read: Callable[[int, int], Awaitable[Sequence[StoredEvent]]],
        acknowledge: Callable[[int], None],
        acked_event: int,
        last_event: int,
    ) -> None:
        """`read` takes (from, limit); both numbers are those at the start."""
        self.refused = 0
        """Events that the broker will never take: passed over."""
        self._wire, self._read, self._acknowledge = wire, read, acknowledge
        self._acked, self._last = acked_event, last_event
        self._news = asyncio.Event()
        self._progress = asyncio.Event()

    @property
    def unsent(self) -> int:
        """Events on the disk that the broker has not acknowledged."""
        return self._last - self._acked

    def committed(self, last_event: int) -> None:
        """Events up to this number are on the disk."""
        self._last = max(self._last, last_event)
        self._news.set()

    def begin(self, acked_event: int, last_event: int) -> None:
        """A new stream has begun."""
        self._acked, self._last = acked_event, last_event
        self._news.set()

    def wake(self) -> None:
        """There may be a connection again."""
        self._news.set()

    async def drained(self, limit_s: float) -> bool:
        """Wait until everything committed is delivered; False: it was not within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                while self.unsent:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Send for ever."""
        while True:
            self._news.clear()
            while self.unsent and self._wire().connected and await self._send_some():
                continue
            await self._news.wait()

    async def _send_some(self) -> bool:
        """Send what the journal has next. False: not now, somebody wakes us."""
        from_event, last_event = self._acked + 1, self._last
        try:
            events = await self._read(from_event, READ_EVENTS)
        except StorageError as fault:
            log.debug("events wait for the journal: %s", fault)
            await asyncio.sleep(AGAIN_S)
            return True
        for event in events:
            reason = await self._wire().confirmed("event", event.payload)
            if reason is None:
                return False
            if reason >= FAILURE and refusal(reason) is not Refusal.DEAD:
                await asyncio.sleep(REFUSED_RETRY_S if refusal(reason) is Refusal.STOP else AGAIN_S)
                return True
            if reason >= FAILURE:
                self.refused += 1
                log.warning("event %d is refused by the broker and passed over: %s", event.event_seq, words(reason))
            self._passed(event.event_seq)
        if not events:
            self._passed(last_event)  # the journal has given them up, and has counted them
        return True

    def _passed(self, event_seq: int) -> None:
        if self._acked < event_seq <= self._last:  # else another stream has begun meanwhile
            self._acked = event_seq
            self._acknowledge(event_seq)
        self._progress.set()
