"""Publishes: joins the outbox's decisions, the connection of the moment and the journal. One asyncio task, `run`.

It reconnects for ever. Everything it gives to a connection that breaks, the outbox gives again to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from inspectd.backoff import Backoff
from inspectd.errors import OutsideError
from inspectd.publish.audit import Write
from inspectd.publish.broker import BrokerSettings, Ending, Refused, Version, Welcome
from inspectd.publish.commands import Answer, Commands, Handler, get_state
from inspectd.publish.desk import Desk
from inspectd.publish.effects import Ack, Denied, Effect, Incoming, Message, OutboxStats, Read, Row, Send, Settled
from inspectd.publish.journal_door import Journal, JournalDoor
from inspectd.publish.mqtt import Connection
from inspectd.publish.outbox import Outbox
from inspectd.publish.reasons import FAILURE, TAKEN_OVER, UNSUPPORTED_VERSION, words
from inspectd.publish.replay import Replay
from inspectd.publish.settling import Settling
from inspectd.publish.subscriptions import Subscriptions

BACKOFF = Backoff(first_s=0.2, limit_s=10.0)
STEADY_S = 10.0
"""A connection that lasted so long was a good one: the back-off begins anew, unless another client with our id ended
it. Otherwise the two would throw each other out at full speed."""
ALONE_S = 3 * BACKOFF.limit_s
"""A client that wants our id would have taken it within this time."""
TICK_S = 1.0
DENIED_TOPICS = 100
"""Told in the log, once in a connection each; requesters may have made up the rest."""

log = logging.getLogger(__name__)


class Publisher:
    """The daemon's way to the broker. All methods belong to the event loop's thread, and none blocks.

    `on_change` is called when one of its properties may have another value. `on_receipt` gets what comes on
    `{base}/ack`, from anyone.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        journal: Journal,
        encode_answer: Callable[[Answer], bytes],
        *,
        handlers: Mapping[str, Handler] | None = None,
        reply_prefixes: tuple[str, ...] = (),
        audit: Write = lambda *_: None,
        is_clock_right: Callable[[], bool] = lambda: False,
        on_receipt: Callable[[Incoming], None] | None = None,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.last_error = ""
        """Why there is no connection, in words; empty while there is one."""
        self.refusal = ""
        """Why the broker does not let us in, in words; empty unless it has said no to the last try."""
        self.connects = 0
        self.duplicate = False
        """Whether another client with our id ended the last connection (MQTT 5), and may come again."""
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        self._draw = draw
        self._version: Version = settings.version
        self._outbox = Outbox(f"{settings.base}/result", acked_seq=journal.acked_seq, last_seq=journal.last_seq)
        self._journal = journal
        self._door = JournalDoor(journal, self._loaded, self._substituted)
        replay = Replay(settings.base, journal.stream_id, lambda: self.stats().last_seq, journal.read, self.deliver)
        table: dict[str, Handler] = {"replay": replay, "get-state": get_state}
        commands = Commands(settings.base, table | dict(handlers or {}), reply_prefixes)
        self.desk = Desk(commands, self._direct, encode_answer, clock, is_clock_right=is_clock_right, audit=audit)
        """Takes requests from this PC, too."""
        self._on_receipt = on_receipt
        self._ack_topic = f"{settings.base}/ack"
        others = () if on_receipt is None else (self._ack_topic,)
        each = [f"{settings.base}/cmd/{command}" for command in self.commands]
        self._subscriptions = Subscriptions(commands.topic, each, others)
        self._began_s = 0.0
        self._server_certificate: bytes | None = None
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._progress = asyncio.Event()
        self._settling = Settling()
        self._denied: set[str] = set()

    @property
    def connected(self) -> bool:
        """Whether the broker has welcomed us and the connection stands."""
        return self._connection is not None

    @property
    def listening(self) -> bool:
        """Whether the broker has granted a subscription to commands: some can arrive; `deaf` says which cannot."""
        return self._subscriptions.listening

    @property
    def deaf(self) -> tuple[str, ...]:
        """Topics that we should hear and that the broker does not let us subscribe to."""
        return self._subscriptions.deaf

    @property
    def refused(self) -> bool:
        """Whether results are held back because the broker's access list does not allow them."""
        return self._outbox.refused

    @property
    def commands(self) -> tuple[str, ...]:
        """What can be asked for, by name: for `meta`."""
        return tuple(sorted(self.desk.commands.handlers))

    @property
    def unanswerable(self) -> int:
        """Requests that named no proper place for an answer."""
        return self.desk.unanswerable

    def payload_limit_bytes(self, leaf: str, correlation: bytes | None = None) -> int:
        """Give what a payload on this topic may have: the contract's cap, or less if the broker takes less."""
        return self._outbox.payload_limit_bytes(f"{self._settings.base}/{leaf}", correlation)

    def stats(self) -> OutboxStats:
        """Give the outbox's counts."""
        return self._outbox.stats()

    def certificate_days_left(self, wall_s: float) -> float | None:
        """Give the days until a certificate of the connection ends: ours, the broker's, their CAs. None: there is none.

        Reads two small files, so that an exchanged one counts at once.
        """
        files = self._settings.tls
        if files is None:
            return None
        from inspectd.publish import tls  # 8 MB, for those who use it

        return tls.days_left(files, self._server_certificate, wall_s)

    def committed(self, rows: Iterable[Row]) -> None:
        """Publish results that are now on disk, in seq order."""
        self._carry_out(self._outbox.committed(rows, self._clock()))

    def verdict(self, payload: bytes, expires_s: float) -> None:
        """Publish a verdict at once, ahead of any backlog, never after `expires_s` (monotonic clock)."""
        message = Message(f"{self._settings.base}/verdict", payload, expires_s=expires_s)
        self._carry_out(self._outbox.verdict(message, self._clock()))

    def retain(self, leaf: str, payload: bytes, qos: int, expiry_s: float | None = None) -> None:
        """Publish retained, and again after each connect; an empty payload takes the topic away."""
        now = self._clock()
        expires_s = None if expiry_s is None else now + expiry_s
        message = Message(f"{self._settings.base}/{leaf}", payload, qos, retain=True, expires_s=expires_s)
        self._carry_out(self._outbox.retain(message, now))

    def send(self, leaf: str, payload: bytes, qos: int) -> None:
        """Publish once. QoS 0 is dropped while there is no connection; QoS 1 waits, among at most 256."""
        self._direct(Message(f"{self._settings.base}/{leaf}", payload, qos))

    def confirmed(self, topic: str, payload: bytes) -> asyncio.Future[int | None]:
        """Publish once at QoS 1, among the direct messages; waits for a connection, if there is none.

        Gives the MQTT reason code, or None: the connection ended first, or too many were waiting; the broker may have
        it or not. `topic`: a leaf, or with our base before it.
        """
        base = f"{self._settings.base}/"
        ref, settled = self._settling.expect()
        self._direct(Message(base + topic.removeprefix(base), payload, ref=ref))
        return settled

    def deliver(self, topic: str, payload: bytes) -> asyncio.Future[int | None]:
        """Publish behind everything live; gives the MQTT reason code, or None if the connection ended."""
        ref, settled = self._settling.expect()
        self._carry_out(self._outbox.replay(Message(topic, payload, ref=ref), self._clock()))
        return settled

    async def run(self) -> None:
        """Keep a connection until `close`."""
        async with asyncio.TaskGroup() as group:
            helpers = (
                group.create_task(self._tick(), name="mqtt tick"),
                group.create_task(self._door.run(), name="mqtt journal"),
                group.create_task(self.desk.run(), name="mqtt desk"),
            )
            failures = 0
            while not self._closing.is_set():
                began_s = self._clock()
                self._attempt = group.create_task(self._one_connection(), name="mqtt connection")
                await asyncio.wait((self._attempt,))
                is_steady = self._clock() - began_s >= STEADY_S and not self.duplicate
                failures = 1 if is_steady else failures + 1
                await self._pause(BACKOFF.delay_s(failures, self._draw()))
            for helper in helpers:
                helper.cancel()
        self._settling.end()

    async def drained(self, limit_s: float) -> bool:
        """Wait until everything committed is delivered or put aside; False: it was not within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                while self.stats().unsent:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def close(self, limit_s: float, final: bytes) -> bool:
        """Publish the final status, wait for its acknowledgement, say goodbye; `run` then returns.

        Gives whether it was acknowledged. Without a connection there is nothing to say: the broker has published the
        will already.
        """
        deadline_s = self._clock() + limit_s
        reason: int | None = None
        if self._connection is not None:
            ref, settled = self._settling.expect()
            message = Message(self._settings.status_topic, final, retain=True, ref=ref)
            self._carry_out(self._outbox.retain(message, self._clock()))
            try:
                async with asyncio.timeout(limit_s):
                    reason = await settled
            except TimeoutError:
                log.warning("mqtt: the final status was not acknowledged within %.1f s", limit_s)
        self._closing.set()
        if self._connection is not None:
            await self._connection.disconnect(max(0.1, deadline_s - self._clock()))
        elif self._attempt is not None:
            self._attempt.cancel()
        return reason is not None and reason < FAILURE

    def acknowledged(self, token: int, reason: int) -> None:
        """Take the broker's answer (Listener)."""
        refused = self.refused
        self._carry_out(self._outbox.puback(token, reason, self._clock()))
        if refused != self.refused:
            log.warning("mqtt: %s", "results are allowed again" if refused else words(reason))
            self._on_change()

    def received(self, incoming: Incoming) -> None:
        """Take a message from the broker (Listener)."""
        if incoming.topic != self._ack_topic:
            self.desk.receive(incoming)
        elif self._on_receipt is not None:
            self._on_receipt(incoming)

    def subscribed(self, topic: str, reason: int) -> None:
        """Take the broker's answer to a subscription (Listener)."""
        instead = self._subscriptions.answered(topic, reason)
        if reason >= FAILURE:
            cure = "; trying each command's own" if instead else ""
            log.warning("mqtt: cannot subscribe to %s: %s%s", topic, words(reason), cure)
        self._subscribe(instead)
        self._on_change()

    async def _one_connection(self) -> None:
        """Connect, serve until it ends, and take everything unacknowledged back."""
        try:
            connection = Connection(self._settings, self._version, self, self._clock)
            welcome = await connection.open()
        except OutsideError as fault:
            self._not_connected(fault)
            return
        ending = Ending("the publisher ended")
        try:
            self._begin(connection, welcome)
            ending = await connection.ended()
            lasted_s = self._clock() - self._began_s
        finally:
            self._connection = None
            self._subscriptions.ended()
            connection.drop(ending.reason)
            self.duplicate = ending.code == TAKEN_OVER
            was_refused = self.refused
            self._carry_out(self._outbox.disconnected(by_broker=ending.by_broker))
            if self.refused and not was_refused:
                log.warning("mqtt: the broker ends the connection at each result; they are held back")
        if not self._closing.is_set():
            is_odd = ending.by_broker and ending.code is None and lasted_s < STEADY_S
            doubt = f"; perhaps another client has the id {self._settings.client_id}, or something sent is too large"
            self._note(f"mqtt {self._settings.address}: {ending.reason}{doubt if is_odd else ''}")

    def _begin(self, connection: Connection, welcome: Welcome) -> None:
        settings = self._settings
        self._connection = connection
        self._began_s = self._clock()
        self._server_certificate = connection.server_certificate
        self.connects += 1
        self.last_error = self.refusal = ""
        how = f"MQTT {self._version}{'' if settings.tls is None else ' and TLS'}"
        log.info("mqtt: connected to %s by %s as %s", settings.address, how, settings.client_id)
        limit_bytes = welcome.packet_limit_bytes
        self._denied.clear()
        self._subscribe(self._subscriptions.began())  # first: who sees `online` may ask at once
        self._carry_out(self._outbox.connected(self._clock(), packet_limit_bytes=limit_bytes, window=welcome.window))
        self._on_change()

    def _not_connected(self, fault: OutsideError) -> None:
        self.refusal = str(fault) if isinstance(fault, Refused) else ""
        if isinstance(fault, Refused) and fault.reason == UNSUPPORTED_VERSION and self._version == 5:
            self.refusal = ""
            self._version = "3.1.1"
            log.warning(
                "mqtt: %s does not speak MQTT 5; 3.1.1 from here on, where verdicts do not expire in the broker "
                "and its access list refuses without a word",
                self._settings.address,
            )
        self._note(str(fault))

    def _note(self, trouble: str) -> None:
        """Say why there is no connection: once, not at every try."""
        if trouble != self.last_error:
            log.warning("%s; trying again", trouble)
        self.last_error = trouble
        self._on_change()

    async def _pause(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            if self.duplicate and self.connected and now - self._began_s >= ALONE_S:
                self.duplicate = False
                self._on_change()
            self._carry_out(self._outbox.tick(now))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._connection is not None:
                    self._connection.publish(effect)
            elif isinstance(effect, Ack):
                self._journal.ack(effect.seq)
                self._progress.set()
            elif isinstance(effect, Settled):
                self._settling.settle(effect.ref, effect.reason)
            elif isinstance(effect, Denied):
                if effect.topic not in self._denied and len(self._denied) < DENIED_TOPICS:
                    self._denied.add(effect.topic)
                    why = effect.why or words(effect.reason)
                    log.warning("mqtt: nothing can be published on %s: %s", effect.topic, why)
            else:
                self._door.wish(effect)

    def _direct(self, message: Message) -> None:
        self._carry_out(self._outbox.direct(message, self._clock()))

    def _loaded(self, read: Read, rows: Sequence[Row] | None) -> None:
        self._carry_out(self._outbox.loaded(read, rows, self._clock()))

    def _substituted(self, seq: int, payload: bytes | None) -> None:
        self._carry_out(self._outbox.substituted(seq, payload, self._clock()))

    def _subscribe(self, topics: Iterable[str]) -> None:
        if self._connection is not None:
            for topic in topics:
                self._connection.subscribe(topic)
