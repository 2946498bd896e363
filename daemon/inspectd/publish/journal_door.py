"""The publisher's side of the journal: reads what is to be sent, puts aside what cannot be. One request at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from inspectd.errors import InspectdError
from inspectd.publish.effects import DeadLetter, Read, Row

LIMIT_S = 30.0
RETRY_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Journal:
    """What the publisher needs of the journal. The callables are called in the event loop and do not block."""

    stream_id: str
    acked_seq: int
    last_seq: int
    """Both at the start."""
    read: Callable[[int, int, int], Awaitable[Sequence[Row]]]
    """(from_seq, to_seq, limit): the rows of the range that are still stored, in order, at most `limit`."""
    ack: Callable[[int], None]
    """The high-water mark: everything up to here is delivered or put aside."""
    dead_letter: Callable[[int, str], Awaitable[bytes | None]]
    """(seq, reason): puts a row aside; gives what is to be sent in its place, if anything."""


class JournalDoor:
    """Serves the outbox's wishes in turn. Bounded by the outbox: one read, and a dead letter per place in flight."""

    def __init__(
        self,
        journal: Journal,
        loaded: Callable[[Read, Sequence[Row] | None], None],
        substituted: Callable[[int, bytes | None], None],
    ) -> None:
        self._journal = journal
        self._loaded = loaded
        self._substituted = substituted
        self._wishes: asyncio.Queue[Read | DeadLetter] = asyncio.Queue()

    def wish(self, wish: Read | DeadLetter) -> None:
        """Ask for something; the answer comes by `loaded` or `substituted`."""
        self._wishes.put_nowait(wish)

    async def run(self) -> None:
        """Serve for ever."""
        while True:
            wish = await self._wishes.get()
            if isinstance(wish, Read):
                await self._read(wish)
            else:
                await self._put_aside(wish)

    async def _read(self, read: Read) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                rows = await self._journal.read(read.from_seq, read.to_seq, read.limit)
        except (InspectdError, TimeoutError) as fault:
            log.warning(
                "mqtt: results %d to %d cannot be read: %s", read.from_seq, read.to_seq, str(fault) or "no answer"
            )
            self._loaded(read, None)
        else:
            self._loaded(read, rows)

    async def _put_aside(self, letter: DeadLetter) -> None:
        """Put a row aside, however long it takes: until then nothing passes it, and nothing is lost."""
        log.warning("mqtt: result %d is put aside: %s", letter.seq, letter.reason)
        while True:
            try:
                async with asyncio.timeout(LIMIT_S):
                    substitute = await self._journal.dead_letter(letter.seq, letter.reason)
                break
            except (InspectdError, TimeoutError) as fault:
                log.warning("mqtt: result %d cannot be put aside yet: %s", letter.seq, str(fault) or "no answer")
                await asyncio.sleep(RETRY_S)
        self._substituted(letter.seq, substitute)
