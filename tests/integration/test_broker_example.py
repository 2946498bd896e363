"""The broker configuration that is shipped: mosquitto takes it, and its access list lets each do its own part."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode
from tests.integration.certificates import Authority
from tests.integration.mosquitto import binary, free_port

EXAMPLES = Path(__file__).parents[2] / "config" / "examples"
BASE = "acme/suzhou/smt/line3/aoi/aoi-01"
USERS = ("aoi-01", "mes-1", "plc-1", "maintenance")
NOT_AUTHORISED = 135
WAIT_S = 10.0

SAID = (
    *("status", "state", "result", "verdict", "lastresult", "event", "alarm/CameraLost/top", "health", "counters"),
    *("heartbeat", "meta", "rsp/mes-1", "replay/mes-1"),
)
"""What a station publishes."""
ASKED = ("cmd/replay", "cmd/get-result", "cmd/get-state", "cmd/confirm-all", "cmd/acknowledge", "cmd/reset-counters")
MAY_WRITE = {
    "aoi-01": set(SAID),
    "mes-1": {"cmd/replay", "cmd/get-result", "cmd/get-state", "ack"},
    "plc-1": set(),
    "maintenance": set(ASKED),
}
MAY_READ = {
    "aoi-01": {*ASKED, "ack"},
    "mes-1": set(SAID) - {"verdict", "heartbeat"},
    "plc-1": {"verdict", "heartbeat", "state", "status"},
    "maintenance": {*SAID, *ASKED, "ack"},
}


class Guest:
    """A client that is signed in by its user name."""

    def __init__(self, broker: Broker, user: str, password: str) -> None:
        self.heard: set[str] = set()
        self._changed = threading.Condition()
        self._connected: ReasonCode | None = None
        self._answers: dict[int, int] = {}
        self._client = Client(CallbackAPIVersion.VERSION2, f"test-{user}", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.tls_set(str(broker.folder / "certs" / "ca.pem"))
        self._client.username_pw_set(user, password)
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    @property
    def welcome(self) -> ReasonCode:
        with self._changed:
            assert self._changed.wait_for(lambda: self._connected is not None, WAIT_S)
        assert self._connected is not None
        return self._connected

    def publish(self, leaf: str) -> int:
        """Publish, and give the broker's reason code."""
        mid = self._client.publish(f"{BASE}/{leaf}", b"{}", 1).mid
        return self._answer(mid)

    def subscribe(self) -> None:
        """Everything; the access list then decides what comes."""
        mid = self._client.subscribe(f"{BASE}/#", 1)[1]
        assert mid is not None
        self._answer(mid)

    def wait_for(self, leaf: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: leaf in self.heard, WAIT_S), self.heard

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _answer(self, mid: int) -> int:
        with self._changed:
            assert self._changed.wait_for(lambda: mid in self._answers, WAIT_S)
            return self._answers[mid]

    def _on_connect(self, _client: Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        with self._changed:
            self._connected = reason
            self._changed.notify_all()

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _properties: Any) -> None:
        with self._changed:
            self._answers[mid] = reason.value
            self._changed.notify_all()

    def _on_subscribe(self, _client: Client, _data: Any, mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
        with self._changed:
            self._answers[mid] = reasons[0].value
            self._changed.notify_all()

    def _on_message(self, _client: Client, _data: Any, message: Any) -> None:
        with self._changed:
            self.heard.add(message.topic.removeprefix(f"{BASE}/"))
            self._changed.notify_all()


@dataclass
class Broker:
    """The example with other paths and another port."""

    folder: Path
    port: int


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    passwd = binary("mosquitto_passwd")
    folder = Path(tempfile.mkdtemp(prefix="inspectd-mosquitto-"))
    built = Broker(folder, free_port())
    (folder / "certs").mkdir()
    authority = Authority()
    pair = authority.server()
    for name, content in (("ca.pem", authority.pem), ("broker.pem", pair.certificate), ("broker.key", pair.key)):
        (folder / "certs" / name).write_bytes(content)
    shutil.copy(EXAMPLES / "mosquitto.acl", folder / "inspectd.acl")
    (folder / "inspectd.passwords").touch()
    for user in USERS:
        subprocess.run([passwd, "-b", str(folder / "inspectd.passwords"), user, f"of {user}"], check=True, timeout=10)
    text = (EXAMPLES / "mosquitto.conf").read_text("utf-8")
    text = text.replace("/etc/mosquitto/", f"{folder}/").replace("listener 8883", f"listener {built.port} 127.0.0.1")
    (folder / "mosquitto.conf").write_text(
        f"{text}persistence_location {folder}/\nlog_dest stderr\nlog_type information\n", "utf-8"
    )
    if os.geteuid() == 0:  # it drops to its own user
        owner = pwd.getpwnam("mosquitto")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    command = [binary(), "-c", str(folder / "mosquitto.conf")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    rest = threading.Thread(target=process.stderr.read)  # a full pipe would stop it
    try:
        said = ""
        while "running" not in said:
            line = process.stderr.readline()
            assert line, f"mosquitto does not take the example: {said}"
            said += line
        rest.start()
        yield built
    finally:
        process.kill()
        process.wait(10)
        if rest.ident is not None:
            rest.join(10)
        process.stderr.close()
        shutil.rmtree(folder)


@pytest.fixture
def guests(broker: Broker) -> Iterator[dict[str, Guest]]:
    built = {user: Guest(broker, user, f"of {user}") for user in USERS}
    try:
        yield built
    finally:
        for guest in built.values():
            guest.close()


def test_each_may_publish_what_is_its_own_and_is_refused_everything_else(guests: dict[str, Guest]) -> None:
    for user, guest in guests.items():
        assert not guest.welcome.is_failure
        allowed = {leaf for leaf in (*SAID, *ASKED, "ack") if guest.publish(leaf) != NOT_AUTHORISED}
        assert allowed == MAY_WRITE[user], user


def test_each_hears_what_it_needs_and_nothing_else(guests: dict[str, Guest]) -> None:
    """The last message of each publisher tells that nothing more will come."""
    for guest in guests.values():
        assert not guest.welcome.is_failure
        guest.subscribe()
    for leaf in (*SAID, "status"):
        guests["aoi-01"].publish(leaf)
    guests["mes-1"].publish("ack")
    for leaf in ASKED:
        guests["maintenance"].publish(leaf)
    for user, last in (("aoi-01", ASKED[-1]), ("mes-1", SAID[-1]), ("plc-1", "verdict"), ("maintenance", ASKED[-1])):
        guests[user].wait_for(last)
    for guest in guests.values():
        guest.publish("ack")  # a round trip: what came before it has arrived
    assert {user: guest.heard for user, guest in guests.items()} == MAY_READ


def test_nobody_comes_in_with_a_wrong_password(broker: Broker) -> None:
    guest = Guest(broker, "mes-1", "of somebody else")
    assert guest.welcome.value == NOT_AUTHORISED
    guest.close()
