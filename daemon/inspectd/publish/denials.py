"""On which of our topics the broker takes nothing, until it takes something there again. Pure."""

from __future__ import annotations

from inspectd.publish.reasons import Refusal, refusal

TOPICS_MAX = 100
"""Our own are a few; requesters may make up the rest."""
_ANSWERS = frozenset({"rsp", "replay"})


class Denials:
    """Topics below the base, those of several levels as one: `{base}/alarm/#`."""

    def __init__(self, base: str) -> None:
        self.topics: tuple[str, ...] = ()
        """In the order in which they were denied; another object when it has changed."""
        self._base = f"{base}/"

    def __contains__(self, topic: str) -> bool:
        return bool(self.topics) and self.group(topic) in self.topics

    def group(self, topic: str) -> str:
        """Give the name under which a topic is known here."""
        leaf = topic.removeprefix(self._base)
        first, _, rest = leaf.partition("/")
        return f"{self._base}{first}/#" if rest and leaf != topic else topic

    def began(self) -> None:
        """A connection begins. What is ours goes out again soon; the next answer may never come."""
        answers = {f"{self._base}{first}/#" for first in _ANSWERS}
        self.topics = tuple(topic for topic in self.topics if topic not in answers)

    def denied(self, topic: str, reason: int) -> None:
        """The broker does not take what is published there: an MQTT reason code.

        What it could not take at the moment does not count; nor do topics that are not ours, and of answers only what
        the rights forbid: whoever asks chooses where they go and how large they become.
        """
        group, what = self.group(topic), refusal(reason)
        first = group.removeprefix(self._base).partition("/")[0]
        if not topic.startswith(self._base) or what is Refusal.AGAIN:
            return
        if first in _ANSWERS and what is not Refusal.STOP:
            return
        if group not in self.topics and len(self.topics) < TOPICS_MAX:
            self.topics = (*self.topics, group)

    def accepted(self, topic: str) -> None:
        """The broker has taken something there."""
        if self.topics:
            group = self.group(topic)
            if group in self.topics:
                self.topics = tuple(other for other in self.topics if other != group)
