"""What is under way: a token for each message until its acknowledgement, and ten places for all of them. Pure."""

from __future__ import annotations

from inspectd.publish.effects import KEPT_FREE, Kind, Message, Row

MAX_IN_FLIGHT = 10
"""The contract's own number."""


class Flight:
    """The messages of one connection that are not acknowledged, in the order in which they were sent."""

    def __init__(self) -> None:
        self.token = 0
        """The last one given; none is given twice, so that an old connection's mean nothing to a new one."""
        self._window = MAX_IN_FLIGHT
        self._flying: dict[int, tuple[Kind, Message | Row]] = {}
        self._of_kind = [0] * len(Kind)

    def __len__(self) -> int:
        return len(self._flying)

    def began(self, window: int) -> None:
        """Begin a connection to a broker that takes so many at once."""
        self._window = max(1, min(MAX_IN_FLIGHT, window))

    def has_place(self, kind: Kind) -> bool:
        """Whether one more of this kind may be in flight: what is more urgent keeps its places."""
        if len(self._flying) >= self._window:
            return False
        less_urgent = sum(self._of_kind[min(kind, Kind.RESULT) :])
        return less_urgent < max(1, self._window - KEPT_FREE[kind])

    def launch(self, kind: Kind, message: Message | Row) -> int:
        """Note a message that is being sent; gives its token."""
        self.token += 1
        self._flying[self.token] = (kind, message)
        self._of_kind[kind] += 1
        return self.token

    def land(self, token: int) -> tuple[Kind, Message | Row] | None:
        """Take out what was acknowledged; None: it is not of this connection."""
        flown = self._flying.pop(token, None)
        if flown is not None:
            self._of_kind[flown[0]] -= 1
        return flown

    def ended(self) -> list[tuple[Kind, Message | Row]]:
        """End the connection; gives what was not acknowledged."""
        flying = list(self._flying.values())
        self._flying.clear()
        self._of_kind = [0] * len(Kind)
        return flying
