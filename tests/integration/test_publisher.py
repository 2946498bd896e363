from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mosquitto import Mosquitto, Received, mosquitto, subscriber

from inspectd.publish.broker import BrokerSettings
from inspectd.publish.commands import Answer
from inspectd.publish.flight import MAX_IN_FLIGHT
from inspectd.publish.journal_door import Journal
from inspectd.publish.publisher import Publisher
from inspectd.publish.standing import VERSION_AGAIN_S

pytestmark = pytest.mark.broker

BASE = "acme/line3/aoi-01"
WILL = b'{"status":"offline","reason":"connectionLost"}'
ONLINE = b'{"status":"online","reason":"start"}'
STOP = b'{"status":"offline","reason":"stop"}'
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Stored:
    seq: int
    payload: bytes


@dataclass(slots=True)
class Memory:
    """A journal in memory that notes what the publisher does with it."""

    rows: dict[int, Stored] = field(default_factory=dict)
    acks: list[int] = field(default_factory=list)
    dead: dict[int, str] = field(default_factory=dict)
    substitute: bool = True

    def commit(self, count: int, size: int = 200) -> list[Stored]:
        first = len(self.rows) + 1
        new = [Stored(seq, json.dumps({"seq": seq, "pad": "x" * size}).encode()) for seq in range(first, first + count)]
        self.rows |= {row.seq: row for row in new}
        return new

    async def read(self, from_seq: int, to_seq: int, limit: int) -> Sequence[Stored]:
        return [self.rows[seq] for seq in range(from_seq, to_seq + 1) if seq in self.rows][:limit]

    async def dead_letter(self, seq: int, reason: str) -> bytes | None:
        self.dead[seq] = reason
        return json.dumps({"seq": seq, "substitute": True}).encode() if self.substitute else None

    def door(self) -> Journal:
        return Journal("stream-1", 0, 0, self.read, self.acks.append, self.dead_letter)


def encode(answer: Answer) -> bytes:
    document = {"requestId": answer.request_id, "status": answer.status, "error": int(answer.error)}
    return json.dumps(document | {"detail": dict(answer.detail)}).encode()


def settings(broker: Mosquitto, **changes: Any) -> BrokerSettings:
    """Protocol deadlines short enough for a test: keepalive 1 s, silence 1.5 s."""
    rest: dict[str, Any] = {"keepalive_s": 1, "connect_limit_s": 1.0} | changes
    return BrokerSettings("127.0.0.1", broker.port, BASE, lambda: WILL, **rest)


class Watched(Publisher):
    """A publisher whose changes can be waited for."""

    def __init__(self, wanted: BrokerSettings, memory: Memory, **options: Any) -> None:
        self.changed = asyncio.Event()
        super().__init__(wanted, memory.door(), encode, on_change=self.changed.set, draw=lambda: 0.0, **options)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change that meets the condition."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(wanted: BrokerSettings, memory: Memory) -> AsyncIterator[Watched]:
    async with kept(Watched(wanted, memory)) as publisher:
        yield publisher


@asynccontextmanager
async def kept(publisher: Watched) -> AsyncIterator[Watched]:
    """Run it inside the block."""
    task = asyncio.create_task(publisher.run(), name="publisher")
    try:
        yield publisher
    finally:
        await publisher.close(1.0, STOP)
        async with asyncio.timeout(LIMIT_S):
            await task


def seqs(messages: list[Received], topic: str = f"{BASE}/result") -> list[int]:
    return [json.loads(message.payload)["seq"] for message in messages if message.topic == topic]


@pytest.mark.parametrize("version", [5, "3.1.1"])
async def test_results_arrive_in_order_and_the_mark_follows(version: Any) -> None:
    memory = Memory()
    with mosquitto() as broker:
        async with (
            subscriber(broker.port, f"{BASE}/#") as plant,
            running(settings(broker, version=version), memory) as publisher,
        ):
            publisher.committed(memory.commit(300))
            await plant.until(lambda messages: len(seqs(messages)) >= 300)
            assert await publisher.drained(LIMIT_S)
            assert seqs(plant.messages) == list(range(1, 301))
            assert memory.acks == sorted(memory.acks)
            assert memory.acks[-1] == 300
            if version == 5:
                assert plant.messages[0].properties["ContentType"] == "application/json"
                assert plant.messages[0].properties["PayloadFormatIndicator"] == 1


