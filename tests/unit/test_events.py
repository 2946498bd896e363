"""Events: the contract's names and wording."""

from __future__ import annotations

import json
import re

import pytest
from tests.journaling import BOOT_ID, WALL_S

from inspectd.publish.events import DIRECT, DURABLE, Event, EventName, Occurrence, word

EVENT_ID = bytes(range(16))


def test_each_event_is_durable_or_direct() -> None:
    """MQTT-CONTRACT "event"."""
    durable = "TriggerMissed FramesSkipped ResultsLost PartAssigned PartUnknown Reviewed ConfigurationChanged"
    durable += " ModelChanged CameraChanged CommandReceived AlarmRaised AlarmCleared DayAccounted"
    assert sorted(DURABLE) == sorted(durable.split())
    assert sorted(DIRECT) == ["AcquisitionDone", "JobStarted", "StateChanged"]


def test_a_durable_event_is_worded_with_its_number_and_what_it_is_about() -> None:
    """camelCase, UTC with milliseconds; the same twice is the same bytes."""
    event = Event(EventName.PART_ASSIGNED, "top", 200, {"by": "mes"}, job_id="job", part_id="SN1", result_id="id")
    payload = word(event, event_id=EVENT_ID, event_seq=7, wall_s=WALL_S + 0.25, boot_id=BOOT_ID)
    assert json.loads(payload) == {
        "schema": "inspectd.event/1.0",
        "eventId": "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "eventSeq": 7,
        "event": "PartAssigned",
        "time": "2026-11-30T00:53:20.250Z",
        "bootId": BOOT_ID,
        "severity": 200,
        "source": "top",
        "jobId": "job",
        "partId": "SN1",
        "resultId": "id",
        "detail": {"by": "mes"},
    }
    assert Occurrence(event, EVENT_ID, WALL_S + 0.25, BOOT_ID).word(7) == payload


def test_a_direct_event_has_no_number_and_what_is_not_known_is_left_out() -> None:
    payload = word(
        Event(EventName.STATE_CHANGED, "station", 100), event_id=EVENT_ID, event_seq=None, wall_s=0.0, boot_id=BOOT_ID
    )
    document = json.loads(payload)
    assert not {"eventSeq", "jobId", "partId", "resultId"} & document.keys()
    assert document["detail"] == {}


@pytest.mark.parametrize("severity", [0, 1001, -5])
def test_a_severity_outside_1_to_1000_is_refused(severity: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"severity {severity}")):
        Event(EventName.STATE_CHANGED, "station", severity)
