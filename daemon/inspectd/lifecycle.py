"""The daemon's life: startup, serve, drain. Signals set a flag; every wait has a deadline.

READY is told when every camera gives frames (or is in a reported retry) and every required model is admitted (or in a
reported repair): then `systemctl start` returns, and STATUS says how things are.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from inspectd import __version__
from inspectd.app import Daemon
from inspectd.door.server import serve
from inspectd.drain import GOODBYE_LIMIT_S, LONGEST_S, drain, in_flight
from inspectd.health.alarmkinds import STATION, AlarmCode
from inspectd.health.alarms import Condition
from inspectd.health.lastend import SUCCESS, LastEnd
from inspectd.health.notify import Notifier
from inspectd.health.sentinel import Sentinel
from inspectd.health.watchdog import TICK_S, Watchdog
from inspectd.publish.desk import Called
from inspectd.publish.journal import Recovered
from inspectd.publish.reporter import PATIENCE_S, Phase

log = logging.getLogger(__name__)

END_SLACK_S = 3.0
"""For what the end does between its limits."""
EXIT_DONE, EXIT_OUTSIDE, EXIT_INTERNAL = 0, 69, 70


class Lifecycle:
    """One run of the daemon."""

    def __init__(
        self, daemon: Daemon, notifier: Notifier, sentinel: Sentinel, last_end: LastEnd, *, exit_when_done: bool
    ) -> None:
        self._daemon, self._notifier, self._sentinel, self._last_end = daemon, notifier, sentinel, last_end
        self._watchdog = Watchdog(daemon.stages, notifier, sentinel, daemon.clock())
        self._exit_when_done = exit_when_done
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        """Something that is waited for may be the case now."""
        self._failure: str | None = None
        self._renew = asyncio.Event()
        self._closing = asyncio.Event()
        self._verdicts_expired = 0

    async def run(self) -> int:
        """Live until a stop is asked for, the work is done, or something cannot go on. Returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unforeseen)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop, signal.Signals(number).name)
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(self._publish(), name="publisher")
            helpers = (
                group.create_task(self._tick(), name="ticker"),
                group.create_task(self._daemon.station.events.run(), name="events"),
            )
            await self._startup()
            door = group.create_task(self._open_door(), name="local door")
            await self._serve()
            code = await self._drain()
            for helper in (*helpers, door):
                helper.cancel()
            await publishing
        return code

    # Startup

    async def _startup(self) -> None:
        daemon = self._daemon
        log.info("inspectd %s: %d cameras, %d models", __version__, len(daemon.lines), len(daemon.lanes))
        daemon.announcer.on_change = self._part_changed
        daemon.announcer.on_progress = self._changed.set
        daemon.announcer.on_renewal = self._new_stream
        daemon.announcer.on_given_up = daemon.station.lost
        daemon.announcer.on_events_committed = daemon.station.events.committed
        daemon.writer.start()
        daemon.station.begin(daemon.storage.recovered)
        self._tell_last_end()
        for lane in daemon.lanes.values():
            lane.on_change = self._part_changed
            lane.start({name: daemon.lines[name] for name in lane.lane.policy.shares})
            await asyncio.sleep(0)  # to start a process takes 10 ms
        for line in daemon.lines.values():
            line.on_change = self._part_changed
            line.start()
            await asyncio.sleep(0)
        self._notifier.status("starting: models are loaded, cameras are opened")
        for name, line in daemon.lines.items():
            await self._until(partial(_all_settled, daemon.required_lanes(name)))
            if self._stop.is_set():
                return
            line.enable()
        await self._until(partial(_all_settled, list(daemon.lines.values())))

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the parts; a stop or a failure ends the wait."""
        while not self._stop.is_set() and not condition():
            self._changed.clear()
            await self._changed.wait()

    # Serving

    async def _serve(self) -> None:
        if self._stop.is_set():
            return
        daemon = self._daemon
        daemon.reporter.phase = Phase.SERVING
        daemon.reporter.publish_changes()
        self._notifier.ready()
        self._watchdog.check_time()
        self._notifier.status(daemon.reporter.status_text())
        reasons = daemon.reporter.reasons()
        if reasons:
            log.warning("started, not ready: %s", "; ".join(reasons))
        else:
            log.info("ready")
        if self._exit_when_done:
            await self._until(lambda: all(line.is_ended for line in daemon.lines.values()))
            await self._until(self._is_all_committed)
            while not self._stop.is_set() and not await daemon.publisher.drained(TICK_S):
                continue
        else:
            await self._stop.wait()

    def _is_all_committed(self) -> bool:
        return in_flight(self._daemon) == 0

    def _tell_last_end(self) -> None:
        """Say how the last run ended, if not in order."""
        for result, status in self._last_end.results.items():
            if result != SUCCESS:
                log.warning("the last run ended by %s (%s)", result, status or "no more is known")
        if text := self._last_end.watchdog_text:
            self._daemon.station.alarms.pulse(Condition(AlarmCode.WATCHDOG_RESTART, STATION, text))
        elif self._last_end.stalled:
            log.warning("the last run ended while this stood still: %s", self._last_end.stalled)

    # Draining

    async def _drain(self) -> int:
        daemon = self._daemon
        self._closing.set()
        self._notifier.stopping()
        self._sentinel.end_within(LONGEST_S + END_SLACK_S)
        daemon.reporter.phase = Phase.STOPPING
        daemon.reporter.publish_changes()
        is_complete = await drain(daemon, self._changed, "stop" if self._failure is None else "failure")
        if self._failure is not None:
            return EXIT_INTERNAL
        return EXIT_DONE if is_complete else EXIT_OUTSIDE

    # Tasks

    async def _publish(self) -> None:
        """Keep a publisher; a new one when a new stream has begun."""
        daemon = self._daemon
        while True:
            daemon.publisher.retain("status", daemon.status_message("start"), 1)
            daemon.reporter.publish_all()
            daemon.station.publish_all()
            renewal = asyncio.ensure_future(self._renew.wait())
            running = asyncio.ensure_future(daemon.publisher.run())
            await asyncio.wait((renewal, running), return_when=asyncio.FIRST_COMPLETED)
            renewal.cancel()
            if self._renew.is_set() and not self._closing.is_set():
                self._renew.clear()
                await daemon.publisher.close(GOODBYE_LIMIT_S, daemon.status_message("start"))
                await running
                if self._closing.is_set():
                    return
                daemon.publisher = daemon.make_publisher()
                continue
            await running
            return

    async def _open_door(self) -> None:
        """Answer whoever asks on this PC."""
        daemon = self._daemon

        async def call(command: str, body: bytes, limit_s: float) -> Called:
            return await daemon.publisher.desk.call(command, body, limit_s)

        await serve(daemon.socket_path, daemon.station.status, call)

    async def _tick(self) -> None:
        daemon = self._daemon
        told_s = daemon.clock()
        while True:
            await asyncio.sleep(self._watchdog.tick_s)
            now = daemon.clock()
            self._watchdog.look(now)
            if now - told_s < TICK_S:
                continue
            told_s = max(told_s + TICK_S, now - TICK_S)
            self._each_second(now)

    def _each_second(self, now: float) -> None:
        daemon = self._daemon
        daemon.book.flush()
        daemon.announcer.tell_last_results()
        daemon.context.refresh_clock()
        daemon.writer.believe_clock(is_right=daemon.context.is_clock_right)
        waiting_s = daemon.writer.pending_since(now)
        if waiting_s is not None and waiting_s > PATIENCE_S:
            daemon.writer.give_up_waiting(f"it has waited {waiting_s:.1f} s for the disk")
        self._count_expired_verdicts()
        daemon.reporter.publish_changes()
        daemon.station.each_second(now)
        daemon.reporter.beat()
        if daemon.reporter.serving:
            self._notifier.status(daemon.reporter.status_text())
        elif daemon.reporter.phase is Phase.STARTING:
            self._watchdog.extend_start((lane.host.pid for lane in daemon.lanes.values() if not lane.is_settled), now)

    def _count_expired_verdicts(self) -> None:
        """Of this publisher; a new one begins at 0."""
        stats = self._daemon.publisher.stats()
        expired = stats.verdicts_lost
        if expired > self._verdicts_expired:
            self._daemon.writer.count(verdicts_expired=expired - self._verdicts_expired)
        self._verdicts_expired = expired

    # Flags

    def _part_changed(self) -> None:
        """A camera, a model or the journal: tell the world at once."""
        if self._daemon.announcer.failure is not None:
            self._fail(f"journal: {self._daemon.announcer.failure}")
        if self._daemon.announcer.trouble is not None:
            self._daemon.storage.reserve.give_up()
        self._daemon.reporter.publish_changes()
        self._changed.set()

    def _new_stream(self, recovered: Recovered) -> None:
        """The publisher has to begin with the new stream."""
        self._daemon.station.begin_stream(recovered)
        self._renew.set()

    def _asked_to_stop(self, name: str) -> None:
        log.info("%s: stopping", name)
        self._stop.set()
        self._changed.set()

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            log.critical("cannot go on: %s", reason)
            self._failure = reason
        self._stop.set()
        self._changed.set()

    def _unforeseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback: the daemon ends in order and is started anew, instead of going on half alive."""
        loop.default_exception_handler(context)
        self._fail(f"{context.get('message')}: {context.get('exception')!r}")


class _Settling(Protocol):
    @property
    def is_settled(self) -> bool: ...


def _all_settled(parts: Sequence[_Settling]) -> bool:
    return all(part.is_settled for part in parts)
