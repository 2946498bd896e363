"""The contract as a file: valid AsyncAPI, complete, true to the code, with examples that the daemon itself words.

`INSPECTD_UPDATE=1` writes the examples anew; without it a stale one is a failure.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from copy import deepcopy

import pytest
from tests.contract import asyncapi_schema
from tests.contract.asyncapi_file import (
    CONFIG,
    REQUESTS,
    at,
    channel_of,
    channels,
    contract,
    examples_of,
    leaf_of,
    messages,
    mqtt_of,
    operations,
    references,
    schema_of,
)
from tests.contract.example_values import SEQ, STREAM_ID
from tests.contract.examples import COMMANDS, examples
from tests.contract.schemas import SCHEMAS, VERDICT_MAX_BYTES, validate

from inspectd.publish.broker import BrokerSettings
from inspectd.publish.commands import Commands, Request, Topic, get_state
from inspectd.publish.effects import Incoming
from inspectd.publish.healthreport import PERIOD_S, PERIODS_KEPT
from inspectd.publish.journal import _new_stream_id
from inspectd.publish.receipts import Receipts
from inspectd.publish.reports import CONTRACT

DOCUMENT = CONFIG.parent / "docs" / "mqtt.md"
DAEMON = CONFIG.parent / "daemon" / "inspectd"
EXAMPLES = CONFIG / "examples" / "messages"
BASE = "acme/suzhou/smt/line3/aoi/aoi-01"


# The document by itself


def test_it_is_valid_by_asyncapis_own_schema() -> None:
    assert not asyncapi_schema.faults(contract())


def test_asyncapis_own_schema_sees_what_is_wrong() -> None:
    """Else a schema whose references lead nowhere would pass everything."""
    wrong = deepcopy(contract())
    wrong["operations"]["sendMeta"]["bindings"] = {"mqtt": {"qos": 3}}
    [fault] = asyncapi_schema.faults(wrong)
    assert "qos" in fault
    assert "3 is not one of [0, 1, 2]" in fault


def test_every_reference_leads_somewhere() -> None:
    for reference in references(contract()):
        assert at(reference) is not None, reference


def test_every_operation_uses_messages_of_its_own_channel() -> None:
    for operation in operations().values():
        for part in (operation, operation.get("reply", operation)):
            prefix = part["channel"]["$ref"] + "/messages/"
            assert all(message["$ref"].startswith(prefix) for message in part["messages"]), prefix


def test_every_channel_is_used_and_every_parameter_explained() -> None:
    parts = [part for operation in operations().values() for part in (operation, operation.get("reply", operation))]
    assert {part["channel"]["$ref"].removeprefix("#/channels/") for part in parts} == channels().keys()
    for channel in channels().values():
        assert set(re.findall(r"{(\w+)}", channel["address"])) == channel["parameters"].keys(), channel["address"]


def test_every_message_has_a_schema_of_its_own_and_every_schema_a_place() -> None:
    """`cmd` is what all requests share; the empty message that takes an alarm away has none."""
    named = [name for message in messages().values() if (name := schema_of(message))]
    assert len(named) == len(set(named)) == len(messages()) - 1
    files = {path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.json")}
    assert files - set(named) == {"cmd"}
    assert contract()["components"]["schemas"] == {"anyRequest": {"$ref": "./schemas/cmd.schema.json"}}


# The document and the code


def test_it_speaks_the_contract_of_the_code() -> None:
    assert contract()["info"]["version"] == CONTRACT
    assert contract()["id"].endswith(f":{CONTRACT}")
    assert contract()["info"]["license"]["name"] == "Apache-2.0"


def test_the_last_will_and_the_client_are_those_of_the_code() -> None:
    """As the broker is told at each connect."""
    binding = contract()["components"]["serverBindings"]["client"]["mqtt"]
    settings = BrokerSettings("mes-broker", 8883, BASE, lambda: examples()["status-connection-lost"])
    will = binding["lastWill"]
    assert json.loads(will["message"]) == json.loads(settings.will())
    assert will["topic"].replace("{base}", BASE) == settings.status_topic
    assert (binding["clientId"], binding["keepAlive"]) == (settings.client_id, settings.keepalive_s)


def test_what_is_published_goes_out_as_the_document_says() -> None:
    """Leaf, retain flag and quality of service of each call in the code."""
    sent = [operation for operation in operations().values() if operation["action"] == "send"]
    said = {leaf_of(channel_of(one)): (mqtt_of(one)["retain"], mqtt_of(one)["qos"]) for one in sent}
    done = {leaf: (retain, qos) for retain, leaf, qos in _published_by_the_code()}
    assert {"state", "meta", "status", "counters", "lastresult", "heartbeat"} <= done.keys()
    assert done.items() <= said.items()


def _published_by_the_code() -> Iterator[tuple[bool, str, int]]:
    """Find calls such as `retain("state", payload, 1)` and `send("heartbeat", payload, 0)`."""
    for path in DAEMON.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(
                    func=ast.Attribute(attr="retain" | "send" as name),
                    args=[ast.Constant(value=str(leaf)), _, ast.Constant(value=int(qos)), *_],
                ):
                    yield name == "retain", leaf, qos


def test_messages_expire_as_the_code_lets_them() -> None:
    """A verdict has what is left of its time, which no constant says."""
    expiring = {key for key, one in operations().items() if "messageExpiryInterval" in mqtt_of(one)}
    assert expiring == {"sendHealth", "sendVerdict"}
    assert mqtt_of(operations()["sendHealth"])["messageExpiryInterval"] == PERIOD_S * PERIODS_KEPT


def test_commands_are_requests_with_a_reply() -> None:
    """Each on a topic of its own, told apart by requestId."""
    found = {
        channel_of(operation)["address"].removeprefix(REQUESTS): operation
        for operation in operations().values()
        if channel_of(operation)["address"].startswith(REQUESTS)
    }
    assert sorted(found) == sorted(COMMANDS)
    for operation in found.values():
        assert operation["action"] == "receive"
        assert operation["reply"]["channel"] == {"$ref": "#/channels/rsp"}
        for reference in (*operation["messages"], *operation["reply"]["messages"]):
            correlation = at(reference["$ref"])["correlationId"]
            assert at(correlation["$ref"])["location"] == "$message.payload#/requestId"


# Examples


def test_examples_are_fresh() -> None:
    """They are what the daemon says today."""
    fresh = {name: _text(payload) for name, payload in examples().items()}
    if os.environ.get("INSPECTD_UPDATE") == "1":
        _write(fresh)
    stored = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.iterdir()}
    assert stored == fresh, (
        "INSPECTD_UPDATE=1 python -m pytest tests/contract/test_asyncapi.py writes the examples anew"
    )


def test_examples_have_ids_as_the_station_gives_them() -> None:
    """A program that is written after them must not fall over the first real message."""
    read = {name: json.loads(payload) for name, payload in examples().items()}
    for name, one in read.items():
        if name.startswith(("result-", "lastresult")):
            assert one["jobId"] == one["measId"] == one["resultId"], name
        if name.startswith("verdict-"):
            assert (one["meas"], one["part"]) == (one["id"], ""), name
    assert _shape(STREAM_ID) == _shape(_new_stream_id())


def test_the_whole_messages_of_the_documentation_are_examples() -> None:
    """Those without a … in them."""
    stored = [json.loads(payload) for payload in examples().values()]
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^ {4,}\S.*\n)+", text, re.MULTILINE)
    whole = [block for block in blocks if block.lstrip().startswith("{") and "…" not in block]
    assert len(whole) >= 4
    for block in whole:
        assert json.loads(block) in stored, block


def test_the_document_names_exactly_the_examples_there_are() -> None:
    named = [name for message in messages().values() for name in examples_of(message)]
    assert sorted(named) == sorted(examples())


@pytest.mark.parametrize("key", messages())
def test_every_message_has_examples_that_fit_its_schema(key: str) -> None:
    schema = schema_of(messages()[key])
    if schema is None:
        assert messages()[key]["payload"] == {"type": "string", "maxLength": 0}
        return
    assert examples_of(messages()[key])
    for name in examples_of(messages()[key]):
        validate(schema, examples()[name])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_of_a_request_passes_the_door(command: str) -> None:
    door = Commands(BASE, dict.fromkeys(COMMANDS, get_state))
    admitted = door.admit(Incoming(f"{BASE}/cmd/{command}", examples()[f"cmd-{command}"]), 0.0)
    assert isinstance(admitted, Request)
    assert admitted.address == Topic(f"{BASE}/rsp/mes-1")


def test_the_example_of_a_receipt_is_taken() -> None:
    assert Receipts().take(examples()["ack"], STREAM_ID, SEQ)


def test_only_one_example_of_a_verdict_passes() -> None:
    """A programmer who tries a PLC's rule on the examples finds it right."""
    verdicts = {name: payload for name, payload in examples().items() if name.startswith("verdict-")}
    assert all(len(payload) <= VERDICT_MAX_BYTES for payload in verdicts.values())
    read = {name: json.loads(payload) for name, payload in verdicts.items()}
    decisive = {name: [one[field] for field in ("eval", "state", "sim", "late")] for name, one in read.items()}
    assert [name for name, values in decisive.items() if values == [1, 1, 0, 0]] == ["verdict-pass"]


def _shape(identifier: str) -> str:
    return re.sub("[0-9a-f]", "x", identifier)


def _text(payload: bytes) -> str:
    """Spread out for people; the daemon sends it compact."""
    return json.dumps(json.loads(payload), ensure_ascii=False, indent=2) + "\n"


def _write(fresh: dict[str, str]) -> None:
    for path in EXAMPLES.iterdir():
        path.unlink()
    for name, text in fresh.items():
        (EXAMPLES / f"{name}.json").write_text(text, encoding="utf-8")
