"""What brokers, networks and strangers do to us, with real ones. More of it is in test_publisher and test_tls."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.mosquitto import CI, dynamic_security, mosquitto, subscriber
from tests.integration.test_publisher import (
    BASE,
    LIMIT_S,
    ONLINE,
    WILL,
    Memory,
    Watched,
    encode,
    kept,
    running,
    scripted_broker,
    seqs,
    settings,
)

from inspectd.publish.broker import BrokerSettings
from inspectd.publish.commands import Commands, Request, get_state
from inspectd.publish.effects import Incoming
from inspectd.publish.mqttdial import INCOMING_LIMIT_BYTES
from inspectd.publish.standing import ALONE_S

pytestmark = pytest.mark.broker


class Hearing(Watched):
    """A publisher that also takes receipts; the first is more than its receiver can bear, if that is wanted."""

    def __init__(self, wanted: BrokerSettings, memory: Memory, *, is_broken: bool = False) -> None:
        self.receipts: list[Incoming] = []
        self._is_broken = is_broken
        super().__init__(wanted, memory, on_receipt=self._receive)

    def _receive(self, incoming: Incoming) -> None:
        self.receipts.append(incoming)
        if self._is_broken and len(self.receipts) == 1:
            raise LookupError("a fault of our own")
        self.changed.set()


@asynccontextmanager
async def hearing(
    wanted: BrokerSettings, memory: Memory | None = None, *, is_broken: bool = False
) -> AsyncIterator[Hearing]:
    publisher = Hearing(wanted, memory or Memory(), is_broken=is_broken)
    async with kept(publisher):
        yield publisher


def ask(requester: str = "mes", request_id: str = "1") -> bytes:
    return json.dumps({"requestId": request_id, "requester": requester}).encode()


# --- what the broker does not take -----------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_retained_message_that_3_1_1_hangs_up_at_is_left_out_and_all_else_goes_on(
    qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without finding it, it would be the first thing after each connect, for ever."""
    memory = Memory()
    with mosquitto("max_packet_size 2000") as broker:
        async with (
            subscriber(broker.port, f"{BASE}/#") as plant,
            running(settings(broker, version="3.1.1"), memory) as publisher,
        ):
            publisher.retain("status", ONLINE, 1)
            publisher.retain("meta", b"x" * 3000, qos)
            publisher.retain("state", b"state", 0)
            publisher.committed(memory.commit(20))
            assert await publisher.drained(LIMIT_S)
            await plant.until(lambda messages: set(seqs(messages)) == set(range(1, 21)))
            await plant.until(lambda _: set(plant.on(f"{BASE}/state")) == {b"state"})
            assert memory.dead == {}
            assert plant.on(f"{BASE}/meta") == []
    (told,) = [record.message for record in caplog.records if "(3000 bytes)" in record.message]
    assert f"nothing can be published on {BASE}/meta: the broker ended the connection" in told


async def test_an_answer_that_3_1_1_hangs_up_at_is_given_up_and_its_sender_hears_of_it() -> None:
    with mosquitto("max_packet_size 2000") as broker:
        async with running(settings(broker, version="3.1.1"), Memory()) as publisher:
            await publisher.until(lambda: publisher.connected)
            reasons: list[int | None] = []
            async with asyncio.timeout(LIMIT_S):
                while not reasons or reasons[-1] is None:  # None: the connection ended; a durable event goes again
                    reasons.append(await publisher.confirmed("event", b"x" * 3000))
            assert reasons[-1] == 131
            assert await publisher.confirmed(f"{BASE}/event", b"small") in {0, 16}


