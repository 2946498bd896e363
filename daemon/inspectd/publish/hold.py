"""When results are held back, because the broker does not take them, and until when. Pure."""

from __future__ import annotations

from inspectd.publish.reasons import NOT_AUTHORISED, Refusal, refusal

REFUSED_RETRY_S = 30.0
AGAIN_S = 1.0
AGAIN_LIMIT_S = 30.0


class Hold:
    """The hold of the moment, if there is one. It ends with a delivery, and for one try with time or a connection."""

    def __init__(self) -> None:
        self.reason: int | None = None
        """An MQTT reason code."""
        self._until_s = 0.0
        self._again_s = AGAIN_S
        self._hangs_up = False
        """The broker ends the connection at any result: a new connection changes nothing."""

    @property
    def is_refusal(self) -> bool:
        """Whether it is because of the broker's rights."""
        return self.reason is not None and refusal(self.reason) is Refusal.STOP

    def is_on(self, now: float) -> bool:
        """Whether nothing may be tried now."""
        return now < self._until_s

    def began(self, now: float) -> None:
        """A connection begins."""
        self._until_s = now + REFUSED_RETRY_S if self._hangs_up else 0.0

    def delivered(self) -> None:
        """The broker took a result."""
        self.reason, self._hangs_up, self._again_s = None, False, AGAIN_S

    def refused(self, reason: int, now: float) -> None:
        """The broker took none, and said why."""
        self.reason = reason
        self._until_s = now + (REFUSED_RETRY_S if self.is_refusal else self._again_s)
        self._again_s = min(AGAIN_LIMIT_S, 2 * self._again_s)

    def hung_up(self) -> None:
        """The broker ended the connection at the smallest result that there is: it wants none of them."""
        self.reason, self._hangs_up = NOT_AUTHORISED, True
