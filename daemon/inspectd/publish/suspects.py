"""Finds the message that makes a broker hang up. Pure: no I/O, no clock, no await.

A broker of MQTT 3.1.1 has no way to refuse one message: it ends the connection, and would do so at every try, for ever.
After such an end everything that was under way is a suspect. While there are suspects, messages go one at a time, each
with an acknowledgement, which clears it. One that was alone under way DEADLY_BREAKS times in a row is guilty.
"""

from __future__ import annotations

from collections.abc import Sequence

from inspectd.publish.broker import MOST_BYTES
from inspectd.publish.effects import Message, Row

DEADLY_BREAKS = 3
"""A broker that is killed at such a moment once or twice costs no message."""
FORGIVEN_S = 1800.0
"""So long nothing of the guilty message's size goes to its topic; then one more is tried: brokers are mended, too."""

Key = int | str | tuple[str, bytes]
"""A result by its seq, a retained message and a heartbeat by the topic (a newer one takes its place), any other by what
it says: its sender may send the same again."""


def key_of(message: Message | Row) -> Key:
    """Give what a message is known by, over several connections."""
    if not isinstance(message, Message):
        return message.seq
    return message.topic if message.retain or message.qos == 0 else (message.topic, message.payload)


class Suspects:
    """Who may be guilty, and what was learned of those who were. Bounded by what is in flight and by our own topics."""

    def __init__(self) -> None:
        self._suspects: set[Key] = set()
        self._unproven: dict[str, int] = {}
        """Topics sent to at QoS 0, and the last token before."""
        self._alone: Key | None = None
        self._alone_breaks = 0
        self._limits: dict[str, tuple[int, float]] = {}
        self._began_s = 0.0

    @property
    def careful(self) -> bool:
        """Whether messages go one at a time."""
        return bool(self._suspects)

    def began(self, now: float) -> None:
        """Note the begin of a connection, and forget old limits."""
        self._began_s = now
        self._limits = {topic: limit for topic, limit in self._limits.items() if now - limit[1] < FORGIVEN_S}

    def unproven(self, topic: str, token: int) -> None:
        """Note a message without an acknowledgement of its own, sent after this token."""
        self._unproven[topic] = token

    def answered(self, token: int, key: Key) -> None:
        """Note an acknowledgement of any kind: the broker has read this message and everything before it."""
        if self._unproven:
            self._unproven = {topic: before for topic, before in self._unproven.items() if before >= token}
        self.cleared(key)

    def cleared(self, key: Key) -> None:
        """Note that this message is out of it: acknowledged, or not to be sent any more."""
        if not self._suspects and self._alone is None:
            return
        self._suspects.discard(key)
        if key == self._alone:
            self._alone, self._alone_breaks = None, 0

    def nothing_waits(self) -> None:
        """Note that no suspect is left to be sent. One may come again: what is known of it stays."""
        self._suspects.clear()

    def passed(self, acked_seq: int) -> None:
        """Note that all results up to here are out of it."""
        for key in [key for key in self._suspects if isinstance(key, int) and key <= acked_seq]:
            self.cleared(key)

    def ended(self, flying: Sequence[Key], *, by_broker: bool) -> Key | None:
        """Note the end of a connection, with what was not acknowledged. Gives the guilty one, if that is clear now."""
        unproven, self._unproven = self._unproven, {}
        if not by_broker:
            return None
        if self.careful and len(flying) == 1:
            (key,) = flying
            self._alone_breaks = self._alone_breaks + 1 if key == self._alone else 1
            self._alone = key
            if self._alone_breaks >= DEADLY_BREAKS:
                self._alone, self._alone_breaks = None, 0
                self._suspects.clear()
                return key
        self._suspects.update(unproven, flying)
        return None

    def learn(self, topic: str, size_bytes: int) -> None:
        """Note that a payload of this size on this topic makes the broker hang up."""
        self._limits[topic] = size_bytes - 1, self._began_s

    def forget(self, topic: str) -> None:
        """Note that the size was not to blame."""
        self._limits.pop(topic, None)

    def limit_bytes(self, topic: str) -> int:
        """Give the largest payload that is not known to make the broker hang up."""
        return self._limits[topic][0] if topic in self._limits else MOST_BYTES
