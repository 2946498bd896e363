"""Makes paho's client for one connection, and dials: address, TCP, TLS. Beside `mqtt` the only file that knows paho."""

from __future__ import annotations

import socket
import time
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from inspectd.errors import OutsideError
from inspectd.publish.broker import BrokerSettings, Version

INCOMING_LIMIT_BYTES = 80 * 1024
"""A command is at most 64 KiB; told to the broker, so that it keeps larger packets to itself."""
INCOMING_WINDOW = 10


def make_client(settings: BrokerSettings, version: Version) -> Client:
    """Make a client that reconnects never and queues nothing. Raises OutsideError (the password file)."""
    protocol = MQTTProtocolVersion.MQTTv5 if version == 5 else MQTTProtocolVersion.MQTTv311
    client = Client(CallbackAPIVersion.VERSION2, settings.client_id, protocol=protocol, reconnect_on_failure=False)
    client.connect_timeout = settings.connect_limit_s
    client.max_inflight_messages = 0  # no limit, so that none waits in there: the outbox counts what is in flight
    client.on_socket_open = _on_socket_open
    if settings.username is not None:
        client.username_pw_set(settings.username, settings.password())
    client.will_set(settings.status_topic, settings.will(), qos=1, retain=True)
    return client


def dial(client: Client, settings: BrokerSettings, version: Version) -> None:
    """Read the TLS files, look up the address, connect, shake hands. Blocks.

    Raises OSError, ValueError (a host name that is none) and OutsideError (files, handshake).
    """
    if settings.tls is None:
        _connect(client, settings, version)
        return
    from inspectd.publish import tls  # 8 MB, for those who use it

    deadline_s = time.monotonic() + settings.connect_limit_s
    client.tls_set_context(tls.make_context(settings.tls))
    try:
        _connect(client, settings, version)
    except tls.HandshakeError as fault:
        what = tls.handshake_words(fault.__cause__, settings, deadline_s - time.monotonic())
        raise OutsideError(f"mqtt {settings.address}: {what}") from fault


def _connect(client: Client, settings: BrokerSettings, version: Version) -> None:
    options: dict[str, Any] = {}
    if version == 5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own gap
        properties.SessionExpiryInterval = 0  # the broker keeps nothing for us: a stale trigger is worse than none
        properties.ReceiveMaximum = INCOMING_WINDOW
        properties.MaximumPacketSize = INCOMING_LIMIT_BYTES
        options = {"clean_start": True, "properties": properties}
    client.connect(settings.host, settings.port, settings.keepalive_s, **options)


def _on_socket_open(_c: Client, _u: Any, sock: Any) -> None:
    """Small messages at once: Nagle's algorithm costs 40 ms a hop."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
