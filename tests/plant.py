"""A whole plant for one test: the daemon as a process of its own, a broker, a listener that validates every message."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tests.contract.heard import Heard
from tests.shared import shared

from inspectd.ledger import PAGE_BYTES

BASE = "test/plant/line/station"
WAIT_S = 60.0


def configuration(folder: Path, port: int, **parts: Any) -> dict[str, Any]:
    """A station with its state under `folder`; `parts` are the sections cameras, models, decision, mqtt."""
    return {
        "version": 1,
        "station": {
            "enterprise": "test",
            "site": "plant",
            "area": "hall",
            "line": "line",
            "id": "station",
            "clock": "none",
        },
        "storage": {"path": str(folder / "state"), "outbox": {"max_gb": 0.5}},
        "mqtt": {"host": "127.0.0.1", "port": port, "base": BASE, **parts.pop("mqtt", {})},
        **parts,
    }


def pcb_model(**changes: Any) -> dict[str, Any]:
    """The shared detector for real boards."""
    path = shared("models/tinydet-pcb/tinydet_640x640.xml")
    return {"task": "detect", "path": str(path), "precision": "f32", "confidence": 0.25, "timeout_ms": 5000, **changes}


def pcb_decision() -> dict[str, Any]:
    """One rule: any defect that is likely enough."""
    return {"rules": [{"id": "defect", "model": "defects", "min_confidence": 0.6, "evaluation": "notOk", "code": 110}]}


def files_camera(path: Path, **changes: Any) -> dict[str, Any]:
    """A folder of pictures, as fast as they are taken."""
    source = {"kind": "files", "path": str(path), "pace": "lossless", "loop": changes.pop("loop", False)}
    return {"source": source, "deadline_ms": 20000, "models": ["defects"], **changes}


class Listener:
    """A subscriber that comes back after a break. Everything it hears is validated; what is wrong fails the test."""

    def __init__(self, port: int, user: str | None = None, password: str | None = None) -> None:
        self.documents: dict[str, list[dict[str, Any]]] = {}
        self.alarms: dict[str, dict[str, Any] | None] = {}
        """By code and source, as the topic says now; None: gone."""
        self._heard = Heard(BASE)
        self._changed = threading.Condition()
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.reconnect_delay_set(1, 1)
        if user is not None:
            self._client.username_pw_set(user, password)
        self._subscribed = threading.Event()
        self._client.on_connect = lambda client, *_: client.subscribe(f"{BASE}/#", 1)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_disconnect = lambda *_: self._subscribed.clear()
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", port, 60)
        self._client.loop_start()
        assert self._subscribed.wait(WAIT_S)

    def wait_subscribed(self) -> None:
        """After the broker's return."""
        assert self._subscribed.wait(WAIT_S)

    def of(self, leaf: str) -> list[dict[str, Any]]:
        """Documents of one topic so far."""
        with self._changed:
            return list(self.documents.get(leaf, ()))

    def wait_for(self, leaf: str, condition: Callable[[list[dict[str, Any]]], bool], limit_s: float = WAIT_S) -> None:
        """Wait until there are documents of a topic, and they meet a condition."""

        def is_met() -> bool:
            documents = self.documents.get(leaf, [])
            return bool(documents) and condition(documents)

        with self._changed:
            met = self._changed.wait_for(is_met, limit_s)
        if not met:
            pytest.fail(f"{leaf}: not within {limit_s:g} s; {len(self.of(leaf))} messages, {self.of('state')[-1:]}")

    def wait_for_alarm(self, name: str, condition: Callable[[dict[str, Any] | None], bool]) -> None:
        """Wait until an alarm's topic (code/source) meets a condition; None: it is gone."""
        with self._changed:
            met = self._changed.wait_for(lambda: name in self.alarms and condition(self.alarms[name]), WAIT_S)
        if not met:
            pytest.fail(f"{name}: not within {WAIT_S:g} s; {self.alarms.get(name)}, {self.of('state')[-1:]}")

    def wait_for_more(self, count: int) -> None:
        """Wait for so many further results."""
        goal = len(self.of("result")) + count
        self.wait_for("result", lambda documents: len(documents) >= goal)

    def request(self, command: str, **arguments: Any) -> None:
        """Ask for something as requester `test`."""
        payload = {"requester": "test", **arguments}
        self._client.publish(f"{BASE}/cmd/{command}", json.dumps(payload), 1).wait_for_publish(WAIT_S)

    def publish(self, leaf: str, document: dict[str, Any]) -> None:
        """Say something on one of the station's topics."""
        self._client.publish(f"{BASE}/{leaf}", json.dumps(document), 1).wait_for_publish(WAIT_S)

    def close(self) -> None:
        """End; raise what was wrong with any message."""
        self._client.disconnect()
        self._client.loop_stop()
        self._heard.check()

    def _take(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        document = self._heard.take(message.topic, bytes(message.payload))
        leaf = message.topic.removeprefix(f"{BASE}/")
        with self._changed:
            if document is not None:
                self.documents.setdefault(leaf, []).append(document)
            if leaf.startswith("alarm/"):
                self.alarms[leaf.removeprefix("alarm/")] = document
            self._changed.notify_all()


@dataclass
class Plant:
    """The daemon as a process, in a process group of its own."""

    folder: Path
    document: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    firsts: list[int] = field(default_factory=list)
    """First number of each run of the daemon, of the camera `top`."""
    prefix: tuple[str, ...] = ()
    """What the daemon is started through; it must end in an exec of what follows."""

    @property
    def state(self) -> Path:
        return Path(self.document["storage"]["path"])

    @property
    def log(self) -> str:
        return (self.folder / "daemon.log").read_text("utf-8")

    @property
    def path(self) -> Path:
        """The configuration."""
        return self.folder / "inspectd.yaml"

    def inspectd(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a person beside the daemon would."""
        command = [sys.executable, "-m", "inspectd", *arguments, "-c", str(self.path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start the daemon as a user would."""
        path = self.path
        path.write_text(yaml.safe_dump(self.document), "utf-8")
        self.firsts.append(self.ledger_last() + 1)
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "inspectd", "run", "-c", str(path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | environment,
            )
        return self.process

    def wait(self, limit_s: float = WAIT_S) -> int:
        """Wait for the daemon's own end."""
        assert self.process is not None
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill_group()
            pytest.fail(f"the daemon did not end within {limit_s:g} s\n{self.log[-3000:]}")

    def terminate(self) -> int:
        """SIGTERM, and wait for the end."""
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def children(self) -> dict[str, int]:
        """Process ids of the children by what ps shows of them."""
        assert self.process is not None
        found: dict[str, int] = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                title = child.cmdline()
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            if title and title[0].startswith("inspectd: "):
                found[title[0].removeprefix("inspectd: ")] = child.pid
        return found

    def wait_for_child(self, name: str) -> int:
        """Process id of a child, as soon as it shows its name."""
        deadline_s = time.monotonic() + WAIT_S
        pause = threading.Event()
        while time.monotonic() < deadline_s:
            if (pid := self.children().get(name)) is not None:
                return pid
            pause.wait(0.02)
        pytest.fail(f"there is no child {name!r}: {self.children()}\n{self.log[-2000:]}")

    def kill_group(self) -> None:
        """SIGKILL to everything at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)

    def ledger_last(self, camera: str = "top") -> int:
        """Last number on the ledger, read without the daemon's code."""
        path = self.state / "ledger" / camera
        if not path.exists():
            return 0
        page = path.read_bytes()
        assert len(page) == PAGE_BYTES
        return int.from_bytes(page[8:16], "little")

    def leftovers(self) -> list[str]:
        """Processes that still run under this daemon's configuration."""
        assert self.process is not None
        found = []
        for process in psutil.process_iter(["cmdline", "pid"]):
            try:
                if os.getpgid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {process.info['cmdline']}")
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found


@contextmanager
def plant(folder: Path, document: dict[str, Any]) -> Iterator[Plant]:
    """Have a plant for one test; nothing of it is left behind."""
    built = Plant(folder, document)
    try:
        yield built
    finally:
        if built.process is not None and built.process.poll() is None:
            built.kill_group()


@dataclass
class Audit:
    """The journal's files, read without the daemon's code."""

    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    """seq → the payload's document."""
    columns: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """seq → camera, frame, evaluation as the row's own columns say."""
    runs: list[tuple[str, int, int, int, str]] = field(default_factory=list)
    """camera, first, last, code, reason."""
    counters: dict[str, Any] = field(default_factory=dict)
    acked_seq: int = 0

    @classmethod
    def of(cls, state: Path) -> Audit:
        audit = cls()
        for path in sorted((state / "journal").glob("????????.sqlite")):
            with closing(sqlite3.connect(path)) as connection:
                for seq, camera, frame, evaluation, payload in connection.execute(
                    "SELECT seq, camera, frame, evaluation, payload FROM results"
                ):
                    audit.results[seq] = json.loads(zlib.decompress(payload))
                    audit.columns[seq] = camera, frame, evaluation
                audit.runs += connection.execute("SELECT camera, from_frame, to_frame, code, reason FROM runs")
                counters, audit.acked_seq = connection.execute("SELECT counters, acked_seq FROM state").fetchone()
                audit.counters = json.loads(counters)
        return audit

    def numbers(self, camera: str = "top") -> Counter[int]:
        """How many rows each frame number has."""
        found = Counter(frame for name, frame, _ in self.columns.values() if name == camera)
        for name, first, last, _, _ in self.runs:
            if name == camera:
                found.update(range(first, last + 1))
        return found

    def check(self, ledger_last: int, camera: str = "top") -> None:
        """The promise: each number has exactly one row; seq has no gap; ids are unique; counters agree."""
        assert self.numbers(camera) == Counter(range(1, ledger_last + 1))
        assert sorted(self.results) == list(range(1, len(self.results) + 1))
        ids = [document["resultId"] for document in self.results.values()]
        assert len(set(ids)) == len(ids)
        by_evaluation = Counter(evaluation for _, _, evaluation in self.columns.values())
        by_evaluation[0] += sum(last - first + 1 for _, first, last, _, _ in self.runs)
        names = {1: "ok", 2: "not_ok", 3: "not_decidable", 0: "undefined"}
        assert {names[key]: count for key, count in by_evaluation.items() if count} == {
            name: self.counters[name] for name in names.values() if self.counters.get(name)
        }
        for seq, document in self.results.items():
            assert document["seq"] == seq
            assert document["resultEvaluation"] == self.columns[seq][2]
            assert document["acquisition"]["frameId"] == self.columns[seq][1]
            if document["resultEvaluation"] == 1:
                [model] = document["models"]
                assert (model["outcome"], document["resultState"]) == ("done", 1), (
                    f"OK without its inference: {document}"
                )


def is_exact(counters: dict[str, Any]) -> bool:
    """The invariant of the counters message."""
    accounted = counters["ok"] + counters["notOk"] + counters["notDecidable"] + counters["undefined"]
    return bool(counters["captured"] == accounted + counters["inFlight"])
