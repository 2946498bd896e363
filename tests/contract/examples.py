"""The example messages of the contract, made by the daemon's own wording with fixed ids and times."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.example_results import about_parts, passed, result_of
from tests.contract.example_station import about_the_station, alarms, happened, ready
from tests.contract.example_values import RESULT_ID, SEQ, STREAM_ID, WALL_S

from inspectd.publish import reports
from inspectd.publish.commands import Answer
from inspectd.publish.reports import ErrorNumber, Vision
from inspectd.publish.uuid7 import uuid_text

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "acknowledge": {"code": "CameraLost", "source": "top"},
    "confirm-all": {},
    "get-result": {"resultId": uuid_text(RESULT_ID)},
    "get-state": {"validForMs": 5000},
    "replay": {"streamId": STREAM_ID, "fromSeq": 4512, "toSeq": SEQ},
    "reset-counters": {},
}
COMMANDS = tuple(_ARGUMENTS)
"""Sorted by name, as the station lists them."""


def examples() -> dict[str, bytes]:
    """Every example by its name, which begins with the name of its schema."""
    return {**about_parts(), **about_the_station(COMMANDS), **alarms(), **happened(), **_answers(), **_requests()}


def _answers() -> dict[str, bytes]:
    lost = {"sent": 198, "lost": 2, "lostRanges": [[4600, 4601]]}
    rejection = f"this station's stream is {STREAM_ID}"
    answers = {
        "get-result": _completed("get-result", {"result": json.loads(result_of(passed()))}),
        "get-state": _completed("get-state", json.loads(reports.state(ready()))),
        "accepted": Answer(_request_id("replay"), "replay", "accepted"),
        "replay": _completed("replay", lost),
        "rejected": Answer("mes-1-0007", "replay", "rejected", ErrorNumber.NOT_FOUND, rejection),
    }
    return {f"rsp-{name}": reports.response(answer, Vision.OPERATIONAL, WALL_S) for name, answer in answers.items()}


def _completed(command: str, detail: dict[str, Any]) -> Answer:
    return Answer(_request_id(command), command, "completed", detail=detail)


def _request_id(command: str) -> str:
    return f"mes-1-{COMMANDS.index(command) + 1:04}"


def _requests() -> dict[str, bytes]:
    """As a client writes them."""
    requests = {
        f"cmd-{command}": {"requestId": _request_id(command), "requester": "mes-1", **arguments}
        for command, arguments in _ARGUMENTS.items()
    }
    receipt = {"subscriber": "mes-1", "streamId": STREAM_ID, "upToSeq": SEQ}
    return {name: json.dumps(document).encode() for name, document in {**requests, "ack": receipt}.items()}
