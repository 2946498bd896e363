"""Says what is wrong with the station at this moment, as conditions for its alarms. Reads every part, changes none."""

from __future__ import annotations

from collections.abc import Iterator

from inspectd.health.alarmkinds import CLOCK, MQTT, STORAGE, AlarmCode
from inspectd.health.alarms import Condition
from inspectd.lane.driver import LaneDriver
from inspectd.line import Line
from inspectd.publish.publisher import Publisher
from inspectd.publish.reporter import Parts, journal_trouble, trouble_of

EXPIRING_DAYS = 30.0


def conditions(parts: Parts, now: float, wall_s: float, *, is_clock_right: bool) -> Iterator[Condition]:
    """Give everything that is wrong now. What is still being started is not wrong yet."""
    for name, line in parts.lines.items():
        yield from _of_camera(name, line, now)
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
    if line.host.stuck:
        yield Condition(AlarmCode.WORKER_UNKILLABLE, name, _stuck(line.host.stuck))


def _of_model(name: str, lane: LaneDriver, *, is_required: bool) -> Iterator[Condition]:
    if lane.facts is None and lane.host.trouble:
        yield Condition(AlarmCode.MODEL_UNAVAILABLE, name, lane.host.trouble, blocks=is_required)
    if lane.host.stuck:
        yield Condition(AlarmCode.WORKER_UNKILLABLE, name, _stuck(lane.host.stuck))


def _stuck(pids: tuple[int, ...]) -> str:
    numbers = ", ".join(str(pid) for pid in pids)
    return f"killed, but not ended: process {numbers} (a driver holds it, or it is frozen)"


def _of_broker(publisher: Publisher, wall_s: float) -> Iterator[Condition]:
    if publisher.refusal:
        yield Condition(AlarmCode.BROKER_REFUSED, MQTT, publisher.refusal)
    elif publisher.refused:
        yield Condition(AlarmCode.BROKER_REFUSED, MQTT, "results must not be published under the base topic; they wait")
    elif publisher.deaf:
        yield Condition(AlarmCode.BROKER_REFUSED, MQTT, f"no subscription to {', '.join(publisher.deaf)}")
    days_left = publisher.certificate_days_left(wall_s)
    if days_left is not None and days_left < EXPIRING_DAYS:
        text = f"the first certificate to end has {days_left:.0f} days left" if days_left > 0 else "one has ended"
        yield Condition(AlarmCode.CERTIFICATE_EXPIRING, MQTT, text)
