"""Words an inspection for MQTT: `result`, `lastresult` and `verdict`, as bytes. Pure; MQTT-CONTRACT is the source.

Fields whose value is not known are left out, so that no field ever changes its type; those that the contract calls
"… or null" are always there.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from inspectd.publish.uuid7 import uuid_text
from inspectd.publish.wire import encode, milliseconds, smallest, time_text
from inspectd.records import Code, ConfigurationId, Detection, Evaluation, Inspection, ModelRun, RuleResult

DETECTIONS_MAX = 100
"""So many detections go out, the best first; the decision and the counts are made of all."""
VERDICT_MAX_BYTES = 400

_EVALUATION_TEXTS = {
    Evaluation.UNDEFINED: "Undefined",
    Evaluation.OK: "OK",
    Evaluation.NOT_OK: "NotOK",
    Evaluation.NOT_DECIDABLE: "NotDecidable",
}
_VERDICT_FIELDS_LEFT_EMPTY = ("part", "cam", "meas")
"""Emptied in this order if a verdict is too long. Emptied, not cut: a cut id may be another's; an empty one is nobody's
and makes the PLC reject."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How far the wall clock can be believed."""

    source: Literal["ntp", "ptp", "none"]
    synced: bool
    max_error_s: float | None = None


@dataclass(frozen=True, slots=True)
class Station:
    """Who speaks: the same for every result of this start of the daemon, but for the clock."""

    station_id: str
    stream_id: str
    boot_id: str
    software_version: str
    clock: Clock


def result(inspection: Inspection, station: Station, seq: int, uptime_ms: int, recipe_number: int = 0) -> bytes:
    """Word the full result. `recipe_number` is 0 where the recipe has none."""
    return encode(_document(inspection, station, seq, uptime_ms, recipe_number))


def last_result(inspection: Inspection, station: Station, seq: int, uptime_ms: int, recipe_number: int = 0) -> bytes:
    """Word the result without its detections; their counts stay."""
    document = _document(inspection, station, seq, uptime_ms, recipe_number)
    document["schema"] = "inspectd.lastresult/1.0"
    del document["resultContent"]["detections"]
    return encode(document)


def substitute(payload: bytes) -> bytes:
    """Make the small stand-in for a result that a broker refused for its size: same ids, seq and decision."""
    document = json.loads(payload)
    document["resultContent"]["detections"] = []
    return smallest(document)


