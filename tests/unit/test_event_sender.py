"""Durable events on their way out: in order, each until the broker has it, none that stops the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import pytest

from inspectd.errors import StorageError
from inspectd.publish import eventsender
from inspectd.publish.eventsender import EventSender
from inspectd.publish.journalrows import StoredEvent

LIMIT_S = 5.0


class Plant:
    """A journal and a broker that answers as it is told to."""

    def __init__(self, count: int, answers: Iterable[int | None] = ()) -> None:
        self.rows = {seq: StoredEvent(seq, b"%d" % seq) for seq in range(1, count + 1)}
        self.connected = True
        self.sent: list[int] = []
        self.acked = 0
        self.unreadable = 0
        self._answers = list(answers)
        self._changed = asyncio.Event()

    async def read(self, from_event: int, limit: int) -> tuple[StoredEvent, ...]:
        if self.unreadable:
            self.unreadable -= 1
            raise StorageError("the disk is slow")
        return tuple(row for seq, row in self.rows.items() if seq >= from_event)[:limit]

    async def confirmed(self, topic: str, payload: bytes) -> int | None:
        assert topic == "event"
        self.sent.append(int(payload))
        return self._answers.pop(0) if self._answers else 0

    def acknowledge(self, event_seq: int) -> None:
        self.acked = event_seq
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running(plant: Plant, last_event: int) -> AsyncIterator[EventSender]:
    sender = EventSender(lambda: plant, plant.read, plant.acknowledge, 0, last_event)
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are as short as can be: what is tested is that there is one and not how long."""
    monkeypatch.setattr(eventsender, "AGAIN_S", 0.001)
    monkeypatch.setattr(eventsender, "REFUSED_RETRY_S", 0.001)


async def test_events_go_out_in_order_and_later_ones_when_they_are_committed() -> None:
    plant = Plant(5)
    async with running(plant, 3) as sender:
        assert await sender.drained(LIMIT_S)
        sender.committed(5)
        assert await sender.drained(LIMIT_S)
    assert plant.sent == [1, 2, 3, 4, 5]
    assert plant.acked == 5


async def test_a_connection_that_ends_means_the_same_event_once_more() -> None:
    plant = Plant(2, [None, None, 0])
    async with running(plant, 2) as sender:
        assert await sender.drained(LIMIT_S)
    assert plant.sent == [1, 1, 1, 2]


async def test_without_a_connection_nothing_is_sent_until_somebody_says_that_there_is_one() -> None:
    plant = Plant(2)
    plant.connected = False
    async with running(plant, 2) as sender:
        assert not await sender.drained(0.01)
        assert plant.sent == []
        plant.connected = True
        sender.wake()
        assert await sender.drained(LIMIT_S)


@pytest.mark.parametrize(("reason", "tries"), [(0x95, 1), (0x99, 1), (0x83, 1), (0x80, eventsender.TRIES)])
async def test_an_event_that_is_never_taken_is_passed_over_and_does_not_stop_the_rest(reason: int, tries: int) -> None:
    """One event of 2 kB was above the broker's limit: it broke the connection for ever, and no event came any more."""
    plant = Plant(2, [reason] * tries)
    async with running(plant, 2) as sender:
        assert await sender.drained(LIMIT_S)
    assert plant.sent == [1] * tries + [2]
    assert sender.refused == 1


async def test_a_broker_that_does_not_allow_events_gets_the_same_one_until_it_does() -> None:
    """Rights are mended, payloads are not: nothing is passed over."""
    plant = Plant(1, [0x87] * 20)
    async with running(plant, 1) as sender:
        assert await sender.drained(LIMIT_S)
    assert (plant.sent, sender.refused) == ([1] * 21, 0)


async def test_events_that_the_journal_has_given_up_are_passed_over() -> None:
    plant = Plant(5)
    del plant.rows[2], plant.rows[5]
    async with running(plant, 5) as sender:
        assert await sender.drained(LIMIT_S)
    assert (plant.sent, plant.acked) == ([1, 3, 4], 5)


async def test_a_journal_that_cannot_be_read_is_asked_again() -> None:
    plant = Plant(1)
    plant.unreadable = 3
    async with running(plant, 1) as sender:
        assert await sender.drained(LIMIT_S)
    assert plant.sent == [1]


async def test_a_new_stream_begins_where_it_says() -> None:
    plant = Plant(3)
    async with running(plant, 3) as sender:
        assert await sender.drained(LIMIT_S)
        sender.begin(3, 3)
        assert sender.unsent == 0
        plant.rows[4] = StoredEvent(4, b"4")
        sender.committed(4)
        await plant.until(lambda: plant.acked == 4)
