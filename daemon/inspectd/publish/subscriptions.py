"""Which topics we listen to: all commands by one wildcard, or each by its own name where that is refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from inspectd.publish.reasons import FAILURE


class Subscriptions:
    """The answers of one connection. Some brokers allow single topics and no wildcard: mosquitto's dynamic security."""

    def __init__(self, wildcard: str, commands: Sequence[str], others: Sequence[str]) -> None:
        self._wildcard = wildcard
        self._commands = tuple(commands)
        self._others = tuple(others)
        self._granted: dict[str, bool] = {}

    @property
    def listening(self) -> bool:
        """Whether some command can arrive."""
        return any(self._granted.get(topic, False) for topic in (self._wildcard, *self._commands))

    @property
    def deaf(self) -> tuple[str, ...]:
        """What the broker does not let us hear."""
        return tuple(topic for topic, granted in self._granted.items() if not granted)

    def began(self) -> tuple[str, ...]:
        """Begin a connection; gives what to subscribe to."""
        self._granted.clear()
        return (self._wildcard, *self._others)

    def answered(self, topic: str, reason: int) -> tuple[str, ...]:
        """Take the broker's answer; gives what to subscribe to instead."""
        if topic == self._wildcard and reason >= FAILURE:
            return self._commands
        self._granted[topic] = reason < FAILURE
        return ()

    def ended(self) -> None:
        """Forget the connection."""
        self._granted.clear()
