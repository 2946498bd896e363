"""One connection to the broker: paho inside our event loop. Beside `mqttdial` the only file that knows paho.

A `Connection` lives from one CONNECT to its end and is thrown away with everything in it: paho would send its old
messages again after a reconnect, verdicts among them, and reports itself connected when its own thread has died.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from inspectd.errors import OutsideError
from inspectd.publish.aside import aside
from inspectd.publish.broker import MOST_BYTES, BrokerSettings, Ending, Listener, Refused, Version, Welcome
from inspectd.publish.effects import Incoming, Send
from inspectd.publish.flight import MAX_IN_FLIGHT
from inspectd.publish.mqttdial import dial, make_client
from inspectd.publish.properties import publish_properties
from inspectd.publish.reasons import FAILURE, KEEPALIVE_TIMEOUT, NOT_AUTHORISED, connect_words, words
from inspectd.publish.silence import Silence

log = logging.getLogger(__name__)


class Connection:
    """One connection. Everything here runs in the event loop's thread, except address, TCP and TLS."""

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
        self.server_certificate: bytes | None = None
        """DER; None without TLS."""
        self._mailbox: list[Callable[[], None]] = []
        self._subscriptions: dict[int | None, str] = {}
        self._silence = Silence(settings.keepalive_s, clock())
        self._sock: socket.socket | None = None
        self._tls_fault: ssl.SSLError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_planned = self._read_planned = False
        self._writer_set = False
        self._client = make_client(settings, version)
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
            self._silence.sent(info.mid, send.token, self._clock())

    def subscribe(self, topic: str) -> None:
        """Subscribe at QoS 0, with retained messages marked as such, so that whoever takes them can refuse them.

        In a session that ends with its connection QoS 1 would bring nothing more; but mosquitto 2.0.11 never gives back
        the place in flight of a packet above our limit: ten of them, from anyone, would make us deaf.
        """
        if self._version == 5:
            _, mid = self._client.subscribe(topic, options=SubscribeOptions(qos=0, retainAsPublished=True))
        else:
            _, mid = self._client.subscribe(topic, 0)
        self._subscriptions[mid] = topic

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
        """Look up the address, connect, shake hands: the only part that blocks."""
        address, limit_s = self._settings.address, self._settings.connect_limit_s
        try:
            work = partial(dial, self._client, self._settings, self._version)
            await aside(work, lambda: _close(self._client.socket()), limit_s, "mqtt dial")
        except TimeoutError:
            hint = "" if self._settings.tls is None else "; is that its port with TLS?"
            raise OutsideError(f"mqtt: no answer from {address} within {limit_s} s{hint}") from None
        except (OSError, ValueError) as fault:
            raise OutsideError(f"mqtt: cannot reach {address}: {fault}") from fault
        self._attach()

    def _attach(self) -> None:
        sock = self._client.socket()
        if not isinstance(sock, socket.socket):
            raise OutsideError(f"mqtt: the connection to {self._settings.address} was closed at once")
        self._sock = sock
        if isinstance(sock, ssl.SSLSocket):
            self.server_certificate = sock.getpeercert(binary_form=True)
        self._silence.heard(self._clock())
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
            for tell in mailbox:
                tell()
        except Exception as fault:
            log.exception("mqtt: a fault of our own ends the connection")
            self._end(Ending(f"a fault of our own: {fault!r}"))
            return
        if code or self._ended.done():
            self._end(self._lost())

    def _read(self) -> MQTTErrorCode:
        self._read_planned = False
        self._silence.heard(self._clock())
        code = self._client.loop_read()
        sock = self._sock
        if isinstance(sock, ssl.SSLSocket) and not self._read_planned and sock.pending():
            self._read_planned = True  # what TLS has decrypted already does not make the socket readable
            self._loop.call_soon(self._guarded, self._read)
        return code

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
        if ending := self._silence.ending(self._clock()):
            self._end(ending)
            return None
        self._timer = self._loop.call_later(self._silence.period_s, self._guarded, self._watch)
        return self._client.loop_misc()

    def _end(self, ending: Ending) -> None:
        """Close everything, once; the first reason stands."""
        if not self._ended.done():
            self._ended.set_result(ending)
        if not self._welcome.done():
            first = self._ended.result()
            message = f"mqtt {self._settings.address}: {first.reason}"
            self._welcome.set_exception(OutsideError(message) if first.code is None else Refused(message, first.code))
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
        self._silence.pings_every_s = getattr(properties, "ServerKeepAlive", self._settings.keepalive_s)
        packet_limit_bytes = getattr(properties, "MaximumPacketSize", MOST_BYTES)
        self._welcome.set_result(Welcome(packet_limit_bytes, getattr(properties, "ReceiveMaximum", MAX_IN_FLIGHT)))

    def _on_disconnect(
        self, _c: Client, _u: Any, flags: DisconnectFlags, reason: ReasonCode, _p: Properties | None
    ) -> None:
        if self._ended.done():
            return  # paho may tell it twice
        if flags.is_disconnect_packet_from_server:
            self._ended.set_result(Ending(words(reason.value), by_broker=True, code=reason.value))
        elif reason.value == KEEPALIVE_TIMEOUT:
            self._ended.set_result(Ending("the broker does not answer pings"))
        elif reason.value >= FAILURE:
            self._ended.set_result(self._lost())
        else:
            self._ended.set_result(Ending("disconnected"))

    def _lost(self) -> Ending:
        """Say why the connection is gone, as far as the socket tells."""
        if self._tls_fault is not None:
            from inspectd.publish import tls  # loaded already: it made the socket

            # an alert says what a reason code would
            return Ending(tls.alert_words(self._tls_fault, self._settings.tls), by_broker=True, code=NOT_AUTHORISED)
        reason = "the broker closed the connection"
        if not self._welcome.done():
            port, is_tls = self._settings.port, self._settings.tls is not None
            doubt = "its log says why; it may want another client certificate, see mqtt.tls.cert_file"
            hint = doubt if is_tls else f"if port {port} is its port for TLS, set mqtt.tls"
            reason += f" before it answered; {hint}"
        return Ending(reason, by_broker=True)

    def _on_publish(self, _c: Client, _u: Any, mid: int, reason: ReasonCode, _p: Properties) -> None:
        token = self._silence.acknowledged(mid)
        if token is not None:
            self._mailbox.append(partial(self._listener.acknowledged, token, reason.value))

    def _on_message(self, _c: Client, _u: Any, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # no command of ours has such a name
        reply_topic = getattr(message.properties, "ResponseTopic", None)
        correlation = getattr(message.properties, "CorrelationData", None)
        incoming = Incoming(topic, bytes(message.payload), message.retain, reply_topic, correlation)
        self._mailbox.append(partial(self._listener.received, incoming))

    def _on_subscribe(self, _c: Client, _u: Any, mid: int, reasons: list[ReasonCode], _p: Properties | None) -> None:
        topic = self._subscriptions.pop(mid, "")
        self._mailbox += [partial(self._listener.subscribed, topic, reason.value) for reason in reasons]

    def _on_register_write(self, *_: object) -> None:
        """Write at the end of this turn of the loop, all messages of the turn together, without touching epoll."""
        if self._sock is not None and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._guarded, self._flush)

    def _on_socket_close(self, _c: Client, _u: Any, sock: Any) -> None:
        self._tls_fault = getattr(sock, "fault", None)
        self._detach()


def _close(sock: Any) -> None:
    if sock is not None:
        sock.close()
