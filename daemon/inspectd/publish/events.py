"""Things that happened, and their wording for `event`. Pure; MQTT-CONTRACT "state, health, …" is the source.

A durable event is a row of the journal before it is sent; a direct one goes out at once or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from inspectd.publish.uuid7 import uuid_text
from inspectd.publish.wire import encode, time_text

SEVERITY_MIN, SEVERITY_MAX = 1, 1000
"""As OPC UA has it."""


class EventName(StrEnum):
    """Every event of the contract."""

    TRIGGER_MISSED = "TriggerMissed"
    FRAMES_SKIPPED = "FramesSkipped"
    RESULTS_LOST = "ResultsLost"
    PART_ASSIGNED = "PartAssigned"
    PART_UNKNOWN = "PartUnknown"
    REVIEWED = "Reviewed"
    CONFIGURATION_CHANGED = "ConfigurationChanged"
    MODEL_CHANGED = "ModelChanged"
    CAMERA_CHANGED = "CameraChanged"
    COMMAND_RECEIVED = "CommandReceived"
    ALARM_RAISED = "AlarmRaised"
    ALARM_CLEARED = "AlarmCleared"
    DAY_ACCOUNTED = "DayAccounted"
    JOB_STARTED = "JobStarted"
    ACQUISITION_DONE = "AcquisitionDone"
    STATE_CHANGED = "StateChanged"


DIRECT = frozenset({EventName.JOB_STARTED, EventName.ACQUISITION_DONE, EventName.STATE_CHANGED})
"""Worth something at once only."""
DURABLE = frozenset(EventName) - DIRECT


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, where. `detail` has the contract's camelCase names; nobody changes it afterwards."""

    name: EventName
    source: str
    """A camera, a model, `mqtt`, `storage`, `clock` or `station`."""
    severity: int
    """1 to 1000."""
    detail: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    job_id: str | None = None
    part_id: str | None = None
    result_id: str | None = None

    def __post_init__(self) -> None:
        if not SEVERITY_MIN <= self.severity <= SEVERITY_MAX:
            raise ValueError(f"{self.name}: severity {self.severity} is not in {SEVERITY_MIN}…{SEVERITY_MAX}")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event with what it got when it happened. Its number comes with its row."""

    event: Event
    event_id: bytes
    wall_s: float
    boot_id: str

    def word(self, event_seq: int | None) -> bytes:
        """Word it; None: a direct event."""
        return word(self.event, event_id=self.event_id, event_seq=event_seq, wall_s=self.wall_s, boot_id=self.boot_id)


def word(event: Event, *, event_id: bytes, event_seq: int | None, wall_s: float, boot_id: str) -> bytes:
    """Word an event; `event_id` is a UUID's 16 bytes.

    Raises ValueError for a number that is not finite, TypeError for what JSON does not know.
    """
    document: dict[str, Any] = {"schema": "inspectd.event/1.0", "eventId": uuid_text(event_id)}
    if event_seq is not None:
        document["eventSeq"] = event_seq
    document |= {
        "event": event.name.value,
        "time": time_text(wall_s),
        "bootId": boot_id,
        "severity": event.severity,
        "source": event.source,
    }
    ids = {"jobId": event.job_id, "partId": event.part_id, "resultId": event.result_id}
    document |= {name: value for name, value in ids.items() if value is not None}
    document["detail"] = dict(event.detail)
    return encode(document)
