from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.schemas import validate

from inspectd.errors import StorageError, UsageError
from inspectd.publish.audit import PER_SECOND, REFUSALS_PER_SECOND
from inspectd.publish.commands import (
    ADDRESSES,
    CORRELATION_LIMIT_BYTES,
    Answer,
    Commands,
    Refusal,
    Repeat,
    Request,
    Respond,
    Topic,
    Unanswerable,
    get_state,
)
from inspectd.publish.desk import WAITING, Called, Desk
from inspectd.publish.effects import Incoming, Message
from inspectd.publish.memory import REMEMBERED_BYTES, REMEMBERED_REQUESTS, REMEMBERED_S
from inspectd.publish.reasons import NOT_AUTHORISED, PACKET_TOO_LARGE
from inspectd.publish.replay import MOST_RESULTS, Replay
from inspectd.publish.reports import ErrorNumber, Vision, response
from inspectd.publish.requests import AHEAD_S, REQUEST_LIMIT_BYTES, VALID_MAX_MS
from inspectd.publish.wire import time_text

BASE = "acme/line3/aoi-01"
WALL_S = 1_796_000_000.0
HERE = Topic(f"{BASE}/rsp/mes")


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
    assert isinstance(admitted, Refusal)
    assert admitted.answer.status == "rejected"
    return admitted.answer.error


def test_a_proper_request_is_admitted_and_answered_on_the_requesters_topic() -> None:
    request = commands().admit(incoming(correlation=b"\x01"), 0.0)
    assert isinstance(request, Request)
    assert (request.command, request.request_id, request.requester) == ("get-state", "r1", "mes")
    assert request.address == Topic(f"{BASE}/rsp/mes", b"\x01")


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
    assert request.address == Topic(f"{BASE}/rsp/a")


def test_configured_prefixes_are_allowed_beside_our_own() -> None:
    """Who names no topic is answered below {base}/rsp/, whatever is configured for others."""
    door = Commands(BASE, {"get-state": get_state}, ("mes/in/",))
    for number, topic in enumerate(["mes/in/7", f"{BASE}/rsp/x", None]):
        assert isinstance(door.admit(incoming(replyTo=topic, requestId=str(number)), 0.0), Request)
    assert isinstance(door.admit(incoming(replyTo="mes/in/"), 0.0), Unanswerable)


@pytest.mark.parametrize("leaf", ["result", "verdict", "cmd/get-state", "status"])
def test_no_prefix_lets_an_answer_go_where_the_station_itself_publishes(leaf: str) -> None:
    """A PLC must not take an answer for a verdict because somebody allowed `acme/`."""
    door = Commands(BASE, {"get-state": get_state}, ("acme/",))
    assert isinstance(door.admit(incoming(replyTo=f"{BASE}/{leaf}"), 0.0), Unanswerable)
    assert isinstance(door.admit(incoming(replyTo="acme/line4/mes"), 0.0), Request)


def test_correlation_data_is_bounded() -> None:
    """It is kept with the answer for 10 minutes."""
    assert isinstance(commands().admit(incoming(correlation=b"x" * CORRELATION_LIMIT_BYTES), 0.0), Request)
    assert isinstance(commands().admit(incoming(correlation=b"x" * (CORRELATION_LIMIT_BYTES + 1)), 0.0), Unanswerable)


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


@pytest.mark.parametrize("valid_ms", [0, -1, True, "5", [5], {}, VALID_MAX_MS + 1, 10**400, 1e308])
def test_a_validity_that_is_none_is_refused_with_error_2(valid_ms: object) -> None:
    assert rejected(commands().admit(incoming(validForMs=valid_ms), 0.0)) == ErrorNumber.BAD_ARGUMENT


@pytest.mark.parametrize(
    "requested_at", ["", "now", 5, True, ["a"], "2026-03-01", "2026-03-01T06:30:00", "2026-13-01T06:30:00Z", "x" * 65]
)
def test_a_time_without_zone_or_that_is_none_is_refused_with_error_2(requested_at: object) -> None:
    assert rejected(commands().admit(incoming(requestedAt=requested_at), 0.0)) == ErrorNumber.BAD_ARGUMENT


def admitted_after(age_s: float, valid_ms: float, wall_s: float | None = WALL_S) -> object:
    """Admit a request of so long ago, at 100 s of the monotonic clock."""
    request = incoming(requestedAt=time_text(WALL_S - age_s), validForMs=valid_ms)
    return commands().admit(request, 100.0, wall_s)


def test_validity_counts_from_the_time_of_asking_where_both_clocks_are_right() -> None:
    fresh = admitted_after(3.0, 5000)
    assert isinstance(fresh, Request)
    assert fresh.expires_s == pytest.approx(102.0)
    assert rejected(admitted_after(5.0, 5000)) == ErrorNumber.STALE_OR_RETAINED
    assert rejected(admitted_after(86_400.0 * 30, 5000)) == ErrorNumber.STALE_OR_RETAINED


