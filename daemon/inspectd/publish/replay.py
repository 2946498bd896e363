"""The command `replay`: publishes stored results again, on the requester's own topic, behind everything live."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inspectd.errors import InspectdError
from inspectd.publish.commands import Request, Respond
from inspectd.publish.effects import Row
from inspectd.publish.reasons import FAILURE, PACKET_TOO_LARGE, words
from inspectd.publish.reports import ErrorNumber

MOST_RESULTS = 10_000
READ_ROWS = 200
READ_LIMIT_S = 30.0
OUTSTANDING = 8
"""As many as may be in flight: one after the other would take a round trip each."""
DELIVERY_LIMIT_S = 120.0
"""Live results go first, all of them."""
LOST_RANGES = 1000


@dataclass(slots=True)
class _Progress:
    sent: int = 0
    lost: int = 0
    ranges: list[list[int]] = field(default_factory=list)

    def lose(self, from_seq: int, to_seq: int) -> None:
        if to_seq < from_seq:
            return
        self.lost += to_seq - from_seq + 1
        if self.ranges and self.ranges[-1][1] == from_seq - 1:
            self.ranges[-1][1] = to_seq
        elif len(self.ranges) < LOST_RANGES:
            self.ranges.append([from_seq, to_seq])

    def detail(self) -> dict[str, Any]:
        return {"sent": self.sent, "lost": self.lost, "lostRanges": sorted(self.ranges)}


@dataclass(slots=True)
class Replay:
    """One replay at a time; the next is told that it is busy."""

    topic_base: str
    stream_id: str
    last_seq: Callable[[], int]
    read: Callable[[int, int, int], Awaitable[Sequence[Row]]]
    deliver: Callable[[str, bytes], Awaitable[int | None]]
    """(topic, payload): the MQTT reason code, or None if the connection ended."""
    running: bool = False

    async def __call__(self, request: Request, respond: Respond) -> None:
        """Do it: `rejected`, or `accepted` and then `completed` or `failed` with what was sent and what is lost."""
        refusal = self._refusal(request)
        if refusal is not None:
            respond(request.rejected(*refusal))
            return
        self.running = True
        progress = _Progress()
        try:
            respond(request.accepted())
            from_seq, to_seq = request.arguments["fromSeq"], min(request.arguments["toSeq"], self.last_seq())
            failure = await self._run(f"{self.topic_base}/replay/{request.requester}", from_seq, to_seq, progress)
        except (TimeoutError, InspectdError) as fault:
            failure = (ErrorNumber.INTERNAL, str(fault) or f"not delivered within {DELIVERY_LIMIT_S:.0f} s")
        finally:
            self.running = False
        if failure is None:
            respond(request.completed(progress.detail()))
        else:
            respond(request.failed(*failure, progress.detail()))

    def _refusal(self, request: Request) -> tuple[ErrorNumber, str] | None:
        stream_id, from_seq, to_seq = (request.arguments.get(key) for key in ("streamId", "fromSeq", "toSeq"))
        if not (type(from_seq) is int and type(to_seq) is int and 1 <= from_seq <= to_seq < 2**63):
            return ErrorNumber.BAD_ARGUMENT, "fromSeq and toSeq must be whole numbers, 1 <= fromSeq <= toSeq"
        if to_seq - from_seq + 1 > MOST_RESULTS:
            text = f"{to_seq - from_seq + 1} results asked for, at most {MOST_RESULTS} at a time; ask in parts"
            return ErrorNumber.BAD_ARGUMENT, text
        if stream_id != self.stream_id:
            return ErrorNumber.NOT_FOUND, f"this station's stream is {self.stream_id}"
        if from_seq > self.last_seq():
            return ErrorNumber.NOT_FOUND, f"the last result is {self.last_seq()}"
        if self.running:
            return ErrorNumber.BUSY, "another replay is running"
        return None

    async def _run(self, topic: str, from_seq: int, to_seq: int, progress: _Progress) -> tuple[ErrorNumber, str] | None:
        outstanding: deque[tuple[int, Awaitable[int | None]]] = deque()
        while from_seq <= to_seq or outstanding:
            rows: Sequence[Row] = ()
            if from_seq <= to_seq:
                rows = await asyncio.wait_for(_result(self.read(from_seq, to_seq, READ_ROWS)), READ_LIMIT_S)
            for row in rows:
                progress.lose(from_seq, row.seq - 1)
                from_seq = row.seq + 1
                outstanding.append((row.seq, asyncio.ensure_future(self.deliver(topic, row.payload))))
                if len(outstanding) >= OUTSTANDING and (failure := await _settle(*outstanding.popleft(), progress)):
                    return failure
            if len(rows) < READ_ROWS:
                progress.lose(from_seq, to_seq)
                from_seq = to_seq + 1
                while outstanding:
                    if failure := await _settle(*outstanding.popleft(), progress):
                        return failure
        return None


async def _result(answer: Awaitable[Sequence[Row]]) -> Sequence[Row]:
    return await answer


async def _settle(seq: int, delivery: Awaitable[int | None], progress: _Progress) -> tuple[ErrorNumber, str] | None:
    """Wait for one delivery. A result that is too large for the broker counts as lost; any other refusal ends it."""
    reason = await asyncio.wait_for(delivery, DELIVERY_LIMIT_S)
    if reason is None:
        return ErrorNumber.INTERNAL, "the connection to the broker ended; ask again for the rest"
    if reason < FAILURE:
        progress.sent += 1
        return None
    if reason == PACKET_TOO_LARGE:
        progress.lose(seq, seq)
        return None
    return ErrorNumber.NOT_AUTHORISED, words(reason)
