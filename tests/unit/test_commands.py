from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.errors import StorageError
from inspectd.publish.commands import (
    REMEMBERED_REQUESTS,
    REMEMBERED_S,
    REQUEST_LIMIT_BYTES,
    Answer,
    Commands,
    Reply,
    Request,
    Respond,
    Unanswerable,
    get_state,
)
from inspectd.publish.desk import WAITING, Desk
from inspectd.publish.effects import Incoming, Message
from inspectd.publish.reasons import NOT_AUTHORISED, PACKET_TOO_LARGE
from inspectd.publish.replay import MOST_RESULTS, Replay
from inspectd.publish.reports import ErrorNumber

BASE = "acme/line3/aoi-01"


def commands() -> Commands:
    return Commands(BASE, {"get-state": get_state})


def incoming(command: str = "get-state", payload: bytes | None = None, **rest: Any) -> Incoming:
    topic, retain = f"{BASE}/cmd/{command}", rest.pop("retain", False)
    response_topic, correlation = rest.pop("response_topic", None), rest.pop("correlation", None)
    document = {"requestId": "r1", "requester": "mes"} | rest
    return Incoming(
        topic, json.dumps(document).encode() if payload is None else payload, retain, response_topic, correlation
    )


def rejected(admitted: object) -> ErrorNumber:
    assert isinstance(admitted, Reply)
    assert admitted.answer.status == "rejected"
    return admitted.answer.error


def test_a_proper_request_is_admitted_and_answered_on_the_requesters_topic() -> None:
    request = commands().admit(incoming(correlation=b"\x01"), 0.0)
    assert isinstance(request, Request)
    assert (request.command, request.request_id, request.reply_topic) == ("get-state", "r1", f"{BASE}/rsp/mes")
    assert request.correlation == b"\x01"


@pytest.mark.parametrize("requester", [None, "", "a/b", "a b", "ä", "x" * 65, 5, "+", "a\n"])
def test_a_request_without_a_proper_requester_is_answered_nowhere(requester: object) -> None:
    assert isinstance(commands().admit(incoming(requester=requester), 0.0), Unanswerable)


@pytest.mark.parametrize(
    "topic",
    ["other/rsp/mes", f"{BASE}/rsp/", f"{BASE}/result", f"{BASE}/rsp/+", f"{BASE}/rsp/#", f"{BASE}/rsp/\x00", 5, ["a"]],
)
def test_a_reply_topic_outside_the_allowed_prefixes_is_answered_nowhere(topic: object) -> None:
    """Nobody makes inspectd publish where he may not, or what paho raises at."""
    assert isinstance(commands().admit(incoming(replyTo=topic), 0.0), Unanswerable)
    if isinstance(topic, str):
        assert isinstance(commands().admit(incoming(response_topic=topic), 0.0), Unanswerable)


def test_the_response_topic_of_mqtt_5_goes_before_reply_to() -> None:
    request = commands().admit(incoming(response_topic=f"{BASE}/rsp/a", replyTo=f"{BASE}/rsp/b"), 0.0)
    assert isinstance(request, Request)
    assert request.reply_topic == f"{BASE}/rsp/a"


def test_configured_prefixes_take_the_place_of_the_default() -> None:
    door = Commands(BASE, {"get-state": get_state}, ("mes/in/",))
    assert isinstance(door.admit(incoming(replyTo="mes/in/7"), 0.0), Request)
    assert isinstance(door.admit(incoming(replyTo=f"{BASE}/rsp/x"), 0.0), Unanswerable)


def test_an_unknown_command_is_answered_with_error_1() -> None:
    assert rejected(commands().admit(incoming("open-door"), 0.0)) == ErrorNumber.UNKNOWN_COMMAND


@pytest.mark.parametrize("request_id", [None, "", 7, "x" * 129, "a\nb", "\ud800"])
def test_a_request_without_a_proper_id_is_answered_with_error_2(request_id: object) -> None:
    assert rejected(commands().admit(incoming(requestId=request_id), 0.0)) == ErrorNumber.BAD_ARGUMENT


def test_a_retained_request_is_refused_with_error_3() -> None:
    """It would be done again at each connect."""
    assert rejected(commands().admit(incoming(retain=True), 0.0)) == ErrorNumber.STALE_OR_RETAINED


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"requester":"mes","requestId":NaN}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"' + b"x" * REQUEST_LIMIT_BYTES + b'"}',
    ],
)
def test_what_is_not_a_json_object_is_answered_nowhere(payload: bytes) -> None:
    assert isinstance(commands().admit(incoming(payload=payload), 0.0), Unanswerable)


