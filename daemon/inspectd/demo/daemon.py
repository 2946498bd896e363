"""Runs `inspectd run` as a user would, in a session of its own, with its log in a file. Leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_LOG_BYTES_SHOWN = 16_384
_KILL_LIMIT_S = 5.0
_ABOUT_SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class DaemonProcess:
    """Started by `with`, and killed with all its children at its end if it still runs."""

    def __init__(self, configuration: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "inspectd", "run", "-c", str(configuration)]
        self._log = log

    def __enter__(self) -> Self:
        """Start it. A session of its own: a Ctrl-C in the terminal is for the demo, which ends the daemon in order."""
        environment = {name: value for name, value in os.environ.items() if name not in _ABOUT_SYSTEMD}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and our own arguments
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill what is left."""
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_KILL_LIMIT_S)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that killed it."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to end, as systemd would."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)

    def last_lines(self, count: int) -> list[str]:
        """Give the end of its log."""
        data = self._log.read_bytes()[-_LOG_BYTES_SHOWN:]
        return data.decode(errors="replace").splitlines()[-count:]
