"""How we stand with the broker, in words, and how the next try is to be: which version of MQTT, after which pause."""

from __future__ import annotations

import logging
from collections.abc import Callable

from inspectd.backoff import Backoff
from inspectd.errors import OutsideError
from inspectd.publish.broker import BrokerSettings, Ending, Refused, Version
from inspectd.publish.reasons import TAKEN_OVER, UNSUPPORTED_VERSION

BACKOFF = Backoff(first_s=0.2, limit_s=10.0)
STEADY_S = 10.0
"""A connection that lasted so long was a good one: the back-off begins anew, unless another client with our id ended
it. Otherwise the two would throw each other out at full speed."""
ALONE_S = 3 * BACKOFF.limit_s
"""A client that wants our id would have taken it within this time."""
CUT_OFF = 5
"""So many connections in a row that a reachable broker ended soon and without a reason are taken for another client:
mosquitto 2.0.11 does not say so. One message that is too large ends four at most (suspects.py)."""
VERSION_AGAIN_S = 3600.0
"""After this a broker that refused MQTT 5 is asked in it once more, at the next connect: it may have been replaced."""

log = logging.getLogger(__name__)


class Standing:
    """Told of each try and of its end, with the time (monotonic). Waits for nothing."""

    def __init__(self, settings: BrokerSettings, draw: Callable[[], float]) -> None:
        self.last_error = ""
        """Why there is no connection; empty while there is one. The same as long as the reason is the same."""
        self.refusal = ""
        """Why the broker does not let us in; empty unless it has said no to the last try."""
        self.connects = 0
        self.duplicate = False
        """Another client with our id ended the last connection, as it seems, and may come again."""
        self.version: Version = settings.version
        self._settings, self._draw = settings, draw
        self._tried_s = self._connected_s = self._version_refused_s = 0.0
        self._failures = 0
        self._cut_off = 0
        """Connections in a row that the broker ended soon and without a reason."""

    def trying(self, now: float) -> None:
        """A try begins."""
        self._tried_s = now
        if now - self._version_refused_s >= VERSION_AGAIN_S:
            self.version = self._settings.version

    def not_connected(self, fault: OutsideError, now: float) -> None:
        """The try has failed."""
        self._cut_off = 0
        self.refusal = str(fault) if isinstance(fault, Refused) else ""
        if isinstance(fault, Refused) and fault.reason == UNSUPPORTED_VERSION and self.version == 5:
            self.refusal = ""
            self.version, self._version_refused_s = "3.1.1", now
            log.warning(
                "mqtt: %s does not speak MQTT 5; 3.1.1 from here on (and 5 again at a connect in an hour or later), "
                "where verdicts do not expire in the broker and its access list refuses without a word",
                self._settings.address,
            )
        self._note(str(fault))

    def connected(self, now: float) -> None:
        """The broker has welcomed us."""
        settings = self._settings
        self._connected_s = now
        self.connects += 1
        self.last_error = self.refusal = ""
        how = f"MQTT {self.version}{'' if settings.tls is None else ' and TLS'}"
        log.info("mqtt: connected to %s by %s as %s", settings.address, how, settings.client_id)

    def ended(self, ending: Ending, now: float) -> None:
        """The connection is over, and nobody of us wanted that."""
        is_cut_off = ending.by_broker and ending.code is None and now - self._connected_s < ALONE_S
        self._cut_off = self._cut_off + 1 if is_cut_off else 0
        self.duplicate = ending.code == TAKEN_OVER or self._cut_off >= CUT_OFF
        is_odd = ending.by_broker and ending.code is None and now - self._connected_s < STEADY_S
        doubt = f"; perhaps another client has the id {self._settings.client_id}, or something sent is too large"
        self._note(f"mqtt {self._settings.address}: {ending.reason}{doubt if is_odd else ''}")

    def pause_s(self, now: float) -> float:
        """Give how long to wait before the next try."""
        is_steady = now - self._tried_s >= STEADY_S and not self.duplicate
        self._failures = 1 if is_steady else self._failures + 1
        return BACKOFF.delay_s(self._failures, self._draw())

    def is_alone_again(self, now: float) -> bool:
        """Say once, on a connection that stands, that the other client has not come again."""
        if not self.duplicate or now - self._connected_s < ALONE_S:
            return False
        self.duplicate, self._cut_off = False, 0
        return True

    def _note(self, trouble: str) -> None:
        """Say why there is no connection: once, not at every try."""
        if trouble != self.last_error:
            log.warning("%s; trying again", trouble)
        self.last_error = trouble
