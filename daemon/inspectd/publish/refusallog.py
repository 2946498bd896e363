"""Says in the log what the broker refuses, and what it takes again: each once, not each time."""

from __future__ import annotations

import logging

from inspectd.publish.denials import TOPICS_MAX
from inspectd.publish.effects import Denied
from inspectd.publish.outbox import Outbox
from inspectd.publish.reasons import words

log = logging.getLogger(__name__)


class RefusalLog:
    """Looks at the outbox of one publisher."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._refused, self._denied = outbox.refused, outbox.denied
        """As of the last look."""
        self._told: set[str] = set()

    def began(self) -> None:
        """A connection begins: what it refuses is told anew."""
        self._told.clear()

    def denied(self, effect: Denied) -> None:
        """Tell of a message that the broker does not take."""
        topic = self._outbox.denial_of(effect.topic)
        if topic not in self._told and len(self._told) < TOPICS_MAX:
            self._told.add(topic)
            log.warning("mqtt: nothing can be published on %s: %s", topic, effect.why or words(effect.reason))

    def look(self, why: str) -> bool:
        """Give whether something has changed since the last look. `why`: if results are held back since."""
        refused, denied = self._outbox.refused, self._outbox.denied
        if refused == self._refused and denied is self._denied:
            return False
        if refused != self._refused:
            log.warning("mqtt: %s", f"{why}; results are held back" if refused else "results are allowed again")
        for topic in self._denied:
            if topic not in denied:
                self._told.discard(topic)
                log.info("mqtt: %s is taken again", topic)
        self._refused, self._denied = refused, denied
        return True