async def test_killing_the_broker_loses_nothing_that_it_did_not_acknowledge() -> None:
    """What it acknowledged and did not pass on before kill -9 is got by replay: a PUBACK is not durability."""
    memory = Memory()
    with mosquitto() as broker:
        async with running(settings(broker), memory) as publisher:
            received: list[Received] = []
            async with subscriber(broker.port, f"{BASE}/result") as plant:
                publisher.committed(memory.commit(1000))
                await plant.until(lambda messages: len(messages) >= 200)
                broker.restart()
                received += plant.messages
            async with subscriber(broker.port, f"{BASE}/result", f"{BASE}/rsp/mes", f"{BASE}/replay/mes") as plant:
                await publisher.until(lambda: publisher.connects == 2 and publisher.listening)
                assert await publisher.drained(LIMIT_S)
                request = {"requestId": "1", "requester": "mes", "streamId": "stream-1", "fromSeq": 1, "toSeq": 1000}
                plant.publish(f"{BASE}/cmd/replay", json.dumps(request).encode())
                await plant.until(lambda _: len(plant.on(f"{BASE}/rsp/mes")) >= 2)
                accepted, completed = (json.loads(payload) for payload in plant.on(f"{BASE}/rsp/mes"))
                assert (accepted["status"], completed["status"]) == ("accepted", "completed")
                assert completed["detail"] == {"sent": 1000, "lost": 0, "lostRanges": []}
                assert seqs(plant.messages, f"{BASE}/replay/mes") == list(range(1, 1001))
                received += plant.messages
        assert memory.acks[-1] == 1000
        results = [message for message in received if message.topic != f"{BASE}/rsp/mes"]
        assert {message.payload for message in results} == {row.payload for row in memory.rows.values()}


async def test_a_frozen_broker_is_left_by_our_own_deadline_and_everything_is_sent_again() -> None:
    memory = Memory()
    with mosquitto() as broker:
        async with running(settings(broker), memory) as publisher:
            await publisher.until(lambda: publisher.connected)
            with broker.stop_cont():
                publisher.committed(memory.commit(50))
                began_s = time.monotonic()
                await publisher.until(lambda: not publisher.connected)
                assert time.monotonic() - began_s < 3.0
                assert "no acknowledgement" in publisher.last_error or "silent" in publisher.last_error
                assert memory.acks == []
                assert "(limit 1.5 s)" in publisher.last_error, "not how long it was: the words would never be the same"
            assert await publisher.drained(LIMIT_S)
            assert memory.acks[-1] == 50


async def test_an_idle_connection_to_a_frozen_broker_is_dropped_too() -> None:
    """Pings alone must find it: nothing else is on its way."""
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as publisher:
            await publisher.until(lambda: publisher.connected)
            with broker.stop_cont():
                await publisher.until(lambda: not publisher.connected)
            await publisher.until(lambda: publisher.connected)


