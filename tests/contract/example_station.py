"""Example messages about the station: status, state, counters, health, heartbeat, meta, alarms, events."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.contract.example_values import (
    BOOT_ID,
    CAMERA,
    CAMERA_TROUBLE,
    CONFIGURATION_HASH,
    MODEL_HASH,
    RECIPE,
    STATION,
    STREAM_ID,
    UPTIME_MS,
    WALL_S,
)

from inspectd.health.alarmkinds import AlarmCode, kind_of
from inspectd.health.alarms import AlarmBook, Change, Condition
from inspectd.publish import events, healthreport, reports
from inspectd.publish.counters import Counters, Tally
from inspectd.publish.events import DURABLE, Event, EventName
from inspectd.publish.reasons import PACKET_TOO_LARGE, words
from inspectd.publish.reporter import STATE_SEVERITY
from inspectd.publish.reports import Automatic, Vision
from inspectd.publish.skips import Skips
from inspectd.publish.uuid7 import uuid7
from inspectd.records import Code, LostRun, ModelFacts
from inspectd.statemachine import State, Trigger
from inspectd.station import COMMAND_SEVERITY, DAY_SEVERITY, LOST_SEVERITY


def about_the_station(commands: tuple[str, ...]) -> dict[str, bytes]:
    counted = Counters(
        WALL_S - 28_800,
        ok=9_800,
        not_ok=170,
        not_decidable=20,
        undefined=10,
        by_code={0: 9_800, 110: 150, 120: 20, 202: 20, 301: 4, 501: 6},
        per_camera={"top": Tally(9_800, 170, 20, 10)},
        parts=Tally(9_800, 170, 20, 10),
        late=2,
        skipped=4,
    )
    return {
        "status-start": reports.status("start", BOOT_ID, WALL_S),
        "status-connection-lost": reports.status("connectionLost", BOOT_ID, WALL_S),
        "status-stop": reports.status("stop", BOOT_ID, WALL_S),
        "state-ready": reports.state(ready()),
        "state-degraded": reports.state(replace(ready(), degraded=True, reasons=("model code is off",))),
        "state-not-ready": reports.state(_not_ready()),
        "counters": reports.counters(counted, {"top": 10_003}, {"top": 3}),
        "health": healthreport.health(_health()),
        "heartbeat": reports.heartbeat(86_400, Vision.OPERATIONAL, WALL_S, ready=True),
        "meta": reports.meta(_meta(commands)),
    }


def ready() -> reports.StationState:
    return reports.StationState(
        Vision.OPERATIONAL,
        Automatic.CONTINUOUS_EXECUTION,
        ready=True,
        degraded=False,
        reasons=(),
        simulation=False,
        recipe=RECIPE,
        jobs_in_flight=3,
        jobs_max=14,
        since_wall_s=WALL_S,
        cameras={"top": reports.CameraState("continuous", connected=True, ready=True)},
    )


def _not_ready() -> reports.StationState:
    return replace(
        ready(),
        vision=Vision.ERROR,
        automatic=None,
        ready=False,
        reasons=(CAMERA_TROUBLE,),
        jobs_in_flight=0,
        cameras={"top": reports.CameraState("continuous", connected=False, ready=False)},
    )


def _health() -> healthreport.Health:
    """Ten seconds at 30 pictures a second."""
    return healthreport.Health(
        cameras={"top": healthreport.CameraHealth(True, 30.0, 300, 0, 0, 0, 0.021)},
        models={
            "defects": healthreport.ModelHealth(
                healthreport.ModelState.RUNNING,
                "CPU",
                requests=2,
                requests_busy=1,
                submitted=300,
                done=299,
                timed_out=1,
                retried=1,
                dropped=0,
                failed=0,
                unavailable=0,
                skipped=0,
                skip_every=1,
                utilisation=0.32,
                p50_s=0.0207,
                p95_s=0.0231,
                p99_s=0.0302,
                wait_p95_s=0.0012,
                queue_depth=8,
                lost_requests=0,
                restarts=0,
                rss_bytes=287_309_824,
                breaker=healthreport.Breaker.CLOSED,
                last_done_age_s=0.031,
            )
        },
        mqtt=healthreport.MqttHealth(True, 1, 3, 48_234_496, 412.5, 0.012, 0, 0, 211.4),
        storage=healthreport.StorageHealth(0.0031, 180_388_626_432, 0),
        host=healthreport.HostHealth(41.5, 3_221_225_472, 61.0, throttled=False),
        clock=STATION.clock,
        uptime_s=UPTIME_MS / 1000,
        version=STATION.software_version,
    )


def _meta(commands: tuple[str, ...]) -> reports.Meta:
    classes = ("open", "short", "mousebite", "spur", "copper", "pinhole", "board")
    defects = ModelFacts("defects", "detect", "CPU", "f32", MODEL_HASH, classes, 2, 640, 640, "yolo", 0.02)
    return reports.Meta(
        "0.1.0",
        "2026.4.1",
        "3.11.2",
        BOOT_ID,
        commands,
        CONFIGURATION_HASH,
        (RECIPE,),
        (reports.MetaModel(defects, {"open": {"de": "Unterbrechung", "zh": "断路"}}, golden_passed=True),),
        (CAMERA,),
    )


def _raised(code: AlarmCode, source: str, text: str, *, blocks: bool) -> tuple[AlarmBook, Change]:
    """Let a condition hold for as long as its kind asks."""
    book, condition = AlarmBook(), Condition(code, source, text, blocks)
    times_s = (0.0, kind_of(code).raise_after_s)
    [change] = [change for now in times_s for change in book.observe([condition], now, WALL_S)]
    return book, change


def alarms() -> dict[str, bytes]:
    _, lost = _raised(AlarmCode.CAMERA_LOST, "top", CAMERA_TROUBLE, blocks=True)
    book, _ = _raised(AlarmCode.CLOCK_UNSYNCHRONISED, "clock", "ntp reaches no server", blocks=False)
    [acknowledged] = book.acknowledge()
    too_large = Condition(AlarmCode.DEAD_LETTER, "mqtt", f"result 4600: {words(PACKET_TOO_LARGE)}")
    [over] = AlarmBook().pulse(too_large, WALL_S)
    return {
        "alarm-camera-lost": lost.payload,
        "alarm-acknowledged": acknowledged.payload,
        "alarm-dead-letter": over.payload,
    }


def happened() -> dict[str, bytes]:
    _, lost = _raised(AlarmCode.CAMERA_LOST, "top", CAMERA_TROUBLE, blocks=True)
    assert lost.event is not None
    skips = Skips()
    skips.note(LostRun("top", 99_120, 99_123, Code.QUEUE_FULL, "queue full", WALL_S))
    skipped = skips.take()
    assert skipped is not None
    received = {"requester": "mes-1", "command": "reset-counters", "result": "completed"}
    day = {"captured": 10_003, "accounted": 10_000, "inFlight": 3}
    fault = {
        "from": State.CONTINUOUS_EXECUTION.word,
        "to": State.ERROR.word,
        "by": Trigger.FAULT.value,
        "reasons": [CAMERA_TROUBLE],
    }
    results = {"streamId": STREAM_ID, "ranges": [[4600, 4601]], "count": 2}
    found = [
        lost.event,
        Event(EventName.COMMAND_RECEIVED, "station", COMMAND_SEVERITY, received),
        Event(EventName.DAY_ACCOUNTED, "station", DAY_SEVERITY, day),
        skipped,
        Event(EventName.RESULTS_LOST, "storage", LOST_SEVERITY, results),
        Event(EventName.STATE_CHANGED, "station", STATE_SEVERITY, fault),
    ]
    return {_file_name(event): _event(event, number) for number, event in enumerate(found, start=17)}


def _file_name(event: Event) -> str:
    """Write AlarmRaised as event-alarm-raised."""
    return "event" + re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", event.name)


def _event(event: Event, number: int) -> bytes:
    return events.word(
        event,
        event_id=uuid7(WALL_S, bytes((number,)) * 10),
        event_seq=number if event.name in DURABLE else None,
        wall_s=WALL_S,
        boot_id=BOOT_ID,
    )
