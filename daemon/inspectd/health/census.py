"""Gathers the numbers of the health message from every part: counts as differences from one call to the next.

Nothing here waits: the parts are read in memory, the PC from files of the kernel.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inspectd import __version__
from inspectd.errors import StorageError
from inspectd.health.host import FolderSize, HostWatch, free_bytes, rss_bytes
from inspectd.health.outage import OutageEstimate
from inspectd.lane.driver import LaneDriver
from inspectd.line import Line
from inspectd.publish.effects import OutboxStats
from inspectd.publish.healthreport import (
    Breaker,
    CameraHealth,
    Health,
    ModelHealth,
    ModelState,
    MqttHealth,
    StorageHealth,
)
from inspectd.publish.journalrows import StoredResult
from inspectd.publish.messages import Clock


class Wire(Protocol):
    """The publisher, as the census needs it."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""

    @property
    def connects(self) -> int:
        """Connections so far."""

    def stats(self) -> OutboxStats:
        """The outbox's counts."""


class JournalReader(Protocol):
    """The writer, as the census needs it."""

    def read(self, from_seq: int, to_seq: int, limit: int) -> asyncio.Future[tuple[StoredResult, ...]]:
        """Read committed results; may fail with StorageError."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom to ask."""

    lines: Mapping[str, Line]
    lanes: Mapping[str, LaneDriver]
    wire: Callable[[], Wire]
    """The publisher of the moment."""
    journal: JournalReader
    storage_path: Path
    outbox_limit_bytes: int
    commits_s: deque[float]
    """Durations of the commits since the last call; emptied here. Bounded by whoever fills it."""
    clock_state: Callable[[], Clock]
    certificate_days: Callable[[], float | None]
    """Days that the first certificate to end has left; None where there is none."""


@dataclass(slots=True)
class _Total:
    """A count over several publishers: each new one begins at 0."""

    total: int = 0
    last: int = 0

    def note(self, value: int) -> int:
        self.total += value - self.last if value >= self.last else value
        self.last = value
        return self.total


