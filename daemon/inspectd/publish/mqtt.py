"""One connection to the broker: paho inside our event loop. The only file that knows paho.

A `Connection` lives from one CONNECT to its end and is thrown away with everything in it: paho would send its old
messages again after a reconnect, verdicts among them, and reports itself connected when its own thread has died.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from inspectd.errors import OutsideError
from inspectd.publish.aside import aside
from inspectd.publish.broker import MOST_BYTES, BrokerSettings, Ending, Listener, Refused, Version, Welcome
from inspectd.publish.effects import Incoming, Send
from inspectd.publish.outbox import MAX_IN_FLIGHT
from inspectd.publish.properties import publish_properties
from inspectd.publish.reasons import FAILURE, KEEPALIVE_TIMEOUT, connect_words, words

INCOMING_LIMIT_BYTES = 80 * 1024
"""A command is at most 64 KiB; told to the broker, so that it keeps larger packets to itself."""
INCOMING_WINDOW = 10
SILENCE = 1.5
"""Times the keepalive: the broker's own measure for us."""

log = logging.getLogger(__name__)


class Connection:
    """One connection. Everything here runs in the event loop's thread, except address and TCP."""

    def __init__(
        self, settings: BrokerSettings, version: Version, listener: Listener, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._version = version
        self._listener = listener
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._ended: asyncio.Future[Ending] = self._loop.create_future()
        self._mailbox: list[tuple[int, int] | Incoming | ReasonCode] = []
        self._unacknowledged: dict[int, tuple[int, float]] = {}
        self._heard_s = clock()
        self._pings_every_s = settings.keepalive_s
        """The broker may have another opinion, and zero is a possible one."""
        self._sock: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._writer_set = False
        self._client = _client(settings, version)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.on_socket_close = self._on_socket_close
        self._client.on_socket_register_write = self._on_register_write

    async def open(self) -> Welcome:
        """Connect, within the time limits. Raises OutsideError (Refused: the broker said no), and is closed then."""
        settings, is_open = self._settings, False
        try:
            await self._dial()
            async with asyncio.timeout(settings.connect_limit_s):
                welcome = await self._welcome
            is_open = True
        except TimeoutError:
            raise OutsideError(
                f"mqtt {settings.address}: connected, but no answer to MQTT {self._version} "
                f"within {settings.connect_limit_s} s; if the broker knows only 3.1.1, set mqtt.version"
            ) from None
        finally:
            if not is_open:
                self._welcome.cancel()
                self.drop("not connected")
        return welcome

    async def ended(self) -> Ending:
        """Wait for the end of the connection. Has no deadline of its own: `_watch` sees to it."""
        return await asyncio.shield(self._ended)

    def publish(self, send: Send) -> None:
        """Give a message to paho. On a connection that has ended this does nothing: its end is told by `ended`."""
        if self._ended.done():
            return
        properties = cast("Properties", publish_properties(send.expiry_s, send.correlation))  # unused in 3.1.1
        info = self._client.publish(send.topic, send.payload, send.qos, send.retain, properties)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._end(Ending(f"the client took no message: {info.rc.name}"))
        elif send.qos:
            self._unacknowledged[info.mid] = (send.token, self._clock())

    def subscribe(self, topic: str) -> None:
        """Subscribe at QoS 1, so that retained requests are seen, and refused by whoever takes them."""
        if self._version == 5:
            self._client.subscribe(topic, options=SubscribeOptions(qos=1, retainAsPublished=True))
        else:
            self._client.subscribe(topic, 1)

    async def disconnect(self, limit_s: float) -> None:
        """Say goodbye (the broker forgets the will) and close; drop it when that takes too long."""
        if not self._ended.done():
            self._client.disconnect()
            try:
                async with asyncio.timeout(limit_s):
                    await self.ended()
            except TimeoutError:
                self.drop(f"the goodbye could not be sent within {limit_s:.1f} s")

    def drop(self, reason: str) -> None:
        """Close the socket without a word: the broker publishes the will."""
        self._end(Ending(reason))

    async def _dial(self) -> None:
        """Look up the address and connect: the only part that blocks."""
        address, limit_s = self._settings.address, self._settings.connect_limit_s
        try:
            await aside(self._connect, lambda: _close(self._client.socket()), limit_s, "mqtt dial")
        except TimeoutError:
            raise OutsideError(f"mqtt: no answer from {address} within {limit_s} s") from None
        except (OSError, ValueError) as fault:
            raise OutsideError(f"mqtt: cannot reach {address}: {fault}") from fault
        self._attach()

    def _connect(self) -> None:
        host, port, keepalive_s = self._settings.host, self._settings.port, self._settings.keepalive_s
        if self._version != 5:
            self._client.connect(host, port, keepalive_s)
            return
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own gap
        properties.SessionExpiryInterval = 0  # the broker keeps nothing for us: a stale trigger is worse than none
        properties.ReceiveMaximum = INCOMING_WINDOW
        properties.MaximumPacketSize = INCOMING_LIMIT_BYTES
        self._client.connect(host, port, keepalive_s, clean_start=True, properties=properties)

    def _attach(self) -> None:
        sock = self._client.socket()
        if not isinstance(sock, socket.socket):
            raise OutsideError(f"mqtt: the connection to {self._settings.address} was closed at once")
        self._sock = sock
        self._heard_s = self._clock()
        self._loop.add_reader(sock, self._guarded, self._read)
        self._guarded(self._flush)
        self._guarded(self._watch)

    def _guarded(self, step: Callable[[], MQTTErrorCode | None]) -> None:
        """Run a step of paho, then tell the listener. Top of all that the loop calls: a fault ends the connection."""
        if self._ended.done():
            return
        try:
            code = step()
            mailbox, self._mailbox = self._mailbox, []
            for letter in mailbox:
                if isinstance(letter, Incoming):
                    self._listener.received(letter)
                elif isinstance(letter, ReasonCode):
                    self._listener.subscribed(letter.value)
                else:
                    self._listener.acknowledged(*letter)
        except Exception as fault:
            log.exception("mqtt: a fault of our own ends the connection")
            self._end(Ending(f"a fault of our own: {fault!r}"))
            return
        if code or self._ended.done():
            self._end(Ending("the broker closed the connection", by_broker=True))

    def _read(self) -> MQTTErrorCode:
        self._heard_s = self._clock()
        return self._client.loop_read()

    def _flush(self) -> MQTTErrorCode:
        self._flush_planned = False
        code = self._client.loop_write()
        wanted = self._client.want_write() and self._sock is not None
        if self._sock is not None and wanted != self._writer_set:
            self._writer_set = wanted
            if wanted:
                self._loop.add_writer(self._sock, self._guarded, self._flush)
            else:
                self._loop.remove_writer(self._sock)
        return code

    def _watch(self) -> MQTTErrorCode | None:
        """Let paho send its pings, and end what is silent."""
        now, limit_s = self._clock(), SILENCE * self._settings.keepalive_s
        oldest_s = next((sent_s for _, sent_s in self._unacknowledged.values()), now)
        silent_s = now - self._heard_s if self._pings_every_s else 0.0  # a broker that wants no pings may be silent
        if silent_s > SILENCE * self._pings_every_s:
            self._end(Ending(f"the broker is silent for {silent_s:.1f} s (keepalive {self._pings_every_s} s)"))
        elif now - oldest_s > limit_s:
            self._end(Ending(f"no acknowledgement for {now - oldest_s:.1f} s (limit {limit_s:.1f} s)"))
        else:
            period_s = min(1.0, self._settings.keepalive_s / 10)
            self._timer = self._loop.call_later(period_s, self._guarded, self._watch)
            return self._client.loop_misc()
        return None

    def _end(self, ending: Ending) -> None:
        """Close everything, once; the first reason stands."""
        if not self._ended.done():
            self._ended.set_result(ending)
        if not self._welcome.done():
            self._welcome.set_exception(OutsideError(f"mqtt {self._settings.address}: {ending.reason}"))
        if self._timer is not None:
            self._timer.cancel()
        sock = self._sock
        self._detach()
        _close(sock)

    def _detach(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock = None

    def _on_connect(
        self, _c: Client, _u: Any, _f: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if self._welcome.done():
            return
        if reason.value >= FAILURE:
            message = f"mqtt {self._settings.address}: {connect_words(reason.value)}"
            self._welcome.set_exception(Refused(message, reason.value))
            return
        self._pings_every_s = getattr(properties, "ServerKeepAlive", self._settings.keepalive_s)
        packet_limit_bytes = getattr(properties, "MaximumPacketSize", MOST_BYTES)
        self._welcome.set_result(Welcome(packet_limit_bytes, getattr(properties, "ReceiveMaximum", MAX_IN_FLIGHT)))

    def _on_disconnect(
        self, _c: Client, _u: Any, flags: DisconnectFlags, reason: ReasonCode, _p: Properties | None
    ) -> None:
        if self._ended.done():
            return  # paho may tell it twice
        if flags.is_disconnect_packet_from_server:
            self._ended.set_result(Ending(words(reason.value), by_broker=True))
        elif reason.value == KEEPALIVE_TIMEOUT:
            self._ended.set_result(Ending("the broker does not answer pings"))
        elif reason.value >= FAILURE:
            self._ended.set_result(Ending("the broker closed the connection", by_broker=True))
        else:
            self._ended.set_result(Ending("disconnected"))

    def _on_publish(self, _c: Client, _u: Any, mid: int, reason: ReasonCode, _p: Properties) -> None:
        if entry := self._unacknowledged.pop(mid, None):
            self._mailbox.append((entry[0], reason.value))

    def _on_message(self, _c: Client, _u: Any, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # no command of ours has such a name
        reply_topic = getattr(message.properties, "ResponseTopic", None)
        correlation = getattr(message.properties, "CorrelationData", None)
        self._mailbox.append(Incoming(topic, bytes(message.payload), message.retain, reply_topic, correlation))

    def _on_subscribe(self, _c: Client, _u: Any, _mid: int, reasons: list[ReasonCode], _p: Properties | None) -> None:
        self._mailbox += reasons

    def _on_register_write(self, *_: object) -> None:
        """Write at the end of this turn of the loop, all messages of the turn together, without touching epoll."""
        if self._sock is not None and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._guarded, self._flush)

    def _on_socket_close(self, *_: object) -> None:
        self._detach()


def _client(settings: BrokerSettings, version: Version) -> Client:
    protocol = MQTTProtocolVersion.MQTTv5 if version == 5 else MQTTProtocolVersion.MQTTv311
    client = Client(CallbackAPIVersion.VERSION2, settings.client_id, protocol=protocol, reconnect_on_failure=False)
    client.connect_timeout = settings.connect_limit_s
    client.max_inflight_messages = 0  # no limit, so that none waits in there: the outbox counts what is in flight
    client.on_socket_open = _on_socket_open
    if settings.username is not None:
        client.username_pw_set(settings.username, settings.password())
    client.will_set(settings.status_topic, settings.will(), qos=1, retain=True)
    return client


def _on_socket_open(_c: Client, _u: Any, sock: Any) -> None:
    """Small messages at once: Nagle's algorithm costs 40 ms a hop."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _close(sock: Any) -> None:
    if sock is not None:
        sock.close()
