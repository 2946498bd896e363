"""What is sent when: verdicts, states, results, replays share ten places in flight. Pure: no I/O, no clock, no await.

Every method takes `now` (monotonic, s) where time matters and gives back the effects to carry out, in order. A message
is known by its token from `Send` to `puback`; a connection that ends takes all its tokens with it, so an
acknowledgement from an old connection means nothing to a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from inspectd.publish.broker import MOST_BYTES
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
from inspectd.publish.hold import Hold
from inspectd.publish.reasons import (
    FAILURE,
    ITS_OWN_REASON,
    NO_SUBSCRIBERS,
    PACKET_TOO_LARGE,
    Refusal,
    refusal,
    words,
)
from inspectd.publish.stream import ResultStream
from inspectd.publish.suspects import DEADLY_BREAKS, Suspects, key_of

PAYLOAD_LIMIT_BYTES = 64 * 1024
HEADER_BYTES = 64
"""Of a packet that is neither payload, topic nor correlation data: fixed header, packet id, our other properties."""
QUEUE_MESSAGES = 256
"""Verdicts, and direct messages, that wait for the connection; then the oldest is dropped and counted."""
REPLAY_MESSAGES = 64


class Outbox:
    """Decides the next messages. Full queues drop their oldest message and count it; results are never dropped."""

    def __init__(self, result_topic: str, *, acked_seq: int, last_seq: int) -> None:
        self.stream = ResultStream(acked_seq, last_seq)
        self.connected_now = False
        self._suspects = Suspects()
        self._hold = Hold()
        self._largest_bytes = 0
        """Of the results that the broker took since one made it hang up."""
        self._result_topic = result_topic
        self._packet_limit_bytes = MOST_BYTES
        self._verdicts: deque[Message] = deque()
        self._direct: deque[Message] = deque()
        self._replays: deque[Message] = deque()
        self._queues = {Kind.VERDICT: self._verdicts, Kind.STATE: self._direct, Kind.REPLAY: self._replays}
        self._retained: dict[str, Message] = {}
        self._unsent_topics: dict[str, None] = {}
        self._flight = Flight()
        self._told_seq = acked_seq
        self._counts = Counts()

    @property
    def refused(self) -> bool:
        """Whether results are held back because of the broker's rights."""
        return self._hold.is_refusal

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
        if len(self._verdicts) >= QUEUE_MESSAGES:
            self._suspects.cleared(key_of(self._verdicts.popleft()))
            self._counts.verdicts_overflowed += 1
        self._verdicts.append(message)
        return self._pump(now)

    def retain(self, message: Message, now: float) -> list[Effect]:
        """Send, and again after each connect until a newer one takes its place; an empty one only until delivered."""
        self._retained[message.topic] = message
        self._unsent_topics[message.topic] = None
        return self._pump(now)

    def direct(self, message: Message, now: float) -> list[Effect]:
        """Send once; QoS 0 is dropped while there is no connection."""
        if message.qos == 0 and not self.connected_now:
            return self._drop(message)
        effects = self._drop(self._direct.popleft()) if len(self._direct) >= QUEUE_MESSAGES else []
        self._direct.append(message)
        return effects + self._pump(now)

    def replay(self, message: Message, now: float) -> list[Effect]:
        """Send when no live result waits. Dropped when full, and when the connection ends: whoever asked asks again."""
        if len(self._replays) >= REPLAY_MESSAGES or not self.connected_now:
            return self._drop(message)
        self._replays.append(message)
        return self._pump(now)

    def connected(
        self, now: float, *, packet_limit_bytes: int = MOST_BYTES, window: int = MAX_IN_FLIGHT
    ) -> list[Effect]:
        """Begin with a new connection, within the broker's limits: everything retained goes out again."""
        self.connected_now = True
        self._packet_limit_bytes = packet_limit_bytes
        self._flight.began(window)
        self._unsent_topics = dict.fromkeys(self._retained)
        self._suspects.began(now)
        self._hold.began(now)
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
            else:
                self._queues[kind].appendleft(message)
        while self._replays:
            effects += self._drop(self._replays.popleft())
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
                self._settle(effects, message, reason)
            else:
                self._deny(effects, kind, message, reason)
        elif reason < FAILURE:
            self._counts.sent += 1
            self._largest_bytes = max(self._largest_bytes, len(message.payload))
            self._counts.no_subscribers += reason == NO_SUBSCRIBERS
            self.stream.delivered(message.seq)
            self._hold.delivered()
        elif letter := self._refused(message.seq, reason, now):
            effects.append(letter)
        return effects + self._pump(now)

    def tick(self, now: float) -> list[Effect]:
        """Let time pass (1 Hz): expire verdicts, try again what was held back."""
        for verdict in [verdict for verdict in self._verdicts if verdict.is_over(now)]:
            self._verdicts.remove(verdict)
            self._counts.verdicts_expired += 1
            self._suspects.cleared(key_of(verdict))
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
            verdicts_waiting=len(self._verdicts),
            held_reason=self._hold.reason,
            refused=self.refused,
            dead_letters=self.stream.dead_letters,
            lost=self.stream.lost,
            **asdict(self._counts),
        )

    def _pump(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self.connected_now:
            self._send_queue(effects, Kind.VERDICT, self._verdicts, now)
            while self._unsent_topics and self._has_place(Kind.STATE):
                topic = next(iter(self._unsent_topics))
                del self._unsent_topics[topic]
                self._launch(effects, Kind.STATE, self._retained[topic], now)
            self._send_queue(effects, Kind.STATE, self._direct, now)
            self._send_results(effects, now)
            if not self.stream.careful and not self._suspects.careful:
                self._send_queue(effects, Kind.REPLAY, self._replays, now)
        if read := self.stream.wanted():
            effects.append(read)
        if (acked_seq := self.stream.acked_seq) > self._told_seq:
            self._told_seq = acked_seq
            self._suspects.passed(acked_seq)
            effects.append(Ack(acked_seq))
        return effects

    def _send_queue(self, effects: list[Effect], kind: Kind, queue: deque[Message], now: float) -> None:
        while queue and self._has_place(kind):
            self._launch(effects, kind, queue.popleft(), now)

    def _send_results(self, effects: list[Effect], now: float) -> None:
        while not self._hold.is_on(now) and self._has_place(Kind.RESULT):
            row = self.stream.take(self.payload_limit_bytes(self._result_topic))
            if row is None:
                return
            if isinstance(row, DeadLetter):
                effects.append(row)
                return
            effects.append(Send(self._flight.launch(Kind.RESULT, row), self._result_topic, row.payload))

    def _launch(self, effects: list[Effect], kind: Kind, message: Message, now: float) -> None:
        if message.is_over(now):
            self._counts.verdicts_expired += kind is Kind.VERDICT
            self._settle(effects, message, None)
            return
        if len(message.payload) > self.payload_limit_bytes(message.topic, message.correlation):
            self._deny(effects, kind, message, PACKET_TOO_LARGE)
            return
        is_asked = message.qos > 0 or self._suspects.careful
        token = self._flight.launch(kind, message) if is_asked else 0
        expiry_s = None if message.expires_s is None else max(1, int(message.expires_s - now))
        effects.append(
            Send(token, message.topic, message.payload, int(is_asked), message.retain, expiry_s, message.correlation)
        )
        if not is_asked:
            self._settle(effects, message, 0)
            if message.retain:
                self._suspects.unproven(message.topic, self._flight.token)

    def _has_place(self, kind: Kind) -> bool:
        return self._flight.has_place(kind) and not (self._suspects.careful and len(self._flight))

    def _refused(self, seq: int, reason: int, now: float) -> DeadLetter | None:
        self._counts.refusals += 1
        what = refusal(reason)
        letter = self.stream.refused(seq, what, words(reason))
        if letter is None and what is not Refusal.DEAD:
            self._hold.refused(reason, now)
            self.stream.careful = max(self.stream.careful, 1)  # one row finds out whether the rest may follow
        return letter

    def payload_limit_bytes(self, topic: str, correlation: bytes | None = None) -> int:
        """Give what a payload on this topic may have: our own cap, or less if the broker takes less."""
        rest = HEADER_BYTES + len(topic.encode()) + len(correlation or b"")
        return min(PAYLOAD_LIMIT_BYTES, self._packet_limit_bytes - rest, self._suspects.limit_bytes(topic))

    def _condemn(self, effects: list[Effect], kind: Kind, message: Message | Row) -> None:
        """Put away what makes the broker hang up, and learn from it."""
        size_bytes = len(message.payload)
        why = f"the broker ended the connection {DEADLY_BREAKS} times when it got this ({size_bytes} bytes)"
        if isinstance(message, Message):
            if message.retain:
                self._suspects.learn(message.topic, size_bytes)
            self._deny(effects, kind, message, ITS_OWN_REASON, why)
            return
        self.stream.careful = max(self.stream.careful, 1)  # nothing is put aside for its size before this one is out
        if self.stream.is_substitute(message.seq):
            self._suspects.forget(self._result_topic)
            self._hold.hung_up()
        else:
            if size_bytes > self._largest_bytes:
                self._suspects.learn(self._result_topic, size_bytes)
            self._largest_bytes = 0
            if letter := self.stream.condemned(message.seq, why):
                effects.append(letter)

    def _deny(self, effects: list[Effect], kind: Kind, message: Message, reason: int, why: str = "") -> None:
        self._counts.refusals += 1
        self._counts.verdicts_refused += kind is Kind.VERDICT
        effects.append(Denied(message.topic, reason, why))
        self._settle(effects, message, reason)

    def _settle(self, effects: list[Effect], message: Message, reason: int | None) -> None:
        self._suspects.cleared(key_of(message))
        if message.retain and not message.payload and self._retained.get(message.topic) is message:
            del self._retained[message.topic]
        if message.ref is not None:
            effects.append(Settled(message.ref, reason))

    def _drop(self, message: Message) -> list[Effect]:
        self._suspects.cleared(key_of(message))
        return self._let_go(message)

    def _let_go(self, message: Message) -> list[Effect]:
        self._counts.dropped += 1
        return [] if message.ref is None else [Settled(message.ref, None)]
