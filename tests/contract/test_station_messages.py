"""What the station says of itself while it works: alarms, events and health are what the contract says."""

from __future__ import annotations

import json
import uuid
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.schemas import WrongMessage, validate

from inspectd.health.alarmkinds import KINDS, AlarmCode
from inspectd.health.alarms import Alarm, AlarmBook, Condition, word
from inspectd.publish import events, healthreport
from inspectd.publish.events import DURABLE, Event, EventName
from inspectd.publish.healthreport import Breaker, CameraHealth, Health, ModelHealth, ModelState
from inspectd.publish.messages import Clock

WALL_S = 1_796_000_000.123
BOOT_ID = "6f0c3d64-2f6e-4b0c-9d0a-0f3f5a1c2b7d"
EVENT_ID = uuid.UUID("0196f1a2-7c4e-7b11-8a53-1d2c3b4a5968").bytes
ALARM = Alarm("CameraLost", "top", "gives no frames any more", True, True, WALL_S, 3)
CAMERA = CameraHealth(True, 29.97, 299, 0, 1, 0, 0.0123)
MODEL = ModelHealth(
    state=ModelState.RUNNING,
    device="CPU",
    requests=4,
    requests_busy=2,
    submitted=300,
    done=297,
    timed_out=1,
    retried=1,
    dropped=1,
    failed=0,
    unavailable=0,
    skipped=0,
    skip_every=1,
    utilisation=0.41237,
    p50_s=0.0201,
    p95_s=0.025,
    p99_s=0.031,
    wait_p95_s=0.0021,
    queue_depth=1,
    lost_requests=0,
    restarts=0,
    rss_bytes=180_000_000,
    breaker=Breaker.CLOSED,
    last_done_age_s=0.01,
)
HEALTH = Health(
    cameras={"top": CAMERA},
    models={"defects": MODEL},
    mqtt=healthreport.MqttHealth(True, 0, 2, 1_000_000, 170.25, 0.05, 0, 0, 29.9),
    storage=healthreport.StorageHealth(0.0012, 50_000_000_000, 0),
    host=healthreport.HostHealth(37.5, 3_000_000_000, 61.0, False),
    clock=Clock("ntp", synced=True, max_error_s=0.0021),
    uptime_s=3600.04,
    version="0.1.0",
)
SILENT_MODEL = replace(
    MODEL,
    state=ModelState.REPAIR,
    breaker=Breaker.OPEN,
    submitted=0,
    done=0,
    device=None,
    p50_s=None,
    p95_s=None,
    p99_s=None,
    wait_p95_s=None,
    rss_bytes=None,
    last_done_age_s=None,
)


def test_an_alarm_says_what_is_wrong_since_when_and_what_to_do() -> None:
    assert validate("alarm/CameraLost/top", word(ALARM)) == {
        "schema": "inspectd.alarm/1.0",
        "code": "CameraLost",
        "source": "top",
        "severity": 800,
        "active": True,
        "acknowledged": False,
        "confirmed": False,
        "since": "2026-11-30T00:53:20.123Z",
        "count": 3,
        "text": "gives no frames any more",
        "cure": KINDS[AlarmCode.CAMERA_LOST].cure,
        "blocks": "ready",
    }


def test_an_alarm_that_is_gone_is_an_empty_message_on_its_topic() -> None:
    assert validate("alarm/CameraLost/top", b"") is None


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        ("alarm/CameraLost/side", "is of CameraLost/top"),
        ("alarm/CameraLost/top/x", "wanted is alarm/CODE/SOURCE"),
        ("alarm/CameraGone/top", "wanted is alarm/CODE/SOURCE"),
        ("alarm/CameraLost/t p", "wanted is alarm/CODE/SOURCE"),
    ],
)
def test_an_alarm_on_another_alarms_topic_is_a_fault(topic: str, complaint: str) -> None:
    with pytest.raises(WrongMessage, match=complaint):
        validate(topic, word(ALARM))


def test_an_empty_message_is_nothing_but_an_alarm_that_is_gone() -> None:
    for topic in ("health", "event", "alarm/Weather/station"):
        with pytest.raises(WrongMessage):
            validate(topic, b"")


@pytest.mark.parametrize("code", AlarmCode)
@given(st.text(max_size=1000) | st.just("\ud800\x00漢" * 200))
def test_every_alarm_and_its_events_are_valid_with_any_text(code: AlarmCode, text: str) -> None:
    book = AlarmBook()
    condition = Condition(code, "top", text, blocks=True)
    changes = book.observe([condition], 0.0, WALL_S) + book.observe([condition], 100.0, WALL_S)
    changes += book.observe([], 200.0, WALL_S) + book.observe([], 300.0, WALL_S) + book.confirm_all()
    happened = [change.event for change in changes if change.event is not None]
    assert [event.name for event in happened] == [EventName.ALARM_RAISED, EventName.ALARM_CLEARED]
    for change in changes:
        validate(change.leaf, change.payload)
    for number, event in enumerate(happened, start=1):
        payload = events.word(event, event_id=EVENT_ID, event_seq=number, wall_s=WALL_S, boot_id=BOOT_ID)
        assert validate("event", payload)["detail"]["code"] == code


