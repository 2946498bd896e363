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
from inspectd.publish.broker import BrokerSettings, Ending, Refused, Version, Welcome
from inspectd.publish.commands import Answer, Commands, Handler, get_state
from inspectd.publish.desk import Desk
from inspectd.publish.effects import Ack, Denied, Effect, Incoming, Message, OutboxStats, Read, Row, Send, Settled
from inspectd.publish.journal_door import Journal, JournalDoor
from inspectd.publish.mqtt import Connection
from inspectd.publish.outbox import Outbox
from inspectd.publish.reasons import FAILURE, UNSUPPORTED_VERSION, words
from inspectd.publish.replay import Replay

BACKOFF = Backoff(first_s=0.2, limit_s=10.0)
STEADY_S = 10.0
"""A connection that lasted so long was a good one: the back-off begins anew. Otherwise two clients with one id would
throw each other out at full speed."""
TICK_S = 1.0
DENIED_TOPICS = 100
"""Told in the log, once in a connection each; requesters may have made up the rest."""

log = logging.getLogger(__name__)


class Publisher:
    """The daemon's way to the broker. All methods belong to the event loop's thread, and none blocks.

    `on_change` is called when `connected`, `listening`, `last_error` or `refused` may have another value.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        journal: Journal,
        encode_answer: Callable[[Answer], bytes],
        *,
        handlers: Mapping[str, Handler] | None = None,
        reply_prefixes: tuple[str, ...] = (),
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.last_error = ""
        """Why there is no connection, in words; empty while there is one."""
        self.connects = 0
        self.listening = False
        """Whether the broker has granted the subscription: commands can arrive."""
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
        self._desk = Desk(commands, self._direct, encode_answer, clock)
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._progress = asyncio.Event()
        self._settling: dict[int, asyncio.Future[int | None]] = {}
        """Bounded by the outbox's queues: each message that is asked after is in one of them."""
        self._last_ref = 0
        self._denied: set[str] = set()

    @property
    def connected(self) -> bool:
        """Whether the broker has welcomed us and the connection stands."""
        return self._connection is not None

    @property
    def refused(self) -> bool:
        """Whether results are held back because the broker's access list does not allow them."""
        return self._outbox.refused

    @property
    def commands(self) -> tuple[str, ...]:
        """What can be asked for, by name: for `meta`."""
        return tuple(sorted(self._desk.commands.handlers))

    @property
    def unanswerable(self) -> int:
        """Requests that named no proper place for an answer."""
        return self._desk.unanswerable

    def stats(self) -> OutboxStats:
        """Give the outbox's counts."""
        return self._outbox.stats()

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

    def deliver(self, topic: str, payload: bytes) -> asyncio.Future[int | None]:
        """Publish behind everything live; gives the MQTT reason code, or None if the connection ended."""
        ref, settled = self._reference()
        self._carry_out(self._outbox.replay(Message(topic, payload, ref=ref), self._clock()))
        return settled

    async def run(self) -> None:
        """Keep a connection until `close`."""
        async with asyncio.TaskGroup() as group:
            helpers = (
                group.create_task(self._tick(), name="mqtt tick"),
                group.create_task(self._door.run(), name="mqtt journal"),
                group.create_task(self._desk.run(), name="mqtt desk"),
            )
            failures = 0
            while not self._closing.is_set():
                began_s = self._clock()
                self._attempt = group.create_task(self._one_connection(), name="mqtt connection")
                await asyncio.wait((self._attempt,))
                failures = 1 if self._clock() - began_s >= STEADY_S else failures + 1
                await self._pause(BACKOFF.delay_s(failures, self._draw()))
            for helper in helpers:
                helper.cancel()

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
            ref, settled = self._reference()
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
        self._desk.receive(incoming)

    def subscribed(self, reason: int) -> None:
        """Take the broker's answer to the subscription (Listener)."""
        self.listening = reason < FAILURE
        if not self.listening:
            log.warning("mqtt: commands cannot be received: %s", words(reason))
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
            began_s = self._clock()
            ending = await connection.ended()
            lasted_s = self._clock() - began_s
        finally:
            self._connection, self.listening = None, False
            connection.drop(ending.reason)
            self._carry_out(self._outbox.disconnected(by_broker=ending.by_broker))
        if not self._closing.is_set():
            hint = f"; perhaps another client has the id {self._settings.client_id}" if lasted_s < STEADY_S else ""
            self._note(f"mqtt {self._settings.address}: {ending.reason}{hint if ending.by_broker else ''}")

    def _begin(self, connection: Connection, welcome: Welcome) -> None:
        settings = self._settings
        self._connection = connection
        self.connects += 1
        self.last_error = ""
        log.info("mqtt: connected to %s by MQTT %s as %s", settings.address, self._version, settings.client_id)
        limit_bytes = welcome.packet_limit_bytes
        self._denied.clear()
        connection.subscribe(self._desk.commands.topic)  # first: who sees `online` may ask at once
        self._carry_out(self._outbox.connected(self._clock(), packet_limit_bytes=limit_bytes, window=welcome.window))
        self._on_change()

    def _not_connected(self, fault: OutsideError) -> None:
        if isinstance(fault, Refused) and fault.reason == UNSUPPORTED_VERSION and self._version == 5:
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
            self._carry_out(self._outbox.tick(self._clock()))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._connection is not None:
                    self._connection.publish(effect)
            elif isinstance(effect, Ack):
                self._journal.ack(effect.seq)
                self._progress.set()
            elif isinstance(effect, Settled):
                settled = self._settling.pop(effect.ref)
                if not settled.done():
                    settled.set_result(effect.reason)
            elif isinstance(effect, Denied):
                if effect.topic not in self._denied and len(self._denied) < DENIED_TOPICS:
                    self._denied.add(effect.topic)
                    log.warning("mqtt: nothing can be published on %s: %s", effect.topic, words(effect.reason))
            else:
                self._door.wish(effect)

    def _direct(self, message: Message) -> None:
        self._carry_out(self._outbox.direct(message, self._clock()))

    def _loaded(self, read: Read, rows: Sequence[Row] | None) -> None:
        self._carry_out(self._outbox.loaded(read, rows, self._clock()))

    def _substituted(self, seq: int, payload: bytes | None) -> None:
        self._carry_out(self._outbox.substituted(seq, payload, self._clock()))

    def _reference(self) -> tuple[int, asyncio.Future[int | None]]:
        self._last_ref += 1
        settled: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._settling[self._last_ref] = settled
        return self._last_ref, settled