def test_the_same_request_again_gets_the_stored_answer() -> None:
    """QoS 1 may bring it twice; a client that heard nothing asks again."""
    door = commands()
    request = door.admit(incoming(), 0.0)
    assert isinstance(request, Request)
    assert isinstance(door.admit(incoming(), 1.0), Unanswerable), "not answered yet: it is on its way"
    reply = door.answered(request, request.completed({"n": 1}))
    assert door.admit(incoming(), REMEMBERED_S - 1) == reply
    assert isinstance(door.admit(incoming(), REMEMBERED_S), Request)


def test_the_same_id_with_other_content_is_refused() -> None:
    door = commands()
    assert isinstance(door.admit(incoming(), 0.0), Request)
    assert rejected(door.admit(incoming(n=2), 1.0)) == ErrorNumber.BAD_ARGUMENT


def test_two_requesters_may_use_the_same_id() -> None:
    door = commands()
    assert isinstance(door.admit(incoming(), 0.0), Request)
    assert isinstance(door.admit(incoming(requester="plc"), 0.0), Request)


def test_a_busy_answer_is_not_remembered() -> None:
    door = commands()
    request = door.admit(incoming(), 0.0)
    assert isinstance(request, Request)
    door.answered(request, request.rejected(ErrorNumber.BUSY, "later"))
    assert isinstance(door.admit(incoming(), 1.0), Request)


def test_what_is_remembered_is_bounded() -> None:
    door = commands()
    for number in range(2 * REMEMBERED_REQUESTS):
        door.admit(incoming(requestId=str(number)), 0.0)
    assert len(door._remembered) <= REMEMBERED_REQUESTS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    topic=st.sampled_from([f"{BASE}/cmd/get-state", f"{BASE}/cmd/", f"{BASE}/cmd/x"]) | st.text(),
    payload=st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(["requestId", "requester", "replyTo"]), JSON | st.just("a")).map(
        lambda document: json.dumps(document).encode()
    ),
    retain=st.booleans(),
    response_topic=st.none() | st.text(),
    correlation=st.none() | st.binary(max_size=10),
)
def test_no_message_whatever_raises(
    topic: str, payload: bytes, retain: bool, response_topic: str | None, correlation: bytes | None
) -> None:
    """Anyone may write to the broker; a callback that raises would end the connection."""
    published: list[Message] = []
    desk = Desk(commands(), published.append, lambda answer: answer.command.encode(), lambda: 0.0)
    desk.receive(Incoming(topic, payload, retain, response_topic, correlation))
    for message in published:
        assert message.topic.startswith(f"{BASE}/rsp/")


def desk_with(handler: Any) -> tuple[Desk, list[Answer]]:
    answers: list[Answer] = []

    def encode(answer: Answer) -> bytes:
        answers.append(answer)
        return b""

    return Desk(Commands(BASE, {"get-state": handler}), lambda _: None, encode, lambda: 0.0), answers


async def test_the_desk_does_a_request_and_answers() -> None:
    desk, answers = desk_with(get_state)
    request = desk.commands.admit(incoming(), 0.0)
    assert isinstance(request, Request)
    await desk._do(request)
    assert [answer.status for answer in answers] == ["completed"]


async def test_a_handler_that_fails_is_answered_with_error_8_and_ends_nothing() -> None:
    async def broken(_request: Request, _respond: Respond) -> None:
        raise RuntimeError("broken")

    desk, answers = desk_with(broken)
    request = desk.commands.admit(incoming(), 0.0)
    assert isinstance(request, Request)
    await desk._do(request)
    assert [(answer.status, answer.error) for answer in answers] == [("failed", ErrorNumber.INTERNAL)]


def test_a_full_desk_answers_busy() -> None:
    desk, answers = desk_with(get_state)
    for number in range(WAITING + 1):
        desk.receive(incoming(requestId=str(number)))
    assert [answer.error for answer in answers] == [ErrorNumber.BUSY]


@dataclass(frozen=True, slots=True)
class Stored:
    seq: int
    payload: bytes


@dataclass(slots=True)
class Shelf:
    """A journal and a broker for a replay."""

    last_seq: int
    missing: set[int] = field(default_factory=set)
    reasons: dict[int, int | None] = field(default_factory=dict)
    delivered: list[tuple[str, bytes]] = field(default_factory=list)
    fault: Exception | None = None

    async def read(self, from_seq: int, to_seq: int, limit: int) -> Sequence[Stored]:
        if self.fault is not None:
            raise self.fault
        found = [Stored(seq, b"%d" % seq) for seq in range(from_seq, to_seq + 1) if seq not in self.missing]
        return found[:limit]

    async def deliver(self, topic: str, payload: bytes) -> int | None:
        self.delivered.append((topic, payload))
        return self.reasons.get(int(payload), 0)

    def replay(self) -> Replay:
        return Replay(BASE, "stream-1", lambda: self.last_seq, self.read, self.deliver)

    async def ask(self, from_seq: Any, to_seq: Any, stream_id: Any = "stream-1") -> list[Answer]:
        arguments = {"streamId": stream_id, "fromSeq": from_seq, "toSeq": to_seq}
        request = Request("replay", "r1", "mes", f"{BASE}/rsp/mes", None, arguments)
        answers: list[Answer] = []
        await self.replay()(request, answers.append)
        return answers


