"""A child process is supervised for as long as it is wanted. Real processes; the handler is played."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from inspectd.backoff import Backoff
from inspectd.errors import WorkerError
from inspectd.worker.channel import Message, understood
from inspectd.worker.host import Host, Limits
from inspectd.worker.process import in_words

QUICK = Backoff(first_s=0.01, limit_s=0.02)
LIMIT_S = 30.0


class Handler:
    """Notes what it hears. The camera child waits for `open` and does nothing before."""

    def __init__(self) -> None:
        self.host: Host | None = None
        self.hellos = 0
        self.gone: list[str] = []
        self.changed = asyncio.Event()

    def on_hello(self) -> None:
        self.hellos += 1
        self.changed.set()

    def on_message(self, message: Message) -> None:
        raise WorkerError(f"unexpected {message}")

    def on_ending(self) -> None: ...

    def on_gone(self, reason: str, *, life: int, reaped: bool) -> None:
        assert reaped
        assert life > len(self.gone)
        self.gone.append(reason)
        self.changed.set()

    def on_reaped(self, life: int) -> None:
        raise AssertionError(life)

    async def until_hellos(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.hellos < count:
                self.changed.clear()
                await self.changed.wait()

    async def until_gone(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.gone) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def hosted(limits: Limits) -> AsyncIterator[tuple[Host, Handler]]:
    handler = Handler()
    host = Host("camera", "test", handler, limits, QUICK)
    host.start()
    try:
        yield host, handler
    finally:
        await host.stop(1.0)


def descriptors_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def pid_of(host: Host) -> int:
    assert host._child is not None
    return host._child.process.pid


async def test_a_killed_child_is_replaced_and_the_reason_is_in_plain_words() -> None:
    async with hosted(Limits()) as (host, handler):
        await handler.until_hellos(1)
        os.kill(pid_of(host), signal.SIGKILL)
        await handler.until_hellos(2)
        assert handler.gone == ["was ended by SIGKILL (by the out-of-memory killer, or by hand)"]


async def test_a_child_that_is_ready_for_a_moment_only_ends_as_a_reported_repair() -> None:
    """It opened its camera and died of the first picture, for ever: READY of the whole station must not wait for it."""
    async with hosted(Limits()) as (host, handler):
        for life in (1, 2, 3):
            assert not host.in_repair
            await handler.until_hellos(life)
            host.ready()
            host.kill("died of it")
            await handler.until_gone(life)
        assert host.in_repair


async def test_a_stop_has_its_deadline_also_while_the_child_becomes_ready() -> None:
    """The grace timer must not be lost to the next step of the child."""
    async with hosted(Limits()) as (host, handler):
        await handler.until_hellos(1)
        os.kill(pid_of(host), signal.SIGSTOP)
        stopping = asyncio.ensure_future(host.stop(0.1))
        await asyncio.sleep(0)
        host.ready()
        async with asyncio.timeout(LIMIT_S):
            await stopping
        assert handler.gone == ["did not stop when asked"]


async def test_a_child_without_progress_is_killed() -> None:
    async with hosted(Limits(stall_s=0.05)) as (host, handler):
        await handler.until_hellos(1)
        host.ready()
        await handler.until_gone(1)
        assert handler.gone == ["made no progress for 0.05 s"]


async def test_a_child_that_cannot_be_started_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process to be had (EAGAIN): whoever waits hears of it, and nothing leaks."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    descriptors = descriptors_open()
    monkeypatch.setattr(subprocess, "Popen", refuse)
    async with hosted(Limits()) as (host, handler):
        await handler.until_gone(3)
        assert host.in_repair
        assert "Resource temporarily unavailable" in handler.gone[0]
    assert descriptors_open() == descriptors


async def test_a_planned_end_is_no_failure_and_the_next_child_starts_at_once() -> None:
    async with hosted(Limits()) as (host, handler):
        await handler.until_hellos(1)
        host.ready()
        host.recycle(1.0)
        await handler.until_hellos(2)
        assert (handler.gone, host.failures, host.trouble) == (["ended by itself with exit status 0"], 0, "")


async def test_a_child_that_is_not_to_be_replaced_ends_once() -> None:
    """A second child that was not admitted: whoever wants another one starts it."""
    async with hosted(Limits()) as (host, handler):
        host.replaces = False
        await handler.until_hellos(1)
        host.kill("not wanted any more")
        await handler.until_gone(1)
        assert host.pid is None
        await host.stop(1.0)
        assert handler.hellos == 1


async def test_rubbish_from_a_child_is_its_own_fault() -> None:
    message: Message = {}
    with (
        pytest.raises(WorkerError, match="camera top: a message that is not understood: KeyError"),
        understood("camera top"),
    ):
        message["n"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "ended by itself with exit status 3"),
        (-11, "was ended by SIGSEGV (native code crashed)"),
        (-64, "was ended by SIGRTMAX"),
        (-99, "was ended by signal 99"),
    ],
)
def test_an_exit_status_is_told_in_words(code: int, words: str) -> None:
    assert in_words(code) == words
