"""The outbox's door under load: 1000 results/s while its process and the broker are killed, and a long outage."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.mosquitto import Received, Subscriber, mosquitto, subscriber
from tests.journaling import WALL_S, audit, close_journals, inspection, open_journal
from tests.outbox_door import BASE, worded

RATE_PER_S = 1000
SECONDS = 10
KILLS = 4
LIMIT_S = 60.0
BACKLOG = int(os.environ.get("INSPECTD_OUTAGE_RESULTS", "10800"))
"""An hour at 30 results/s is 108,000: `make outage`."""
LIVE_PER_S = 30
CATCH_UP_S = 300.0
QUIET = ("log_type none", "log_type notice", "log_type information", "max_queued_messages 200000")


@asynccontextmanager
async def door(
    folder: Path, port: int, last_frame: int, rate_per_s: float
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process under test; killed at the end of the block, if it has not been."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.outbox_door", str(folder), str(port), str(last_frame), str(rate_per_s)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(process: asyncio.subprocess.Process, word: str, number: int) -> None:
    """Read what it says until a line has this word and at least this number."""
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S + BACKLOG / 200):
        while line := await process.stdout.readline():
            said, _, value = line.decode().partition(" ")
            if said == word and int(value) >= number:
                return
    pytest.fail(f"it ended without {word} {number}")


async def replayed(plant: Subscriber, stream_id: str, last_seq: int) -> dict[int, bytes]:
    """Ask for everything again, as a MES that has missed something."""
    request = {"requestId": "all", "requester": "mes", "streamId": stream_id, "fromSeq": 1, "toSeq": last_seq}
    plant.publish(f"{BASE}/cmd/replay", json.dumps(request).encode())
    await plant.until(lambda _: len(plant.on(f"{BASE}/rsp/mes")) >= 2, LIMIT_S)
    accepted, completed = (json.loads(payload) for payload in plant.on(f"{BASE}/rsp/mes"))
    assert (accepted["status"], completed["status"]) == ("accepted", "completed")
    assert completed["detail"] == {"sent": last_seq, "lost": 0, "lostRanges": []}
    return by_seq(plant.messages, f"{BASE}/replay/mes")


def by_seq(messages: list[Received], topic: str) -> dict[int, bytes]:
    """Payloads by seq; the same seq with other bytes is an error."""
    found: dict[int, bytes] = {}
    for message in messages:
        if message.topic == topic:
            seq = json.loads(message.payload)["seq"]
            assert found.setdefault(seq, message.payload) == message.payload
    return found


@pytest.mark.slow
async def test_at_1000_results_a_second_kill_9_of_daemon_and_broker_loses_nothing(tmp_path: Path) -> None:
    """What a killed broker had acknowledged and not passed on is had by `replay`: a PUBACK is not durability."""
    last_frame = RATE_PER_S * SECONDS
    received: list[Received] = []
    with mosquitto(*QUIET) as broker:
        for kill in range(1, KILLS + 1):
            async with subscriber(broker.port, f"{BASE}/result") as plant:
                async with door(tmp_path, broker.port, last_frame, RATE_PER_S) as process:
                    await until(process, "committed", kill * last_frame // (KILLS + 2))
                    if kill % 2:
                        broker.restart()
                        await until(process, "committed", kill * last_frame // (KILLS + 2) + RATE_PER_S // 2)
                received += plant.messages
        async with subscriber(broker.port, f"{BASE}/result", f"{BASE}/rsp/mes", f"{BASE}/replay/mes") as plant:
            async with door(tmp_path, broker.port, last_frame, RATE_PER_S) as process:
                await until(process, "delivered", last_frame)
                journal_seqs, frames, _ = audit(tmp_path)
                again = await replayed(plant, stream_id(tmp_path), last_frame)
            received += plant.messages
    assert journal_seqs == list(range(1, last_frame + 1))
    assert frames == {("top", frame): 1 for frame in range(1, last_frame + 1)}
    live = by_seq(received, f"{BASE}/result")
    assert set(live) | set(again) == set(journal_seqs)
    assert all(again[seq] == payload for seq, payload in live.items())


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_after_a_long_outage_the_backlog_is_caught_up_and_live_verdicts_are_on_time(tmp_path: Path) -> None:
    """A backlog of hours must not stand before the part that passes now."""
    prefill(tmp_path)
    last_frame = BACKLOG + 10 * LIVE_PER_S
    with mosquitto(*QUIET) as broker:
        async with (
            subscriber(broker.port, f"{BASE}/result") as mes,
            subscriber(broker.port, f"{BASE}/verdict") as plc,
            door(tmp_path, broker.port, last_frame, LIVE_PER_S) as process,
        ):
            began_s = time.monotonic()
            await until(process, "delivered", last_frame)
            took_s = time.monotonic() - began_s
            await mes.until(lambda messages: len(messages) >= last_frame, LIMIT_S)
            await plc.until(lambda messages: len(messages) >= last_frame - BACKLOG, LIMIT_S)
    live = range(BACKLOG + 1, last_frame + 1)
    result_s, verdict_s = came_s(mes), came_s(plc)
    assert list(result_s) == list(range(1, last_frame + 1))
    assert list(verdict_s) == list(live)
    assert all(verdict_s[seq] < result_s[seq] for seq in range(BACKLOG + 1, BACKLOG + LIVE_PER_S))
    assert verdict_s[BACKLOG + LIVE_PER_S] < result_s[BACKLOG]
    assert took_s < CATCH_UP_S
    ages_s = sorted(message.at_s - json.loads(message.payload)["captured"] for message in plc.messages)
    print(
        f"{BACKLOG} results caught up in {took_s:.1f} s; live verdicts after {ages_s[len(ages_s) // 2] * 1000:.0f} ms, "
        f"{ages_s[-1] * 1000:.0f} ms at most"
    )


def came_s(client: Subscriber) -> dict[int, float]:
    """When each seq came, in the order in which they came."""
    return {json.loads(message.payload)["seq"]: message.at_s for message in client.messages}


def prefill(folder: Path) -> None:
    """The journal of a daemon whose broker was away for long."""
    journal, _ = open_journal(folder)
    for first in range(1, BACKLOG + 1, 500):
        records = [inspection(frame) for frame in range(first, min(first + 500, BACKLOG + 1))]
        journal.commit(records, worded, WALL_S)
    close_journals()


def stream_id(folder: Path) -> str:
    """Of the journal that the stopped process left."""
    journal, recovered = open_journal(folder)
    close_journals()
    del journal
    return recovered.stream_id
