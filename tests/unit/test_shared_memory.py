"""Ledger, pools, slots and channels: what the processes share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.played import NoTimer, PlayedHost, pool_memory

from inspectd.camera.pools import Pools
from inspectd.camera.store import FrameStore
from inspectd.errors import OutsideError, StaleSlot, WorkerError
from inspectd.health.progress import ProgressPage, Word
from inspectd.ledger import Ledger
from inspectd.records import Frame
from inspectd.worker import frames
from inspectd.worker.channel import MESSAGE_MAX_BYTES, Channel, ChannelClosed
from inspectd.worker.frames import NewMemory, PoolSpec, slot_bytes
from inspectd.worker.pool import Pool
from inspectd.worker.slots import SlotTable

FRAME = Frame("top", 7, 1, 2, 5, 40, 30, captured_s=0.0, captured_wall_s=0.0)


@pytest.fixture
def pool() -> Pool:
    spec = PoolSpec("top", 1, 4, slot_bytes(40, 30))
    return Pool(spec, pool_memory(spec))


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = Channel.pair()
    pair = ours, Channel(theirs)
    yield pair
    for channel in pair:
        channel.close()


def test_a_ledger_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger" / "top")
    assert not ledger.valid
    ledger.begin(41, simulated=True)
    assert [ledger.take(), ledger.take()] == [42, 43]
    ledger.close()
    again = Ledger.open(tmp_path / "ledger" / "top")
    assert (again.valid, again.last, again.simulated) == (True, 43, True)
    again.close()


def test_a_ledger_that_somebody_still_holds_is_refused(tmp_path: Path) -> None:
    """Its number may still change: reading it now would count wrongly."""
    first = Ledger.open(tmp_path / "top")
    with pytest.raises(OutsideError, match="still holds the ledger"):
        Ledger.open(tmp_path / "top")
    first.close()
    Ledger.open(tmp_path / "top").close()


def test_a_picture_comes_out_of_its_slot_as_it_went_in(pool: Pool) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (30, 40, 3), np.uint8)
    pool.write(2, 7, 5, pixels)
    assert np.array_equal(pool.view(FRAME), pixels)


@pytest.mark.parametrize("change", [{"frame_id": 8}, {"generation": 6}, {"slot": 3}, {"slot": 9}, {"width_px": 4000}])
def test_a_slot_that_is_not_this_frames_is_never_read(pool: Pool, change: dict[str, Any]) -> None:
    """A stale picture must end as Failed, never as Done."""
    pool.write(2, 7, 5, np.zeros((30, 40, 3), np.uint8))
    with pytest.raises(StaleSlot):
        pool.view(replace(FRAME, **change))


def test_a_slot_that_is_overwritten_meanwhile_is_noticed(pool: Pool) -> None:
    pool.write(2, 7, 5, np.zeros((30, 40, 3), np.uint8))
    pool.view(FRAME)
    pool.write(2, 8, 6, np.zeros((30, 40, 3), np.uint8))
    with pytest.raises(StaleSlot, match="carries frame 8 generation 6, not 7 generation 5"):
        pool.check(FRAME)


def test_a_pool_that_memory_cannot_hold_is_refused_with_the_arithmetic() -> None:
    """A sparse memfd would end in SIGBUS in the middle of a shift, and taking it all would wake the OOM killer."""
    spec = PoolSpec("top", 1, 1_000_000, slot_bytes(8000, 8000))
    sum_told = (
        r"top: no memory for the frame pool: 1000000 slots × 192.0 MB = 192\d+ MB, at most \d+ MB may be taken now"
    )
    with pytest.raises(OutsideError, match=sum_told):
        NewMemory(spec)


def test_a_picture_that_needs_too_much_memory_is_forgotten_and_the_pool_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """One huge picture ended the camera for good: each new child was killed for the memory that it had asked for."""
    told: list[str] = []
    pools = Pools("top", lambda: 4)
    store = FrameStore(pools, PlayedHost(), (), lambda *_: NoTimer())
    store.need(slot_bytes(40, 30))
    store.begin(lambda error: told.append(str(error)))
    monkeypatch.setattr(frames, "available_bytes", lambda: 1_000_000)
    store.need(slot_bytes(4000, 3000))
    store.provide(lambda error: told.append(str(error)))
    assert [text[:36] for text in told] == ["top: no memory for the frame pool: 4"]
    assert pools.wanted() is None
    assert store.slots == 4
    store.close()


def test_a_large_pool_is_taken_in_steps_and_the_loop_goes_on_between_them() -> None:
    """Half a gigabyte at once stood main still for 0.4 s: no verdict went out, no answer was read."""
    steps: list[Callable[[], None]] = []

    def later(_delay_s: float, step: Callable[[], None]) -> NoTimer:
        steps.append(step)
        return NoTimer()

    host = PlayedHost()
    told: list[OutsideError] = []
    store = FrameStore(Pools("top", lambda: 3), host, (), later)
    store.need(frames.STEP_BYTES)
    store.begin(told.append)
    assert (store.slots, host.sent) == (0, [])
    store.child_gone()
    store.begin(told.append)
    while steps:
        steps.pop(0)()
    assert store.slots == 3
    assert [message["t"] for message in host.sent] == ["pool"], "only the child that is there now gets it, once"
    store.close()


def test_two_pools_that_are_taken_at_once_do_not_count_on_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "available_bytes", lambda: 100 * 4096)
    first = NewMemory(PoolSpec("top", 1, 1, 40 * 4096))
    with pytest.raises(OutsideError, match="side: no memory"):
        NewMemory(PoolSpec("side", 1, 1, 40 * 4096))
    first.close()
    NewMemory(PoolSpec("side", 1, 1, 40 * 4096)).close()


def test_a_slot_is_free_when_its_last_reader_let_go() -> None:
    table = SlotTable(2)
    table.announce(0, 7, "line")
    table.read(0, 7, "attempt")
    table.release(0, 7, "line")
    assert table.take_freed() == []
    table.release(0, 7, "attempt")
    assert table.take_freed() == [0]
    assert table.take_freed() == []


def test_a_slot_that_is_held_cannot_be_announced_again() -> None:
    table = SlotTable(2)
    table.announce(0, 7, "line")
    with pytest.raises(WorkerError, match="still holds frame 7"):
        table.announce(0, 8, "line")
    with pytest.raises(WorkerError, match="does not exist"):
        table.announce(2, 8, "line")


def test_nobody_starts_to_read_a_slot_that_was_given_away() -> None:
    table = SlotTable(1)
    table.announce(0, 7, "line")
    table.release(0, 7, "line")
    with pytest.raises(WorkerError, match="not frame 7's any more"):
        table.read(0, 7, "attempt")
    table.announce(0, 8, "line")
    table.release(0, 7, "attempt")
    assert table.held == 1, "a late reader of an older frame must not free the new one"


def test_a_message_arrives_whole_with_its_descriptors(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    page, descriptor = ProgressPage.create("test")
    assert ours.send({"t": "open"}, (descriptor,))
    received = theirs.receive()
    assert received is not None
    message, [copy] = received
    assert message == {"t": "open"}
    ProgressPage(copy).count(Word.TURNS)
    assert page[Word.TURNS] == 1
    os.close(descriptor)
    os.close(copy)


def test_a_reader_that_does_not_read_costs_no_time_only_the_message(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    sent = 0
    while ours.send({"t": "frame", "n": sent}):
        sent += 1
    received = 0
    while (message := theirs.receive()) is not None:
        assert message[0]["n"] == received
        received += 1
    assert sent == received > 100
    assert theirs.receive() is None


def test_a_closed_end_and_an_oversize_message_are_told(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    with pytest.raises(WorkerError, match="limit 65536"):
        ours.send({"t": "x" * MESSAGE_MAX_BYTES})
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send({"t": "frame"})