class Census:
    """Call `take` once a period, in the loop's thread."""

    def __init__(
        self, sources: Sources, host: HostWatch, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._sources, self._host, self._clock, self._wall = sources, host, clock, wall
        self._started_s = self._last_s = clock()
        self._before: dict[str, dict[str, float]] = {}
        """Of the last call: part → count."""
        self._connects, self._dead_letters, self._no_subscribers = _Total(), _Total(), _Total()
        self._journal_size = FolderSize(sources.storage_path / "journal", ".sqlite")
        self._outage = OutageEstimate(sources.outbox_limit_bytes)
        self._asking: asyncio.Future[tuple[StoredResult, ...]] | None = None
        self._oldest: StoredResult | None = None
        """The oldest unsent result as of the last answer."""

    def take(self) -> Health:
        """Give everything as it is now, and what was counted since the last call."""
        sources, now = self._sources, self._clock()
        period_s, self._last_s = now - self._last_s, now
        return Health(
            cameras={name: self._camera(name, line, now) for name, line in sources.lines.items()},
            models={name: self._model(name, lane, now, period_s) for name, lane in sources.lanes.items()},
            mqtt=self._mqtt(now),
            storage=self._storage(),
            host=self._host.read(),
            clock=sources.clock_state(),
            uptime_s=now - self._started_s,
            version=__version__,
        )

    def _camera(self, name: str, line: Line, now: float) -> CameraHealth:
        counted = self._since(
            f"camera {name}",
            received=line.received,
            incomplete=line.incomplete,
            missed=line.missed,
            reconnects=max(0, line.opens - 1),
        )
        return CameraHealth(
            connected=line.facts is not None,
            fps=line.rate_per_s(now),
            frames_received=int(counted["received"]),
            frames_incomplete=int(counted["incomplete"]),
            frames_missed=int(counted["missed"]),
            reconnects=int(counted["reconnects"]),
            last_frame_age_s=_age(line.last_frame_s, now),
        )

    def _model(self, name: str, driver: LaneDriver, now: float, period_s: float) -> ModelHealth:
        lane, stats = driver.lane, driver.lane.stats
        counted = self._since(
            f"model {name}",
            submitted=stats.submitted,
            done=stats.done,
            timed_out=stats.timed_out,
            retried=stats.retried,
            dropped=stats.dropped - stats.skipped,
            skipped=stats.skipped,
            failed=stats.failed,
            unavailable=stats.unavailable,
            restarts=driver.restarts,
            busy_s=stats.busy_s,
        )
        counts = {key: int(value) for key, value in counted.items()}
        durations_s = sorted(_latest(stats.durations_s, counts["done"]))
        capacity_s = lane.requests * period_s
        return ModelHealth(
            state=_state(driver),
            device=None if driver.facts is None else driver.facts.device,
            requests=lane.requests,
            requests_busy=lane.busy,
            submitted=counts["submitted"],
            done=counts["done"],
            timed_out=counts["timed_out"],
            retried=counts["retried"],
            dropped=counts["dropped"],
            failed=counts["failed"],
            unavailable=counts["unavailable"],
            skipped=counts["skipped"],
            skip_every=max((level.every for level in lane.levels.values()), default=1),
            utilisation=min(1.0, counted["busy_s"] / capacity_s) if capacity_s > 0 else 0.0,
            p50_s=percentile(durations_s, 0.50),
            p95_s=percentile(durations_s, 0.95),
            p99_s=percentile(durations_s, 0.99),
            wait_p95_s=percentile(_latest(stats.waits_s, counts["submitted"]), 0.95),
            queue_depth=lane.waiting,
            lost_requests=lane.lost,
            restarts=counts["restarts"],
            rss_bytes=rss_bytes(driver.host.pid),
            breaker=Breaker(lane.breaker.state) if driver.repair is None else Breaker.OPEN,
            last_done_age_s=_age(stats.last_done_s, now),
        )

    def _mqtt(self, now: float) -> MqttHealth:
        wire = self._sources.wire()
        stats = wire.stats()
        journal_bytes = self._journal_size.read()
        self._outage.note(now, journal_bytes, stats.last_seq)
        return MqttHealth(
            connected=wire.connected,
            reconnects=max(0, self._connects.note(wire.connects) - 1),
            outbox_rows=stats.unsent,
            outbox_bytes=journal_bytes,
            outage_hours=self._outage.hours(stats.unsent),
            oldest_unsent_age_s=self._oldest_unsent_age_s(stats),
            dead_letters=self._dead_letters.note(stats.dead_letters),
            no_subscribers=self._no_subscribers.note(stats.no_subscribers),
            certificate_days_left=self._sources.certificate_days(),
        )

    def _storage(self) -> StorageHealth:
        commits_s = list(self._sources.commits_s)
        self._sources.commits_s.clear()
        return StorageHealth(
            commit_p95_s=percentile(commits_s, 0.95),
            free_bytes=free_bytes(self._sources.storage_path),
            evidence_bytes=0,
        )

    def _oldest_unsent_age_s(self, stats: OutboxStats) -> float | None:
        """0 when all is delivered. Else that of the row that the last call asked for, if it is still unsent."""
        oldest = self._oldest if stats.unsent else None
        if stats.unsent and self._asking is None:
            self._asking = self._sources.journal.read(stats.acked_seq + 1, stats.last_seq, 1)
            self._asking.add_done_callback(self._answered)
        if oldest is None or not stats.acked_seq < oldest.seq <= stats.last_seq:
            return None if stats.unsent else 0.0
        return max(0.0, self._wall() - oldest.wall_s)

    def _answered(self, asked: asyncio.Future[tuple[StoredResult, ...]]) -> None:
        self._asking = None
        if asked.cancelled():
            return
        error = asked.exception()
        if error is not None and not isinstance(error, StorageError):
            raise error
        rows = () if error is not None else asked.result()
        self._oldest = rows[0] if rows else None

    def _since(self, part: str, **counts: float) -> dict[str, float]:
        """What was counted since the last call."""
        before = self._before.get(part, {})
        self._before[part] = counts
        return {name: count - before.get(name, 0) for name, count in counts.items()}


def percentile(values: Sequence[float], share: float) -> float | None:
    """Give the value that this share of all does not exceed (nearest rank); None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _latest(values: deque[float], count: int) -> list[float]:
    """The last so many, as far as they are kept."""
    return list(values)[max(0, len(values) - count) :]


def _age(then_s: float | None, now: float) -> float | None:
    return None if then_s is None else max(0.0, now - then_s)


def _state(driver: LaneDriver) -> ModelState:
    if driver.facts is not None:
        return ModelState.RUNNING
    return ModelState.LOADING if driver.repair is None else ModelState.REPAIR
