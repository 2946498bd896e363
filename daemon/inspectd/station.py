"""What the station tells besides results: alarms, events, health, and the document that `inspectd status` shows."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from inspectd import __version__
from inspectd.conditions import conditions
from inspectd.door.document import SCHEMA, StatusDocument, Subscriber
from inspectd.health.alarmkinds import MQTT, STORAGE, AlarmCode
from inspectd.health.alarms import Condition, word
from inspectd.health.census import Census
from inspectd.publish import healthreport, reports
from inspectd.publish.alarmdesk import AlarmDesk
from inspectd.publish.effects import Incoming
from inspectd.publish.events import Event, EventName
from inspectd.publish.eventsender import EventSender
from inspectd.publish.journal import Loss, Recovered
from inspectd.publish.journalrows import StoredResult
from inspectd.publish.memo import Memo
from inspectd.publish.publisher import Publisher
from inspectd.publish.receipts import Receipts
from inspectd.publish.reporter import Parts, Phase, Reporter
from inspectd.publish.skips import Skips
from inspectd.publish.wire import time_text
from inspectd.worker.crewports import Move, Place

log = logging.getLogger(__name__)

HEALTH_PERIOD_S = healthreport.PERIOD_S
HEALTH_EXPIRES_S = healthreport.PERIODS_KEPT * healthreport.PERIOD_S
REASON_MAX = 500
"""Characters of a reason in an event."""
RANGES_MAX = 100
"""Ranges of lost results in one event; its count is of all."""
LOST_SEVERITY, MOVE_SEVERITY, COMMAND_SEVERITY, CONFIGURATION_SEVERITY, DAY_SEVERITY = 900, 400, 200, 200, 100


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are, in the status document."""

    station_id: str
    base: str
    boot_id: str
    time_zone: str
    configuration_path: Path
    started_s: float
    """Monotonic clock."""