@pytest.mark.parametrize("version", [5, "3.1.1"])
async def test_a_packet_limit_that_was_lowered_between_two_connects_costs_only_what_is_too_large(version: Any) -> None:
    """What passed yesterday does not today, and was committed long ago."""
    memory = Memory()
    with mosquitto() as broker:
        async with running(settings(broker, version=version), memory) as publisher:
            publisher.committed(memory.commit(3, size=3000))
            assert await publisher.drained(LIMIT_S)
            broker.kill()
            publisher.committed([*memory.commit(2), *memory.commit(1, size=3000), *memory.commit(2)])
            broker.configure("max_packet_size 2000")
            broker.start()
            async with subscriber(broker.port, f"{BASE}/result") as plant:
                assert await publisher.drained(LIMIT_S)
                await plant.until(lambda messages: set(seqs(messages)) >= {7, 8})
        assert list(memory.dead) == [6]


# --- what the broker does not allow ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, "3.1.1"])
async def test_where_the_wildcard_is_refused_each_command_is_subscribed_to_by_name(version: Any) -> None:
    """Half allowed: `replay` stays deaf, and is named; whoever asks for the rest is answered."""
    allowed = {"station": [f"{BASE}/cmd/get-state", f"{BASE}/ack"], "plant": ["#"]}
    with mosquitto(dynamic=dynamic_security(allowed)) as broker:
        password = broker.folder / "station"
        password.write_text("station", "utf-8")
        wanted = settings(broker, version=version, username="station", password_file=password)
        async with (
            subscriber(broker.port, f"{BASE}/rsp/#", user="plant", password="plant") as plant,  # noqa: S106
            hearing(wanted) as publisher,
        ):
            await publisher.until(lambda: publisher.listening and len(publisher.deaf) == 1)
            assert publisher.deaf == (f"{BASE}/cmd/replay",)
            plant.publish(f"{BASE}/cmd/get-state", ask())
            await plant.until(lambda _: len(plant.on(f"{BASE}/rsp/mes")) == 1)
            plant.publish(f"{BASE}/ack", b"receipt")
            await publisher.until(lambda: [one.payload for one in publisher.receipts] == [b"receipt"])


async def test_where_nothing_may_be_subscribed_to_results_go_out_and_the_deafness_is_named() -> None:
    memory = Memory()
    with mosquitto(dynamic=dynamic_security({"station": []})) as broker:
        password = broker.folder / "station"
        password.write_text("station", "utf-8")
        async with hearing(settings(broker, username="station", password_file=password), memory) as publisher:
            topics = {f"{BASE}/ack", f"{BASE}/cmd/get-state", f"{BASE}/cmd/replay"}
            await publisher.until(lambda: set(publisher.deaf) == topics)
            assert not publisher.listening
            publisher.committed(memory.commit(5))
            assert await publisher.drained(LIMIT_S)


