"""What is sent when: verdicts, states, results, replays share ten places in flight. Pure: no I/O, no clock, no await.

Every method takes `now` (monotonic, s) where time matters and gives back the effects to carry out, in order. A message
is known by its token from `Send` to `puback`; a connection that ends takes all its tokens with it, so an
acknowledgement from an old connection means nothing to a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from inspectd.publish.broker import MOST_BYTES
from inspectd.publish.effects import (
    KEPT_FREE,
    Ack,
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
from inspectd.publish.reasons import FAILURE, NO_SUBSCRIBERS, PACKET_TOO_LARGE, Refusal, refusal, words
from inspectd.publish.stream import ResultStream

MAX_IN_FLIGHT = 10
"""The contract's own number."""
PAYLOAD_LIMIT_BYTES = 64 * 1024
HEADER_BYTES = 64
"""Of a packet that is neither payload, topic nor correlation data: fixed header, packet id, our other properties."""
QUEUE_MESSAGES = 256
"""Verdicts, and direct messages, that wait for the connection; then the oldest is dropped and counted."""
REPLAY_MESSAGES = 64
REFUSED_RETRY_S = 30.0
AGAIN_S = 1.0
AGAIN_LIMIT_S = 30.0


class Outbox:
    """Decides the next messages. Full queues drop their oldest message and count it; results are never dropped."""

    def __init__(self, result_topic: str, *, acked_seq: int, last_seq: int) -> None:
        self.stream = ResultStream(acked_seq, last_seq)
        self.connected_now = False
        self._held_reason: int | None = None
        self._result_topic = result_topic
        self._window = MAX_IN_FLIGHT
        self._packet_limit_bytes = MOST_BYTES
        self._verdicts: deque[Message] = deque()
        self._direct: deque[Message] = deque()
        self._replays: deque[Message] = deque()
        self._retained: dict[str, Message] = {}
        self._unsent_topics: dict[str, None] = {}
        self._flying: dict[int, tuple[Kind, Message | Row]] = {}
        self._token = 0
        self._told_seq = acked_seq
        self._held_until_s = 0.0
        self._again_s = AGAIN_S
        self._in_flight = [0] * len(Kind)
        self._sent = self._no_subscribers = self._refusals = self._dropped = 0
        self._verdicts_expired = self._verdicts_overflowed = self._verdicts_refused = 0

    @property
    def refused(self) -> bool:
        """Whether results are held back because of the broker's rights."""
        return self._held_reason is not None and refusal(self._held_reason) is Refusal.STOP

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
            self._verdicts.popleft()
            self._verdicts_overflowed += 1
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
        self._window = max(1, min(MAX_IN_FLIGHT, window))
        self._unsent_topics = dict.fromkeys(self._retained)
        self._held_until_s = 0.0
        return self._pump(now)

    def disconnected(self, *, by_broker: bool = False) -> list[Effect]:
        """Forget the connection. What it did not acknowledge is to be sent again, the same bytes, verdicts first.

        `by_broker`: the broker ended it, which it may do because of one message.
        """
        self.connected_now = False
        flying, self._flying = self._flying, {}
        others = len(flying) - self._in_flight[Kind.RESULT]
        self._in_flight = [0] * len(Kind)
        effects: list[Effect] = []
        for kind, message in reversed(flying.values()):
            if kind is Kind.REPLAY and isinstance(message, Message):
                self._replays.appendleft(message)
            elif isinstance(message, Message) and not message.retain:
                (self._verdicts if kind is Kind.VERDICT else self._direct).appendleft(message)
        while self._replays:
            effects += self._drop(self._replays.popleft())
        letter = self.stream.connection_ended(by_broker=by_broker and not others)  # no result stands in for another
        return [*effects, letter] if letter else effects

    def puback(self, token: int, reason: int, now: float) -> list[Effect]:
        """Take an acknowledgement. Reasons below 0x80 are deliveries."""
        flight = self._flying.pop(token, None)
        if flight is None:
            return []
        kind, message = flight
        self._in_flight[kind] -= 1
        effects: list[Effect] = []
        if isinstance(message, Message):
            if reason < FAILURE:
                self._settle(effects, message, reason)
            else:
                self._deny(effects, kind, message, reason)
        elif reason < FAILURE:
            self._sent += 1
            self._no_subscribers += reason == NO_SUBSCRIBERS
            self.stream.delivered(message.seq)
            self._held_reason = None
            self._again_s = AGAIN_S
        elif letter := self._refused(message.seq, reason, now):
            effects.append(letter)
        return effects + self._pump(now)

    def tick(self, now: float) -> list[Effect]:
        """Let time pass (1 Hz): expire verdicts, try again what was held back."""
        kept = [verdict for verdict in self._verdicts if not _is_over(verdict, now)]
        self._verdicts_expired += len(self._verdicts) - len(kept)
        self._verdicts = deque(kept)
        return self._pump(now)

    def stats(self) -> OutboxStats:
        """Give the counts."""
        return OutboxStats(
            acked_seq=self.stream.acked_seq,
            last_seq=self.stream.last_seq,
            in_flight=len(self._flying),
            ready_rows=self.stream.ready_rows,
            ready_bytes=self.stream.ready_bytes,
            verdicts_waiting=len(self._verdicts),
            held_reason=self._held_reason,
            refused=self.refused,
            sent=self._sent,
            no_subscribers=self._no_subscribers,
            refusals=self._refusals,
            dead_letters=self.stream.dead_letters,
            lost=self.stream.lost,
            verdicts_expired=self._verdicts_expired,
            verdicts_overflowed=self._verdicts_overflowed,
            verdicts_refused=self._verdicts_refused,
            dropped=self._dropped,
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
            if not self.stream.careful:
                self._send_queue(effects, Kind.REPLAY, self._replays, now)
        if read := self.stream.wanted():
            effects.append(read)
        if (acked_seq := self.stream.acked_seq) > self._told_seq:
            self._told_seq = acked_seq
            effects.append(Ack(acked_seq))
        return effects

    def _send_queue(self, effects: list[Effect], kind: Kind, queue: deque[Message], now: float) -> None:
        while queue and self._has_place(kind):
            self._launch(effects, kind, queue.popleft(), now)

    def _send_results(self, effects: list[Effect], now: float) -> None:
        while now >= self._held_until_s and self._has_place(Kind.RESULT):
            row = self.stream.take(self._payload_limit(self._result_topic))
            if row is None:
                return
            if isinstance(row, DeadLetter):
                effects.append(row)
                return
            effects.append(Send(self._fly(Kind.RESULT, row), self._result_topic, row.payload))

    def _launch(self, effects: list[Effect], kind: Kind, message: Message, now: float) -> None:
        if _is_over(message, now):
            self._verdicts_expired += kind is Kind.VERDICT
            self._settle(effects, message, None)
            return
        if len(message.payload) > self._payload_limit(message.topic, message.correlation):
            self._deny(effects, kind, message, PACKET_TOO_LARGE)
            return
        token = self._fly(kind, message) if message.qos else 0
        expiry_s = None if message.expires_s is None else max(1, int(message.expires_s - now))
        effects.append(
            Send(token, message.topic, message.payload, message.qos, message.retain, expiry_s, message.correlation)
        )
        if not message.qos:
            self._settle(effects, message, 0)

    def _fly(self, kind: Kind, message: Message | Row) -> int:
        self._token += 1
        self._flying[self._token] = (kind, message)
        self._in_flight[kind] += 1
        return self._token

    def _has_place(self, kind: Kind) -> bool:
        """Whether one more of this kind may be in flight: what is more urgent keeps its places."""
        if len(self._flying) >= self._window:
            return False
        less_urgent = sum(self._in_flight[min(kind, Kind.RESULT) :])
        return less_urgent < max(1, self._window - KEPT_FREE[kind])

    def _refused(self, seq: int, reason: int, now: float) -> DeadLetter | None:
        self._refusals += 1
        what = refusal(reason)
        letter = self.stream.refused(seq, what, words(reason))
        if letter is None and what is not Refusal.DEAD:
            self._held_reason = reason
            self._held_until_s = now + (REFUSED_RETRY_S if what is Refusal.STOP else self._again_s)
            self._again_s = min(AGAIN_LIMIT_S, 2 * self._again_s)
            self.stream.careful = max(self.stream.careful, 1)  # one row finds out whether the rest may follow
        return letter

    def _payload_limit(self, topic: str, correlation: bytes | None = None) -> int:
        rest = HEADER_BYTES + len(topic.encode()) + len(correlation or b"")
        return min(PAYLOAD_LIMIT_BYTES, self._packet_limit_bytes - rest)

    def _deny(self, effects: list[Effect], kind: Kind, message: Message, reason: int) -> None:
        self._refusals += 1
        self._verdicts_refused += kind is Kind.VERDICT
        effects.append(Denied(message.topic, reason))
        self._settle(effects, message, reason)

    def _settle(self, effects: list[Effect], message: Message, reason: int | None) -> None:
        if message.retain and not message.payload and self._retained.get(message.topic) is message:
            del self._retained[message.topic]
        if message.ref is not None:
            effects.append(Settled(message.ref, reason))

    def _drop(self, message: Message) -> list[Effect]:
        self._dropped += 1
        return [] if message.ref is None else [Settled(message.ref, None)]


def _is_over(message: Message, now: float) -> bool:
    return message.expires_s is not None and now >= message.expires_s