DETAILS: dict[EventName, dict[str, Any]] = {
    EventName.FRAMES_SKIPPED: {"count": 3, "fromFrameId": 7, "toFrameId": 9, "reason": "queue full"},
    EventName.RESULTS_LOST: {"streamId": "s-1", "ranges": [[1, 5], [9, 9]], "count": 6},
    EventName.CONFIGURATION_CHANGED: {"from": "9f2c", "to": "41b7", "by": "reload"},
    EventName.MODEL_CHANGED: {
        "model": "defects",
        "from": {"device": "GPU", "hash": "9f2c"},
        "to": {"device": "CPU", "hash": "9f2c", "requestsMost": 4},
        "reason": "runs on CPU, since GPU failed: device lost",
    },
    EventName.COMMAND_RECEIVED: {"requester": "mes-1", "command": "replay", "result": "completed"},
    EventName.ALARM_RAISED: {"code": "CameraLost", "text": "x", "since": "2026-11-30T00:53:20.123Z", "count": 1},
    EventName.ALARM_CLEARED: {"code": "CameraLost", "text": "x", "since": "2026-11-30T00:53:20.123Z", "count": 1},
    EventName.DAY_ACCOUNTED: {"captured": 100, "accounted": 99, "inFlight": 1},
    EventName.STATE_CHANGED: {"from": "Ready", "to": "Error", "by": "fault appeared", "reasons": ["x"]},
}


def said(name: EventName, event_seq: int | None, detail: dict[str, Any]) -> bytes:
    event = Event(name, "station", 100, detail, job_id="job-1", result_id=str(uuid.UUID(bytes=EVENT_ID)))
    return events.word(event, event_id=EVENT_ID, event_seq=event_seq, wall_s=WALL_S, boot_id=BOOT_ID)


@pytest.mark.parametrize("name", EventName)
def test_every_event_is_valid_and_only_stored_ones_have_a_number(name: EventName) -> None:
    """A subscriber that sees a gap in eventSeq knows that something is missing."""
    is_stored = name in DURABLE
    document = validate("event", said(name, 5 if is_stored else None, DETAILS.get(name, {})))
    assert (document["event"], document.get("eventSeq"), document["jobId"]) == (name, 5 if is_stored else None, "job-1")
    with pytest.raises(WrongMessage):
        validate("event", said(name, None if is_stored else 5, DETAILS.get(name, {})))


@pytest.mark.parametrize("name", DETAILS)
def test_an_event_without_its_details_is_a_fault(name: EventName) -> None:
    with pytest.raises(WrongMessage, match="is a required property"):
        validate("event", said(name, 1, {}))


def test_health_says_how_each_part_did() -> None:
    document = validate("health", healthreport.health(HEALTH))
    assert document["cameras"]["top"] == {
        "connected": True, "fps": 29.97, "framesReceived": 299, "framesIncomplete": 0, "framesMissed": 1,
        "reconnects": 0, "lastFrameAgeMs": 12.3,
    }  # fmt: skip
    model = document["models"]["defects"]
    assert (model["completionRate"], model["utilisation"], model["waitP95Ms"]) == (0.99, 0.4124, 2.1)
    assert document["storage"] == {"commitP95Ms": 1.2, "freeBytes": 50_000_000_000, "evidenceBytes": 0}
    assert (document["uptimeS"], document["clock"]["maxErrorMs"]) == (3600.0, 2.1)


def test_every_number_that_is_gathered_is_said() -> None:
    """The message has one field for each of its parts' values, and `completionRate`."""
    document = json.loads(healthreport.health(HEALTH))
    assert len(document["models"]["defects"]) == len(fields(ModelHealth)) + 1
    assert len(document["cameras"]["top"]) == len(fields(CameraHealth))
    for name in ("mqtt", "storage", "host", "clock"):
        assert len(document[name]) == len(fields(getattr(HEALTH, name)))


def test_what_could_not_be_measured_is_left_out_and_never_null() -> None:
    """No rate where nothing was submitted: 0 would be an alarm, 1 a lie."""
    silent = replace(
        HEALTH,
        cameras={"top": replace(CAMERA, connected=False, last_frame_age_s=None)},
        models={"defects": SILENT_MODEL},
        mqtt=replace(HEALTH.mqtt, outage_hours=None, oldest_unsent_age_s=None, certificate_days_left=None),
        storage=healthreport.StorageHealth(None, None, 0),
        host=healthreport.HostHealth(0.0, 1, None, None),
        clock=Clock("none", synced=False),
    )
    document = validate("health", healthreport.health(silent))
    left_out = {"completionRate", "device", "p50Ms", "p95Ms", "p99Ms", "waitP95Ms", "rssBytes", "lastDoneAgeMs"}
    assert not left_out & document["models"]["defects"].keys()
    assert b"null" not in healthreport.health(silent)


@given(st.floats(0, 1e9), st.integers(0, 2**53), st.floats(0, 1))
def test_health_is_valid_for_any_numbers(seconds: float, count: int, share: float) -> None:
    model = replace(MODEL, submitted=count, done=count, utilisation=share, p99_s=seconds, last_done_age_s=seconds)
    camera = replace(CAMERA, fps=seconds, frames_missed=count, last_frame_age_s=seconds)
    validate("health", healthreport.health(replace(HEALTH, cameras={"a": camera}, models={"b": model})))
