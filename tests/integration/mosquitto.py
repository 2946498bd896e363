"""A real mosquitto for one test, on a port of its own, and a subscriber that waits by events."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

START_LIMIT_S = 10.0
WAIT_LIMIT_S = 20.0
CI = os.environ.get("CI") == "true"


def binary(name: str = "mosquitto") -> str:
    """Find a program of Debian's mosquitto packages; skip the test without it, fail in CI."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if found is None:
        if CI:
            pytest.fail(f"{name} is not installed, and CI=true")
        pytest.skip(f"{name} is not installed (apt install mosquitto mosquitto-clients)")
    return found


def plugin(name: str) -> Path:
    """Find a plugin of Debian's mosquitto; skip the test without it, fail in CI."""
    binary()
    found = sorted(Path("/usr/lib").glob(f"*/{name}"))
    if not found:
        if CI:
            pytest.fail(f"{name} is not installed, and CI=true")
        pytest.skip(f"{name} is not installed (it is part of the package mosquitto)")
    return found[0]


def free_port() -> int:
    """Give a port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class TlsListener:
    """What a listener with TLS shows, PEM. With `client_ca` it wants certificates of that authority."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class Mosquitto:
    """One broker with a folder of its own (configuration, passwords, access list, certificates, persistence).

    `port` is in the clear. With `tls` there is a second listener; `netns` starts it in that network namespace, where
    it listens on `host`. `dynamic`: the document of the dynamic security plugin.
    """

    def __init__(
        self,
        *lines: str,
        users: dict[str, str] | None = None,
        acl: str | None = None,
        tls: TlsListener | None = None,
        dynamic: dict[str, Any] | None = None,
        host: str = "127.0.0.1",
        netns: str | None = None,
    ) -> None:
        self.port = free_port()
        self.tls_port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="inspectd-mosquitto-"))
        self.log: list[str] = []
        self._logged = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._enter = ["ip", "netns", "exec", netns] if netns else []
        settings = [
            f"listener {self.port} {host}",
            "set_tcp_nodelay true",
            "log_dest stderr",
            "log_type all",
            "connection_messages true",
            "persistence true",
            f"persistence_location {self.folder}/",
            f"allow_anonymous {'false' if users or dynamic else 'true'}",
        ]
        if users:
            passwords = self.folder / "passwords"
            passwords.touch()
            for user, password in users.items():
                command = [binary("mosquitto_passwd"), "-b", str(passwords), user, password]
                subprocess.run(command, check=True, timeout=START_LIMIT_S)
            settings.append(f"password_file {passwords}")
        if acl is not None:
            self.write_acl(acl)
            settings.append(f"acl_file {self.folder / 'acl'}")
        if dynamic is not None:
            self.write("dynamic.json", json.dumps(dynamic).encode())
            settings += [
                f"plugin {plugin('mosquitto_dynamic_security.so')}",
                f"plugin_opt_config_file {self.folder / 'dynamic.json'}",
            ]
        if os.geteuid() == 0:
            settings.append("user mosquitto")
        if tls is not None:
            self.show(tls)
            settings += [
                f"listener {self.tls_port} {host}",
                f"certfile {self.folder / 'server.pem'}",
                f"keyfile {self.folder / 'server.key'}",
            ]
            if tls.client_ca is not None:
                settings += [f"cafile {self.folder / 'clients.pem'}", "require_certificate true"]
        self._settings = settings
        self._configuration = self.folder / "mosquitto.conf"
        self.configure(*lines)

    def write_acl(self, acl: str) -> None:
        """Set the access list; `reload` makes a running broker read it."""
        self.write("acl", acl.encode())

    def configure(self, *lines: str) -> None:
        """Set the lines that are added to its configuration; used from the next start on."""
        self.write("mosquitto.conf", "\n".join([*self._settings, *lines, ""]).encode())

    def write(self, name: str, content: bytes) -> None:
        """Put a file into its folder, readable for it."""
        (self.folder / name).write_bytes(content)
        self._give_away()

    def show(self, tls: TlsListener) -> None:
        """Set the certificates of the listener with TLS; used from the next start on."""
        self.write("server.pem", tls.certificate)
        self.write("server.key", tls.key)
        if tls.client_ca is not None:
            self.write("clients.pem", tls.client_ca)

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it listens."""
        begin = len(self.log)
        self._process = subprocess.Popen(
            [*self._enter, binary(), "-c", str(self._configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        self.wait_for_log("running", begin)

    def wait_for_log(self, text: str, begin: int = 0, limit_s: float = START_LIMIT_S) -> str:
        """Wait until the broker has logged a line with this text, from line `begin` on."""
        with self._logged:
            found = self._logged.wait_for(lambda: [line for line in self.log[begin:] if text in line], limit_s)
            assert found, f"mosquitto did not log {text!r} within {limit_s} s:\n" + "".join(self.log[-20:])
            return found[0]

    def kill(self) -> None:
        """Kill -9: it saves nothing and says goodbye to nobody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_LIMIT_S)
            assert self._reader is not None
            self._reader.join(START_LIMIT_S)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def save(self) -> None:
        """Write what is retained to the disk, as it does every half hour."""
        begin = len(self.log)
        os.kill(self.pid, signal.SIGUSR1)
        self.wait_for_log("Saving in-memory database", begin)

    def restart(self) -> None:
        """Kill -9 and start again on the same port."""
        self.kill()
        self.start()

    def reload(self) -> None:
        """Read the access list and the passwords again."""
        begin = len(self.log)
        os.kill(self.pid, signal.SIGHUP)
        self.wait_for_log("Reloading config", begin)

    @contextmanager
    def stop_cont(self) -> Iterator[None]:
        """Freeze it inside the block: connections stay, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self._process is not None:
                os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._logged:
                self.log.append(line)
                self._logged.notify_all()

    def _give_away(self) -> None:
        """Started as root it drops to its own user, who must be able to read and write here."""
        if os.geteuid() != 0:
            return
        user = pwd.getpwnam("mosquitto")
        for path in (self.folder, *self.folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)


def dynamic_security(subscribe: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Make the document of the dynamic security plugin: each user may subscribe to these filters and to nothing else.

    The password of a user is the name. Publishing is free.
    """
    salt, iterations = b"twelve bytes", 101
    clients, roles = [], []
    for user, filters in subscribe.items():
        digest = hashlib.pbkdf2_hmac("sha512", user.encode(), salt, iterations, 64)
        secret = {"password": b64encode(digest).decode(), "salt": b64encode(salt).decode(), "iterations": iterations}
        clients.append({"username": user, **secret, "roles": [{"rolename": user}]})
        acls = [
            {"acltype": f"subscribe{kind}", "topic": topic, "allow": True}
            for topic in filters
            for kind in ("Literal", "Pattern")[: 2 if topic == "#" else 1]
        ]
        roles.append({"rolename": user, "acls": acls})
    free = {"publishClientSend": True, "publishClientReceive": True, "subscribe": False, "unsubscribe": True}
    return {"defaultACLAccess": free, "clients": clients, "roles": roles, "groups": []}


