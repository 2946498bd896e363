"""The end in order: no new frames, what is open is closed and committed, sent, and goodbye. Each step has its limit."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from inspectd.app import Daemon
from inspectd.worker.host import REAP_S

log = logging.getLogger(__name__)

CAMERA_GRACE_S = 1.0
FRAMES_LIMIT_S = 5.0
"""Frames that are still open at a stop get so long; then they end as 302."""
COMMIT_LIMIT_S = 5.0
SENDING_LIMIT_S = 2.0
"""What is not sent at a stop is sent after the next start."""
GOODBYE_LIMIT_S = 2.0
MODEL_GRACE_S = 1.0
"""A model that is being loaded does not hear the order to stop: it is killed after this."""
LONGEST_S = (
    (CAMERA_GRACE_S + REAP_S)
    + FRAMES_LIMIT_S
    + COMMIT_LIMIT_S
    + (MODEL_GRACE_S + REAP_S)
    + (SENDING_LIMIT_S + SENDING_LIMIT_S)
    + GOODBYE_LIMIT_S
    + COMMIT_LIMIT_S
)
"""All limits one after the other. TimeoutStopSec of the unit has to be longer."""


def in_flight(daemon: Daemon) -> int:
    """Count frames that have no row yet."""
    return sum(line.in_flight for line in daemon.lines.values())


async def drain(daemon: Daemon, changed: asyncio.Event, reason: Literal["stop", "failure"]) -> bool:
    """End every part; gives whether everything is on the disk. `changed` is set when a frame may have its row."""
    log.info("stopping: %d frames in flight", in_flight(daemon))
    await asyncio.gather(*(line.stop(CAMERA_GRACE_S) for line in daemon.lines.values()))
    try:
        async with asyncio.timeout(FRAMES_LIMIT_S):
            await asyncio.gather(*(line.drained() for line in daemon.lines.values()))
    except TimeoutError:
        log.warning("stopping: frames that are still open end as not inspected (302)")
    for line in daemon.lines.values():
        line.abandon("the daemon was stopped")
    for lane in daemon.lanes.values():
        lane.end("the daemon was stopped")
    daemon.book.flush()
    is_committed = await _committed(daemon, changed)
    await asyncio.gather(*(lane.stop(MODEL_GRACE_S) for lane in daemon.lanes.values()))
    await daemon.publisher.drained(SENDING_LIMIT_S)
    await daemon.station.events.drained(SENDING_LIMIT_S)
    daemon.reporter.publish_counters()
    was_connected = daemon.publisher.connected
    if not await daemon.publisher.close(GOODBYE_LIMIT_S, daemon.status_message(reason)) and was_connected:
        log.warning("stopping: the broker did not acknowledge the goodbye; it will publish the last will")
    is_closed = await daemon.writer.close(COMMIT_LIMIT_S, clean=is_committed)
    for line in daemon.lines.values():
        line.close()
    unsent = daemon.publisher.stats().unsent
    log.info("stopped: %d results unsent%s", unsent, " (they are sent after the next start)" if unsent else "")
    return is_closed and is_committed


async def _committed(daemon: Daemon, changed: asyncio.Event) -> bool:
    """Wait until every frame has its row; False if the disk does not take them."""
    try:
        async with asyncio.timeout(COMMIT_LIMIT_S):
            while in_flight(daemon):
                changed.clear()
                await changed.wait()
    except TimeoutError:
        log.error("stopping: the disk did not take the last records; they end as not inspected (302)")
        return False
    return True
