"""A station on which faults are tried: two simulated cameras, a tiny net for each, a broker, a validating listener.

`top` is the faulted camera with its model `defects`; `side` with `calm` stands beside it and must lose nothing.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.faults import leftovers, tally
from tests.faults.fault import Leftovers, Setup
from tests.faults.outside import answers, is_met, mount
from tests.integration.mosquitto import CI, Mosquitto, mosquitto
from tests.plant import WAIT_S, Listener, Plant, configuration
from tests.tinynet import ir

TOP, SIDE = "top", "side"
MODELS = {TOP: "defects", SIDE: "calm"}
FPS = 10
SIDE_PX = 160
"""Of the simulated pictures, to be cheap."""
PATIENT_MS, PATIENT_FRAMES = 10_000, 100
"""Of `side`: it loses a frame by a fault, and not because a shared host was busy; its worst latency is shown."""
RULES = {"rules": [{"id": m, "model": m, "max_count": None, "evaluation": "notOk"} for m in MODELS.values()]}
"""Every inspected frame is OK: an invented OK would be the easiest thing."""
SETTLE_S = 30.0
START_S = 3.0
"""DESIGN, Budgets: start → READY. How long a stand took instead says how slow this host is just now."""
CONFIRM_S = 2.0
NO_CACHE = "/dev/null/no-cache"
"""Compiled nets: a child that takes its net from a cache has one descriptor more than the one that compiled it."""
TEMPORARY = "inspectd-faults-"


def camera(model: str, **changes: Any) -> dict[str, Any]:
    """A simulated camera, small and slow."""
    source = {"kind": "simulator", "seed": 3, "width": SIDE_PX, "height": SIDE_PX, **changes.pop("source", {})}
    return {"source": source, "fps": FPS, "deadline_ms": 2000, "models": [model], **changes}


def net_model(path: Path, **changes: Any) -> dict[str, Any]:
    """A model on the net at `path`, with short times."""
    return {
        "task": "detect",
        "path": str(path),
        "classes": ["red", "green"],
        "precision": "f32",
        "confidence": 0.5,
        "threads": 1,
        "requests": 1,
        "timeout_ms": 500,
        "kill_after_ms": 500,
        "retry_s": 1,
        **changes,
    }


class Stand:
    """What a fault gets hold of."""

    def __init__(self, folder: Path, setup: Setup, broker: Mosquitto, listener: Listener) -> None:
        self.folder, self.setup, self.broker, self.listener = folder, setup, broker, listener
        self.top, self.side = TOP, SIDE
        self.groups: set[int] = set()
        """Process groups of every daemon that was started here."""
        self.held: Leftovers | None = None
        """What the daemon held before the first fault: no later one may add to it."""
        self.slowness = 1.0
        """Budgets are for a host of its own; this one is shared and so many times slower."""
        self.marked_s: float | None = None
        self.marked_above = 0
        """Wall clock and last number when the cause was gone."""
        self._heard_events = 0
        self.undoing = ExitStack()
        """What is to be undone at the end of the stand, whatever happens."""
        self.kept = folder / "kept"
        """Journal files as they were before a fault spoiled them: what they said counts."""
        state = folder / "state"
        state.mkdir()
        if setup.disk_mb is not None:
            mount(self.undoing, state, f"size={setup.disk_mb}m")
        nets = {model: ir(folder / f"{model}.xml") for model in MODELS.values()}
        document = configuration(
            folder,
            broker.port,
            cameras={TOP: camera(MODELS[TOP]), SIDE: camera(MODELS[SIDE], deadline_ms=PATIENT_MS)},
            models={
                MODELS[TOP]: net_model(nets[MODELS[TOP]]),
                MODELS[SIDE]: net_model(nets[MODELS[SIDE]], timeout_ms=PATIENT_MS, queue_depth=PATIENT_FRAMES),
            },
            decision=RULES,
        )
        document["storage"]["reserve_mb"] = 2
        document["mqtt"]["keepalive_s"] = 2
        if setup.configure is not None:
            setup.configure(document, self)
        self.line = Plant(folder, document)
        if setup.prefix is not None:
            self.line.prefix = setup.prefix(self)
        self.environment = {"CACHE_DIRECTORY": NO_CACHE}
        if setup.environment is not None:
            self.environment |= setup.environment(self)

    # The daemon

    def start(self) -> None:
        """Start the daemon."""
        process = self.line.start(**self.environment)
        self.groups.add(process.pid)

    def open(self) -> None:
        """Start the daemon for the first time, and measure the host by it."""
        begun_s = time.monotonic()
        self.start()
        self.wait_healthy()
        self.slowness = max(1.0, (time.monotonic() - begun_s) / START_S)

    @property
    def pid(self) -> int:
        """Of main."""
        assert self.line.process is not None
        return self.line.process.pid

    @property
    def state(self) -> Path:
        """The daemon's folder."""
        return self.line.state

    def child(self, name: str) -> int:
        """Process id of a child: `camera top`, `model defects`."""
        return self.line.wait_for_child(name)

    def required(self, camera_name: str) -> set[str]:
        """Models without which a camera's frames are not OK."""
        names = self.line.document["cameras"][camera_name]["models"]
        return {name for name in names if self.line.document["models"][name].get("required", True)}

    # Waiting

    def until(self, condition: Callable[[], object], what: str, limit_s: float = WAIT_S) -> None:
        """Wait for something outside that tells nobody when it comes."""
        if not is_met(condition, limit_s):
            pytest.fail(f"not within {limit_s:g} s: {what}\n{self.log_end()}")

    def until_inspecting(self, limit_s: float = SETTLE_S, camera_name: str = TOP) -> None:
        """Wait until a frame that is captured from now on is inspected."""
        wall_s, above = self.wall_s(), self.line.ledger_last(camera_name)

        def inspects() -> bool:
            if self.line.process is not None and (code := self.line.process.poll()) is not None:
                pytest.fail(f"the daemon has ended with {code}\n{self.log_end()}")
            return self.inspected_after(camera_name, wall_s, above) is not None

        self.until(inspects, f"{camera_name} inspects", limit_s)

    def mark(self) -> None:
        """The cause is gone (or a part was just killed): seconds until inspecting again count from here."""
        self.marked_s, self.marked_above = self.wall_s(), self.line.ledger_last(TOP)

    def wall_s(self) -> float:
        """Wall clock as the daemon sees it; a fault that moves it says by how much."""
        return time.time() + self.shift_s

    shift_s: float = 0.0

    def event(self, name: str, source: str | None = None, limit_s: float = WAIT_S) -> dict[str, Any]:
        """Wait for an event of this fault's time."""

        def found() -> dict[str, Any] | None:
            heard = self.listener.of("event")[self._heard_events :]
            return next((e for e in heard if e["event"] == name and source in (None, e["source"])), None)

        self.listener.wait_for("event", lambda _: found() is not None, limit_s)
        event = found()
        assert event is not None
        return event

    def alarm(self, name: str) -> dict[str, Any]:
        """Wait until an alarm (`CameraLost/top`) stands; one that only tells of something past is not active."""
        self.listener.wait_for_alarm(name, lambda alarm: alarm is not None)
        alarm = self.listener.alarms[name]
        return {} if alarm is None else alarm

    def alarm_over(self, name: str) -> None:
        """Wait until an alarm is gone, or stands only to be confirmed."""
        self.listener.wait_for_alarm(name, lambda alarm: alarm is None or not alarm["active"])

    def confirm(self, name: str) -> None:
        """Confirm until an alarm is gone: a request that comes while the station has no connection is lost."""
        asked_s = -CONFIRM_S

        def is_gone() -> bool:
            nonlocal asked_s
            if time.monotonic() - asked_s >= CONFIRM_S:
                asked_s = time.monotonic()
                self.listener.request("confirm-all", requestId=uuid.uuid4().hex)
            return self.listener.alarms.get(name) is None

        self.until(is_gone, f"{name} is confirmed")

    def saw(self, words: str, begin: int = 0, limit_s: float = WAIT_S) -> None:
        """Wait until the daemon's log has these words, from character `begin` on."""
        self.until(lambda: words in self.line.log[begin:], f"log: {words!r}", limit_s)

    def log_end(self) -> str:
        """The end of the daemon's log, for messages."""
        return self.line.log[-3000:]

    def keep(self, path: Path) -> None:
        """Keep what a journal file says, its log included, before it is spoiled."""
        self.kept.mkdir(exist_ok=True)
        with (
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(self.kept / f"{len(list(self.kept.iterdir()))}.sqlite")) as copy,
        ):
            source.backup(copy)

    @property
    def is_spoiled(self) -> bool:
        """Whether some of the journal was spoiled on purpose."""
        return self.kept.is_dir()

    def results_of(self, name: str) -> list[dict[str, Any]]:
        """Delivered results of a camera."""
        return [result for result in self.listener.of("result") if result["acquisition"]["cameraId"] == name]

    def close(self) -> None:
        """Undo what is left."""
        self.undoing.close()

    def begin(self) -> None:
        """A fault begins: events and the mark of the one before do not count any more; both cameras inspect."""
        if self.setup.starts:
            self.wait_healthy()
        self.marked_s, self.marked_above = None, 0
        self._heard_events = len(self.listener.of("event"))

    def journal_files(self) -> list[Path]:
        """Files of the journal, and what was kept of spoiled ones."""
        folders = (self.kept, self.state / "journal")
        return [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.sqlite"))]

    def wait_healthy(self) -> None:
        """Both cameras inspect, and it answers on this PC."""
        for name in MODELS:
            self.until_inspecting(WAIT_S, name)
        self.until(lambda: answers(self.state / "inspectd.sock"), "the local door", SETTLE_S)

    def inspected_after(self, name: str, wall_s: float, above: int) -> float | None:
        """When a frame above this number was inspected that was captured after this moment."""
        return tally.first_inspected_after(self.journal_files(), name, wall_s, above, self.required(name))


@contextmanager
def stand(setup: Setup) -> Iterator[Stand]:
    """Build a stand and start its daemon; nothing of it is left behind."""
    for need in setup.needs:
        if shutil.which(need) is None and not Path(need).exists():
            (pytest.fail if CI else pytest.skip)(f"{need} is not installed")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY)))
        broker = stack.enter_context(mosquitto(*setup.broker, acl=setup.acl))
        listener = Listener(broker.port)
        built = Stand(folder, setup, broker, listener)
        stack.callback(built.close)
        stack.callback(_end_group, built)
        if setup.starts:
            built.open()
        yield built
        if built.line.process is not None and built.line.process.poll() is None:
            code = built.line.terminate()
            assert code == 0, f"the daemon ended with {code}\n{built.log_end()}"
        assert not leftovers.members(built.groups), leftovers.members(built.groups)
        listener.close()


def _end_group(built: Stand) -> None:
    """Whatever went wrong: end every process that was started here."""
    for pid in leftovers.members(built.groups):
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            continue
    if built.line.process is not None:
        built.line.process.wait(WAIT_S)
