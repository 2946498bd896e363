"""What crosses the publisher: messages both ways, the outbox's effects, its statistics. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Row(Protocol):
    """One committed result; its bytes never change."""

    @property
    def seq(self) -> int:
        """Number in the stream, from 1, without gaps."""

    @property
    def payload(self) -> bytes:
        """What goes out."""


class Kind(IntEnum):
    """Of what sort a message is, in the order in which they go."""

    VERDICT = 0
    STATE = 1
    """Retained messages, answers, direct events."""
    RESULT = 2
    REPLAY = 3


KEPT_FREE = {Kind.VERDICT: 0, Kind.STATE: 1, Kind.RESULT: 2, Kind.REPLAY: 2}
"""Places in flight that stay free for what is more urgent."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message that is not a live result."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    expires_s: float | None = None
    """Monotonic time after which it is not sent any more."""
    correlation: bytes | None = None
    ref: int | None = None
    """The sender's number for it, if it wants to hear (`Settled`) what became of it."""

    def is_over(self, now: float) -> bool:
        """Whether its time is over."""
        return self.expires_s is not None and now >= self.expires_s


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message from the broker, as it came: anyone may have written it."""

    topic: str
    payload: bytes
    retain: bool = False
    response_topic: str | None = None
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Give this to the client, now."""

    token: int
    """Comes back with the acknowledgement; 0 for QoS 0."""
    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    expiry_s: int | None = None
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """Everything up to this seq is delivered or put aside: the new high-water mark."""

    seq: int


@dataclass(frozen=True, slots=True)
class Read:
    """Ask the journal for at most `limit` rows of this range, in order; answer with `loaded`."""

    from_seq: int
    to_seq: int
    limit: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Put this row aside; answer with `substituted`."""

    seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a message with a `ref`: an MQTT reason code, or None if it was dropped."""

    ref: int
    reason: int | None


@dataclass(frozen=True, slots=True)
class Denied:
    """The broker does not take what is published on this topic (not a result): an MQTT reason code."""

    topic: str
    reason: int
    why: str = ""
    """More than the code says."""


Effect = Send | Ack | Read | DeadLetter | Settled | Denied


@dataclass(slots=True)
class Counts:
    """What the outbox counts, since start; the first part of its statistics."""

    sent: int = 0
    no_subscribers: int = 0
    refusals: int = 0
    verdicts_expired: int = 0
    verdicts_overflowed: int = 0
    verdicts_refused: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class OutboxStats:
    """Counts since start, and what waits now."""

    acked_seq: int
    last_seq: int
    in_flight: int
    ready_rows: int
    ready_bytes: int
    verdicts_waiting: int
    held_reason: int | None
    """Why results are held back, while they are: an MQTT reason code."""
    refused: bool
    """They are held back because of the broker's rights."""
    sent: int
    """Results that the broker has acknowledged, repeats among them."""
    no_subscribers: int
    refusals: int
    dead_letters: int
    lost: int
    """Unsent rows that the journal no longer had: it was full, and names them itself."""
    verdicts_expired: int
    verdicts_overflowed: int
    verdicts_refused: int
    dropped: int
    """Heartbeats while away, direct messages beyond the queue's bound or too late."""

    @property
    def unsent(self) -> int:
        """Results that are committed and not delivered."""
        return self.last_seq - self.acked_seq

    @property
    def verdicts_lost(self) -> int:
        """Verdicts that nobody got in time, for whatever reason."""
        return self.verdicts_expired + self.verdicts_overflowed + self.verdicts_refused
