"""Words what the station says of itself: status, state, counters, heartbeat, meta, and answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Literal

from inspectd.publish.counters import Counters, Tally
from inspectd.publish.wire import encode, time_text
from inspectd.records import CameraFacts, ModelFacts

if TYPE_CHECKING:
    from inspectd.publish.commands import Answer  # commands take their error numbers from here

CONTRACT = "1.0"
"""Version of MQTT-CONTRACT that is spoken here."""


class Vision(StrEnum):
    """State machine of OPC 40100-1."""

    PREOPERATIONAL = "Preoperational"
    HALTED = "Halted"
    ERROR = "Error"
    OPERATIONAL = "Operational"


class Automatic(StrEnum):
    """Its automatic mode, where Operational."""

    INITIALIZED = "Initialized"
    READY = "Ready"
    SINGLE_EXECUTION = "SingleExecution"
    CONTINUOUS_EXECUTION = "ContinuousExecution"


class ErrorNumber(IntEnum):
    """Why a command was not done."""

    OK = 0
    UNKNOWN_COMMAND = 1
    BAD_ARGUMENT = 2
    STALE_OR_RETAINED = 3
    NOT_ALLOWED_IN_STATE = 4
    RECIPE_UNKNOWN = 5
    RECIPE_LOAD_FAILED = 6
    NOT_FOUND = 7
    INTERNAL = 8
    NOT_AUTHORISED = 9
    BUSY = 10
    CAMERA_UNAVAILABLE = 11


_HEARTBEAT_STATES = {Vision.PREOPERATIONAL: 1, Vision.HALTED: 2, Vision.ERROR: 3, Vision.OPERATIONAL: 4}


@dataclass(frozen=True, slots=True)
class RecipeFacts:
    """A recipe, as state and meta name it."""

    id: str
    number: int
    """0: it has none."""
    hash: str


@dataclass(frozen=True, slots=True)
class CameraState:
    """One camera's share of the state."""

    mode: Literal["continuous", "triggered"]
    connected: bool
    ready: bool


@dataclass(frozen=True, slots=True)
class StationState:
    """Whether parts can be inspected now, and what is in the way."""

    vision: Vision
    automatic: Automatic | None
    ready: bool
    degraded: bool
    reasons: tuple[str, ...]
    """Short sentences: why not ready, why degraded."""
    simulation: bool
    recipe: RecipeFacts
    jobs_in_flight: int
    jobs_max: int
    since_wall_s: float
    cameras: Mapping[str, CameraState]


@dataclass(frozen=True, slots=True)
class MetaModel:
    """A model that runs, with what the configuration adds for people."""

    facts: ModelFacts
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Class → language → label."""
    golden_passed: bool | None = None
    """None: no golden picture is configured."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The birth certificate."""

    software_version: str
    openvino_version: str
    python_version: str
    boot_id: str
    commands: tuple[str, ...]
    configuration_hash: str
    recipes: tuple[RecipeFacts, ...]
    models: tuple[MetaModel, ...]
    cameras: tuple[CameraFacts, ...]


def status(reason: Literal["start", "stop", "connectionLost", "failure"], boot_id: str, wall_s: float) -> bytes:
    """Word the status: online for the reason `start`, else offline. `connectionLost` is the last will's."""
    return encode(
        {
            "schema": "inspectd.status/1.0",
            "status": "online" if reason == "start" else "offline",
            "reason": reason,
            "bootId": boot_id,
            "time": time_text(wall_s),
        }
    )


def state_document(now: StationState) -> dict[str, Any]:
    """Give the state's document."""
    return {
        "vision": now.vision.value,
        "automatic": None if now.automatic is None else now.automatic.value,
        "ready": now.ready,
        "degraded": now.degraded,
        "reasons": now.reasons,
        "simulation": now.simulation,
        "recipe": _recipe(now.recipe),
        "jobsInFlight": now.jobs_in_flight,
        "jobsMax": now.jobs_max,
        "since": time_text(now.since_wall_s),
        "cameras": {
            name: {"mode": camera.mode, "connected": camera.connected, "ready": camera.ready}
            for name, camera in now.cameras.items()
        },
    }


def state(now: StationState) -> bytes:
    """Word the state."""
    return encode(state_document(now))


