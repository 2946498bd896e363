"""The demo's embedded broker and its subscriber, with each other and with paho as the daemon uses it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from inspectd.demo.broker import HOST, EmbeddedBroker
from inspectd.demo.subscriber import Message, Subscriber
from inspectd.errors import OutsideError

BASE = "inspectd/demo/aoi"


@contextmanager
def client(port: int, **will: Any) -> Iterator[mqtt.Client]:
    publisher = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
    if will:
        publisher.will_set(**will)
    publisher.connect(HOST, port)
    publisher.loop_start()
    try:
        yield publisher
    finally:
        publisher.disconnect()
        publisher.loop_stop()


def publish(publisher: mqtt.Client, leaf: str, document: Any, **more: Any) -> None:
    payload = document if isinstance(document, bytes) else json.dumps(document)
    publisher.publish(f"{BASE}/{leaf}", payload, qos=1, **more).wait_for_publish(5)


def test_messages_come_through_in_order_and_only_those_asked_for() -> None:
    """Results, counters, state and status of one base topic; health and another station's are not heard."""
    with EmbeddedBroker() as broker, Subscriber(HOST, broker.port, BASE) as heard, client(broker.port) as publisher:
        for seq in range(200):
            publish(publisher, "result", {"seq": seq})
        publish(publisher, "health", {"seq": -1})
        publisher.publish("other/station/result", b'{"seq": -2}', qos=1).wait_for_publish(5)
        publish(publisher, "status", {"status": "online"}, retain=True)
        messages = [heard.next(5) for _ in range(201)]
        assert messages[:200] == [Message("result", {"seq": seq}) for seq in range(200)]
        assert messages[200] == Message("status", {"status": "online"})
        assert heard.dropped == 0


def test_what_is_no_json_object_is_passed_over() -> None:
    """An exception in a callback would end paho's thread, and the demo would stand still."""
    with EmbeddedBroker() as broker, Subscriber(HOST, broker.port, BASE) as heard, client(broker.port) as publisher:
        for payload in (b"", b"\xff\xfe", b"[1]", b"{"):
            publish(publisher, "result", payload)
        publish(publisher, "result", {"seq": 1})
        assert heard.next(5) == Message("result", {"seq": 1})


def test_retained_messages_of_an_earlier_run_are_not_heard() -> None:
    """Old counters would be shown as those of this run."""
    with EmbeddedBroker() as broker, client(broker.port) as publisher:
        publish(publisher, "counters", {"captured": 99}, retain=True)
        with Subscriber(HOST, broker.port, BASE) as heard:
            publish(publisher, "counters", {"captured": 1}, retain=True)
            assert heard.next(5) == Message("counters", {"captured": 1})


def test_a_last_will_is_delivered() -> None:
    with EmbeddedBroker() as broker, Subscriber(HOST, broker.port, BASE) as heard:
        with client(broker.port, topic=f"{BASE}/status", payload=b'{"status": "offline"}', qos=1) as publisher:
            publish(publisher, "state", {"ready": True})
            connection = publisher.socket()
            assert isinstance(connection, socket.socket)
            connection.shutdown(socket.SHUT_RDWR)
        assert [heard.next(5), heard.next(5)] == [
            Message("state", {"ready": True}),
            Message("status", {"status": "offline"}),
        ]


def test_broker_ends_in_time_and_leaves_nothing_while_clients_are_connected() -> None:
    before = set(threading.enumerate())
    broker = EmbeddedBroker().__enter__()
    with client(broker.port) as publisher:
        publish(publisher, "state", {})
        started_s = time.monotonic()
        broker.__exit__(None, None, None)
        assert time.monotonic() - started_s < 5
        assert not [thread for thread in threading.enumerate() if thread.name == "demo-broker"]
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((HOST, broker.port), 1)
    assert set(threading.enumerate()) == before


def test_several_brokers_live_side_by_side() -> None:
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        assert first.port != second.port


def test_a_port_that_is_taken_is_told_with_its_number() -> None:
    broker = EmbeddedBroker()
    with (
        socket.create_server((HOST, broker.port)),
        pytest.raises(OutsideError, match=rf"does not listen on 127\.0\.0\.1:{broker.port}"),
    ):
        broker.__enter__()


def test_no_broker_is_told_with_host_and_port() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(OutsideError, match=f"no MQTT broker at 127.0.0.1:{port}"):
        Subscriber(HOST, port, BASE).__enter__()
