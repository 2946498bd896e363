"""One executed child: its process, its end of the channel, its progress page, and its exit status in plain words."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys

from inspectd.health.progress import ProgressPage
from inspectd.worker.channel import Channel

log = logging.getLogger(__name__)

SYSTEMD_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")
_HINTS = {
    "SIGKILL": " (by the out-of-memory killer, or by hand)",
    "SIGSEGV": " (native code crashed)",
    "SIGABRT": " (native code gave up)",
    "SIGBUS": " (shared memory was lost)",
    "SIGILL": " (native code needs another processor)",
}


class ChildProcess:
    """The living process and what belongs to it."""

    def __init__(self, process: subprocess.Popen[bytes], pidfd: int, channel: Channel, progress: ProgressPage) -> None:
        self.process, self.pidfd, self.channel, self.progress = process, pidfd, channel, progress

    @classmethod
    def spawn(cls, kind: str, name: str) -> ChildProcess:
        """Execute a fresh interpreter. Raises OSError, and leaves nothing behind then."""
        environment = {key: value for key, value in os.environ.items() if key not in SYSTEMD_VARIABLES}
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as handed_over:
            progress, page = ProgressPage.create(name)
            undo.callback(progress.close)
            handed_over.callback(os.close, page)
            channel, theirs = Channel.pair()
            undo.callback(channel.close)
            handed_over.callback(theirs.close)
            # -P: nothing is imported from the folder that somebody happens to stand in.
            command = [sys.executable, "-P", "-m", "inspectd.worker.child", kind, name]
            command += [str(theirs.fileno()), str(page), str(os.getpid())]
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), page), env=environment
            )
            undo.callback(process.wait)
            undo.callback(process.kill)
            child = cls(process, os.pidfd_open(process.pid), channel, progress)
            undo.pop_all()
            return child

    def signal(self, number: signal.Signals) -> None:
        """Signal exactly this process, however pids are reused."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            log.debug("process %d has ended already", self.process.pid)

    def close(self) -> None:
        """Let go of channel and page. The pidfd stays until `reap`."""
        self.channel.close()
        self.progress.close()

    def reap(self) -> str:
        """Take the exit status of the ended process, in words."""
        os.close(self.pidfd)
        return in_words(self.process.wait())


def in_words(code: int) -> str:
    """Exit status of a child, for people."""
    if code >= 0:
        return f"ended by itself with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}{_HINTS.get(name, '')}"
