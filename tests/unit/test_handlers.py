from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.contract.schemas import published_schema, validate

from inspectd.errors import StorageError
from inspectd.publish.commands import Answer, Request, Topic
from inspectd.publish.handlers import ANSWER_ROOM_BYTES, Ports, handlers
from inspectd.publish.reports import ErrorNumber, Vision, response

WALL_S = 1_796_000_000.0
ID = "0196f1a2-7c4e-7b11-8a53-1d2c3b4a5968"
RESULT = json.dumps({"streamId": "s", "seq": 7, "resultId": ID}).encode()


@dataclass(frozen=True, slots=True)
class Stored:
    payload: bytes


@dataclass(slots=True)
class Station:
    """What the commands reach."""

    results: dict[str, bytes] = field(default_factory=dict)
    """Payload by result or job id."""
    alarms: set[tuple[str, str]] = field(default_factory=lambda: {("CameraLost", "top"), ("CameraLost", "side")})
    fault: Exception | None = None
    limit_bytes: int = 64 * 1024
    resets: int = 0

    async def ask(self, command: str, arguments: dict[str, Any]) -> Answer:
        """Do a command; give its only answer."""
        ports = Ports(
            state=lambda: {"vision": "Operational", "ready": True},
            find=self.find,
            reset=self.reset,
            confirm_all=lambda: len(self.alarms),
            acknowledge=self.acknowledge,
            payload_limit_bytes=lambda: self.limit_bytes,
        )
        answers: list[Answer] = []
        request = Request(command, "r1", "mes", Topic("base/rsp/mes"), arguments)
        await handlers(ports)[command](request, answers.append)
        (answer,) = answers
        return answer

    async def find(self, *, result_id: bytes | None = None, job_id: str | None = None) -> Stored | None:
        if self.fault is not None:
            raise self.fault
        payload = self.results.get(job_id if result_id is None else str(UUID(bytes=result_id)))  # type: ignore[arg-type]
        return None if payload is None else Stored(payload)

    async def reset(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.resets += 1

    def acknowledge(self, code: str | None, source: str | None) -> int:
        return sum(code in (None, alarm[0]) and source in (None, alarm[1]) for alarm in self.alarms)


async def test_get_state_answers_with_the_document_of_the_topic() -> None:
    assert (await Station().ask("get-state", {})).detail == {"vision": "Operational", "ready": True}


@pytest.mark.parametrize("wanted", [{"resultId": ID}, {"resultId": ID.upper()}, {"jobId": ID}])
async def test_get_result_answers_with_the_stored_result(wanted: dict[str, str]) -> None:
    answer = await Station({ID: RESULT}).ask("get-result", wanted)
    assert (answer.status, answer.detail) == ("completed", {"result": json.loads(RESULT)})


async def test_a_result_too_large_for_an_answer_is_named_for_replay() -> None:
    """An answer that was shortened to fit would be another result."""
    station = Station({ID: RESULT}, limit_bytes=len(RESULT) + ANSWER_ROOM_BYTES - 1)
    answer = await station.ask("get-result", {"jobId": ID})
    assert answer.detail == {"replay": {"streamId": "s", "fromSeq": 7, "toSeq": 7}}
    station.limit_bytes += 1
    assert "result" in (await station.ask("get-result", {"jobId": ID})).detail


async def test_the_largest_result_that_is_answered_whole_stays_whole_on_the_wire() -> None:
    """Every id as long as it may be, every character of four bytes."""
    result = {"streamId": "s", "seq": 7, "text": ""}
    room = 64 * 1024 - ANSWER_ROOM_BYTES - len(json.dumps(result, separators=(",", ":")))
    result["text"] = "x" * room
    payload = json.dumps(result, separators=(",", ":")).encode()
    answer = await Station({"j": payload}).ask("get-result", {"jobId": "j"})
    long = Answer("𝔘" * 128, "get-result", "completed", detail=answer.detail)
    assert validate("rsp/mes", response(long, Vision.OPERATIONAL, WALL_S))["detail"] == {"result": result}


@pytest.mark.parametrize("wanted", [{"resultId": ID}, {"jobId": "x"}, {"partId": "SN123"}])
async def test_a_result_that_is_not_there_is_error_7(wanted: dict[str, str]) -> None:
    answer = await Station().ask("get-result", wanted)
    assert (answer.status, answer.error) == ("rejected", ErrorNumber.NOT_FOUND)


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("get-result", {"resultId": ID}),
    ("get-result", {"partId": "SN123"}),
    ("get-result", {"jobId": "j"}),
    ("acknowledge", {}),
    ("acknowledge", {"code": "CameraLost"}),
    ("acknowledge", {"code": None, "source": "top"}),
]
BAD: list[tuple[str, dict[str, Any]]] = [
    ("get-result", {}),
    ("get-result", {"resultId": ID, "jobId": ID}),
    ("get-result", {"resultId": "x"}),
    ("get-result", {"resultId": 5}),
    ("get-result", {"resultId": None}),
    ("get-result", {"partId": ""}),
    ("get-result", {"partId": "x" * 65}),
    ("get-result", {"jobId": ["a"]}),
    ("get-result", {"jobId": "x" * 129}),
    ("acknowledge", {"code": 5}),
    ("acknowledge", {"code": ""}),
    ("acknowledge", {"source": "x" * 65}),
    ("acknowledge", {"source": {}}),
]


