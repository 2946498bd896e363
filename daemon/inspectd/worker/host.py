"""Supervises one child process: start, hello, progress, kill, respawn with back-off, and why it ended in plain words.

The child is executed, never forked from threads: a fresh interpreter that imports only what its kind needs. It is
started from main's main thread, because its parent-death signal follows the thread that started it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from inspectd.backoff import Backoff
from inspectd.errors import WorkerError
from inspectd.health.progress import ProgressPage, Word
from inspectd.worker.channel import Channel, ChannelClosed, Message

log = logging.getLogger(__name__)

REAP_S = 2.0
"""A killed child that has not ended after this is stuck in the kernel: it is left behind and replaced."""
SYSTEMD_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")
MESSAGES_PER_WAKE = 64
"""So that one talkative child does not keep the loop from the others."""
REPAIR_AFTER = 3
"""So many failed starts in a row are told as a repair in progress: whoever waits stops waiting."""


class State(StrEnum):
    """Where a child is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "waiting to restart"


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines of one kind of child, in seconds."""

    hello_s: float = 20.0
    """Imports of the interpreter, on a busy host."""
    ready_s: float = 300.0
    """Opening the camera; compiling for an accelerator takes up to 3 minutes."""
    stall_s: float | None = None
    """Kill when the page shows no progress for so long. None: somebody else judges."""


class Handler(Protocol):
    """Whoever uses the child. All calls come from the event loop."""

    def on_hello(self) -> None:
        """The child listens: send it what it needs."""

    def on_message(self, message: Message) -> None:
        """Any message but hello and failed. `ready` too. May raise WorkerError: the child is replaced."""

    def on_gone(self, reason: str, *, reaped: bool) -> None:
        """The child is gone and everything that it sent was handed over.

        `reaped` False: it could not be killed and may still write to its memory.
        """

    def on_reaped(self) -> None:
        """A child that was given up with `reaped=False` has ended after all."""


class Supervised(Protocol):
    """A host, as the handler of its child uses it."""

    trouble: str
    """Why the last child ended; empty while all is well."""

    @property
    def in_repair(self) -> bool:
        """Whether several starts failed in a row, or the child itself told why it cannot start."""

    def start(self) -> None:
        """Want a child, from now on."""

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> bool:
        """Send to the child; False if it is gone or being replaced."""

    def offer(self, message: Message) -> bool:
        """Send if the child reads just now."""

    def ready(self) -> None:
        """The handler has admitted the child."""

    def kill(self, reason: str) -> None:
        """End the child now; it is replaced."""

    async def stop(self, grace_s: float) -> None:
        """End the child for good."""


class Timer(Protocol):
    """What `call_later` gives."""

    def cancel(self) -> None:
        """Do not call."""


Later = Callable[[float, Callable[[], None]], Timer]
"""The event loop's call_later, or a test's."""
MakeHost = Callable[[Handler], Supervised]


class Host:
    """One child at a time, replaced for as long as it is wanted."""

    def __init__(self, kind: str, name: str, handler: Handler, limits: Limits, backoff: Backoff) -> None:
        self.kind, self.name = kind, name
        self.state = State.STOPPED
        self.starts = 0
        self.failures = 0
        """Failed starts since the last time it was ready."""
        self.trouble = ""
        """Why the last child ended; empty while all is well."""
        self._handler, self._limits, self._backoff = handler, limits, backoff
        self._loop = asyncio.get_running_loop()
        self._wanted = False
        self._timer: asyncio.TimerHandle | None = None
        self._reap_timer: asyncio.TimerHandle | None = None
        self._child: _Child | None = None
        self._reason = ""
        self._stopped = asyncio.Event()
        self._stopped.set()

    @property
    def label(self) -> str:
        """As people see it in ps and in the log."""
        return f"{self.kind} {self.name}"

    @property
    def in_repair(self) -> bool:
        """Whether several starts failed in a row: it goes on trying, but nobody should wait for it."""
        return self.failures >= REPAIR_AFTER

    @property
    def pid(self) -> int | None:
        """Process id of the living child."""
        return self._child.process.pid if self._child else None

    def start(self) -> None:
        """Want a child, from now on."""
        self._wanted = True
        self._stopped.clear()
        self._spawn()

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> bool:
        """Send to the child. False if there is none or it does not read: it is then being replaced."""
        if self._child is None:
            return False
        try:
            sent = self._child.channel.send(message, descriptors)
        except ChannelClosed:
            return False  # its pidfd tells the rest
        if not sent:
            self.kill("does not read its messages")
        return sent

    def offer(self, message: Message) -> bool:
        """Send if the child reads just now; a full channel is no reason to kill (the caller asks again)."""
        try:
            return self._child is not None and self._child.channel.send(message)
        except ChannelClosed:
            return False

    def ready(self) -> None:
        """The handler has admitted the child."""
        self.state = State.READY
        if self.trouble:
            log.info("%s: works again (pid %s)", self.label, self.pid)
        self.failures, self.trouble = 0, ""
        self._after(self._limits.stall_s, self._check_progress)

    def kill(self, reason: str) -> None:
        """End the child now; it is replaced if still wanted."""
        if self._child is None or self._reap_timer is not None:
            return
        self._reason = self._reason or reason
        self._child.signal(signal.SIGKILL)
        self._reap_timer = self._loop.call_later(REAP_S, self._abandon)

    async def stop(self, grace_s: float) -> None:
        """Ask the child to end, kill it after `grace_s`, and wait until it is gone (or stuck)."""
        self._wanted = False
        self._cancel_timer()
        if self._child is None:
            self._set_stopped()
            return
        self._reason = self._reason or "stopped"
        if self.offer({"t": "stop"}):
            self._timer = self._loop.call_later(grace_s, self.kill, "did not stop when asked")
        else:
            self.kill("did not read the order to stop")
        await self._stopped.wait()

    def _spawn(self) -> None:
        self._timer = None
        self.starts += 1
        self._reason = ""
        try:
            self._child = _Child.spawn(self.kind, self.name)
        except OSError as error:
            self.failures += 1
            self.trouble = f"cannot be started: {error}"
            log.error("%s: %s", self.label, self.trouble)
            self._respawn_later()
            return
        self.state = State.STARTING
        self._loop.add_reader(self._child.channel.fileno(), self._readable)
        self._loop.add_reader(self._child.pidfd, self._ended)
        self._after(self._limits.hello_s, self.kill, f"no hello within {self._limits.hello_s:g} s")

    def _after(self, delay_s: float | None, call: Callable[..., None], *args: object) -> None:
        self._cancel_timer()
        if delay_s is not None:
            self._timer = self._loop.call_later(delay_s, call, *args)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _readable(self) -> None:
        child = self._child
        if child is None:
            return
        try:
            for _ in range(MESSAGES_PER_WAKE):
                received = child.channel.receive()
                if received is None:
                    return
                self._dispatch(*received)
        except ChannelClosed:
            self._loop.remove_reader(child.channel.fileno())  # its pidfd tells the rest
        except WorkerError as error:
            log.error("%s: %s", self.label, error)
            self.kill(str(error))

    def _dispatch(self, message: Message, descriptors: tuple[int, ...]) -> None:
        for descriptor in descriptors:  # children have nothing to give
            os.close(descriptor)
        kind = message.get("t")
        if kind == "hello":
            self._after(self._limits.ready_s, self.kill, f"not ready within {self._limits.ready_s:g} s")
            self._handler.on_hello()
        elif kind == "failed":
            self._reason = str(message.get("reason"))
            self.failures = max(self.failures, REPAIR_AFTER)  # it knows why: nobody need wait for a third try
        else:
            self._handler.on_message(message)

    def _ended(self) -> None:
        child = self._child
        if child is None:
            return
        self._drain(child)
        code = child.process.wait()
        self._forget(child, self._reason or _in_words(code), reaped=True)

    def _drain(self, child: _Child) -> None:
        """What a dead child had sent still counts."""
        try:
            while (received := child.channel.receive()) is not None:
                self._dispatch(*received)
        except WorkerError as error:
            log.debug("%s: end of its messages: %s", self.label, error)

    def _abandon(self) -> None:
        """A killed child that the kernel does not let go: never waited for, watched until it ends."""
        child = self._child
        if child is None:
            return
        self._drain(child)
        reason = f"{self._reason}; killed, but did not end within {REAP_S:g} s (stuck in a driver or frozen)"
        self._forget(child, reason, reaped=False)
        self._loop.add_reader(child.pidfd, self._ended_late, child)

    def _ended_late(self, child: _Child) -> None:
        self._loop.remove_reader(child.pidfd)
        child.process.wait()
        os.close(child.pidfd)
        log.info("%s: the stuck process %d has ended", self.label, child.process.pid)
        self._handler.on_reaped()

    def _forget(self, child: _Child, reason: str, *, reaped: bool) -> None:
        self._cancel_timer()
        if self._reap_timer is not None:
            self._reap_timer.cancel()
            self._reap_timer = None
        self._loop.remove_reader(child.channel.fileno())
        self._loop.remove_reader(child.pidfd)
        child.close(keep_pidfd=not reaped)
        self._child = None
        if self._wanted:
            self.failures += 1
            self.trouble = reason
            log.warning("%s: process %d ended: %s", self.label, child.process.pid, reason)
        self._handler.on_gone(reason, reaped=reaped)
        if self._wanted:
            self._respawn_later()
        else:
            self._set_stopped()

    def _respawn_later(self) -> None:
        self.state = State.BACKOFF
        self._timer = self._loop.call_later(self._backoff.delay_s(self.failures, random.random()), self._spawn)

    def _set_stopped(self) -> None:
        self.state = State.STOPPED
        self._stopped.set()

    def _check_progress(self) -> None:
        child, stall_s = self._child, self._limits.stall_s
        if child is None or stall_s is None:
            return
        turns = child.progress[Word.TURNS]
        if turns == child.last_turns:
            self.kill(f"made no progress for {stall_s:g} s")
            return
        child.last_turns = turns
        self._timer = self._loop.call_later(stall_s, self._check_progress)


class _Child:
    """The living process and what belongs to it."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, progress: ProgressPage) -> None:
        self.process, self.channel, self.progress = process, channel, progress
        self.pidfd = os.pidfd_open(process.pid)
        self.last_turns = -1

    @classmethod
    def spawn(cls, kind: str, name: str) -> _Child:
        """Execute the child. Raises OSError."""
        progress, page = ProgressPage.create(name)
        channel, theirs = Channel.pair()
        environment = {key: value for key, value in os.environ.items() if key not in SYSTEMD_VARIABLES}
        command = [sys.executable, "-m", "inspectd.worker.child", kind, name]
        command += [str(theirs.fileno()), str(page), str(os.getpid())]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), page), env=environment
            )
            return cls(process, channel, progress)
        except OSError:
            channel.close()
            progress.close()
            raise
        finally:
            theirs.close()
            os.close(page)

    def signal(self, number: signal.Signals) -> None:
        """Signal exactly this process, however pids are reused."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            log.debug("process %d has ended already", self.process.pid)

    def close(self, *, keep_pidfd: bool) -> None:
        """Let go of everything that the process had."""
        self.channel.close()
        self.progress.close()
        if not keep_pidfd:
            os.close(self.pidfd)


def _in_words(code: int) -> str:
    """Exit status of a child, for people."""
    if code >= 0:
        return f"ended by itself with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = {
        "SIGKILL": " (by the out-of-memory killer, or by hand)",
        "SIGSEGV": " (native code crashed)",
        "SIGABRT": " (native code gave up)",
        "SIGBUS": " (shared memory was lost)",
        "SIGILL": " (native code needs another processor)",
    }.get(name, "")
    return f"was ended by {name}{hint}"
