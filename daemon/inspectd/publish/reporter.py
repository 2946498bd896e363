"""Says how the station is: state, counters, heartbeat, meta, and the line for `systemctl status`.

`state` and `meta` go out when they change, heartbeat every second, counters every ten.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from typing import Any

from inspectd import __version__
from inspectd.accounts import Accounts
from inspectd.lane.driver import LaneDriver
from inspectd.ledger import Ledger
from inspectd.ledgers import Survivors
from inspectd.line import Line
from inspectd.publish import reports
from inspectd.publish.announcer import Announcer
from inspectd.publish.counters import Tally
from inspectd.publish.events import Event, EventName, Occurrence
from inspectd.publish.publisher import Publisher
from inspectd.publish.reports import CameraState, Meta, MetaModel, RecipeFacts, StationState, Vision
from inspectd.publish.uuid7 import uuid7
from inspectd.publish.wire import encode
from inspectd.publish.writer import Writer
from inspectd.statemachine import Facts, State, Trigger, follow

COUNTERS_PERIOD_S = 10
STATE_SEVERITY = 100
PATIENCE_S = 2.0
"""A record that waits longer than this for the disk makes the station not ready."""


class Phase(Enum):
    """Of the daemon's life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Parts:
    """What is reported about."""

    lines: Mapping[str, Line]
    lanes: Mapping[str, LaneDriver]
    required: frozenset[str]
    """Models."""
    labels: Mapping[str, Mapping[str, Mapping[str, str]]]
    """Model → class → language → label."""
    retired: Mapping[str, tuple[Ledger, Accounts]]
    """Cameras that are not configured any more; their frames still count."""
    survivors: Survivors
    """Camera processes of earlier daemons that were killed and may not have ended."""
    announcer: Announcer
    writer: Writer
    publisher: Callable[[], Publisher]
    recipe: Callable[[], RecipeFacts]
    configuration_hash: str
    boot_id: str
    is_clock_right: Callable[[], bool]
    """Whether the wall clock is synchronised, or need not be."""


