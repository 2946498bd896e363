"""Says what is wrong with the station at this moment, as conditions for its alarms. Reads every part, changes none."""

from __future__ import annotations

from collections.abc import Iterator

from inspectd.health.alarmkinds import CLOCK, MQTT, STORAGE, AlarmCode
from inspectd.health.alarms import Condition
from inspectd.lane.driver import LaneDriver
from inspectd.ledgers import stuck
from inspectd.line import Line
from inspectd.publish.publisher import Publisher
from inspectd.publish.reporter import Parts, broker_refusal, journal_trouble, trouble_of

EXPIRING_DAYS = 30.0


def conditions(parts: Parts, now: float, wall_s: float, *, is_clock_right: bool) -> Iterator[Condition]:
    """Give everything that is wrong now. What is still being started is not wrong yet."""
    for name, line in parts.lines.items():
        yield from _of_camera(name, line, now)
    yield from _of_stuck_cameras(parts)
    for name, lane in parts.lanes.items():
        yield from _of_model(name, lane, is_required=name in parts.required)
    if trouble := journal_trouble(parts, now):
        yield Condition(AlarmCode.STORAGE_FULL, STORAGE, trouble, blocks=True)
    if not is_clock_right:
        yield Condition(AlarmCode.CLOCK_UNSYNCHRONISED, CLOCK, "the kernel says that the clock is not synchronised")
    yield from _of_broker(parts.publisher(), wall_s)


def _of_camera(name: str, line: Line, now: float) -> Iterator[Condition]:
    if line.host.trouble or (line.is_settled and not line.is_fit(now)):
        yield Condition(AlarmCode.CAMERA_LOST, name, trouble_of(line), blocks=True)


def _of_stuck_cameras(parts: Parts) -> Iterator[Condition]:
    """Those of earlier daemons among them, also where the camera is not configured any more."""
    earlier = stuck(parts.survivors)
    for name in sorted(earlier.keys() | parts.lines.keys()):
        own = parts.lines[name].host.stuck if name in parts.lines else ()
        if pids := (*earlier.get(name, ()), *own):
            yield Condition(AlarmCode.WORKER_UNKILLABLE, name, _stuck(pids))


def _of_model(name: str, lane: LaneDriver, *, is_required: bool) -> Iterator[Condition]:
    trouble = lane.host.trouble if lane.facts is None else lane.lane.breaker.reason
    if trouble:
        yield Condition(AlarmCode.MODEL_UNAVAILABLE, name, trouble, blocks=is_required)
    if fallback := lane.crew.ladder.fallback:
        yield Condition(AlarmCode.FALLBACK_DEVICE, name, fallback)
    if stuck_pids := lane.crew.stuck:
        yield Condition(AlarmCode.WORKER_UNKILLABLE, name, _stuck(stuck_pids))


def _stuck(pids: tuple[int, ...]) -> str:
    numbers = ", ".join(str(pid) for pid in pids)
    return f"killed, but not ended: process {numbers} (a driver holds it, or it is frozen)"


def _of_broker(publisher: Publisher, wall_s: float) -> Iterator[Condition]:
    if refusal := broker_refusal(publisher):
        yield Condition(AlarmCode.BROKER_REFUSED, MQTT, refusal)
    days_left = publisher.certificate_days_left(wall_s)
    if days_left is not None and days_left < EXPIRING_DAYS:
        text = f"the first certificate to end has {days_left:.0f} days left" if days_left > 0 else "one has ended"
        yield Condition(AlarmCode.CERTIFICATE_EXPIRING, MQTT, text)