async def test_a_wrong_password_is_said_clearly_and_tried_again_until_it_is_right(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("wrong\n", "utf-8")
    with mosquitto(users={"station": "right"}) as broker:
        wanted = settings(broker, username="station", password_file=password)
        async with running(wanted, Memory()) as publisher:
            await publisher.until(lambda: bool(publisher.last_error))
            assert "password is wrong" in publisher.last_error
            password.write_text("right\n", "utf-8")
            await publisher.until(lambda: publisher.connected)
            assert publisher.last_error == ""


async def test_a_missing_password_file_is_named_and_tried_again(tmp_path: Path) -> None:
    password = tmp_path / "password"
    with mosquitto(users={"station": "right"}) as broker:
        async with running(settings(broker, username="station", password_file=password), Memory()) as publisher:
            await publisher.until(lambda: bool(publisher.last_error))
            assert str(password) in publisher.last_error
            password.write_bytes(b"geh\xffeim")
            await publisher.until(lambda: "is not UTF-8" in publisher.last_error)
            assert "0xff" not in publisher.last_error
            assert "position" not in publisher.last_error, "neither of a password's bytes nor of their place"
            password.write_text("right", "utf-8")
            await publisher.until(lambda: publisher.connected)


async def test_an_absent_broker_is_said_clearly_and_found_when_it_comes() -> None:
    memory = Memory()
    with mosquitto() as broker:
        broker.kill()
        async with running(settings(broker), memory) as publisher:
            publisher.committed(memory.commit(10))
            await publisher.until(lambda: bool(publisher.last_error))
            assert f"cannot reach 127.0.0.1:{broker.port}" in publisher.last_error
            broker.start()
            assert await publisher.drained(LIMIT_S)


async def test_what_the_access_list_refuses_is_kept_until_it_is_allowed() -> None:
    """Reason 135: sending stops, everything is kept, and goes out after the broker is mended."""
    memory, status = Memory(), f"topic write {BASE}/status\n"
    with mosquitto(users={"station": "x"}, acl=f"user station\n{status}") as broker:
        password = broker.folder / "station"
        password.write_text("x", "utf-8")
        async with running(settings(broker, username="station", password_file=password), memory) as publisher:
            publisher.committed(memory.commit(100))
            await publisher.until(lambda: publisher.refused)
            assert (publisher.stats().unsent, memory.acks, memory.dead) == (100, [], {})
            broker.write_acl(f"user station\n{status}topic write {BASE}/result\n")
            broker.restart()
            assert await publisher.drained(LIMIT_S)
            assert not publisher.refused


async def test_results_that_nobody_subscribes_to_count_as_delivered_and_are_counted() -> None:
    """Reason 16."""
    memory = Memory()
    with mosquitto() as broker:
        async with running(settings(broker), memory) as publisher:
            publisher.committed(memory.commit(20))
            assert await publisher.drained(LIMIT_S)
            assert publisher.stats().no_subscribers == 20


@pytest.mark.parametrize(
    ("line", "version"),
    [("max_packet_size 2000", 5), ("max_packet_size 2000", "3.1.1"), ("message_size_limit 2000", 5)],
)
async def test_an_oversize_result_is_put_aside_and_the_rest_goes_on(line: str, version: Any) -> None:
    """Told by CONNACK, by PUBACK 149, or (3.1.1) by hanging up: paho alone would reconnect for ever."""
    memory = Memory()
    with mosquitto(line) as broker:
        async with (
            subscriber(broker.port, f"{BASE}/result") as plant,
            running(settings(broker, version=version), memory) as publisher,
        ):
            publisher.committed([*memory.commit(5), *memory.commit(1, size=3000), *memory.commit(5)])
            assert await publisher.drained(LIMIT_S)
            await plant.until(lambda messages: set(seqs(messages)) == set(range(1, 12)))
            assert list(memory.dead) == [6]
            (sixth,) = {message.payload for message in plant.messages if b'"seq": 6' in message.payload}
            assert json.loads(sixth) == {"seq": 6, "substitute": True}


async def test_a_verdict_passes_a_backlog_of_5000() -> None:
    memory = Memory()
    with mosquitto() as broker:
        async with subscriber(broker.port, f"{BASE}/+") as plant, running(settings(broker), memory) as publisher:
            publisher.committed(memory.commit(5000))
            await plant.until(lambda messages: len(messages) >= 100)
            publisher.verdict(b"verdict", time.monotonic() + 2.0)
            behind = publisher.stats().unsent
            await plant.until(lambda _: bool(plant.on(f"{BASE}/verdict")))
            assert behind > 1000, "the backlog was gone before the verdict: this tested nothing"
            ahead = next(n for n, message in enumerate(plant.messages) if message.topic == f"{BASE}/verdict")
            assert ahead <= 5000 - behind + MAX_IN_FLIGHT, "no more than what was in flight already"
            (verdict,) = [message for message in plant.messages if message.topic == f"{BASE}/verdict"]
            assert verdict.properties["MessageExpiryInterval"] in {1, 2}
            assert not verdict.retain


async def test_a_verdict_is_never_sent_after_its_time() -> None:
    """A message given to paho before a break came 14 s later with its full expiry again."""
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as publisher:
            await publisher.until(lambda: publisher.connected)
            with broker.stop_cont():
                publisher.verdict(b"too late", time.monotonic() + 0.5)
                await publisher.until(lambda: not publisher.connected)
                broker.kill()
            broker.start()
            async with subscriber(broker.port, f"{BASE}/verdict") as plant:
                await publisher.until(lambda: publisher.connected)
                publisher.verdict(b"in time", time.monotonic() + 5.0)
                await plant.until(bool)
                assert plant.on(f"{BASE}/verdict") == [b"in time"]
            assert publisher.stats().verdicts_expired == 1


async def test_everything_retained_is_published_again_to_a_broker_that_forgot_it() -> None:
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as publisher:
            publisher.retain("status", ONLINE, 1)
            publisher.retain("state", b"1", 1)
            publisher.retain("state", b"2", 1)
            publisher.retain("health", b"h", 0, expiry_s=30.0)
            await publisher.until(lambda: publisher.connected)
            broker.restart()
            await publisher.until(lambda: publisher.connects == 2)
            async with subscriber(broker.port, f"{BASE}/#") as plant:
                await plant.until(lambda messages: len({message.topic for message in messages}) >= 3)
                assert plant.on(f"{BASE}/state")[-1] == b"2"
                (health,) = [message for message in plant.messages if message.topic == f"{BASE}/health"]
                assert health.properties["MessageExpiryInterval"] <= 30


async def test_a_planned_stop_is_acknowledged_and_leaves_no_will() -> None:
    with mosquitto() as broker:
        publisher = Watched(settings(broker), Memory())
        publisher.retain("status", ONLINE, 1)
        task = asyncio.create_task(publisher.run())
        async with subscriber(broker.port, f"{BASE}/status") as plant:
            await plant.until(lambda _: plant.on(f"{BASE}/status") == [ONLINE])
            assert await publisher.close(LIMIT_S, STOP)
            await task
            broker.wait_for_log(f"Received DISCONNECT from inspectd-{BASE.replace('/', '-')}")
            await plant.until(lambda _: plant.on(f"{BASE}/status") == [ONLINE, STOP])


async def test_a_stop_without_a_broker_ends_at_once() -> None:
    with mosquitto() as broker:
        broker.kill()
        publisher = Watched(settings(broker), Memory())
        task = asyncio.create_task(publisher.run())
        await publisher.until(lambda: bool(publisher.last_error))
        assert not await publisher.close(LIMIT_S, STOP)
        async with asyncio.timeout(2.0):
            await task


CHILD = """
import asyncio, sys
from inspectd.publish.broker import BrokerSettings
from inspectd.publish.journal_door import Journal
from inspectd.publish.flight import MAX_IN_FLIGHT
from inspectd.publish.publisher import Publisher

async def main(port, base, will, online):
    async def nothing(*_):
        return None
    journal = Journal("s", 0, 0, nothing, lambda seq: None, nothing)
    settings = BrokerSettings("127.0.0.1", int(port), base, lambda: will.encode(), keepalive_s=1)
    publisher = Publisher(settings, journal, lambda answer: b"")
    publisher.retain("status", online.encode(), 1)
    await publisher.run()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_the_will_is_seen_when_our_process_is_killed() -> None:
    with mosquitto() as broker:
        async with subscriber(broker.port, f"{BASE}/status") as plant:
            daemon = Path(__file__).parents[2] / "daemon"
            command = [sys.executable, "-c", CHILD, str(broker.port), BASE, WILL.decode(), ONLINE.decode()]
            child = await asyncio.create_subprocess_exec(*command, env=os.environ | {"PYTHONPATH": str(daemon)})
            try:
                await plant.until(lambda _: plant.on(f"{BASE}/status") == [ONLINE])
            finally:
                child.kill()
                await child.wait()
            await plant.until(lambda _: plant.on(f"{BASE}/status") == [ONLINE, WILL])


async def test_commands_are_answered_with_their_correlation_and_retained_ones_are_refused() -> None:
    with mosquitto() as broker:
        async with subscriber(broker.port, f"{BASE}/rsp/#") as plant:
            stale = {"requestId": "0", "requester": "mes"}
            plant.publish(f"{BASE}/cmd/get-state", json.dumps(stale).encode(), retain=True)
            async with running(settings(broker), Memory()):
                await plant.until(lambda _: len(plant.on(f"{BASE}/rsp/mes")) == 1)
                assert json.loads(plant.on(f"{BASE}/rsp/mes")[0])["error"] == 3
                plant.publish(f"{BASE}/cmd/nonsense", b"\xff\x00{", ResponseTopic=f"{BASE}/rsp/mes")
                asked = json.dumps({"requestId": "1", "requester": "mes"}).encode()
                plant.publish(
                    f"{BASE}/cmd/get-state", asked, ResponseTopic=f"{BASE}/rsp/x/y", CorrelationData=b"\x00\x07"
                )
                plant.publish(f"{BASE}/cmd/open-door", asked)
                await plant.until(lambda messages: len(messages) == 3)
                by_topic = {message.topic: message for message in plant.messages}
                assert json.loads(by_topic[f"{BASE}/rsp/x/y"].payload)["status"] == "completed"
                assert by_topic[f"{BASE}/rsp/x/y"].properties["CorrelationData"] == b"\x00\x07"
                assert json.loads(plant.on(f"{BASE}/rsp/mes")[1])["error"] == 1


@asynccontextmanager
async def scripted_broker(reply: bytes, **of_level: bytes) -> AsyncIterator[tuple[BrokerSettings, asyncio.Queue[int]]]:
    """A broker that answers each CONNECT with the same bytes and keeps the connection; notes the protocol levels.

    `level_4`, `level_5`: what it answers to that level instead.
    """
    levels: asyncio.Queue[int] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\x00\x04MQTT")
        level = (await reader.readexactly(1))[0]
        levels.put_nowait(level)
        writer.write(of_level.get(f"level_{level}", reply))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        yield BrokerSettings("127.0.0.1", port, BASE, lambda: WILL, keepalive_s=1, connect_limit_s=0.5), levels
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_disconnect_with_a_reason_is_said_in_words() -> None:
    """Session taken over (142): two stations with one base topic throw each other out for ever."""
    script = b"\x20\x03\x00\x00\x00" + b"\xe0\x02\x8e\x00"
    async with scripted_broker(script) as (wanted, _), running(wanted, Memory()) as publisher:
        await publisher.until(lambda: bool(publisher.last_error))
        assert "another client uses the same client id" in publisher.last_error


async def test_a_connection_that_the_broker_ends_soon_hints_at_a_second_client() -> None:
    """Debian 12's mosquitto hangs up without a reason when another client takes the id."""
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as first:
            await first.until(lambda: first.connected)
            async with running(settings(broker), Memory()) as second:
                await second.until(lambda: second.connected)
                await first.until(lambda: bool(first.last_error))
                assert "another client has the id inspectd-acme-line3-aoi-01" in first.last_error


@pytest.mark.parametrize("refusal", [b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00"])
async def test_a_broker_that_does_not_know_mqtt_5_is_asked_in_3_1_1(refusal: bytes) -> None:
    """Return code 1 from a broker that knows only 3.1.1, or reason 132 from one that does not want 5."""
    async with scripted_broker(refusal) as (wanted, levels), running(wanted, Memory()), asyncio.timeout(LIMIT_S):
        assert [await levels.get(), await levels.get()] == [5, 4]


async def test_a_broker_that_refused_mqtt_5_is_asked_in_it_again_at_a_connect_after_an_hour() -> None:
    """It may have been replaced, or was never itself the one that answered."""
    ahead_s = 0.0
    refuses, welcomes = b"\x20\x03\x00\x84\x00", b"\x20\x02\x00\x00"
    async with scripted_broker(refuses, level_4=welcomes) as (wanted, levels), asyncio.timeout(LIMIT_S):
        publisher = Watched(wanted, Memory(), clock=lambda: time.monotonic() + ahead_s)
        async with kept(publisher):
            assert [await levels.get(), await levels.get()] == [5, 4]
            await publisher.until(lambda: publisher.connected)
            ahead_s = VERSION_AGAIN_S / 2  # the connection is over: so long nothing was heard on it
            assert await levels.get() == 4
            await publisher.until(lambda: publisher.connects == 2)
            ahead_s = VERSION_AGAIN_S
            assert [await levels.get(), await levels.get()] == [5, 4]


async def test_a_broker_that_takes_the_connection_and_says_nothing_is_given_up() -> None:
    """The demo's amqtt hangs when it is asked in MQTT 5: the message says what to set."""
    async with scripted_broker(b"") as (wanted, _), running(wanted, Memory()) as publisher:
        await publisher.until(lambda: bool(publisher.last_error))
        assert "set mqtt.version" in publisher.last_error


@pytest.mark.slow
async def test_the_outbox_passes_1000_results_a_second() -> None:
    """2 kB results to a local broker, at no more than 0.35 ms of our CPU each."""
    memory, count = Memory(), 5000
    with mosquitto() as broker:
        async with running(settings(broker, keepalive_s=10), memory) as publisher:
            await publisher.until(lambda: publisher.connected)
            best_rate, best_cpu_ms = 0.0, math.inf
            for _ in range(3):  # other work on the same two cores only makes it look worse
                rows = memory.commit(count, size=2000)
                began_s, began_cpu_s = time.monotonic(), time.process_time()
                publisher.committed(rows)
                assert await publisher.drained(LIMIT_S)
                best_rate = max(best_rate, count / (time.monotonic() - began_s))
                best_cpu_ms = min(best_cpu_ms, (time.process_time() - began_cpu_s) / count * 1000)
            print(f"outbox: {best_rate:.0f} results/s, {best_cpu_ms:.3f} ms CPU each")
            assert best_cpu_ms <= 0.35
            assert best_rate >= 1000
