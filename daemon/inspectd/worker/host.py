"""Supervises one child process: start, hello, progress, kill, respawn with back-off, and why it ended in plain words.

The child is executed, never forked from threads: a fresh interpreter that imports only what its kind needs. It is
started from main's main thread, because its parent-death signal follows the thread that started it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from inspectd.backoff import Backoff
from inspectd.errors import WorkerError
from inspectd.health.progress import Word
from inspectd.worker.channel import Channel, ChannelClosed, Message, understood
from inspectd.worker.ports import Handler, Told
from inspectd.worker.process import ChildProcess

log = logging.getLogger(__name__)

REAP_S = 2.0
"""A killed child that has not ended after this is stuck in the kernel: it is left behind and replaced."""
STEADY_S = 10.0
"""A child that lived so long after its admission was a good one: its end is the first failure again."""
REPAIR_AFTER = 3
"""So many failures in a row are told as a repair in progress: whoever waits stops waiting."""
HELLO_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines of one kind of child, in seconds."""

    hello_s: float = 20.0
    """Imports of the interpreter, on a busy host; longer after each failure, for a host that is busier than that."""
    ready_s: float = 300.0
    """Opening the camera; compiling for an accelerator takes up to 3 minutes."""
    warm_up_s: float = 60.0
    """Of a compiled model: a few inferences. One that hangs there is not waited for as for a compile."""
    stall_s: float | None = None
    """Kill when the page shows no progress for so long. None: somebody else judges."""


