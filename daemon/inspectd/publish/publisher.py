"""Publishes: joins the outbox's decisions, the connection of the moment and the journal. One asyncio task, `run`.

It reconnects for ever. Everything it gives to a connection that breaks, the outbox gives again to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from inspectd.publish.audit import Write
from inspectd.publish.broker import BrokerSettings, Ending, Welcome
from inspectd.publish.commands import Answer, Commands, Handler, get_state
from inspectd.publish.desk import Desk
from inspectd.publish.effects import Ack, Denied, Effect, Incoming, Message, OutboxStats, Read, Row, Send, Settled
from inspectd.publish.journal_door import Journal, JournalDoor
from inspectd.publish.keeper import Keeper
from inspectd.publish.outbox import Outbox
from inspectd.publish.reasons import FAILURE, words
from inspectd.publish.refusallog import RefusalLog
from inspectd.publish.replay import Replay
from inspectd.publish.settling import Settling
from inspectd.publish.subscriptions import Subscriptions

TICK_S = 1.0
DIRECT_EXPIRES_S = 5.0
"""A heartbeat, or a state that was, is worth nothing later."""

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
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        self._keeper = Keeper(settings, self, on_change, clock, draw)
        self._outbox = Outbox(f"{settings.base}/result", acked_seq=journal.acked_seq, last_seq=journal.last_seq)
        self._refusals = RefusalLog(self._outbox)
        self._journal = journal
        self._door = JournalDoor(journal, self._loaded, self._substituted)
        replay = Replay(settings.base, journal.stream_id, lambda: self.stats().last_seq, journal.read, self.deliver)
        table: dict[str, Handler] = {"replay": replay, "get-state": get_state}
        commands = Commands(settings.base, table | dict(handlers or {}), reply_prefixes)
        self.desk = Desk(commands, self._direct, encode_answer, clock, is_clock_right=is_clock_right, audit=audit)
        """Takes requests from this PC, too."""
        self._on_receipt = on_receipt
        self._ack_topic = f"{settings.base}/ack"
        each = [f"{settings.base}/cmd/{command}" for command in self.commands]
        self._subscriptions = Subscriptions(commands.topic, each, () if on_receipt is None else (self._ack_topic,))
        self._progress = asyncio.Event()
        self._settling = Settling()

    @property
    def connected(self) -> bool:
        """Whether the broker has welcomed us and the connection stands."""
        return self._keeper.connection is not None

    @property
    def last_error(self) -> str:
        """Why there is no connection, in words; empty while there is one. The same as long as the reason is."""
        return self._keeper.standing.last_error

    @property
    def refusal(self) -> str:
        """Why the broker does not let us in, in words; empty unless it has said no to the last try."""
        return self._keeper.standing.refusal

    @property
    def connects(self) -> int:
        """Connections so far."""
        return self._keeper.standing.connects

    @property
    def duplicate(self) -> bool:
        """Whether another client with our id ended the last connection (MQTT 5), and may come again."""
        return self._keeper.standing.duplicate

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
    def denied(self) -> tuple[str, ...]:
        """Topics on which the broker took nothing the last time, results aside; all alarms are one of them.

        Brokers of MQTT 3.1.1 do not say so, and none does at QoS 0.
        """
        return self._outbox.denied

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
        """Give the days until a certificate of the connection ends: ours, the broker's, their CAs. None: not known."""
        return self._keeper.certificate_days_left(wall_s)

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
        """Publish once, within 5 s. QoS 0 is dropped while there is no connection; QoS 1 waits, among at most 256."""
        expires_s = self._clock() + DIRECT_EXPIRES_S
        self._direct(Message(f"{self._settings.base}/{leaf}", payload, qos, expires_s=expires_s))

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
            await self._keeper.run()
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
        if self.connected:
            ref, settled = self._settling.expect()
            message = Message(self._settings.status_topic, final, retain=True, ref=ref)
            self._carry_out(self._outbox.retain(message, self._clock()))
            try:
                async with asyncio.timeout(limit_s):
                    reason = await settled
            except TimeoutError:
                log.warning("mqtt: the final status was not acknowledged within %.1f s", limit_s)
        await self._keeper.close(deadline_s)
        return reason is not None and reason < FAILURE

    def began(self, welcome: Welcome) -> None:
        """There is a connection (Owner)."""
        limit_bytes = welcome.packet_limit_bytes
        self._refusals.began()
        self._subscribe(self._subscriptions.began())  # first: who sees `online` may ask at once
        self._carry_out(self._outbox.connected(self._clock(), packet_limit_bytes=limit_bytes, window=welcome.window))
        self._on_change()

    def ended(self, ending: Ending) -> None:
        """Take everything unacknowledged back (Owner)."""
        self._subscriptions.ended()
        self._carry_out(self._outbox.disconnected(by_broker=ending.by_broker))
        self._refusals.look("the broker ends the connection at each result")

    def acknowledged(self, token: int, reason: int) -> None:
        """Take the broker's answer (Listener)."""
        self._carry_out(self._outbox.puback(token, reason, self._clock()))
        if self._refusals.look(words(reason)):
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

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock()
            if self.connected and self._keeper.standing.is_alone_again(now):
                self._on_change()
            self._carry_out(self._outbox.tick(now))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._keeper.connection is not None:
                    self._keeper.connection.publish(effect)
            elif isinstance(effect, Ack):
                self._journal.ack(effect.seq)
                self._progress.set()
            elif isinstance(effect, Settled):
                self._settling.settle(effect.ref, effect.reason)
            elif isinstance(effect, Denied):
                self._refusals.denied(effect)
            else:
                self._door.wish(effect)

    def _direct(self, message: Message) -> None:
        self._carry_out(self._outbox.direct(message, self._clock()))

    def _loaded(self, read: Read, rows: Sequence[Row] | None) -> None:
        self._carry_out(self._outbox.loaded(read, rows, self._clock()))

    def _substituted(self, seq: int, payload: bytes | None) -> None:
        self._carry_out(self._outbox.substituted(seq, payload, self._clock()))

    def _subscribe(self, topics: Iterable[str]) -> None:
        if self._keeper.connection is not None:
            for topic in topics:
                self._keeper.connection.subscribe(topic)
