"""Talks to systemd: READY, STATUS, WATCHDOG, STOPPING, time limits. Without systemd it only keeps quiet."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from sdnotify import SystemdNotifier

log = logging.getLogger(__name__)


class Notifier:
    """Main's line to systemd. Never blocks: a full or missing socket is logged once, not waited for."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._notifier = _connect() if "NOTIFY_SOCKET" in environment else None
        self._failing = False
        self._status = ""
        own = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if own and usec.isdigit() else None
        """systemd kills us when it hears nothing for so long; None: nobody watches."""

    def ready(self) -> None:
        """Start-up is over."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`, sent when it changes."""
        text = " ".join(text.split())  # a second line would be another field to systemd
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """A planned end has begun."""
        self._send("STOPPING=1")

    def feed_watchdog(self) -> None:
        """All that has work finishes some."""
        self._send("WATCHDOG=1")

    def lengthen_watchdog(self, limit_s: float) -> None:
        """Be killed after so long from now on; only after `ready`, for systemd begins to watch at once."""
        self.watchdog_s = limit_s
        self._send(f"WATCHDOG_USEC={limit_s * 1e6:.0f}")

    def extend_timeout(self, by_s: float) -> None:
        """A start that takes long works on: it gets so much more time from now, if its own limit is sooner."""
        self._send(f"EXTEND_TIMEOUT_USEC={by_s * 1e6:.0f}")

    def trigger_watchdog(self) -> None:
        """Ask to be killed and started again, as if the watchdog's time were over."""
        self._send("WATCHDOG=trigger")

    def _send(self, state: str) -> None:
        if self._notifier is None:
            return
        try:
            # sdnotify encodes as Latin-1; systemd reads UTF-8.
            self._notifier.notify(state.encode().decode("latin-1"))
        except OSError as error:
            if not self._failing:
                log.warning("systemd does not take notifications: %s", error)
            self._failing = True
        else:
            self._failing = False


def _connect() -> SystemdNotifier | None:
    try:
        notifier = SystemdNotifier(debug=True)
    except OSError as error:
        log.warning("NOTIFY_SOCKET is set, but there is no systemd behind it: %s", error)
        return None
    notifier.socket.setblocking(False)
    return notifier
