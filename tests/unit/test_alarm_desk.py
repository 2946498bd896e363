"""Alarms as the station handles them: told, kept before their events, told in full to a broker that is new."""

from __future__ import annotations

import json

import pytest

from inspectd.health.alarmkinds import AlarmCode
from inspectd.health.alarms import Condition
from inspectd.publish.alarmdesk import AlarmDesk
from inspectd.publish.events import Event
from inspectd.publish.memo import Memo

LOST = Condition(AlarmCode.CAMERA_LOST, "top", "gives no frames any more", blocks=True)


class Station:
    """Everything that the desk tells, in its order."""

    def __init__(self, memo: str = "") -> None:
        self.told: list[tuple[str, str]] = []
        self.topics: dict[str, bytes] = {}
        self.memo = memo
        self.now = 100.0
        self.desk = AlarmDesk(
            Memo(memo, self._keep), lambda: self, self._event, lambda: self.now, lambda: 1_796_000_000.0 + self.now
        )

    def retain(self, leaf: str, payload: bytes, qos: int) -> None:
        assert qos == 1
        self.told.append(("retain", leaf))
        self.topics[leaf] = payload

    def _event(self, event: Event) -> None:
        self.told.append(("event", event.name))

    def _keep(self, text: str) -> None:
        self.memo = text
        self.told.append(("keep", ""))


def test_an_alarm_is_kept_before_its_event() -> None:
    """A crash between the two must not leave an event of an alarm that nobody will ever clear."""
    station = Station()
    station.desk.observe([LOST])
    assert station.told == [("keep", ""), ("retain", "alarm/CameraLost/top"), ("event", "AlarmRaised")]
    assert json.loads(station.topics["alarm/CameraLost/top"])["blocks"] == "ready"


def test_what_has_gone_while_the_daemon_was_away_is_cleared_after_its_start() -> None:
    before = Station()
    before.desk.observe([LOST])
    station = Station(before.memo)
    station.desk.publish_all(["top"], ["defects"])
    assert station.topics["alarm/CameraLost/top"]
    station.desk.observe([])
    station.now += 60
    station.desk.observe([])
    assert station.topics["alarm/CameraLost/top"] == b""
    assert station.told[-1] == ("event", "AlarmCleared")


def test_a_broker_that_comes_back_with_old_alarms_is_told_that_they_are_gone() -> None:
    """It had saved an alarm, was killed after the alarm was cleared, and showed it for ever."""
    station = Station()
    station.desk.publish_all(["top"], ["defects"])
    assert station.topics["alarm/CameraLost/top"] == b""
    assert station.topics["alarm/ModelUnavailable/defects"] == b""
    assert station.topics["alarm/OutboxFull/storage"] == b""


def test_seen_and_dealt_with_are_counted() -> None:
    station = Station()
    station.desk.observe([LOST])
    station.desk.pulse(Condition(AlarmCode.DEAD_LETTER, "mqtt", "result 7"))
    assert station.desk.acknowledge("CameraLost", None) == 1
    assert station.desk.acknowledge("CameraLost", "side") == 0
    assert station.desk.confirm_all() == 2
    assert [alarm.code for alarm in station.desk.alarms] == ["CameraLost"]
    assert station.topics["alarm/DeadLetter/mqtt"] == b""


@pytest.mark.parametrize("text", ["{", '{"alarms": "nonsense"}'])
def test_a_book_that_cannot_be_read_begins_anew(text: str) -> None:
    assert Station(text).desk.alarms == ()
