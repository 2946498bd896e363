"""Runs the daemon in this process: event loop, cache folder, and what an unforeseen error means."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections.abc import Mapping
from pathlib import Path

from inspectd.app import build
from inspectd.config.load import Loaded
from inspectd.errors import InspectdError, UsageError
from inspectd.health import lastend
from inspectd.health.notify import Notifier
from inspectd.health.sentinel import LoopLimits, Sentinel
from inspectd.lifecycle import EXIT_INTERNAL, Lifecycle

TELL_AFTER_S = 10.0
"""A loop that stands still is told after this, or after half of the watchdog's time."""

log = logging.getLogger(__name__)


def run_daemon(loaded: Loaded, environment: Mapping[str, str], *, exit_when_done: bool) -> int:
    """Run until stopped; returns the exit code. Raises InspectdError for what the caller can mend."""
    for warning in loaded.warnings:
        log.warning("%s", warning)
    endless = [name for name, camera in loaded.configuration.cameras.items() if not camera.source.is_finite]
    if exit_when_done and endless:
        raise UsageError(
            f"--exit-when-done: camera {endless[0]} never ends (files, video: `loop: true`; simulator: no `count`)"
        )
    faulthandler.enable()  # the watchdog's SIGABRT: where each thread was goes to the journal
    try:
        return asyncio.run(_live(loaded, environment, exit_when_done=exit_when_done))
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1 and isinstance(group.exceptions[0], InspectdError):
            raise group.exceptions[0] from group
        log.critical("ended by an error of its own", exc_info=group)
        return EXIT_INTERNAL


async def _live(loaded: Loaded, environment: Mapping[str, str], *, exit_when_done: bool) -> int:
    daemon = build(loaded, environment, _cache_dir(loaded, environment))
    try:
        notifier = Notifier(environment)
        place = lastend.folder(environment, loaded.storage_path)
        last_end = lastend.take(place)
        sentinel = Sentinel(place / lastend.STALLED, _loop_limits(notifier.watchdog_s), notifier)
        sentinel.start()
        code = await Lifecycle(daemon, notifier, sentinel, last_end, exit_when_done=exit_when_done).run()
        sentinel.close()
    finally:
        daemon.storage.close()
    return code


def _loop_limits(watchdog_s: float | None) -> LoopLimits:
    """Of the loop alone: it stays bound to the unit's own time where that is too short for the slowest model."""
    return LoopLimits(TELL_AFTER_S if watchdog_s is None else min(TELL_AFTER_S, watchdog_s / 2), watchdog_s)


def _cache_dir(loaded: Loaded, environment: Mapping[str, str]) -> Path | None:
    """Compiled models: systemd's CacheDirectory, else beside the state. None: without a cache it only takes longer."""
    path = Path(environment["CACHE_DIRECTORY"]) if "CACHE_DIRECTORY" in environment else loaded.storage_path / "cache"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warning("%s: %s; models are compiled at each start", path, error.strerror)
        return None
    return path
