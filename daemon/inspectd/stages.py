"""The stages that have to make progress, as the watchdog sees them. Reads every part, changes none.

An excuse is something that `state` and the alarms tell as well, or that its own limit turns into that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from inspectd.health.assess import Patience, Reading, Stage
from inspectd.lane.driver import LaneDriver
from inspectd.line import Line
from inspectd.publish.eventsender import EventSender
from inspectd.publish.publisher import Publisher
from inspectd.publish.reporter import PATIENCE_S, Parts, journal_trouble, trouble_of

ANNOUNCEMENT_S = 10.0
"""A camera process that has taken a number and does not say what became of it is killed before this by its host."""
BROKER_S = 60.0
"""A broker that does not answer: the keepalive ends the connection before this. So the fault is ours."""
KEEPALIVES = 4


def stages(parts: Parts, events: EventSender, keepalive_s: float) -> list[Stage]:
    """Every camera, every model, the journal, results and events on their way to the broker."""
    broker_s = max(BROKER_S, KEEPALIVES * keepalive_s)
    found = [
        Stage(f"camera {name}", 0.0, partial(_camera, line, Patience(ANNOUNCEMENT_S)))
        for name, line in parts.lines.items()
    ]
    for name, lane in parts.lanes.items():
        deadlines_s = [parts.lines[camera].spec.deadline_s for camera in lane.lane.policy.shares]
        found.append(Stage(f"model {name}", max(deadlines_s), partial(_model, lane)))
    return [
        *found,
        Stage("journal", PATIENCE_S, partial(_journal, parts)),
        Stage("results to the broker", 0.0, _to_broker(parts, Patience(broker_s), _results)),
        Stage("events to the broker", 0.0, _to_broker(parts, Patience(broker_s), partial(_events, events))),
    ]


def _camera(line: Line, patience: Patience, now: float) -> Reading:
    """Numbers that are on the ledger and that main has not heard of."""
    seen = line.accounts.seen
    has_work = line.ledger.last > seen
    if not line.is_fit(now):
        return Reading(seen, has_work, trouble_of(line))
    waits = patience.lasts(seen, now, waits=has_work)
    return Reading(seen, has_work, "its process has not said yet what became of a number" if waits else "")


def _model(lane: LaneDriver, _now: float) -> Reading:
    """Frames that are waiting or at work: each ends by its deadline, whatever becomes of the child."""
    stats = lane.lane.stats
    ended = stats.done, stats.timed_out, stats.dropped, stats.failed, stats.unavailable
    return Reading(ended, lane.lane.waiting > 0 or lane.lane.busy > lane.lane.lost)


def _journal(parts: Parts, now: float) -> Reading:
    """Records that wait for the disk. A slow disk makes the station not ready; to start again would not mend it."""
    age_s = parts.writer.pending_since(now)
    oldest_s = None if age_s is None else round(now - age_s, 3)
    return Reading(oldest_s, age_s is not None, journal_trouble(parts, now))


def _results(publisher: Publisher) -> tuple[Hashable, bool, str]:
    stats = publisher.stats()
    return (stats.acked_seq, stats.sent), stats.unsent > 0, "" if stats.held_reason is None else "the broker refuses"


def _events(events: EventSender, _publisher: Publisher) -> tuple[Hashable, bool, str]:
    return events.answers, events.unsent > 0, ""


def _to_broker(
    parts: Parts, patience: Patience, look: Callable[[Publisher], tuple[Hashable, bool, str]]
) -> Callable[[float], Reading]:
    def read(now: float) -> Reading:
        publisher = parts.publisher()
        mark, has_work, refusal = look(publisher)
        excuse = refusal or journal_trouble(parts, now) or ("" if publisher.connected else "the broker is away")
        if not excuse and patience.lasts(mark, now, waits=has_work):
            excuse = "the broker has not answered yet"
        return Reading(mark, has_work, excuse)

    return read
