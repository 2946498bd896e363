"""Our retained messages: the latest of each topic, and which of them the connection of the moment still has to get."""

from __future__ import annotations

from inspectd.publish.effects import Message
from inspectd.publish.reasons import FAILURE, Refusal, refusal

DENIED_RETRY_S = 30.0
"""An access list may be mended while the connection stands: then what is retained must not wait for its next change."""


class Retained:
    """Bounded by our own topics. An empty message takes its topic away, and is forgotten when that is done."""

    def __init__(self) -> None:
        self._latest: dict[str, Message] = {}
        self._unsent: dict[str, None] = {}
        self._denied: dict[str, float | None] = {}
        """Those that may pass another time, and when that is tried; None: not settled yet."""

    def put(self, message: Message) -> None:
        """Take a newer message of a topic."""
        self._latest[message.topic] = message
        self._unsent[message.topic] = None

    def began(self) -> None:
        """A connection begins: everything goes out again."""
        self._unsent = dict.fromkeys(self._latest)
        self._denied.clear()

    @property
    def waits(self) -> bool:
        """Whether some are to be sent."""
        return bool(self._unsent)

    def take(self) -> Message:
        """Give the next one to send; there must be one."""
        topic = next(iter(self._unsent))
        del self._unsent[topic]
        return self._latest[topic]

    def settled(self, message: Message, reason: int | None) -> None:
        """Take what became of one: an MQTT reason code; None: its time was over."""
        self._denied.pop(message.topic, None)
        if self._latest.get(message.topic) is not message:
            return
        what = None if reason is None or reason < FAILURE else refusal(reason)
        if not message.payload and what is not Refusal.STOP:
            del self._latest[message.topic]
        elif what is not None and what is not Refusal.DEAD:
            self._denied[message.topic] = None

    def tick(self, now: float) -> None:
        """Let time pass: what was refused is to be sent again."""
        for topic, due_s in list(self._denied.items()):
            if due_s is None:
                self._denied[topic] = now + DENIED_RETRY_S
            elif now >= due_s:
                del self._denied[topic]
                self._unsent[topic] = None
