"""One name for one thing: in the code, in the schemas, in AsyncAPI, in the documentation and in the contract."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

import pytest
from tests.contract.asyncapi_file import REQUESTS, at, channel_of, channels, leaf_of, mqtt_of, operations, schema_of
from tests.contract.examples import COMMANDS
from tests.contract.schemas import SCHEMAS, published_schema
from tests.shared import shared

from inspectd.health.alarmkinds import AlarmCode
from inspectd.publish import messages, reports
from inspectd.publish.audit import error_word
from inspectd.publish.commands import Answer
from inspectd.publish.events import DURABLE, EventName
from inspectd.publish.handlers import Ports, handlers
from inspectd.publish.healthreport import Breaker, ModelState
from inspectd.publish.reports import Automatic, ErrorNumber, Vision
from inspectd.records import Code, Evaluation, OutcomeKind, ResultState

DOCUMENT = SCHEMAS.parents[1] / "docs" / "mqtt.md"


NUMBERED: dict[str, dict[int, str]] = {
    "error": {number.value: error_word(number) for number in ErrorNumber},
    "resultEvaluation": {evaluation.value: messages._EVALUATION_TEXTS[evaluation] for evaluation in Evaluation},
    "resultState": {state.value: state.name.lower() for state in ResultState},
    "state": {number: vision.value for vision, number in reports._HEARTBEAT_STATES.items()},
}
"""Field → number → name."""
WORDS: dict[str, Iterable[str]] = {
    "alarm codes": list(AlarmCode),
    "automatic states": list(Automatic),
    "commands": COMMANDS,
    "event names": list(EventName),
    "outcomes": list(OutcomeKind),
    "statuses of an answer": get_args(get_type_hints(Answer)["status"]),
    "reasons of a status": get_args(get_type_hints(reports.status)["reason"]),
    "vision states": list(Vision),
}
OURS = {"acknowledge"}
"""Commands that the contract does not have: it has the field."""


def enumerated(schema: Any, *path: str) -> set[Any]:
    """Give the values that a schema allows in a field."""
    for step in path:
        schema = schema[step]
    return set(schema["enum"])


def pairs(text: str) -> dict[int, str]:
    """Read "0 ok, 1 unknownCommand."."""
    return {int(number): name for number, name in re.findall(r"(\d+) (\w+)", text)}


def numbers(text: str) -> set[int]:
    """Numbers of a text, those inside ranges too ("401…405")."""
    found = {int(number) for number in re.findall(r"\d+", text)}
    for first, last in re.findall(r"(\d{3})(?:…|–|\.\.\.)(\d{3})", text):
        found.update(range(int(first), int(last) + 1))
    return found


def is_in(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def is_paired(number: int, name: str, text: str) -> bool:
    """Whether number and name stand side by side: "1 NotOK", "| 1 | `NotOK` |", "1: NotOK"."""
    return re.search(rf"\b{number}\b[\s|`*:=]{{1,8}}{re.escape(name)}\b", text) is not None


# Code and schemas


@pytest.mark.parametrize(
    ("words", "leaf", "path"),
    [
        (Vision, "state", ("properties", "vision")),
        (Vision, "rsp", ("properties", "state")),
        ({*Automatic, None}, "state", ("properties", "automatic")),
        (OutcomeKind, "result", ("$defs", "run", "properties", "outcome")),
        (ResultState, "result", ("properties", "resultState")),
        (ResultState, "verdict", ("properties", "state")),
        (Evaluation, "result", ("$defs", "evaluation")),
        (Evaluation, "verdict", ("properties", "eval")),
        (messages._EVALUATION_TEXTS.values(), "result", ("properties", "resultEvaluationText")),
        (reports._HEARTBEAT_STATES.values(), "heartbeat", ("properties", "state")),
        (WORDS["reasons of a status"], "status", ("properties", "reason")),
        (WORDS["statuses of an answer"], "rsp", ("properties", "status")),
        (EventName, "event", ("properties", "event")),
        (AlarmCode, "alarm", ("properties", "code")),
        (ModelState, "health", ("$defs", "model", "properties", "state")),
        (Breaker, "health", ("$defs", "model", "properties", "breaker")),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_schemas_allow_what_the_code_says_and_nothing_else(
    words: Iterable[Any], leaf: str, path: tuple[str, ...]
) -> None:
    assert set(words) == enumerated(published_schema(leaf), *path)


@pytest.mark.parametrize(
    ("field", "leaf", "path"),
    [
        ("error", "rsp", ("properties", "error")),
        ("resultEvaluation", "result", ("$defs", "evaluation")),
        ("resultState", "result", ("properties", "resultState")),
        ("state", "heartbeat", ("properties", "state")),
    ],
)
def test_schemas_explain_numbers_by_the_names_of_the_code(field: str, leaf: str, path: tuple[str, ...]) -> None:
    schema: Any = published_schema(leaf)
    for step in path:
        schema = schema[step]
    text = schema["description"].split(":")[-1]
    assert pairs(text) == NUMBERED[field]


def test_the_schemas_bounds_hold_every_error_and_every_code() -> None:
    error = published_schema("rsp")["properties"]["error"]
    assert (error["minimum"], error["maximum"]) == (min(ErrorNumber), max(ErrorNumber))
    code = published_schema("result")["properties"]["resultEvaluationCode"]
    assert code["minimum"] <= min(Code)
    assert max(Code) <= code["maximum"]


def test_the_station_does_the_commands_that_are_described_and_no_others() -> None:
    async def never(**_: object) -> None:
        raise AssertionError

    ports = Ports(state=dict, find=never, reset=never, confirm_all=int, acknowledge=lambda _code, _source: 0)
    assert handlers(ports).keys() | {"replay"} == set(COMMANDS)


# AsyncAPI and schemas


def test_every_topic_has_the_schema_of_its_name() -> None:
    """`replay` carries results, and each command has a schema of its own."""
    for channel in channels().values():
        leaf = leaf_of(channel).replace("/", "-")
        schemas = {schema_of(at(message["$ref"])) for message in channel["messages"].values()} - {None}
        assert schemas == {"result" if leaf == "replay" else leaf}


def test_channels_and_operations_are_called_as_their_topics() -> None:
    for key, channel in channels().items():
        assert key.lower() == leaf_of(channel).replace("/", "").replace("-", "")
    for key, operation in operations().items():
        channel = operation["channel"]["$ref"].rsplit("/", 1)[1].removeprefix("cmd")
        wanted = f"{operation['action']}{'replayed' if channel == 'replay' else channel}"
        assert key.lower() == wanted.lower()


# Documentation


@pytest.mark.parametrize("kind", WORDS)
def test_the_documentation_has_every(kind: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert not [word for word in WORDS[kind] if not is_in(word, text)]


@pytest.mark.parametrize("field", NUMBERED)
def test_the_documentation_explains_the_numbers_of(field: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert not [f"{number} {name}" for number, name in NUMBERED[field].items() if not is_paired(number, name, text)]


def test_the_documentation_has_every_topic_code_and_field_of_a_verdict() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    leaves = [channel["address"] for channel in channels().values() if not channel["address"].startswith(REQUESTS)]
    assert not [leaf for leaf in leaves if leaf not in text]
    assert not {int(code) for code in Code} - numbers(text)
    assert not [field for field in published_schema("verdict")["properties"] if not is_in(field, text)]


# The contract that the project was given, where it is at hand


def contract_text() -> str:
    return shared("MQTT-CONTRACT.md").read_text(encoding="utf-8")


def capitalised(text: str) -> set[str]:
    """Words such as TriggerMissed, without those inside braces."""
    return set(re.findall(r"\b[A-Z][A-Za-z]+\b", re.sub(r"{[^}]*}", "", text)))


def between(text: str, begin: str, end: str) -> str:
    return text.split(begin, 1)[1].split(end, 1)[0]


@pytest.mark.shared
def test_topics_go_out_as_the_contract_says() -> None:
    """Leaf, quality of service and retain flag."""
    rows = re.findall(r"^\| `({base}/\S+)` \| (\d), (\w+)", contract_text(), re.MULTILINE)
    wanted: Mapping[str, tuple[int, bool]] = {topic: (int(qos), flag == "yes") for topic, qos, flag in rows}
    done = {}
    for operation in operations().values():
        topic, mqtt = channel_of(operation)["address"], mqtt_of(operation)
        done[REQUESTS + "{command}" if topic.startswith(REQUESTS) else topic] = (mqtt["qos"], mqtt["retain"])
    answers = {"{base}/rsp/{requester}"}
    assert len(wanted) == 15
    assert done == {topic: how for topic, how in wanted.items() if topic not in answers}


@pytest.mark.shared
def test_events_and_alarms_are_the_contracts() -> None:
    text = contract_text()
    durable = capitalised(between(text, "Durable, through the outbox:", "Direct:"))
    direct = capitalised(between(text, "Direct:", "\n"))
    daily = capitalised(between(text, "Once a day the event `", "{"))
    assert {name.value for name in DURABLE} == durable | daily
    assert {name.value for name in EventName} == durable | daily | direct
    assert {code.value for code in AlarmCode} == capitalised(between(text, "Codes are words:", ";"))


@pytest.mark.shared
def test_commands_errors_and_codes_are_the_contracts() -> None:
    text = contract_text()
    listed = set(re.findall(r"`([a-z][a-z-]+)[ `]", between(text, "## Commands", "Request `{")))
    assert set(COMMANDS) - listed == OURS
    assert pairs(between(text, "Errors:", ".\n")) == NUMBERED["error"]
    table = numbers(between(text, "## Fail-safe", "When several apply"))
    assert not {int(code) for code in Code} - table


@pytest.mark.shared
def test_states_outcomes_and_evaluations_are_the_contracts() -> None:
    text = contract_text()
    for kind in ("vision states", "automatic states", "outcomes", "reasons of a status", "statuses of an answer"):
        assert not [word for word in WORDS[kind] if not is_in(word, text)], kind
    for field in ("resultEvaluation", "resultState", "state"):
        assert not [(number, name) for number, name in NUMBERED[field].items() if not is_paired(number, name, text)]