async def test_a_replay_publishes_the_stored_bytes_in_order_on_the_requesters_own_topic() -> None:
    shelf = Shelf(last_seq=1000)
    accepted, completed = await shelf.ask(301, 900)
    assert shelf.delivered == [(f"{BASE}/replay/mes", b"%d" % seq) for seq in range(301, 901)]
    assert (accepted.status, completed.status) == ("accepted", "completed")
    assert completed.detail == {"sent": 600, "lost": 0, "lostRanges": []}


async def test_what_is_no_longer_stored_is_told_as_lost() -> None:
    shelf = Shelf(last_seq=500, missing={1, 2, 3, 250, 499, 500})
    _, completed = await shelf.ask(1, 500)
    assert completed.detail == {"sent": 494, "lost": 6, "lostRanges": [[1, 3], [250, 250], [499, 500]]}


async def test_nothing_beyond_the_last_result_is_called_lost() -> None:
    _, completed = await Shelf(last_seq=5).ask(4, 100)
    assert completed.detail == {"sent": 2, "lost": 0, "lostRanges": []}


async def test_a_result_too_large_for_the_broker_is_told_as_lost() -> None:
    _, completed = await Shelf(last_seq=5, reasons={3: PACKET_TOO_LARGE}).ask(1, 5)
    assert completed.detail == {"sent": 4, "lost": 1, "lostRanges": [[3, 3]]}


async def test_a_replay_that_the_broker_does_not_allow_fails_with_error_9() -> None:
    _, failed = await Shelf(last_seq=5, reasons={3: NOT_AUTHORISED}).ask(1, 5)
    assert (failed.status, failed.error) == ("failed", ErrorNumber.NOT_AUTHORISED)


async def test_a_journal_that_cannot_be_read_fails_the_replay_with_error_8() -> None:
    _, failed = await Shelf(last_seq=5, fault=StorageError("disk")).ask(1, 5)
    assert (failed.status, failed.error, failed.error_text) == ("failed", ErrorNumber.INTERNAL, "disk")


@pytest.mark.parametrize(
    ("from_seq", "to_seq", "stream_id", "error"),
    [
        (1, 5, "another", ErrorNumber.NOT_FOUND),
        (1, 5, None, ErrorNumber.NOT_FOUND),
        (6, 9, "stream-1", ErrorNumber.NOT_FOUND),
        (0, 5, "stream-1", ErrorNumber.BAD_ARGUMENT),
        (5, 1, "stream-1", ErrorNumber.BAD_ARGUMENT),
        (True, 5, "stream-1", ErrorNumber.BAD_ARGUMENT),
        (1, 2.0, "stream-1", ErrorNumber.BAD_ARGUMENT),
        ("1", "5", "stream-1", ErrorNumber.BAD_ARGUMENT),
        (1, 2**63, "stream-1", ErrorNumber.BAD_ARGUMENT),
        (1, MOST_RESULTS + 1, "stream-1", ErrorNumber.BAD_ARGUMENT),
    ],
)
async def test_a_replay_that_cannot_be_is_rejected(
    from_seq: object, to_seq: object, stream_id: object, error: ErrorNumber
) -> None:
    (answer,) = await Shelf(last_seq=5).ask(from_seq, to_seq, stream_id)
    assert (answer.status, answer.error) == ("rejected", error)


async def test_one_replay_at_a_time() -> None:
    """Two at once would only share the same two places; the second is told to ask again."""
    shelf, gate = Shelf(last_seq=5), asyncio.Event()

    async def slow(_topic: str, _payload: bytes) -> int:
        await gate.wait()
        return 0

    replay = Replay(BASE, "stream-1", lambda: 5, shelf.read, slow)
    request = Request(
        "replay", "r1", "mes", f"{BASE}/rsp/mes", None, {"streamId": "stream-1", "fromSeq": 1, "toSeq": 5}
    )
    first: list[Answer] = []
    second: list[Answer] = []
    accepted = asyncio.Event()

    def note(answer: Answer) -> None:
        first.append(answer)
        accepted.set()

    running = asyncio.ensure_future(replay(request, note))
    await accepted.wait()
    await replay(request, second.append)
    assert [answer.error for answer in second] == [ErrorNumber.BUSY]
    gate.set()
    await running
    assert [answer.status for answer in first] == ["accepted", "completed"]
