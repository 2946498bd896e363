"""Sends the journal's events in their order, one at a time, each until the broker has it: a break means once more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from inspectd.errors import StorageError
from inspectd.publish.journalrows import StoredEvent
from inspectd.publish.reasons import FAILURE, ITS_OWN_REASON, Refusal, refusal, words

READ_EVENTS = 100
REFUSED_RETRY_S = 30.0
AGAIN_S = 1.0
TRIES = 5
"""So often may a broker refuse one event without saying why before it is passed over."""

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
        self.answers = 0
        """Of the broker, whatever they say: the work goes on."""
        self._wire, self._read, self._acknowledge = wire, read, acknowledge
        self._acked, self._last = acked_event, last_event
        self._tries = (0, 0)
        """The event that was refused last, and how often."""
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
            if reason is None:  # the connection ended; or too much waits for it
                await asyncio.sleep(AGAIN_S)
                return True
            self.answers += 1
            hold_s = self._hold_s(event.event_seq, reason)
            if hold_s:
                await asyncio.sleep(hold_s)
                return True
            self._passed(event.event_seq)
        if not events:
            self._passed(last_event)  # the journal has given them up, and has counted them
        return True

    def _hold_s(self, event_seq: int, reason: int) -> float:
        """Say how long to wait before it is sent again; 0: it is delivered, or never will be and is passed over."""
        if reason < FAILURE:
            return 0.0
        what = refusal(reason)
        if what is Refusal.STOP:
            return REFUSED_RETRY_S
        self._tries = (event_seq, self._tries[1] + 1 if self._tries[0] == event_seq else 1)
        is_hopeless = what is Refusal.DEAD or reason == ITS_OWN_REASON or self._tries[1] >= TRIES
        if what is not Refusal.AGAIN and is_hopeless:
            self.refused += 1
            log.warning("event %d is refused by the broker and passed over: %s", event_seq, words(reason))
            return 0.0
        return AGAIN_S

    def _passed(self, event_seq: int) -> None:
        if event_seq > self._acked:  # else another stream has begun meanwhile: numbers only go up
            self._acked, self._last = event_seq, max(self._last, event_seq)
            self._acknowledge(event_seq)
        self._progress.set()
