"""The plant's side: a subscriber that notes when each result came (read later), and a stand-in for systemd's socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tests.bench.measure import NotMeasured
from tests.plant import BASE

SUBSCRIBE_LIMIT_S = 20.0
DATAGRAM_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Heard:
    """One result as it came."""

    at_s: float
    """Monotonic clock."""
    at_wall_s: float
    payload: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.payload)
        return document

    def beyond_inference_ms(self) -> float | None:
        """Capture → received, without the time in the model child; None: the model did not answer.

        captureTime is cut to whole ms, so this is up to 1 ms too large.
        """
        document = self.document
        durations_ms: list[float | None] = [run.get("durationMs") for run in document["models"]]
        captured = document["acquisition"].get("captureTime")
        inferred_ms = [value for value in durations_ms if value is not None]
        if not inferred_ms or len(inferred_ms) < len(durations_ms) or captured is None:
            return None
        return (self.at_wall_s - datetime.fromisoformat(captured).timestamp()) * 1000 - sum(inferred_ms)


class Ears:
    """Subscribes to results and counters. The callback only notes: what is read in them, is read afterwards."""

    def __init__(self, port: int) -> None:
        self.results: list[Heard] = []
        self.counters: dict[str, Any] = {}
        """The last ones; after a planned stop the final ones."""
        self._changed = threading.Condition()
        subscribed = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_socket_open = _no_delay
        self._client.on_connect = lambda client, *_: client.subscribe([(f"{BASE}/result", 1), (f"{BASE}/counters", 1)])
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", port, 60)
        self._client.loop_start()
        if not subscribed.wait(SUBSCRIBE_LIMIT_S):
            raise NotMeasured(f"the broker on port {port} did not take a subscription in {SUBSCRIBE_LIMIT_S:g} s")

    def wait_for(self, count: int, limit_s: float) -> bool:
        """Wait until so many results have come."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.results) >= count, limit_s)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        if message.topic.endswith("/counters"):
            self.counters = json.loads(message.payload)
            return
        heard = Heard(time.monotonic(), time.time(), bytes(message.payload))
        with self._changed:
            self.results.append(heard)
            self._changed.notify_all()


class Doorbell:
    """NOTIFY_SOCKET: hears READY=1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def wait_ready(self, step_s: float) -> bool:
        """Wait a step for READY."""
        self._socket.settimeout(step_s)
        try:
            return b"READY=1" in self._socket.recv(DATAGRAM_BYTES)
        except TimeoutError:
            return False

    def drain(self) -> None:
        """Take what has come since: STATUS once a second would fill the socket."""
        self._socket.setblocking(False)
        try:
            while self._socket.recv(DATAGRAM_BYTES):
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def listening(port: int) -> Iterator[Ears]:
    ears = Ears(port)
    try:
        yield ears
    finally:
        ears.close()


def _no_delay(_client: Client, _data: object, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