@contextmanager
def mosquitto(*lines: str, **options: Any) -> Iterator[Mosquitto]:
    """Run a broker for one test. `lines` are added to its configuration; `options` are those of `Mosquitto`."""
    binary()
    broker = Mosquitto(*lines, **options)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@dataclass(frozen=True, slots=True)
class Received:
    """One message as a subscriber gets it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any]
    at_s: float
    """Monotonic clock."""


class Subscriber:
    """A client of the plant: MQTT 5, in paho's own thread, comes back after a break."""

    def __init__(self, port: int, topics: tuple[str, ...], user: str | None, password: str | None) -> None:
        self.messages: list[Received] = []
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._subscribed = False
        self._topics = topics
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.reconnect_delay_set(1, 1)
        if user is not None:
            self._client.username_pw_set(user, password)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.on_socket_open = _no_delay  # else each acknowledgement waits 40 ms
        self._client.connect("127.0.0.1", port, 60)
        self._client.loop_start()

    async def until(self, condition: Callable[[list[Received]], bool], limit_s: float = WAIT_LIMIT_S) -> list[Received]:
        """Wait until the messages so far meet a condition."""
        await self._wait(lambda: condition(self.messages), limit_s)
        return self.messages

    async def subscribed(self) -> None:
        """Wait until the subscription stands (again)."""
        await self._wait(lambda: self._subscribed, WAIT_LIMIT_S)

    def on(self, topic: str) -> list[bytes]:
        """Give the payloads of one topic so far."""
        return [message.payload for message in self.messages if message.topic == topic]

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, **properties: Any) -> None:
        """Publish at QoS 1, with MQTT 5 properties by name (`ResponseTopic`, `CorrelationData`)."""
        packed = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own gap
        for name, value in properties.items():
            setattr(packed, name, value)
        self._client.publish(topic, payload, 1, retain, packed)

    def close(self) -> None:
        """Disconnect and end the thread."""
        self._client.disconnect()
        self._client.loop_stop()

    async def _wait(self, condition: Callable[[], bool], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"not within {limit_s} s; {len(self.messages)} messages, the last: {self.messages[-3:]}")

    def _on_connect(self, *_: object) -> None:
        self._client.subscribe([(topic, 1) for topic in self._topics])

    def _on_subscribe(self, *_: object) -> None:
        self._subscribed = True
        self._loop.call_soon_threadsafe(self._changed.set)

    def _on_message(self, _client: Client, _userdata: object, message: MQTTMessage) -> None:
        properties = dict(vars(message.properties)) if message.properties is not None else {}
        received = Received(
            message.topic, bytes(message.payload), message.qos, message.retain, properties, time.monotonic()
        )
        self._loop.call_soon_threadsafe(self._take, received)

    def _take(self, received: Received) -> None:
        self.messages.append(received)
        self._changed.set()


def _no_delay(_client: Client, _userdata: object, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@asynccontextmanager
async def subscriber(
    port: int, *topics: str, user: str | None = None, password: str | None = None
) -> AsyncIterator[Subscriber]:
    """Subscribe for one test; the subscription stands when the block begins."""
    client = Subscriber(port, topics, user, password)
    try:
        await client.subscribed()
        yield client
    finally:
        client.close()
