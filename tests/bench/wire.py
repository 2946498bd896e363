"""What the wire itself costs: a bare echo through the broker, a request's answer, a verdict; with and without Nagle."""

from __future__ import annotations

import json
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tests.bench.measure import NotMeasured
from tests.plant import BASE

ANSWER_LIMIT_S = 10.0
REQUESTER = "bench"
ECHO = "bench/echo"


@dataclass(frozen=True, slots=True)
class Came:
    """One message, and when it came (monotonic and wall clock)."""

    document: dict[str, Any]
    at_s: float
    at_wall_s: float


class Party:
    """One client in the plant, in paho's own thread."""

    def __init__(self, port: int, *topics: str) -> None:
        self.came: queue.SimpleQueue[Came] = queue.SimpleQueue()
        subscribed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_socket_open = _no_delay
        self._client.on_connect = lambda client, *_: client.subscribe([(topic, 1) for topic in topics])
        self._client.on_subscribe = lambda *_: subscribed.put(None)
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", port, 60)
        self._client.loop_start()
        try:
            subscribed.get(timeout=ANSWER_LIMIT_S)
        except queue.Empty:
            raise NotMeasured(f"no subscription within {ANSWER_LIMIT_S:g} s") from None

    def publish(self, topic: str, document: dict[str, Any]) -> None:
        """Publish at QoS 1."""
        self._client.publish(topic, json.dumps(document), 1)

    def next(self) -> Came:
        """Wait for the next message. Raises NotMeasured."""
        try:
            return self.came.get(timeout=ANSWER_LIMIT_S)
        except queue.Empty:
            raise NotMeasured(f"nothing came within {ANSWER_LIMIT_S:g} s") from None

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: Client, _userdata: object, message: MQTTMessage) -> None:
        at_s, at_wall_s = time.monotonic(), time.time()
        self.came.put(Came(json.loads(message.payload), at_s, at_wall_s))


def _no_delay(_client: Client, _userdata: object, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Echo(Party):
    """Sends back on another topic what it gets."""

    def _take(self, client: Client, _userdata: object, message: MQTTMessage) -> None:
        client.publish(f"{ECHO}/back", message.payload, 1)


@contextmanager
def _party(made: Party) -> Iterator[Party]:
    try:
        yield made
    finally:
        made.close()


def echoes_ms(port: int, rounds: int) -> list[float]:
    """Publish → back again through another client, in ms: four hops, of which none is ours."""
    with _party(_Echo(port, f"{ECHO}/out")), _party(Party(port, f"{ECHO}/back")) as asker:
        return _round_trips_ms(asker, f"{ECHO}/out", rounds)


def answers_ms(port: int, rounds: int) -> list[float]:
    """Request → the daemon's answer, in ms."""
    with _party(Party(port, f"{BASE}/rsp/{REQUESTER}")) as asker:
        return _round_trips_ms(asker, f"{BASE}/cmd/get-state", rounds)


def _round_trips_ms(asker: Party, topic: str, rounds: int) -> list[float]:
    took_ms: list[float] = []
    run_id = f"{time.time_ns():x}"
    for number in range(rounds):
        began_s = time.monotonic()
        asker.publish(topic, {"requestId": f"{run_id}-{number}", "requester": REQUESTER})
        took_ms.append((asker.next().at_s - began_s) * 1000)
    return took_ms


def verdicts_ms(port: int, wanted: int) -> tuple[list[float], list[float]]:
    """Capture → verdict at the PLC, in ms: all of it, and without the time in the model child.

    A result says when its picture was taken and how long the model worked; its verdict came before it.
    """
    verdicts: dict[str, Came] = {}
    whole_ms: list[float] = []
    beyond_ms: list[float] = []
    with _party(Party(port, f"{BASE}/verdict", f"{BASE}/result")) as plc:
        while len(whole_ms) < wanted:
            came = plc.next()
            if "v" in came.document:
                verdicts[came.document["id"]] = came
            elif verdict := verdicts.pop(came.document["resultId"], None):
                captured_s = datetime.fromisoformat(came.document["acquisition"]["captureTime"]).timestamp()
                inferred_ms = sum(run.get("durationMs", 0.0) for run in came.document["models"])
                whole_ms.append((verdict.at_wall_s - captured_s) * 1000)
                beyond_ms.append(whole_ms[-1] - inferred_ms)
    return whole_ms, beyond_ms
