"""Live results and the broker: which may go now, and what an answer, a refusal or a hang-up does to them. Pure."""

from __future__ import annotations

from inspectd.publish.effects import Counts, DeadLetter, Row
from inspectd.publish.hold import Hold
from inspectd.publish.reasons import NO_SUBSCRIBERS, Refusal, refusal, words
from inspectd.publish.stream import ResultStream
from inspectd.publish.suspects import Suspects


class Results:
    """The stream of results, held back while the broker takes none."""

    def __init__(self, topic: str, stream: ResultStream, suspects: Suspects, counts: Counts) -> None:
        self.topic = topic
        self.stream = stream
        self.hold = Hold()
        self._suspects, self._counts = suspects, counts
        self._largest_bytes = 0
        """Of those that the broker took since one made it hang up."""

    def take(self, limit_bytes: int, now: float) -> Row | DeadLetter | None:
        """Give the next one, or what is to be put aside before it; None: nothing may go now."""
        return None if self.hold.is_on(now) else self.stream.take(limit_bytes)

    def delivered(self, row: Row, reason: int) -> None:
        """The broker took it: an MQTT reason code below 0x80."""
        self._counts.sent += 1
        self._largest_bytes = max(self._largest_bytes, len(row.payload))
        self._counts.no_subscribers += reason == NO_SUBSCRIBERS
        self.stream.delivered(row.seq)
        self.hold.delivered()

    def refused(self, row: Row, reason: int, now: float) -> DeadLetter | None:
        """The broker refused it. Gives whether it is to be put aside; else it goes again."""
        self._counts.refusals += 1
        what = refusal(reason)
        letter = self.stream.refused(row.seq, what, words(reason))
        if letter is None and what is not Refusal.DEAD:
            self.hold.refused(reason, now)
            self.stream.careful = max(self.stream.careful, 1)  # one row finds out whether the rest may follow
        return letter

    def condemned(self, row: Row, why: str) -> DeadLetter | None:
        """It makes the broker hang up: put it aside, and learn from it."""
        self.stream.careful = max(self.stream.careful, 1)  # nothing is put aside for its size before this one is out
        if self.stream.is_substitute(row.seq):
            self._suspects.forget(self.topic)
            self.hold.hung_up()
            return None
        if len(row.payload) > self._largest_bytes:
            self._suspects.learn(self.topic, len(row.payload))
        self._largest_bytes = 0
        return self.stream.condemned(row.seq, why)
