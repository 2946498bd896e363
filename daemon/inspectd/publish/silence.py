"""When a connection counts as broken: nothing heard, or no acknowledgement. Pure: told the time, and keeps no clock."""

from __future__ import annotations

from inspectd.publish.broker import Ending

SILENCE = 1.5
"""Times the keepalive: the broker's own measure for us."""


class Silence:
    """What is awaited from the broker. Its words have no changing numbers: they are told once for each reason."""

    def __init__(self, keepalive_s: int, now: float) -> None:
        self.pings_every_s = keepalive_s
        """The broker may have another opinion, and zero is a possible one."""
        self._keepalive_s = keepalive_s
        self._heard_s = now
        self._unacknowledged: dict[int, tuple[int, float]] = {}

    @property
    def period_s(self) -> float:
        """How often to look."""
        return min(1.0, self._keepalive_s / 10)

    def heard(self, now: float) -> None:
        """The broker has said something."""
        self._heard_s = now

    def sent(self, mid: int, token: int, now: float) -> None:
        """A message went out that is to be acknowledged; `mid`: paho's number for it."""
        self._unacknowledged[mid] = token, now

    def acknowledged(self, mid: int) -> int | None:
        """Give the token of a message that is acknowledged; None: it is not known."""
        token, _ = self._unacknowledged.pop(mid, (None, 0.0))
        return token

    def ending(self, now: float) -> Ending | None:
        """Give why the connection is over; None: it is not."""
        limit_s = SILENCE * self._keepalive_s
        oldest_s = next((sent_s for _, sent_s in self._unacknowledged.values()), now)
        silent_s = now - self._heard_s if self.pings_every_s else 0.0  # a broker that wants no pings may be silent
        if silent_s > SILENCE * self.pings_every_s:
            return Ending(f"the broker is silent (limit {SILENCE * self.pings_every_s:.1f} s)")
        if now - oldest_s > limit_s:
            return Ending(f"the broker gives no acknowledgement (limit {limit_s:.1f} s)")
        return None