async def test_one_topic_that_may_not_be_published_on_is_named_once_and_holds_up_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Until the broker takes something there again, on whatever connection."""
    memory, rights = Memory(), "\n".join(f"topic write {BASE}/{leaf}" for leaf in ("status", "result"))
    with mosquitto(users={"station": "x"}, acl=f"user station\n{rights}\n") as broker:
        password = broker.folder / "station"
        password.write_text("x", "utf-8")
        async with running(settings(broker, username="station", password_file=password), memory) as publisher:
            await publisher.until(lambda: publisher.connected)
            assert await publisher.confirmed("event", b"1") == 135
            assert await publisher.confirmed("event", b"2") == 135
            publisher.committed(memory.commit(5))
            assert await publisher.drained(LIMIT_S)
            assert not publisher.refused
            publisher.retain("alarm/CameraLost/top", b"1", 1)
            publisher.retain("alarm/CameraLost/side", b"1", 1)
            publisher.verdict(b"verdict", time.monotonic() + LIMIT_S)
            refused = tuple(f"{BASE}/{leaf}" for leaf in ("event", "alarm/#", "verdict"))
            await publisher.until(lambda: set(publisher.denied) == set(refused))
            assert (publisher.stats().verdicts_refused, publisher.stats().verdicts_lost) == (1, 1)
            broker.write_acl(f"user station\n{rights}\ntopic write {BASE}/alarm/#\ntopic write {BASE}/event\n")
            broker.restart()
            await publisher.until(lambda: set(publisher.denied) == {f"{BASE}/event", f"{BASE}/verdict"})
            assert await publisher.confirmed("event", b"3") in {0, 16}
            assert publisher.denied == (f"{BASE}/verdict",)
    assert len([record for record in caplog.records if f"published on {BASE}/event" in record.message]) == 1


@pytest.mark.parametrize(
    ("version", "connack", "words"),
    [
        (5, b"\x20\x03\x00\x8a\x00", "banned"),
        (5, b"\x20\x03\x00\x87\x00", "user name or password is wrong"),
        ("3.1.1", b"\x20\x02\x00\x04", "user name or password is wrong"),
        ("3.1.1", b"\x20\x02\x00\x05", "user name or password is wrong"),
    ],
)
async def test_a_refused_connect_is_visible_in_words(version: Any, connack: bytes, words: str) -> None:
    async with scripted_broker(connack) as (wanted, _):
        changed = BrokerSettings(
            wanted.host, wanted.port, BASE, lambda: WILL, version=version, keepalive_s=1, connect_limit_s=0.5
        )
        async with running(changed, Memory()) as publisher:
            await publisher.until(lambda: bool(publisher.refusal))
            assert words in publisher.refusal
            assert not publisher.duplicate


async def test_a_refusal_is_over_when_it_is_mended_without_a_restart_of_ours() -> None:
    with mosquitto(users={"station": "right"}) as broker:
        password = broker.folder / "station"
        password.write_text("wrong", "utf-8")
        async with running(settings(broker, username="station", password_file=password), Memory()) as publisher:
            await publisher.until(lambda: "password is wrong" in publisher.refusal)
            broker.kill()
            await publisher.until(lambda: "cannot reach" in publisher.last_error)
            assert publisher.refusal == "", "a broker that is away refuses nobody"
            broker.start()
            await publisher.until(lambda: bool(publisher.refusal))
            password.write_text("right", "utf-8")
            await publisher.until(lambda: publisher.connected)
            assert publisher.refusal == ""


# --- how the broker ends it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "words"),
    [(0x8B, "shutting down"), (0x97, "quota"), (0x98, "administrator"), (0x9D, "moved to another server")],
)
async def test_a_disconnect_with_a_reason_is_passed_on_in_words(reason: int, words: str) -> None:
    script = b"\x20\x03\x00\x00\x00" + bytes((0xE0, 2, reason, 0))
    async with scripted_broker(script) as (wanted, _), running(wanted, Memory()) as publisher:
        await publisher.until(lambda: bool(publisher.last_error))
        assert words in publisher.last_error
        assert f"({reason})" in publisher.last_error
        assert not publisher.duplicate


async def test_a_second_client_with_our_id_is_named_and_does_not_become_a_fight() -> None:
    """Two stations with one base topic would else throw each other out at full speed, for ever."""
    script = b"\x20\x03\x00\x00\x00" + b"\xe0\x02\x8e\x00"
    async with scripted_broker(script) as (wanted, connects), running(wanted, Memory()) as publisher:
        times_s = []
        for _ in range(5):
            await connects.get()
            times_s.append(time.monotonic())
        pauses_s = [after - before for before, after in pairwise(times_s)]
        assert publisher.duplicate
        assert pauses_s[-1] > 3 * pauses_s[0]
        assert sum(pauses_s) > 1.5


async def test_two_stations_with_one_id_on_a_real_broker_find_out() -> None:
    """Mosquitto 2.0.11 does not tell the older of them why it has to go."""
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as one, running(settings(broker), Memory()):
            async with asyncio.timeout(60):
                while not one.duplicate:
                    one.changed.clear()
                    await one.changed.wait()


async def test_the_other_client_is_forgotten_when_it_has_not_come_again() -> None:
    """It would have taken the id within its own back-off, three times over."""
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as publisher:
            await publisher.until(lambda: publisher.connected)
            publisher._keeper.standing.duplicate = True
            publisher._keeper.standing._connected_s -= ALONE_S
            await publisher.until(lambda: not publisher.duplicate)


async def test_a_message_somebody_waits_for_is_told_of_the_break_and_of_the_delivery() -> None:
    """A durable event: sent again by its sender, with the same bytes, never by two."""
    with mosquitto() as broker:
        async with running(settings(broker), Memory()) as publisher:
            await publisher.until(lambda: publisher.connected)
            with broker.stop_cont():
                lost = publisher.confirmed("event", b"1")
                async with asyncio.timeout(LIMIT_S):
                    assert await lost is None
                again = publisher.confirmed("event", b"1")
                broker.kill()
            broker.start()
            async with asyncio.timeout(LIMIT_S):
                assert await again == 16


async def test_nobody_waits_for_ever_when_the_publisher_ends() -> None:
    with mosquitto() as broker:
        broker.kill()
        async with running(settings(broker), Memory()) as publisher:
            waiting = publisher.confirmed("event", b"1")
        assert await waiting is None


# --- faults of our own -----------------------------------------------------------------------------------------------


async def test_a_fault_in_our_own_receiver_ends_one_connection_and_the_next_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In paho's own thread it would end the thread, and the client would look connected for ever."""
    memory = Memory()
    with mosquitto() as broker:
        async with (
            subscriber(broker.port, f"{BASE}/result") as plant,
            hearing(settings(broker), memory, is_broken=True) as publisher,
        ):
            await publisher.until(lambda: publisher.listening)
            plant.publish(f"{BASE}/ack", b"1")
            await publisher.until(lambda: publisher.connects == 2 and publisher.listening)
            plant.publish(f"{BASE}/ack", b"2")
            await publisher.until(lambda: len(publisher.receipts) >= 2)
            publisher.committed(memory.commit(10))
            assert await publisher.drained(LIMIT_S)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None