def test_validity_counts_from_the_receipt_where_our_clock_is_not_right() -> None:
    request = admitted_after(3600.0, 5000, wall_s=None)
    assert isinstance(request, Request)
    assert request.expires_s == pytest.approx(105.0)


@pytest.mark.parametrize("age_s", [-AHEAD_S - 1, -86_400.0, WALL_S, WALL_S - 946_684_800.0])
def test_validity_counts_from_the_receipt_where_the_senders_clock_cannot_be_right(age_s: float) -> None:
    """From the future, from 1970, from 2000: a clock that nobody has set."""
    request = admitted_after(age_s, 5000)
    assert isinstance(request, Request)
    assert request.expires_s == pytest.approx(105.0)


def test_a_request_without_validity_holds_for_ever() -> None:
    request = commands().admit(incoming(requestedAt=time_text(WALL_S - 3600)), 0.0, WALL_S)
    assert isinstance(request, Request)
    assert request.expires_s is None


def test_a_request_that_was_too_old_leaves_nothing_behind() -> None:
    door = commands()
    stale = incoming(requestedAt=time_text(WALL_S - 9), validForMs=1000)
    assert rejected(door.admit(stale, 0.0, WALL_S)) == ErrorNumber.STALE_OR_RETAINED
    assert isinstance(door.admit(incoming(), 0.0, WALL_S), Request)


def test_a_repeat_gets_its_stored_answer_also_when_its_time_is_over() -> None:
    """It was done in time: to say that it was too old would be wrong."""
    door = commands()
    asked = incoming(requestedAt=time_text(WALL_S), validForMs=1000)
    request = door.admit(asked, 0.0, WALL_S)
    assert isinstance(request, Request)
    door.answered(request, request.completed(), b"done")
    assert door.admit(asked, 60.0, WALL_S + 60) == Repeat(HERE, b"done", is_last=True)


def test_the_same_request_again_gets_the_stored_answer() -> None:
    """QoS 1 may bring it twice; a client that heard nothing asks again."""
    door = commands()
    request = door.admit(incoming(), 0.0)
    assert isinstance(request, Request)
    assert door.admit(incoming(), 1.0) == Repeat(HERE, None, is_last=False), "it is on its way"
    assert door.answered(request, request.completed({"n": 1}), b"one") == (HERE,)
    assert door.admit(incoming(), REMEMBERED_S - 1) == Repeat(HERE, b"one", is_last=True)
    assert isinstance(door.admit(incoming(), REMEMBERED_S), Request)


def test_a_repeat_while_it_is_being_done_hears_the_answer_under_its_own_correlation() -> None:
    """An MQTT 5 client asks again with new correlation data, and waits for that."""
    door = commands()
    request = door.admit(incoming(correlation=b"1"), 0.0)
    assert isinstance(request, Request)
    door.admit(incoming(correlation=b"2"), 0.0)
    door.admit(incoming(correlation=b"2"), 0.0)
    assert door.answered(request, request.accepted(), b"a") == (Topic(HERE.name, b"1"), Topic(HERE.name, b"2"))
    assert door.admit(incoming(correlation=b"3"), 0.0) == Repeat(Topic(HERE.name, b"3"), b"a", is_last=False)
    assert len(door.answered(request, request.completed(), b"b")) == 3


def test_the_places_for_one_answer_are_bounded() -> None:
    door = commands()
    request = door.admit(incoming(), 0.0)
    assert isinstance(request, Request)
    repeats = [door.admit(incoming(correlation=b"%d" % number), 0.0) for number in range(ADDRESSES)]
    assert isinstance(repeats[-1], Unanswerable)
    assert len(door.answered(request, request.completed(), b"")) == ADDRESSES


def test_what_is_being_done_is_not_forgotten_for_others() -> None:
    """Else its repeat would be done beside it."""
    door = commands()
    assert isinstance(door.admit(incoming(), 0.0), Request)
    for number in range(2 * REMEMBERED_REQUESTS):
        request = door.admit(incoming(requestId=str(number)), 1.0)
        assert isinstance(request, Request)
        door.answered(request, request.completed(), b"")
    assert isinstance(door.admit(incoming(), 2 * REMEMBERED_S), Repeat)


def test_an_answer_that_comes_after_its_request_was_forgotten_goes_to_whoever_asked() -> None:
    door = commands()
    first = door.admit(incoming(), 0.0)
    assert isinstance(first, Request)
    door.answered(first, first.completed(), b"")
    again = door.admit(incoming(correlation=b"2"), REMEMBERED_S)
    assert isinstance(again, Request)
    assert door.answered(first, first.completed(), b"") == (HERE,)


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
    door.answered(request, request.rejected(ErrorNumber.BUSY, "later"), b"busy")
    assert isinstance(door.admit(incoming(), 1.0), Request)