class Reporter:
    """Reads every part; changes none."""

    def __init__(self, parts: Parts, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._parts, self._clock, self._wall = parts, clock, wall
        self.phase = Phase.STARTING
        self._state = State.PREOPERATIONAL
        self._steps: list[tuple[State, Trigger, State]] = []
        """Of the state machine, not told yet."""
        self._beats = 0
        self._state_key: object = None
        self._since_key: object = None
        self._since_wall_s = wall()
        self._meta = b""
        self._openvino_version = version("openvino")

    # What is the case

    def reasons(self) -> list[str]:
        """Why the station is not ready, a short sentence each; empty when it is."""
        parts = self._parts
        now = self._clock()
        found = [f"camera {name}: {trouble_of(line)}" for name, line in parts.lines.items() if not line.is_fit(now)]
        found += [
            f"model {name}: {lane.fault}"
            for name, lane in parts.lanes.items()
            if lane.fault is not None and name in parts.required
        ]
        if trouble := journal_trouble(parts, now):
            found.append(f"journal: {trouble}")
        return found

    def degraded(self) -> list[str]:
        """What is amiss and does not stop inspection."""
        parts = self._parts
        found = [
            f"optional model {name}: {lane.fault}"
            for name, lane in parts.lanes.items()
            if lane.fault is not None and name not in parts.required
        ]
        repairs = [lane.crew.ladder.degraded for lane in parts.lanes.values() if lane.facts is not None]
        found += [f"model {text}" for text in repairs if text is not None]
        if not parts.publisher().connected:
            found.append(f"broker: {parts.publisher().last_error or 'not connected yet'}")
        elif refusal := broker_refusal(parts.publisher()):
            found.append(f"broker: {refusal}")
        if not parts.is_clock_right():
            found.append("clock: not synchronised")
        return found

    @property
    def serving(self) -> bool:
        """False while starting and while stopping."""
        return self.phase is Phase.SERVING

    def follow(self) -> State:
        """Bring the state machine in line with what is the case; gives its state. Each step is told of later."""
        facts = Facts(
            started=self.phase is not Phase.STARTING,
            stopping=self.phase is Phase.STOPPING,
            fault=self.serving and bool(self.reasons()),
        )
        for trigger, state in follow(self._state, facts):
            self._steps.append((self._state, trigger, state))
            self._state = state
        return self._state

    @property
    def vision(self) -> Vision:
        """The outer state, as it is now."""
        return self.follow().vision

    @property
    def ready(self) -> bool:
        """Whether a part that comes now will be inspected."""
        return self.serving and not self.reasons()

    def station_state(self) -> StationState:
        """The state, as it is published."""
        parts, state = self._parts, self.follow()
        reasons, degraded = self.reasons(), self.degraded()
        return StationState(
            vision=state.vision,
            automatic=state.automatic,
            ready=self.serving and not reasons,
            degraded=bool(degraded),
            reasons=(*reasons, *degraded),
            simulation=any(line.spec.simulated for line in parts.lines.values()),
            recipe=parts.recipe(),
            jobs_in_flight=sum(line.in_flight for line in parts.lines.values()),
            jobs_max=sum(line.slots for line in parts.lines.values()),
            since_wall_s=self._since_wall_s,
            cameras={
                name: CameraState("continuous", line.facts is not None, self.serving and line.is_fit(self._clock()))
                for name, line in parts.lines.items()
            },
        )

    # What is said

    def publish_changes(self) -> None:
        """Publish state and meta if they changed (the state's number of jobs alone is no change)."""
        state = self.station_state()
        since_key = (state.vision, state.automatic, state.ready, state.degraded)
        if since_key != self._since_key:
            self._since_key, self._since_wall_s = since_key, self._wall()
        key = (since_key, state.reasons, tuple(state.cameras.items()))
        if key != self._state_key:
            self._state_key = key
            self._parts.publisher().retain("state", reports.state(self.station_state()), 1)
        self._tell_steps()
        meta = self._word_meta()
        if meta != self._meta:
            self._meta = meta
            self._parts.publisher().retain("meta", meta, 1)

    def publish_all(self) -> None:
        """Publish everything retained, for a publisher that is new."""
        self._state_key, self._meta = None, b""
        self.publish_changes()
        self.publish_counters()

    def publish_counters(self) -> None:
        """Publish the counters of this moment."""
        self._parts.publisher().retain("counters", encode(self.counters_document()), 0)

    def counters_document(self) -> dict[str, Any]:
        """Give the counters of this moment, as their topic has them."""
        return reports.counters_document(self._parts.announcer.counters, *self.numbers())

    def beat(self) -> None:
        """Publish the heartbeat; every tenth time the counters as well."""
        self._beats += 1
        payload = reports.heartbeat(self._beats, self.vision, self._wall(), ready=self.ready)
        self._parts.publisher().send("heartbeat", payload, 0)
        if self._beats % COUNTERS_PERIOD_S == 1:
            self.publish_counters()

    def numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        """Captured and in flight, by camera: from the ledgers and the accounts, not from the counters."""
        parts = self._parts
        captured: dict[str, int] = {}
        in_flight: dict[str, int] = {}
        for name, line in parts.lines.items():
            last = line.ledger.last  # once: the camera goes on numbering meanwhile
            captured[name], in_flight[name] = line.accounts.captured(last), line.accounts.in_flight(last)
        for name, (ledger, accounts) in parts.retired.items():
            captured[name], in_flight[name] = accounts.captured(ledger.last), 0
        return captured, in_flight

    def status_text(self) -> str:
        """One line for an operator."""
        parts = self._parts
        cameras = ", ".join(self._camera_text(name, line) for name, line in parts.lines.items())
        models = ", ".join(_lane_text(name, lane) for name, lane in parts.lanes.items())
        unsent = parts.publisher().stats().unsent
        trouble = "; ".join(self.reasons() + self.degraded())
        return f"{cameras} | {models} | unsent {unsent}" + (f" | {trouble}" if trouble else "")

    def _tell_steps(self) -> None:
        """Tell of each step of the state machine (of the state's other facts the topic alone tells)."""
        steps, self._steps = self._steps, []
        for before, trigger, after in steps:
            detail = {"from": before.word, "to": after.word, "by": trigger.value, "reasons": self.reasons()}
            event = Event(EventName.STATE_CHANGED, "station", STATE_SEVERITY, detail)
            told = Occurrence(event, uuid7(self._wall(), os.urandom(10)), self._wall(), self._parts.boot_id)
            self._parts.publisher().send("event", told.word(None), 1)

    def _camera_text(self, name: str, line: Line) -> str:
        tally = self._parts.announcer.counters.per_camera.get(name, Tally())
        return (
            f"{name} {line.rate_per_s(self._clock()):.1f}/s ok {tally.ok}, notOk {tally.not_ok}, "
            f"notDecidable {tally.not_decidable}, undefined {tally.undefined}"
        )

    def _word_meta(self) -> bytes:
        parts = self._parts
        models: Sequence[MetaModel] = [
            MetaModel(lane.facts, parts.labels[name]) for name, lane in parts.lanes.items() if lane.facts is not None
        ]
        return reports.meta(
            Meta(
                software_version=__version__,
                openvino_version=self._openvino_version,
                python_version=platform.python_version(),
                boot_id=parts.boot_id,
                commands=parts.publisher().commands,
                configuration_hash=parts.configuration_hash,
                recipes=(parts.recipe(),),
                models=tuple(models),
                cameras=tuple(line.facts for line in parts.lines.values() if line.facts is not None),
            )
        )


def trouble_of(line: Line) -> str:
    """Say why a camera is not fit."""
    if line.host.trouble:
        return line.host.trouble
    if line.facts is None:
        return "is being opened"
    return "gives no frames any more" if line.has_given_a_frame else "has given no frame yet"


def broker_refusal(publisher: Publisher) -> str:
    """Say what the broker does not let us do, in one text; empty: nothing that we know of."""
    found = [publisher.refusal] if publisher.refusal else []
    if publisher.refused:
        found.append("results must not be published under the base topic; they wait")
    if publisher.denied:
        found.append(f"nothing can be published on {', '.join(publisher.denied)}")
    if publisher.deaf:
        found.append(f"no subscription to {', '.join(publisher.deaf)}")
    return "; ".join(found)


def journal_trouble(parts: Parts, now: float) -> str:
    """Say why nothing is committed; empty while it is."""
    waiting_s = parts.writer.pending_since(now)
    if parts.announcer.trouble is not None:
        return parts.announcer.trouble
    if waiting_s is not None and waiting_s > PATIENCE_S:
        return f"a result has waited longer than {PATIENCE_S:g} s for the disk"
    return ""


def _lane_text(name: str, lane: LaneDriver) -> str:
    durations_s = sorted(lane.lane.stats.durations_s)
    if lane.facts is None:
        return f"{name} off"
    if len(durations_s) < 2:
        return f"{name} {lane.facts.device}"
    p95_s = statistics.quantiles(durations_s, n=20, method="inclusive")[-1]
    return f"{name} {lane.facts.device} p95 {p95_s * 1000:.0f} ms"
