"""Who waits to hear what became of a message. Each hears exactly once, at the latest when the publisher ends."""

from __future__ import annotations

import asyncio


class Settling:
    """Futures by the number that goes with the message. Bounded by the outbox's queues: each message is in one."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[int | None]] = {}
        self._last_ref = 0

    def expect(self) -> tuple[int, asyncio.Future[int | None]]:
        """Give a number for a message, and the future of its MQTT reason code; None: it was not acknowledged."""
        self._last_ref += 1
        settled: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_ref] = settled
        return self._last_ref, settled

    def settle(self, ref: int, reason: int | None) -> None:
        """Tell whoever waits; a retained message may be settled again on the next connection."""
        settled = self._waiting.pop(ref, None)
        if settled is not None and not settled.done():  # whoever asked may have gone
            settled.set_result(reason)

    def end(self) -> None:
        """Tell all: nobody sends these any more."""
        for ref in list(self._waiting):
            self.settle(ref, None)