def counters_document(counted: Counters, captured: Mapping[str, int], in_flight: Mapping[str, int]) -> dict[str, Any]:
    """Give the document of the counters. `captured` and `in_flight` by camera; the totals are their sums.

    A camera that has counted nothing yet is there with zeros. `yield` is 0 while no part was judged.
    """
    nothing = Tally()
    parts = counted.parts
    cameras = {
        name: {
            "captured": captured.get(name, 0),
            "inFlight": in_flight.get(name, 0),
            **_tally(counted.per_camera.get(name, nothing)),
        }
        for name in sorted({*counted.per_camera, *captured, *in_flight})
    }
    return {
        "since": time_text(counted.since_wall_s),
        "captured": sum(captured.values()),
        "inFlight": sum(in_flight.values()),
        **_tally(counted),
        "byCode": {str(code): count for code, count in sorted(counted.by_code.items())},
        "perCamera": cameras,
        "parts": {
            **_tally(parts),
            "yield": round(parts.ok / parts.total, 4) if parts.total else 0.0,
        },
        "triggersAccepted": counted.triggers_accepted,
        "triggersMissed": counted.triggers_missed,
        "late": counted.late,
        "skipped": counted.skipped,
        "verdictsExpired": counted.verdicts_expired,
        "simulated": counted.simulated,
        "challenge": counted.challenge,
        "possiblyLost": counted.possibly_lost,
        "resultsLost": counted.results_lost,
        "eventsLost": counted.events_lost,
    }


def counters(counted: Counters, captured: Mapping[str, int], in_flight: Mapping[str, int]) -> bytes:
    """Word the counters."""
    return encode(counters_document(counted, captured, in_flight))


def heartbeat(number: int, vision: Vision, wall_s: float, *, ready: bool) -> bytes:
    """Word the beat for a PLC's watchdog. `number` goes round at 2³²."""
    return encode(
        {"n": number % 2**32, "ready": int(ready), "state": _HEARTBEAT_STATES[vision], "ts": max(int(wall_s), 0)}
    )


def meta(facts: Meta) -> bytes:
    """Word the birth message."""
    return encode(
        {
            "schema": "inspectd.meta/1.0",
            "software": {
                "version": facts.software_version,
                "openvino": facts.openvino_version,
                "python": facts.python_version,
            },
            "bootId": facts.boot_id,
            "contract": CONTRACT,
            "commands": facts.commands,
            "configurationHash": facts.configuration_hash,
            "recipes": [_recipe(recipe) for recipe in facts.recipes],
            "models": [_model(model) for model in facts.models],
            "cameras": [_camera(camera) for camera in facts.cameras],
        }
    )


def response(answer: Answer, vision: Vision, wall_s: float) -> bytes:
    """Word the answer to a command. `vision`: the state of the vision system as it answers."""
    document: dict[str, Any] = {
        "schema": "inspectd.rsp/1.0",
        "requestId": answer.request_id,
        "command": answer.command,
        "status": answer.status,
        "error": int(answer.error),
        "errorText": answer.error_text,
        "state": vision.value,
        "time": time_text(wall_s),
    }
    if answer.job_id is not None:
        document["jobId"] = answer.job_id
    if answer.detail:
        document["detail"] = answer.detail
    return encode(document)


def _tally(tally: Tally | Counters) -> dict[str, int]:
    return {
        "ok": tally.ok,
        "notOk": tally.not_ok,
        "notDecidable": tally.not_decidable,
        "undefined": tally.undefined,
    }


def _recipe(recipe: RecipeFacts) -> dict[str, Any]:
    return {"id": recipe.id, "number": recipe.number, "hash": recipe.hash}


def _model(model: MetaModel) -> dict[str, Any]:
    facts = model.facts
    document: dict[str, Any] = {
        "model": facts.model,
        "task": facts.task,
        "hash": facts.hash,
        "device": facts.device,
        "precision": facts.precision,
    }
    if facts.task != "ocr":
        # An OCR model's classes are its characters, thousands of them, and mean nothing to a subscriber.
        document["classes"] = [
            {"id": number, "name": name, "labels": dict(model.labels.get(name, {}))}
            for number, name in enumerate(facts.classes)
        ]
    if model.golden_passed is not None:
        document["goldenPassed"] = model.golden_passed
    return document


def _camera(camera: CameraFacts) -> dict[str, Any]:
    known = {"vendor": camera.vendor, "model": camera.model, "serial": camera.serial, "firmware": camera.firmware}
    return {
        "cameraId": camera.camera,
        "kind": camera.kind,
        **{name: value for name, value in known.items() if value is not None},
    }
