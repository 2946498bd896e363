"""Messages between main and a child: JSON over SOCK_SEQPACKET, whole or not at all, never blocking.

A packet socket keeps message borders and order, so a reader never sees half a message of a sender that was stopped
in mid-write, and a gap in the frame numbers that arrive is a proof of loss.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inspectd.errors import WorkerError

MESSAGE_MAX_BYTES = 65_536
MAX_DESCRIPTORS = 2
"""A message carries at most a pool and a ledger, or a pool alone."""

_encode = json.JSONEncoder(separators=(",", ":")).encode
Message = dict[str, Any]
"""`t` is the kind; the other keys depend on it."""


class ChannelClosed(WorkerError):
    """The other end is gone."""


@contextmanager
def understood(who: str) -> Iterator[None]:
    """Around the reading of a message's fields: what does not fit is the sender's fault. Raises WorkerError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise WorkerError(f"{who}: a message that is not understood: {error!r}") from error


class Channel:
    """One end of a packet socket. When the other end does not read, `send` says False; nothing waits here."""

    def __init__(self, sock: socket.socket, *, takes_descriptors: bool = True) -> None:
        """`takes_descriptors` False: main's end. Children have nothing to give; the kernel closes what they try."""
        sock.setblocking(False)
        self._sock = sock
        self._takes_descriptors = takes_descriptors

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Make our end, and the bare socket that a child inherits."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours, takes_descriptors=False), theirs

    def fileno(self) -> int:
        """Descriptor, for poll and the event loop."""
        return self._sock.fileno()

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> bool:
        """Send the whole message, or nothing and return False when the reader is not reading.

        Raises ChannelClosed, and WorkerError for a message over 64 KiB.
        """
        data = _encode(message).encode()
        if len(data) > MESSAGE_MAX_BYTES:
            raise WorkerError(f"message {message.get('t')!r} has {len(data)} bytes (limit {MESSAGE_MAX_BYTES})")
        try:
            if descriptors:
                socket.send_fds(self._sock, [data], list(descriptors))
            else:
                self._sock.send(data)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosed(f"the other end is gone: {error}") from error
        return True

    def send_patiently(self, message: Message, step_s: float) -> None:
        """Send as soon as the reader reads. For a child's worker thread: its wait ends with the process.

        Raises ChannelClosed.
        """
        while not self.send(message):
            self.wait(step_s, writable=True)

    def receive(self) -> tuple[Message, tuple[int, ...]] | None:
        """Take the next message and its descriptors, or None if there is none now.

        Raises ChannelClosed at the end, WorkerError for rubbish.
        """
        descriptors: list[int] = []
        try:
            if self._takes_descriptors:
                data, descriptors, _flags, _address = socket.recv_fds(
                    self._sock, MESSAGE_MAX_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                )
            else:
                data = self._sock.recv(MESSAGE_MAX_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(f"the other end is gone: {error}") from error
        if not data:
            raise ChannelClosed("the other end has closed")
        try:
            message = json.loads(data)
        except ValueError as error:
            raise WorkerError(f"a message is not JSON: {data[:80]!r}") from error
        if not isinstance(message, dict):
            raise WorkerError(f"a message is not an object: {data[:80]!r}")
        return message, tuple(descriptors)

    def expect(self, kind: str, step_s: float) -> tuple[Message, tuple[int, ...]]:
        """Wait for a message of this kind. For children only: main's deadline ends us if it does not come.

        Raises ChannelClosed, also when told to stop.
        """
        while True:
            received = self.receive()
            if received is None:
                self.wait(step_s)
            elif received[0].get("t") == kind:
                return received
            elif received[0].get("t") == "stop":
                raise ChannelClosed("told to stop before there was anything to do")

    def wait(self, timeout_s: float, *, writable: bool = False) -> None:
        """Wait until something can be read (or written), at most `timeout_s`. For children only; main has its loop."""
        poller = select.poll()
        poller.register(self._sock, select.POLLOUT if writable else select.POLLIN)
        poller.poll(timeout_s * 1000)

    def close(self) -> None:
        """Close our end."""
        self._sock.close()
