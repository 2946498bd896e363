"""Hears the demo's messages and hands them over as dictionaries. Full: new messages are dropped and counted.

Beside publish/mqtt.py the only file that imports paho: it is a client of the daemon, as a MES would be.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from inspectd.errors import OutsideError
from inspectd.publish.broker import BrokerSettings, TlsFiles

LEAVES = ("result", "counters", "state", "status")
_QUEUE_MAX = 10_000
_CONNECT_LIMIT_S = 10.0
_KEEPALIVE_S = 10


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the daemon."""

    leaf: str
    """Last level of its topic: result, counters, state or status."""
    document: Mapping[str, Any]


class Subscriber:
    """Subscribed while in `with`. Speaks MQTT 3.1.1, which every broker knows."""

    def __init__(
        self,
        host: str,
        port: int,
        base: str,
        *,
        username: str | None = None,
        password: str | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.dropped = 0
        self._host = host
        self._port = port
        self._base = base
        self._tls = tls
        self._messages: queue.Queue[Message] = queue.Queue(_QUEUE_MAX)
        self._subscribed = threading.Event()
        self._refusal = "no answer"
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
        if username is not None:
            self._client.username_pw_set(username, password)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def __enter__(self) -> Self:
        """Return when the broker has confirmed the subscription. Raises OutsideError."""
        try:
            self._connect()
        except OSError as error:
            raise OutsideError(f"no MQTT broker at {self._host}:{self._port}: {error}") from error
        self._client.loop_start()
        if not self._subscribed.wait(_CONNECT_LIMIT_S):
            self._close()
            raise OutsideError(f"MQTT broker at {self._host}:{self._port}: not connected: {self._refusal}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Disconnect and end paho's thread."""
        self._close()

    def next(self, timeout_s: float) -> Message | None:
        """Wait at most so long for the next message."""
        try:
            return self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _connect(self) -> None:
        if self._tls is None:
            self._client.connect(self._host, self._port, _KEEPALIVE_S)
            return
        from inspectd.publish import tls  # 8 MB, for those who use it

        self._client.tls_set_context(tls.make_context(self._tls))
        try:
            self._client.connect(self._host, self._port, _KEEPALIVE_S)
        except tls.HandshakeError as fault:
            settings = BrokerSettings(self._host, self._port, self._base, bytes, tls=self._tls)
            what = tls.handshake_words(fault.__cause__, settings, _CONNECT_LIMIT_S)
            raise OutsideError(f"MQTT broker at {settings.address}: {what}") from fault

    def _close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._refusal = str(reason)
        else:
            client.subscribe([(f"{self._base}/{leaf}", 1) for leaf in LEAVES])

    def _on_subscribe(self, _client: mqtt.Client, _data: Any, _id: int, _codes: Any, _properties: Any) -> None:
        self._subscribed.set()

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        if message.retain:
            return  # of an earlier run: this one is not started before the subscription stands
        try:
            document = json.loads(message.payload)
        except ValueError:  # an exception would end paho's thread
            document = None
        if not isinstance(document, dict):
            return
        try:
            self._messages.put_nowait(Message(message.topic.rpartition("/")[2], document))
        except queue.Full:
            self.dropped += 1