def verdict(
    inspection: Inspection,
    seq: int,
    recipe_number: int = 0,
    part_id: str = "",
    form: Literal["json", "csv"] = "json",
) -> bytes:
    """Word the short message for a PLC: flat, at most 400 bytes, no number above 32 bits.

    `seq` 0: the record is not committed. `trig` is the trigger's number, or the camera's frame number without one,
    modulo 2³¹ like `seq`. `ts` and `ms` are whole seconds and the milliseconds beyond them of the decision's time,
    because milliseconds since 1970 need more than 32 bits. As CSV it is the values in the same order, one line
    without its end, quoted as in RFC 4180.
    """
    decision = inspection.decision
    closed_ms = min(max(round(inspection.closed_wall_s * 1e6) // 1000, 0), (2**32 - 1) * 1000)
    trigger = inspection.frame_id if inspection.trigger_id is None else inspection.trigger_id
    fields: dict[str, int | str] = {
        "v": 1,
        "seq": seq % 2**31,
        "id": uuid_text(inspection.result_id),
        "part": _one_line(part_id),
        "meas": _one_line(inspection.job_id),
        "trig": trigger % 2**31,
        "cam": _one_line(inspection.camera),
        "rcp": recipe_number % 2**31,
        "eval": int(decision.evaluation),
        "state": int(decision.state),
        "code": int(decision.code),
        "n": len(inspection.detections),
        "sim": int(inspection.simulated),
        "late": int(_is_late(inspection)),
        "ts": closed_ms // 1000,
        "ms": closed_ms % 1000,
    }
    write = encode if form == "json" else _csv_line
    payload = write(fields)
    for name in _VERDICT_FIELDS_LEFT_EMPTY:
        if len(payload) <= VERDICT_MAX_BYTES:
            break
        fields[name] = ""
        payload = write(fields)
    return payload


def _document(inspection: Inspection, station: Station, seq: int, uptime_ms: int, recipe_number: int) -> dict[str, Any]:
    decision = inspection.decision
    ended = time_text(inspection.closed_wall_s)
    latency_ms = milliseconds(inspection.latency_s)
    times: dict[str, Any] = {"startTime": time_text(inspection.captured_wall_s), "endTime": ended}
    if inspection.frame is not None:
        times["acquisitionDuration"] = milliseconds(inspection.frame.acquisition_s)
    times["processingDuration"] = latency_ms
    clock: dict[str, Any] = {"source": station.clock.source, "synced": station.clock.synced}
    if station.clock.max_error_s is not None:
        clock["maxErrorMs"] = milliseconds(station.clock.max_error_s)
    return {
        "schema": "inspectd.result/1.0",
        "stationId": station.station_id,
        "streamId": station.stream_id,
        "seq": seq,
        "bootId": station.boot_id,
        "uptimeMs": uptime_ms,
        "softwareVersion": station.software_version,
        "resultId": uuid_text(inspection.result_id),
        "jobId": inspection.job_id,
        "measId": inspection.job_id,
        "partId": None,
        "productId": None,
        "externalRecipeId": None,
        "internalRecipeId": _configuration(inspection.recipe),
        "internalConfigurationId": _configuration(inspection.configuration),
        "isPartial": False,
        "isSimulated": inspection.simulated,
        "isChallenge": False,
        "hasTransferableDataOnFile": False,
        "resultState": int(decision.state),
        "resultEvaluation": int(decision.evaluation),
        "resultEvaluationText": _EVALUATION_TEXTS[decision.evaluation],
        "resultEvaluationCode": int(decision.code),
        "resultEvaluationDetails": decision.details,
        "creationTime": ended,
        "processingTimes": times,
        "latencyMs": latency_ms,
        "deadlineMs": milliseconds(inspection.deadline_s),
        "isLate": _is_late(inspection),
        "resultUri": [],
        "fileFormat": [],
        "acquisition": _acquisition(inspection),
        "resultContent": _content(inspection.detections),
        "decision": {
            "recipeNumber": recipe_number,
            "rules": [_rule(rule) for rule in decision.rules],
            "notEvaluated": list(decision.not_evaluated),
        },
        "models": [_run(run) for run in inspection.runs],
        "clock": clock,
    }


def _is_late(inspection: Inspection) -> bool:
    """Whatever the clocks' last digit says, code 300 and isLate go together."""
    return inspection.is_late or inspection.decision.code == Code.DEADLINE


def _configuration(identity: ConfigurationId) -> dict[str, str]:
    return {
        "id": identity.id,
        "version": identity.version,
        "hash": identity.hash,
        "hashAlgorithm": identity.hash_algorithm,
    }


def _acquisition(inspection: Inspection) -> dict[str, Any]:
    document: dict[str, Any] = {"cameraId": inspection.camera}
    facts, frame = inspection.camera_facts, inspection.frame
    if facts is not None and facts.serial is not None:
        document["cameraSerial"] = facts.serial
    document["frameId"] = inspection.frame_id
    document["captureTime"] = time_text(inspection.captured_wall_s)
    if frame is not None:
        document["widthPx"] = frame.width_px
        document["heightPx"] = frame.height_px
        document["pixelFormat"] = frame.pixel_format
    if inspection.trigger_id is not None:
        document["trigger"] = {"triggerId": inspection.trigger_id}
    return document


def _content(detections: tuple[Detection, ...]) -> dict[str, Any]:
    best = detections
    if len(detections) > DETECTIONS_MAX:
        best = tuple(sorted(detections, key=lambda found: -found.confidence)[:DETECTIONS_MAX])
    return {
        "detections": [_detection(number, found) for number, found in enumerate(best)],
        "detectionCount": len(detections),
        "defectCounts": dict(Counter(found.class_name for found in detections).most_common()),
        "contentTruncated": len(best) < len(detections),
        "readings": [],
        "scores": {},
        "measurements": [],
    }


def _detection(number: int, found: Detection) -> dict[str, Any]:
    box = found.box
    return {
        "detectionId": number,
        "classId": found.class_id,
        "className": found.class_name,
        "confidence": round(found.confidence, 4),
        "bbox": {"x": round(box.x, 2), "y": round(box.y, 2), "w": round(box.w, 2), "h": round(box.h, 2)},
        "model": found.model,
    }


def _rule(rule: RuleResult) -> dict[str, Any]:
    document: dict[str, Any] = {"id": rule.id, "count": rule.count}
    if rule.worst_confidence is not None:
        document["worstConfidence"] = round(rule.worst_confidence, 4)
    document["evaluation"] = int(rule.evaluation)
    return document


def _run(run: ModelRun) -> dict[str, Any]:
    duration_ms = None if run.duration_s is None else milliseconds(run.duration_s)
    document = {
        "model": run.model,
        "task": run.task,
        "device": run.device,
        "precision": run.precision,
        "hash": run.hash,
        "durationMs": duration_ms,
        "attempts": run.attempts,
        "outcome": run.outcome.value,
    }
    return {name: value for name, value in document.items() if value is not None}


def _one_line(text: str) -> str:
    """Replace what a PLC cannot show and what would break its line; the contract refuses such ids at the door."""
    return text if text.isprintable() else "".join(mark if mark.isprintable() else "?" for mark in text)


def _csv_line(fields: dict[str, int | str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields.values())
    return line.getvalue().encode("utf-8", "replace")