async def test_nothing_depends_on_a_network_thread() -> None:
    """There is none that could die: the only thread of ours is the one that dials, and it is gone when it has."""
    memory = Memory()
    with mosquitto() as broker:
        before = set(threading.enumerate())
        async with running(settings(broker), memory) as publisher:
            publisher.committed(memory.commit(100))
            assert await publisher.drained(LIMIT_S)
            assert {thread.name for thread in set(threading.enumerate()) - before} <= {"mqtt dial"}
            assert publisher._keeper.connection is not None
            assert publisher._keeper.connection._client._thread is None


# --- the network -----------------------------------------------------------------------------------------------------


class Namespace:
    """A network namespace at the other end of a cable that can be cut: packets vanish, and nobody is told."""

    def __init__(self) -> None:
        self.name = f"inspectd-{os.getpid()}"
        self._link = f"insp{os.getpid() % 100_000}"
        self.host, self._ours = "10.213.77.2", "10.213.77.1"

    def build(self) -> None:
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self._link, "type", "veth", "peer", "name", "uplink", "netns", self.name)
        self._ip("addr", "add", f"{self._ours}/30", "dev", self._link)
        self._ip("link", "set", self._link, "up")
        self._ip("-n", self.name, "addr", "add", f"{self.host}/30", "dev", "uplink")
        self._ip("-n", self.name, "link", "set", "uplink", "up")
        self._ip("-n", self.name, "link", "set", "lo", "up")

    def cut(self) -> None:
        rules = "add table inet cut; add chain inet cut in { type filter hook input priority 0; policy drop; }"
        self._ip("netns", "exec", self.name, "nft", rules)

    def mend(self) -> None:
        self._ip("netns", "exec", self.name, "nft", "delete", "table", "inet", "cut")

    def remove(self) -> None:
        self._ip("netns", "del", self.name)

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=LIMIT_S, capture_output=True)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Have one, where that is allowed."""
    built = Namespace()
    missing = [name for name in ("ip", "nft") if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None]
    trouble = f"not installed: {missing}" if missing else "" if os.geteuid() == 0 else "needs root"
    if not trouble:
        try:
            built.build()
        except subprocess.CalledProcessError as fault:
            trouble = f"no network namespace here: {fault.stderr!r}"
    if trouble and CI:
        pytest.fail(f"{trouble}, and CI=true")
    if trouble:
        pytest.skip(trouble)
    try:
        yield built
    finally:
        built.remove()


async def test_a_half_open_connection_is_left_by_our_own_deadline() -> None:
    """Packets vanish: TCP alone would wait for 15 minutes. Idle or busy, we notice within 1.5 times the keepalive."""
    memory = Memory()
    with namespace() as far, mosquitto(host=far.host, netns=far.name) as broker:
        wanted = BrokerSettings(far.host, broker.port, BASE, lambda: WILL, keepalive_s=1, connect_limit_s=0.5)
        async with running(wanted, memory) as publisher:
            for busy in (False, True):
                await publisher.until(lambda: publisher.connected)
                far.cut()
                publisher.committed(memory.commit(5 if busy else 0))
                began_s = time.monotonic()
                await publisher.until(lambda: not publisher.connected)
                assert time.monotonic() - began_s < 3.0
                await publisher.until(lambda: f"no answer from {far.host}" in publisher.last_error)
                far.mend()
            assert await publisher.drained(LIMIT_S)
            assert memory.acks[-1] == 5


async def test_a_subscriber_that_reads_nothing_does_not_hold_us_up() -> None:
    """The broker keeps its messages or drops them; it must not keep our acknowledgements."""
    memory = Memory()
    with mosquitto() as broker, socket.create_connection(("127.0.0.1", broker.port)) as sleeper:
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sleeper.sendall(b"\x10\x12\x00\x04MQTT\x04\x02\x00\x00\x00\x06sleepy")
        topic = f"{BASE}/result".encode()
        sleeper.sendall(bytes((0x82, len(topic) + 5, 0, 1, 0, len(topic))) + topic + b"\x01")
        broker.wait_for_log("Sending SUBACK to sleepy")
        async with subscriber(broker.port, f"{BASE}/verdict") as plant, running(settings(broker), memory) as publisher:
            publisher.committed(memory.commit(2000, size=2000))
            publisher.verdict(b"in time", time.monotonic() + 2.0)
            assert await publisher.drained(LIMIT_S)
            await plant.until(bool)
            assert publisher.connects == 1


# --- strangers on the broker -----------------------------------------------------------------------------------------

HOSTILE = [
    b"",
    b"\x00",
    b"not JSON",
    b"\xff\xfe\xfa",
    b'{"requestId":',
    b"[" * 30_000,
    b'{"a":' * 20_000,
    b"1" * 6000,
    b'{"requestId":"1","requester":["mes"]}',
    b'{"requestId":1,"requester":"mes"}',
    b'{"requestId":"\\u0000","requester":"mes"}',
    b'{"requestId":"1","requester":"../mes"}',
    b'{"requestId":"1","requester":"mes","replyTo":"#"}',
    b'{"requestId":"1","requester":"mes","validForMs":1e999}',
    b'{"requestId":"1","requester":"mes","validForMs":"soon","requestedAt":-1}',
    b'{"requestId":"\\ud800","requester":"mes"}',
    b"x" * 1_000_000,
    *[b"x" * 100_000] * 12,
]


@pytest.mark.parametrize("version", [5, "3.1.1"])
async def test_hostile_messages_on_our_topics_neither_end_the_connection_nor_hold_up_a_good_one(version: Any) -> None:
    """By MQTT 5 the broker keeps what is above our limit to itself; by 3.1.1 it arrives, and is refused at the door.

    At QoS 1, mosquitto 2.0.11 would give us nothing more after ten of those.
    """
    with mosquitto() as broker:
        async with (
            subscriber(broker.port, f"{BASE}/rsp/#") as plant,
            hearing(settings(broker, version=version)) as publisher,
        ):
            await publisher.until(lambda: publisher.listening)
            for payload in HOSTILE:
                for leaf in ("cmd/get-state", "cmd/replay", "cmd/nonsense", "ack"):
                    plant.publish(f"{BASE}/{leaf}", payload)
            plant.publish(f"{BASE}/cmd/get-state", ask("good"))
            await plant.until(lambda _: len(plant.on(f"{BASE}/rsp/good")) == 1)
            expected = [payload for payload in HOSTILE if version != 5 or len(payload) < INCOMING_LIMIT_BYTES]
            await publisher.until(lambda: len(publisher.receipts) == len(expected))
            assert publisher.connects == 1


async def test_retained_garbage_on_our_own_topics_is_overwritten_or_refused() -> None:
    """Left by an older station, a test, or somebody; the commands among it must not be done."""
    done: list[Request] = []

    async def trigger(request: Request, respond: Any) -> None:
        done.append(request)
        await get_state(request, respond)

    with mosquitto() as broker:
        async with subscriber(broker.port, f"{BASE}/#") as plant:
            leaves = ("status", "state", "health", "alarm/CameraLost/top", "alarm/x", "cmd/x/y", "ack")
            for leaf in leaves:
                plant.publish(f"{BASE}/{leaf}", b"\x00garbage\xff", retain=True)
            plant.publish(f"{BASE}/cmd/trigger", ask(), retain=True)
            await plant.until(lambda messages: len(messages) == len(leaves) + 1)
            publisher = Watched(settings(broker), Memory(), handlers={"trigger": trigger}, on_receipt=lambda _: None)
            for leaf in leaves[:3]:
                publisher.retain(leaf, b"good", 1)
            publisher.retain("alarm/CameraLost/top", b"", 1)
            async with kept(publisher):
                await plant.until(lambda _: len(plant.on(f"{BASE}/rsp/mes")) == 1)
                assert json.loads(plant.on(f"{BASE}/rsp/mes")[0])["error"] == 3
                await plant.until(lambda _: plant.on(f"{BASE}/alarm/CameraLost/top")[-1] == b"")
                async with subscriber(broker.port, f"{BASE}/#") as later:
                    await later.until(lambda messages: len(messages) >= len(leaves))
                    assert [later.on(f"{BASE}/{leaf}")[-1] for leaf in leaves[:3]] == [b"good"] * 3
                    assert later.on(f"{BASE}/alarm/CameraLost/top") == []
                assert publisher.connects == 1
    assert done == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
requests = st.fixed_dictionaries(
    {},
    optional={
        key: json_values | st.just("mes")
        for key in ("requestId", "requester", "replyTo", "requestedAt", "validForMs", "streamId", "fromSeq", "toSeq")
    },
)
payloads = (
    st.binary(max_size=200)
    | st.builds(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"), json_values | requests)
    | st.builds(
        lambda text, depth: text * depth, st.sampled_from([b"[", b'{"a":', b'"\\u', b"\x00"]), st.integers(0, 9000)
    )
)


@given(
    payload=payloads,
    command=st.text(max_size=20) | st.sampled_from(["get-state", "replay"]),
    response_topic=st.none() | st.text(max_size=30) | st.just(f"{BASE}/rsp/mes"),
    correlation=st.none() | st.binary(max_size=2000),
    retain=st.booleans(),
    wall_s=st.none() | st.floats(-1e12, 1e12),
)
def test_whatever_arrives_the_door_gives_a_value_and_raises_nothing(
    payload: bytes,
    command: str,
    response_topic: str | None,
    correlation: bytes | None,
    retain: bool,
    wall_s: float | None,
) -> None:
    commands = Commands(BASE, {"get-state": get_state, "replay": get_state})
    incoming = Incoming(f"{BASE}/cmd/{command}", payload, retain, response_topic, correlation)
    admitted = commands.admit(incoming, 1.0, wall_s)
    if isinstance(admitted, Request):
        assert admitted.command in commands.handlers
        assert not retain
        assert encode(admitted.completed())