def is_valid(command: str, arguments: dict[str, Any]) -> bool:
    request = {"requestId": "r1", "requester": "mes", **arguments}
    return Draft202012Validator(published_schema(f"cmd-{command}")).is_valid(request)


@pytest.mark.parametrize(("command", "arguments"), BAD)
async def test_wrong_arguments_are_error_2(command: str, arguments: dict[str, Any]) -> None:
    answer = await Station().ask(command, arguments)
    assert (answer.status, answer.error) == ("rejected", ErrorNumber.BAD_ARGUMENT)


@pytest.mark.parametrize(("command", "arguments"), BAD)
def test_wrong_arguments_are_against_the_schema(command: str, arguments: dict[str, Any]) -> None:
    assert not is_valid(command, arguments)


@pytest.mark.parametrize(("command", "arguments"), GOOD)
async def test_arguments_of_the_schema_are_taken(command: str, arguments: dict[str, Any]) -> None:
    assert (await Station().ask(command, arguments)).error != ErrorNumber.BAD_ARGUMENT
    assert is_valid(command, arguments)


@pytest.mark.parametrize(
    "command", ["get-state", "get-result", "replay", "reset-counters", "confirm-all", "acknowledge"]
)
def test_every_command_has_a_schema_with_what_all_requests_have(command: str) -> None:
    schema, common = published_schema(f"cmd-{command}"), published_schema("cmd")
    assert common["properties"].items() <= schema["properties"].items()
    assert set(common["required"]) <= set(schema["required"])


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)


@given(
    command=st.sampled_from(["get-result", "acknowledge", "confirm-all", "get-state"]),
    arguments=st.dictionaries(
        st.sampled_from(["resultId", "jobId", "partId", "code", "source"]) | st.text(), VALUES, max_size=3
    ),
)
async def test_no_arguments_whatever_make_a_command_fail(command: str, arguments: dict[str, Any]) -> None:
    """Anyone may write to the broker."""
    answer = await Station().ask(command, arguments)
    assert answer.status in {"completed", "rejected"}
    validate("rsp/x", response(answer, Vision.OPERATIONAL, WALL_S))


@pytest.mark.parametrize("fault", [StorageError("disk"), TimeoutError()], ids=["refuses", "says nothing"])
@pytest.mark.parametrize(("command", "arguments"), [("get-result", {"jobId": "x"}), ("reset-counters", {})])
async def test_a_disk_that_does_not_answer_is_error_8(
    command: str, arguments: dict[str, str], fault: Exception
) -> None:
    answer = await Station(fault=fault).ask(command, arguments)
    assert (answer.status, answer.error) == ("failed", ErrorNumber.INTERNAL)
    assert answer.error_text


async def test_reset_counters_is_completed_when_it_is_on_the_disk() -> None:
    station = Station()
    assert (await station.ask("reset-counters", {})).status == "completed"
    assert station.resets == 1


async def test_alarms_are_acknowledged_by_code_and_source_and_confirmed_all_at_once() -> None:
    station = Station()
    assert (await station.ask("acknowledge", {"code": "CameraLost", "source": "top"})).detail == {"alarms": 1}
    assert (await station.ask("acknowledge", {})).detail == {"alarms": 2}
    assert (await station.ask("confirm-all", {})).detail == {"alarms": 2}
    assert (await station.ask("acknowledge", {"code": "DeadLetter"})).error == ErrorNumber.NOT_FOUND
    station.alarms.clear()
    assert (await station.ask("acknowledge", {})).detail == {"alarms": 0}, "all of none is no fault"