class Station:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        identity: Identity,
        parts: Parts,
        reporter: Reporter,
        alarms: AlarmDesk,
        events: EventSender,
        census: Census,
        skips: Skips,
        memo: Memo,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.alarms, self.events = alarms, events
        self._identity, self._parts, self._reporter, self._census = identity, parts, reporter, census
        self._receipts = Receipts()
        self._skips, self._memo = skips, memo
        self._clock, self._wall = clock, wall
        self._zone = ZoneInfo(identity.time_zone)
        self._health: bytes = b""
        self._health_due_s = clock()
        self._told_connection: tuple[Publisher, int] | None = None
        """The connection on which the alarms were told in full: a broker may come back with older ones."""
        self._duplicate_of: tuple[Publisher, int] | None = None
        """The connection that was lost to another client with our id: told once each."""

    # Time and news

    def begin(self, recovered: Recovered) -> None:
        """Tell what the start has found."""
        self.begin_stream(recovered)
        now = self._parts.configuration_hash
        before = self._memo.get("configuration")
        if before and before != now:
            detail = {"from": before, "to": now, "by": "start"}
            event = Event(EventName.CONFIGURATION_CHANGED, "station", CONFIGURATION_SEVERITY, detail)
            self._parts.writer.event(event)
        self._memo.put("configuration", now)

    def each_second(self, now: float) -> None:
        """Look at everything; tell what has changed."""
        parts = self._parts
        if self._reporter.phase is not Phase.STOPPING:  # what is taken down in order is no fault
            self.alarms.observe(conditions(parts, now, self._wall(), is_clock_right=parts.is_clock_right()))
        if skipped := self._skips.take():
            parts.writer.event(skipped)
        if now >= self._health_due_s:
            self._health_due_s = max(self._health_due_s + HEALTH_PERIOD_S, now)
            self.publish_health()
        self._end_day()

    def broker_changed(self) -> None:
        """There is a connection, or none any more."""
        publisher = self._parts.publisher()
        if publisher.connected and self._told_connection != (publisher, publisher.connects):
            self._told_connection = publisher, publisher.connects
            self.alarms.publish_all(self._parts.lines, self._parts.lanes)
        if publisher.duplicate and self._duplicate_of != (publisher, publisher.connects):
            self._duplicate_of = publisher, publisher.connects
            text = "the broker ends our connections for another client with the same client id, as it seems"
            self.alarms.pulse(Condition(AlarmCode.DUPLICATE_CLIENT, MQTT, text))
        self.events.wake()

    def lost(self, loss: Loss) -> None:
        """Unsent results had to be given up."""
        ranges = [list(span) for span in loss.ranges[:RANGES_MAX]]
        detail = {"streamId": loss.stream_id, "ranges": ranges, "count": loss.count}
        self._parts.writer.event(Event(EventName.RESULTS_LOST, STORAGE, LOST_SEVERITY, detail))
        text = f"{loss.count} results were given up unsent; the first range is {ranges[0][0]} to {ranges[0][1]}"
        self.alarms.pulse(Condition(AlarmCode.OUTBOX_FULL, STORAGE, text))

    def begin_stream(self, recovered: Recovered) -> None:
        """A new stream has begun; `recovered.damaged` says what was set aside, at the start or since."""
        self.events.begin(recovered.acked_event, recovered.next_event - 1)
        if recovered.damaged is not None:
            self.alarms.pulse(Condition(AlarmCode.OUTBOX_DAMAGED, STORAGE, recovered.damaged))

    def dead_letter(self, seq: int, reason: str) -> None:
        """The broker will never take this result; a substitute goes out."""
        self.alarms.pulse(Condition(AlarmCode.DEAD_LETTER, MQTT, f"result {seq}: {reason}"))

    def model_moved(self, move: Move) -> None:
        """A model runs on another device or from another file than before, or with fewer requests."""
        detail = {
            "model": move.model,
            "from": _place(move.before),
            "to": _place(move.after),
            "reason": move.reason[:REASON_MAX],
        }
        self._parts.writer.event(Event(EventName.MODEL_CHANGED, move.model, MOVE_SEVERITY, detail))

    def audit(self, requester: str, command: str, result: str) -> None:
        """A request has changed something, or was refused."""
        detail = {"requester": requester, "command": command, "result": result}
        self._parts.writer.event(Event(EventName.COMMAND_RECEIVED, "station", COMMAND_SEVERITY, detail))

    def receipt(self, incoming: Incoming) -> None:
        """A subscriber says how far it has stored our results."""
        stream_id, last_seq = self._parts.writer.stream_id, self._parts.publisher().stats().last_seq
        self._receipts.take(incoming.payload, stream_id, last_seq, retain=incoming.retain)

    # Publishing

    def publish_all(self) -> None:
        """Publish everything retained that is ours, for a publisher that is new."""
        if self._health:
            self._retain_health()

    def publish_health(self) -> None:
        """Publish how every part did since the last time."""
        self._health = healthreport.health(self._census.take())
        self._retain_health()

    def _retain_health(self) -> None:
        self._parts.publisher().retain("health", self._health, 0, HEALTH_EXPIRES_S)

    # For commands, and for whoever asks on this PC

    def state(self) -> Mapping[str, Any]:
        """Give the document of the topic `state`, of this moment."""
        return reports.state_document(self._reporter.station_state())

    async def find(
        self, *, result_id: bytes | None = None, part_id: str | None = None, job_id: str | None = None
    ) -> StoredResult | None:
        """Look a result up. No result has a part's id in this version."""
        if part_id is not None:
            return None
        return await self._parts.writer.find(result_id=result_id, job_id=job_id)

    def reset_counters(self) -> Awaitable[object]:
        """Begin to count anew, and say so at once."""

        async def reset() -> None:
            await self._parts.writer.reset_counters()
            self._reporter.publish_counters()

        return reset()

    def status(self) -> StatusDocument:
        """Give everything that can be asked at once."""
        identity, parts = self._identity, self._parts
        stats, stream_id = parts.publisher().stats(), parts.writer.stream_id
        marks = self._receipts.marks(stream_id, stats.last_seq)
        children = {f"camera {name}": line.host.pid for name, line in parts.lines.items()}
        children |= {f"model {name}": lane.host.pid for name, lane in parts.lanes.items()}
        return StatusDocument(
            schema=SCHEMA,
            stationId=identity.station_id,
            base=identity.base,
            version=__version__,
            bootId=identity.boot_id,
            pid=os.getpid(),
            uptimeS=round(self._clock() - identity.started_s, 1),
            time=time_text(self._wall()),
            configuration={"path": str(identity.configuration_path), "hash": parts.configuration_hash},
            state=self.state(),
            health=json.loads(self._health) if self._health else None,
            counters=self._reporter.counters_document(),
            alarms=[json.loads(word(alarm)) for alarm in self.alarms.alarms],
            outbox={
                "streamId": stream_id,
                "lastSeq": stats.last_seq,
                "unsent": stats.unsent,
                "unsentEvents": self.events.unsent,
            },
            subscribers={name: Subscriber(upToSeq=mark.up_to_seq, behind=mark.behind) for name, mark in marks.items()},
            children={name: pid for name, pid in children.items() if pid is not None},
        )

    # Days

    def _end_day(self) -> None:
        """Once a day, in local time: what was captured, and that all of it is accounted or in flight.

        A day that the daemon slept through is told after the start. A clock that is set back begins no new day.
        """
        today, day = self._today(), self._memo.get("day")
        if today <= day:
            return
        self._memo.put("day", today)
        if not day:
            return
        captured, in_flight = self._reporter.numbers()
        detail = {
            "captured": sum(captured.values()),
            "accounted": self._parts.announcer.counters.accounted,
            "inFlight": sum(in_flight.values()),
        }
        self._parts.writer.event(Event(EventName.DAY_ACCOUNTED, "station", DAY_SEVERITY, detail))

    def _today(self) -> str:
        return datetime.fromtimestamp(self._wall(), self._zone).date().isoformat()


def _place(place: Place) -> dict[str, Any]:
    fields = {"device": place.device, "hash": place.hash, "requestsMost": place.requests_most}
    return {name: value for name, value in fields.items() if value is not None}
