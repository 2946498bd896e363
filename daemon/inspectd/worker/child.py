"""A child's main: tie our life to main's, take the inherited descriptors, run what this kind of child does.

Called as `python -m inspectd.worker.child KIND NAME CHANNEL PROGRESS PARENT` by worker.host only.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys

from setproctitle import setproctitle

from inspectd.errors import DeviceError, DeviceRefused, ModelRefused, OutOfMemory, OutsideError
from inspectd.health.progress import ProgressPage
from inspectd.log import configure
from inspectd.worker.channel import Channel, ChannelClosed, Message
from inspectd.worker.ports import FailureKind

PR_SET_PDEATHSIG = 1
REASON_MAX = 2000
"""Characters: a reason is read by people, and has to fit into a message."""
EXIT_OUTSIDE = 69

log = logging.getLogger(__name__)


def _die_with(parent: int) -> None:
    """Be killed when main ends. Compared afterwards: main may have ended before we asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(0)


def _run(kind: str, name: str, channel: Channel, progress: ProgressPage) -> None:
    """Each kind imports only what it needs."""
    if kind == "camera":
        from inspectd.camera.child import run_camera

        run_camera(name, channel, progress)
    else:
        from inspectd.engine.child import run_model

        run_model(name, channel, progress)


def _kind(error: OutsideError | DeviceError) -> Message:
    """Give the fields of `failed` that say what may mend it."""
    if isinstance(error, OutOfMemory):
        return {"kind": FailureKind.MEMORY, "requests": error.requests}
    if isinstance(error, ModelRefused) and not isinstance(error, DeviceRefused):
        return {"kind": FailureKind.REFUSED}
    return {}


def main(arguments: list[str]) -> int:
    """Run one child until main says stop or is gone; returns the exit status."""
    kind, name = arguments[0], arguments[1]
    channel_descriptor, progress_descriptor, parent = map(int, arguments[2:5])
    _die_with(parent)
    # A terminal's Ctrl-C and systemd's stop reach the whole group: main alone decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    setproctitle(f"inspectd: {kind} {name}")
    configure()
    channel = Channel(socket.socket(fileno=channel_descriptor))
    progress = ProgressPage(progress_descriptor)
    os.close(progress_descriptor)
    try:
        _run(kind, name, channel, progress)
    except ChannelClosed:
        return 0  # main is gone or has let go of us
    except (OutsideError, DeviceError) as error:
        channel.send({"t": "failed", "reason": str(error)[:REASON_MAX], **_kind(error)})
        return EXIT_OUTSIDE
    except Exception as error:
        log.exception("%s %s: ended by an error of its own", kind, name)
        channel.send({"t": "failed", "reason": f"{type(error).__name__}: {error}"[:REASON_MAX]})
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
