"""What is sent when: verdicts, states, results, replays share ten places in flight. Pure: no I/O, no clock, no await.

Every method takes `now` (monotonic, s) where time matters and gives back the effects to carry out, in order. A message
is known by its token from `Send` to `puback`; a connection that ends takes all its tokens with it, so an
acknowledgement from an old connection means nothing to a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from inspectd.publish.broker import MOST_BYTES
from inspectd.publish.denials import Denials
from inspectd.publish.effects import (
    Ack,
    Counts,
    DeadLetter,
    Denied,
    Effect,
    Kind,
    Message,
    OutboxStats,
    Read,
    Row,
    Send,
    Settled,
)
from inspectd.publish.flight import MAX_IN_FLIGHT, Flight
from inspectd.publish.queues import REPLAY_MESSAGES, Queues
from inspectd.publish.reasons import FAILURE, ITS_OWN_REASON, PACKET_TOO_LARGE
from inspectd.publish.results import Results
from inspectd.publish.retained import Retained
from inspectd.publish.stream import ResultStream
from inspectd.publish.suspects import DEADLY_BREAKS, Suspects, key_of

PAYLOAD_LIMIT_BYTES = 64 * 1024
HEADER_BYTES = 64
"""Of a packet that is neither payload, topic nor correlation data: fixed header, packet id, our other properties."""


class Outbox:
    """Decides the next messages. Full queues drop their oldest message and count it; results are never dropped."""

    def __init__(self, result_topic: str, *, acked_seq: int, last_seq: int) -> None:
        self.connected_now = False
        self._denials = Denials(result_topic.rpartition("/")[0])
        self._suspects = Suspects()
        self._counts = Counts()
        self._results = Results(result_topic, ResultStream(acked_seq, last_seq), self._suspects, self._counts)
        self.stream = self._results.stream
        self._packet_limit_bytes = MOST_BYTES
        self._queues = Queues()
        self._retained = Retained()
        self._flight = Flight()
        self._told_seq = acked_seq

    @property
    def refused(self) -> bool:
        """Whether results are held back because of the broker's rights."""
        return self._results.hold.is_refusal

    @property
    def denied(self) -> tuple[str, ...]:
        """Topics on which the broker took nothing the last time; not that of the results."""
        return self._denials.topics

    def denial_of(self, topic: str) -> str:
        """Give the name under which a topic would be among `denied`."""
        return self._denials.group(topic)

    def committed(self, rows: Iterable[Row], now: float) -> list[Effect]:
        """Results are on disk: send them in their turn."""
        self.stream.committed(rows)
        return self._pump(now)

    def loaded(self, read: Read, rows: Sequence[Row] | None, now: float) -> list[Effect]:
        """Take the journal's answer to a `Read`; None: it cannot be read now (`tick` asks again)."""
        if rows is None:
            self.stream.unread()
            return []
        self.stream.loaded(read, rows)
        return self._pump(now)

    def substituted(self, seq: int, payload: bytes | None, now: float) -> list[Effect]:
        """A `DeadLetter` is done: go on, with this in the row's place."""
        self.stream.substituted(seq, payload)
        return self._pump(now)

    def verdict(self, message: Message, now: float) -> list[Effect]:
        """Send ahead of any backlog; kept over a break until it expires, and then dropped and counted."""
        if oldest := self._queues.add(Kind.VERDICT, message):
            self._suspects.cleared(key_of(oldest))
            self._counts.verdicts_overflowed += 1
        return self._pump(now)

    def retain(self, message: Message, now: float) -> list[Effect]:
        """Send, and again after each connect until a newer one takes its place; an empty one only until delivered."""
        self._retained.put(message)
        return self._pump(now)

    def direct(self, message: Message, now: float) -> list[Effect]:
        """Send once; QoS 0 is dropped while there is no connection, and with the connection."""
        if message.qos == 0 and not self.connected_now:
            return self._drop(message)
        oldest = self._queues.add(Kind.STATE, message)
        return ([] if oldest is None else self._drop(oldest)) + self._pump(now)

    def replay(self, message: Message, now: float) -> list[Effect]:
        """Send when no live result waits. Dropped when full, and when the connection ends: whoever asked asks again."""
        if self._queues.waiting(Kind.REPLAY) >= REPLAY_MESSAGES or not self.connected_now:
            return self._drop(message)
        self._queues.add(Kind.REPLAY, message)
        return self._pump(now)

    def connected(
        self, now: float, *, packet_limit_bytes: int = MOST_BYTES, window: int = MAX_IN_FLIGHT
    ) -> list[Effect]:
        """Begin with a new connection, within the broker's limits: everything retained goes out again."""
        self.connected_now = True
        self._packet_limit_bytes = packet_limit_bytes
        self._flight.began(window)
        self._retained.began()
        self._denials.began()
        self._suspects.began(now)
        self._results.hold.began(now)
        return self._pump(now)

    def disconnected(self, *, by_broker: bool = False) -> list[Effect]:
        """Forget the connection. What it did not acknowledge is to be sent again, the same bytes, verdicts first.

        `by_broker`: the broker ended it, which it may do because of one message.
        """
        self.connected_now = False
        self.stream.connection_ended()
        flying = self._flight.ended()
        keys = [key_of(message) for kind, message in flying if kind is not Kind.REPLAY]
        guilty = self._suspects.ended(keys, by_broker=by_broker)
        effects: list[Effect] = []
        for kind, message in reversed(flying):
            if guilty is not None and key_of(message) == guilty:
                self._condemn(effects, kind, message)
            elif not isinstance(message, Message) or message.retain:
                continue  # the stream, and the next connection, send these again
            elif kind is Kind.STATE and message.ref is not None:
                effects += self._let_go(message)  # its sender hears of it, decides, and may send the same again
            elif message.qos == 0:
                effects += self._let_go(message)  # the next on its topic is as suspect
            else:
                self._queues.again(kind, message)
        for message in self._queues.connection_ended():
            effects += self._let_go(message)
        return effects

    def puback(self, token: int, reason: int, now: float) -> list[Effect]:
        """Take an acknowledgement. Reasons below 0x80 are deliveries."""
        flown = self._flight.land(token)
        if flown is None:
            return []
        kind, message = flown
        self._suspects.answered(token, key_of(message))
        effects: list[Effect] = []
        if isinstance(message, Message):
            if reason < FAILURE:
                self._denials.accepted(message.topic)
                self._settle(effects, message, reason)
            else:
                self._deny(effects, kind, message, reason)
        elif reason < FAILURE:
            self._results.delivered(message, reason)
        elif letter := self._results.refused(message, reason, now):
            effects.append(letter)
        return effects + self._pump(now)

    def tick(self, now: float) -> list[Effect]:
        """Let time pass (1 Hz): expire verdicts, try again what was held back."""
        for verdict in self._queues.take_overdue(Kind.VERDICT, now):
            self._counts.verdicts_expired += 1
            self._suspects.cleared(key_of(verdict))
        self._retained.tick(now)
        effects = self._pump(now)
        if self.connected_now and not len(self._flight):
            self._suspects.nothing_waits()
        return effects

    def stats(self) -> OutboxStats:
        """Give the counts."""
        return OutboxStats(
            acked_seq=self.stream.acked_seq,
            last_seq=self.stream.last_seq,
            in_flight=len(self._flight),
            ready_rows=self.stream.ready_rows,
            ready_bytes=self.stream.ready_bytes,
            verdicts_waiting=self._queues.waiting(Kind.VERDICT),
            held_reason=self._results.hold.reason,
            refused=self.refused,
            dead_letters=self.stream.dead_letters,
            lost=self.stream.lost,
            **asdict(self._counts),
        )

    def payload_limit_bytes(self, topic: str, correlation: bytes | None = None) -> int:
        """Give what a payload on this topic may have: our own cap, or less if the broker takes less."""
        rest = HEADER_BYTES + len(topic.encode()) + len(correlation or b"")
        return min(PAYLOAD_LIMIT_BYTES, self._packet_limit_bytes - rest, self._suspects.limit_bytes(topic))

    def _pump(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self.connected_now:
            self._send_queue(effects, Kind.VERDICT, now)
            while self._retained.waits and self._has_place(Kind.STATE):
                self._launch(effects, Kind.STATE, self._retained.take(), now)
            self._send_queue(effects, Kind.STATE, now)
            self._send_results(effects, now)
            if not self.stream.careful and not self._suspects.careful:
                self._send_queue(effects, Kind.REPLAY, now)
        if read := self.stream.wanted():
            effects.append(read)
        if (acked_seq := self.stream.acked_seq) > self._told_seq:
            self._told_seq = acked_seq
            self._suspects.passed(acked_seq)
            effects.append(Ack(acked_seq))
        return effects

    def _send_queue(self, effects: list[Effect], kind: Kind, now: float) -> None:
        while self._queues.waiting(kind) and self._has_place(kind):
            self._launch(effects, kind, self._queues.take(kind), now)

    def _send_results(self, effects: list[Effect], now: float) -> None:
        topic = self._results.topic
        while self._has_place(Kind.RESULT):
            row = self._results.take(self.payload_limit_bytes(topic), now)
            if row is None:
                return
            if isinstance(row, DeadLetter):
                effects.append(row)
                return
            effects.append(Send(self._flight.launch(Kind.RESULT, row), topic, row.payload))

    def _launch(self, effects: list[Effect], kind: Kind, message: Message, now: float) -> None:
        if message.is_over(now):
            self._counts.verdicts_expired += kind is Kind.VERDICT
            self._counts.dropped += kind is not Kind.VERDICT and not message.retain
            self._settle(effects, message, None)
            return
        if len(message.payload) > self.payload_limit_bytes(message.topic, message.correlation):
            self._deny(effects, kind, message, PACKET_TOO_LARGE)
            return
        is_asked = message.qos > 0 or self._suspects.careful or message.topic in self._denials
        token = self._flight.launch(kind, message) if is_asked else 0
        expiry_s = None if message.expires_s is None else max(1, int(message.expires_s - now))
        effects.append(
            Send(token, message.topic, message.payload, int(is_asked), message.retain, expiry_s, message.correlation)
        )
        if not is_asked:
            self._settle(effects, message, 0)
            self._suspects.unproven(message.topic, self._flight.token)

    def _has_place(self, kind: Kind) -> bool:
        return self._flight.has_place(kind) and not (self._suspects.careful and len(self._flight))

    def _condemn(self, effects: list[Effect], kind: Kind, message: Message | Row) -> None:
        """Put away what makes the broker hang up, and learn from it."""
        size_bytes = len(message.payload)
        why = f"the broker ended the connection {DEADLY_BREAKS} times when it got this ({size_bytes} bytes)"
        if isinstance(message, Message):
            if message.retain or message.qos == 0:
                self._suspects.learn(message.topic, size_bytes)
            self._deny(effects, kind, message, ITS_OWN_REASON, why)
        elif letter := self._results.condemned(message, why):
            effects.append(letter)

    def _deny(self, effects: list[Effect], kind: Kind, message: Message, reason: int, why: str = "") -> None:
        self._counts.refusals += 1
        self._counts.verdicts_refused += kind is Kind.VERDICT
        self._denials.denied(message.topic, reason)
        effects.append(Denied(message.topic, reason, why))
        self._settle(effects, message, reason)

    def _settle(self, effects: list[Effect], message: Message, reason: int | None) -> None:
        self._suspects.cleared(key_of(message))
        if message.retain:
            self._retained.settled(message, reason)
        if message.ref is not None:
            effects.append(Settled(message.ref, reason))

    def _drop(self, message: Message) -> list[Effect]:
        self._suspects.cleared(key_of(message))
        return self._let_go(message)

    def _let_go(self, message: Message) -> list[Effect]:
        self._counts.dropped += 1
        return [] if message.ref is None else [Settled(message.ref, None)]