@pytest.mark.parametrize(("size", "most"), [(10, REMEMBERED_REQUESTS), (65_536, REMEMBERED_BYTES // 65_536 + 1)])
def test_what_is_remembered_is_bounded(size: int, most: int) -> None:
    door = commands()
    for number in range(REMEMBERED_REQUESTS + 200):
        request = door.admit(incoming(requestId=str(number)), 0.0)
        assert isinstance(request, Request)
        door.answered(request, request.completed(), b"x" * size)
    assert most - 2 <= len(door._memory) <= most
    assert door._memory.size_bytes == size * len(door._memory)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


FIELDS = ["requestId", "requester", "replyTo", "requestedAt", "validForMs", "resultId"]


@given(
    topic=st.sampled_from([f"{BASE}/cmd/get-state", f"{BASE}/cmd/", f"{BASE}/cmd/x"]) | st.text(),
    payload=st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(
        st.sampled_from(FIELDS),
        JSON | st.just("a") | st.datetimes().map(lambda time: f"{time.isoformat()}Z") | st.text(max_size=30),
    ).map(lambda document: json.dumps(document).encode()),
    retain=st.booleans(),
    response_topic=st.none() | st.text(),
    correlation=st.none() | st.binary(max_size=10),
    is_clock_right=st.booleans(),
)
def test_no_message_whatever_raises(
    topic: str,
    payload: bytes,
    retain: bool,
    response_topic: str | None,
    correlation: bytes | None,
    is_clock_right: bool,
) -> None:
    """Anyone may write to the broker; a callback that raises would end the connection."""
    published: list[Message] = []
    audited: list[tuple[str, str, str]] = []
    desk = Desk(
        commands(),
        published.append,
        lambda answer: response(answer, Vision.OPERATIONAL, WALL_S),
        lambda: 0.0,
        wall=lambda: WALL_S,
        is_clock_right=lambda: is_clock_right,
        audit=lambda *record: audited.append(record),
    )
    desk.receive(Incoming(topic, payload, retain, response_topic, correlation))
    for message in published:
        assert message.topic.startswith(f"{BASE}/rsp/")
        validate("rsp/x", message.payload)
    for requester, command, _ in audited:
        assert (requester + command).isprintable()


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


@dataclass(slots=True)
class Office:
    """A desk with a clock of its own, and what it did."""

    handler: Any = get_state
    now: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    audited: list[tuple[str, str, str]] = field(default_factory=list)

    def desk(self) -> Desk:
        def audit(*record: str) -> None:
            requester, command, result = record
            self.audited.append((requester, command, result))

        table = dict.fromkeys(("get-state", "confirm-all"), self.handler)
        return Desk(Commands(BASE, table), lambda _: None, self._encode, lambda: self.now, audit=audit)

    def _encode(self, answer: Answer) -> bytes:
        self.answers.append(answer)
        return json.dumps({"status": answer.status, "error": answer.error}).encode()


COMPLETED = ("mes", "confirm-all", "completed")
UNKNOWN = ("mes", "open-door", "rejected: unknownCommand")


async def settled(desk: Desk) -> None:
    """Do everything that waits."""
    while not desk._waiting.empty():
        await desk._do(desk._waiting.get_nowait())


async def slow(request: Request, respond: Respond) -> None:
    """Answer twice."""
    respond(request.accepted())
    respond(request.failed(ErrorNumber.INTERNAL, "broken"))


async def trigger(request: Request, respond: Respond) -> None:
    """Answer that it will be done; the end is told elsewhere."""
    respond(request.accepted())


async def test_a_request_that_waited_longer_than_it_is_valid_is_refused_with_error_3() -> None:
    office = Office()
    desk = office.desk()
    desk.receive(incoming("confirm-all", validForMs=2000))
    office.now = 2.0
    await settled(desk)
    assert [(answer.status, answer.error) for answer in office.answers] == [("rejected", ErrorNumber.STALE_OR_RETAINED)]
    desk.receive(incoming("confirm-all", validForMs=2000))
    assert desk._waiting.empty(), "a duplicate that was on its way must not be done after all"


async def test_each_request_that_changes_something_or_is_refused_is_told_to_the_journal_once() -> None:
    office = Office()
    desk = office.desk()
    for request in (
        incoming("confirm-all", requestId="1"),
        incoming("confirm-all", requestId="1"),
        incoming("get-state", requestId="2"),
        incoming("open-door", requestId="3"),
        incoming("confirm-all", requestId="4", retain=True),
        incoming("confirm-all", requester="a/b"),
        incoming("confirm-all", replyTo="x"),
        incoming("confirm-all", payload=b"nonsense"),
    ):
        desk.receive(request)
        await settled(desk)
    assert office.audited == [
        COMPLETED,
        UNKNOWN,
        ("mes", "confirm-all", "rejected: staleOrRetained"),
        ("", "confirm-all", "rejected: badArgument"),
        ("mes", "confirm-all", "rejected: badArgument"),
    ]
    assert desk.unanswerable == 3


async def test_a_command_that_takes_long_is_told_to_the_journal_when_it_is_accepted() -> None:
    office = Office(slow)
    desk = office.desk()
    desk.receive(incoming("confirm-all"))
    await settled(desk)
    assert office.audited == [("mes", "confirm-all", "accepted")]


async def test_a_flood_of_nonsense_costs_a_few_rows_a_second_and_hides_nobody() -> None:
    office = Office()
    desk = office.desk()
    for number in range(1000):
        desk.receive(incoming("open-door", requestId=f"n{number}"))
    desk.receive(incoming("confirm-all"))
    await settled(desk)
    assert office.audited == [*[UNKNOWN] * REFUSALS_PER_SECOND, COMPLETED]
    office.now = 1.0
    desk._audit.tick(office.now)
    assert office.audited[-1] == ("", "", f"{1000 - REFUSALS_PER_SECOND} more requests within a second")
    for number in range(100):
        desk.receive(incoming("confirm-all", requestId=f"c{number}"))
        await settled(desk)
    assert office.audited.count(COMPLETED) == 1 + PER_SECOND


async def test_a_handler_that_gives_no_answer_is_answered_for() -> None:
    async def mute(_request: Request, _respond: Respond) -> None:
        pass

    office = Office(mute)
    desk = office.desk()
    desk.receive(incoming("confirm-all"))
    await settled(desk)
    assert [(answer.status, answer.error) for answer in office.answers] == [("failed", ErrorNumber.INTERNAL)]


async def called(desk: Desk, command: str, payload: bytes = b"", limit_s: float = 5.0) -> Called:
    """Ask through the local door, with somebody at work."""
    working = asyncio.ensure_future(desk.run())
    try:
        return await desk.call(command, payload, limit_s)
    finally:
        working.cancel()
        await asyncio.wait((working,))


async def test_a_call_from_this_pc_gets_the_last_answer() -> None:
    office = Office(slow)
    heard = await called(office.desk(), "confirm-all")
    assert heard.is_last
    assert json.loads(heard.payload or b"")["status"] == "failed"
    assert office.audited == [("local", "confirm-all", "accepted")]


async def test_a_call_whose_command_is_no_more_than_accepted_does_not_wait_on() -> None:
    heard = await called(Office(trigger).desk(), "confirm-all")
    assert heard == Called(b'{"status": "accepted", "error": 0}', is_last=True)


async def test_a_call_that_comes_to_no_end_in_time_tells_what_is_known() -> None:
    async def never(request: Request, respond: Respond) -> None:
        respond(request.accepted())
        await asyncio.Event().wait()

    heard = await called(Office(never).desk(), "confirm-all", limit_s=0.05)
    assert heard == Called(b'{"status": "accepted", "error": 0}', is_last=False)


async def test_two_calls_with_one_id_are_done_once_and_both_hear_it() -> None:
    office = Office()
    desk = office.desk()
    asked = [asyncio.ensure_future(desk.call("confirm-all", b'{"requestId":"r1"}', 5.0)) for _ in range(2)]
    await asyncio.wait(asked, timeout=0)
    await settled(desk)
    first, second = await asyncio.gather(*asked)
    assert first == second
    assert len(office.answers) == 1


@pytest.mark.parametrize("payload", [b"[]", b"{", b"\xff", b"null"])
async def test_a_call_that_is_no_object_is_a_wrong_use(payload: bytes) -> None:
    with pytest.raises(UsageError, match="JSON"):
        await Office().desk().call("confirm-all", payload, 1.0)


async def test_a_call_of_an_unknown_command_is_answered_like_any_other() -> None:
    office = Office()
    heard = await office.desk().call("open-door", b"{}", 1.0)
    assert json.loads(heard.payload or b"")["error"] == ErrorNumber.UNKNOWN_COMMAND
    assert office.audited == [("local", "open-door", "rejected: unknownCommand")]


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
        request = Request("replay", "r1", "mes", HERE, arguments)
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

    async def held_up(_topic: str, _payload: bytes) -> int:
        await gate.wait()
        return 0

    replay = Replay(BASE, "stream-1", lambda: 5, shelf.read, held_up)
    request = Request("replay", "r1", "mes", HERE, {"streamId": "stream-1", "fromSeq": 1, "toSeq": 5})
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