class Host:
    """One child at a time, replaced for as long as it is wanted."""

    def __init__(self, kind: str, name: str, handler: Handler, limits: Limits, backoff: Backoff) -> None:
        self.kind, self.name = kind, name
        self.failures = 0
        """Ends in a row of children that had not lived long."""
        self.trouble = ""
        self.told: Told | None = None
        """What the last child said of its own end; None: nothing."""
        self.replaces = True
        """Whether a child that ends is followed by another."""
        self._has_told = False
        """Whether a child has said why it cannot work, since the last one that could."""
        self._handler, self._limits, self._backoff = handler, limits, backoff
        self._loop = asyncio.get_running_loop()
        self._stuck: set[int] = set()
        self._wanted = False
        self._life = 0
        self._child: ChildProcess | None = None
        self._ready_s: float | None = None
        self._reason = ""
        self._killing = False
        self._planned = False
        """The end of this child was asked for, to have a fresh one."""
        self._turns = -1
        self._timer: asyncio.TimerHandle | None = None
        """The next step of the living child, or the next start."""
        self._end_timer: asyncio.TimerHandle | None = None
        """The next step of an end that was asked for."""
        self._stopped = asyncio.Event()
        self._stopped.set()

    @property
    def label(self) -> str:
        """As people see it in ps and in the log."""
        return f"{self.kind} {self.name}"

    @property
    def stuck(self) -> tuple[int, ...]:
        """Killed children that the kernel has not let go yet."""
        return tuple(sorted(self._stuck))

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        return None if self._child is None else self._child.process.pid

    @property
    def in_repair(self) -> bool:
        """Whether it goes on trying, but nobody should wait for it: a child that knows why will not mend at once."""
        return self._has_told or self.failures >= REPAIR_AFTER

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
        if self._child is None:
            return
        if self.trouble:
            log.info("%s: works again (process %d)", self.label, self._child.process.pid)
        self.trouble, self._has_told = "", False
        self._ready_s = self._loop.time()
        self._step_after(self._limits.stall_s, self._check_progress)

    def kill(self, reason: str) -> None:
        """End the child now; it is replaced if still wanted."""
        if self._child is None or self._killing:
            return
        self._killing = True
        self._reason = self._reason or reason
        self._child.signal(signal.SIGKILL)
        self._end_after(REAP_S, self._abandon)

    def recycle(self, grace_s: float) -> None:
        """Ask the child to end, kill it after `grace_s`; the next one starts at once, and no failure is counted."""
        if self._child is not None and not self._killing:
            self._planned = True
            self._cancel(self._timer)
            self._ask_to_end(grace_s)

    def dismiss(self, grace_s: float) -> None:
        """Ask the child to end for good, kill it after `grace_s`. Does not wait for its end."""
        self._wanted = False
        self._cancel(self._timer)
        if self._child is None:
            self._stopped.set()
        else:
            self._ask_to_end(grace_s)

    async def stop(self, grace_s: float) -> None:
        """Dismiss the child, and wait until it is gone (or stuck)."""
        self.dismiss(grace_s)
        await self._stopped.wait()

    def _ask_to_end(self, grace_s: float) -> None:
        if not self._killing and self.offer({"t": "stop"}):
            self._end_after(grace_s, self.kill, "did not stop when asked")
        else:
            self.kill("did not read the order to stop")

    def _spawn(self) -> None:
        self._life += 1
        self._reason, self._killing, self._ready_s, self._turns = "", False, None, -1
        self.told, self._planned = None, False
        try:
            self._child = ChildProcess.spawn(self.kind, self.name)
        except OSError as error:
            self._failed(f"cannot be started: {error}")
            self._handler.on_gone(self.trouble, life=self._life, reaped=True)
            self._after_the_end()
            return
        self._loop.add_reader(self._child.channel.fileno(), self._readable, self._child.channel)
        self._loop.add_reader(self._child.pidfd, self._ended)
        limit_s = min(HELLO_LIMIT_S, self._limits.hello_s * (1 + self.failures))
        self._step_after(limit_s, self.kill, f"no hello within {limit_s:g} s")

    def _readable(self, channel: Channel) -> None:
        """One message a turn of the loop: no talkative child keeps it from the others.

        A child that is being killed is heard once more at its end.
        """
        try:
            received = None if self._killing else channel.receive()
            if received is not None:
                self._dispatch(received[0])
        except ChannelClosed:
            self._loop.remove_reader(channel.fileno())  # its pidfd tells the rest
        except WorkerError as error:
            log.error("%s: %s", self.label, error)
            self.kill(str(error))

    def _dispatch(self, message: Message) -> None:
        kind = message.get("t")
        if kind == "hello":
            self._step_after(self._limits.ready_s, self.kill, f"not ready within {self._limits.ready_s:g} s")
            self._handler.on_hello()
        elif kind == "step":
            is_compiled = message.get("step") == "warmingUp"
            limit_s = self._limits.warm_up_s if is_compiled else self._limits.ready_s
            what = "its warm-up did not end" if is_compiled else "not ready"
            self._step_after(limit_s, self.kill, f"{what} within {limit_s:g} s")
        elif kind == "failed":
            with understood(self.label):
                self.told = Told.of(message)
            self._reason, self._has_told = self.told.reason, True
        else:
            self._handler.on_message(message)

    def _ended(self) -> None:
        child = self._leave()
        if child is not None:
            told = child.reap()
            self._gone(child, self._reason or told, reaped=True)

    def _abandon(self) -> None:
        """A killed child that the kernel does not let go: never waited for, watched until it ends."""
        child = self._leave()
        if child is not None:
            reason = f"{self._reason}; killed, but did not end within {REAP_S:g} s (stuck in a driver or frozen)"
            self._stuck.add(child.process.pid)
            self._loop.add_reader(child.pidfd, self._ended_late, child, self._life)
            self._gone(child, reason, reaped=False)

    def _leave(self) -> ChildProcess | None:
        """Take what the dead child had still sent, and stop listening to it."""
        child, told = self._child, self._reason
        if child is None:
            return None
        self._cancel(self._timer)
        self._cancel(self._end_timer)
        self._loop.remove_reader(child.channel.fileno())
        self._loop.remove_reader(child.pidfd)
        self._handler.on_ending()
        try:
            while (received := child.channel.receive()) is not None:
                self._dispatch(received[0])
        except WorkerError as error:
            log.debug("%s: end of its messages: %s", self.label, error)
        self._cancel(self._timer)
        self._reason = told or self._reason
        self._child = None
        child.close()
        return child

    def _gone(self, child: ChildProcess, reason: str, *, reaped: bool) -> None:
        if self._wanted and not self._planned:
            if self._ready_s is not None and self._loop.time() - self._ready_s >= STEADY_S:
                self.failures = 0
            self._failed(f"{reason} (process {child.process.pid})")
        self._handler.on_gone(reason, life=self._life, reaped=reaped)
        self._after_the_end()

    def _after_the_end(self) -> None:
        if not (self._wanted and self.replaces):
            self._stopped.set()
        elif self._planned:
            self._spawn()
        else:
            self._step_after(self._backoff.delay_s(self.failures, random.random()), self._spawn)

    def _ended_late(self, child: ChildProcess, life: int) -> None:
        self._loop.remove_reader(child.pidfd)
        child.reap()
        self._stuck.discard(child.process.pid)
        log.info("%s: the stuck process %d has ended", self.label, child.process.pid)
        self._handler.on_reaped(life)

    def _failed(self, trouble: str) -> None:
        self.failures += 1
        self.trouble = trouble
        log.warning("%s: %s", self.label, trouble)

    def _check_progress(self) -> None:
        child, stall_s = self._child, self._limits.stall_s
        if child is None or stall_s is None:
            return
        turns = child.progress[Word.TURNS]
        if turns == self._turns:
            self.kill(f"made no progress for {stall_s:g} s")
            return
        self._turns = turns
        self._step_after(stall_s, self._check_progress)

    def _step_after(self, delay_s: float | None, call: Callable[..., None], *args: object) -> None:
        """Plan the next step of a child that is wanted; an end that was asked for has a timer of its own."""
        self._cancel(self._timer)
        if delay_s is not None and self._wanted:
            self._timer = self._loop.call_later(delay_s, call, *args)

    def _end_after(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        self._cancel(self._end_timer)
        self._end_timer = self._loop.call_later(delay_s, call, *args)

    def _cancel(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
