"""Alarms, events, health, commands and the local door of the whole daemon, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mosquitto import CI, Mosquitto, mosquitto
from tests.plant import Audit, Listener, Plant, configuration, is_exact, plant

from inspectd.resources import model_path

RULES = {"rules": [{"id": "any", "model": "defects", "max_count": None, "evaluation": "notOk"}]}
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SITE = Path(__file__).with_name("faketime")
HOUR_S = 3600


@contextmanager
def station(folder: Path, **mqtt: Any) -> Iterator[tuple[Mosquitto, Listener, Plant]]:
    """A simulated camera and the demo model; every message is validated."""
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            folder,
            broker.port,
            cameras={"top": {"source": {"kind": "simulator", "seed": 3}, "fps": 10, "models": ["defects"]}},
            models={"defects": {"task": "detect", "path": str(model_path("pcb-demo-int8.xml")), "timeout_ms": 800}},
            decision=RULES,
            mqtt=mqtt,
        )
        with plant(folder, document) as line:
            yield broker, listener, line
        listener.close()


def events(listener: Listener, name: str) -> list[dict[str, Any]]:
    return [event for event in listener.of("event") if event["event"] == name]


def test_a_lost_camera_is_an_alarm_with_its_events_and_goes_when_it_is_back(tmp_path: Path) -> None:
    """Raised at once, with what to do; over when the camera gives pictures; both in durable events."""
    with station(tmp_path) as (_, listener, line):
        line.start()
        listener.wait_for_more(3)
        os.kill(line.wait_for_child("camera top"), signal.SIGSTOP)
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is not None)
        alarm = listener.alarms["CameraLost/top"]
        assert alarm is not None
        assert (alarm["active"], alarm["blocks"], alarm["count"]) == (True, "ready", 1)
        assert "power" in alarm["cure"]
        assert listener.of("state")[-1]["ready"] is False
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is None)
        listener.wait_for("event", lambda _: bool(events(listener, "AlarmCleared")))
        assert line.terminate() == 0, line.log
        raised, cleared = events(listener, "AlarmRaised")[0], events(listener, "AlarmCleared")[0]
        assert raised["detail"]["code"] == cleared["detail"]["code"] == "CameraLost"
        durable = [event["eventSeq"] for event in listener.of("event") if "eventSeq" in event]
        assert durable == list(range(1, len(durable) + 1))
        states = [(event["detail"]["from"], event["detail"]["to"]) for event in events(listener, "StateChanged")]
        assert states[0] == ("Preoperational", "ContinuousExecution")
        assert ("ContinuousExecution", "Error") in states


def test_an_alarm_that_is_over_after_a_crash_is_cleared_on_the_broker(tmp_path: Path) -> None:
    """The daemon was killed while an alarm stood: its retained message would stand for ever."""
    with station(tmp_path) as (broker, listener, line):
        line.start()
        listener.wait_for_more(3)
        os.kill(line.wait_for_child("camera top"), signal.SIGSTOP)
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is not None)
        line.kill_group()
        line.start()
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is None)
        listener.wait_for("event", lambda _: bool(events(listener, "AlarmCleared")))
        broker.restart()  # without its memory the broker has no alarm to show either
        listener.wait_subscribed()
        listener.wait_for_more(3)
        assert listener.alarms["CameraLost/top"] is None
        assert line.terminate() == 0, line.log


def test_health_comes_every_period_and_tells_every_part(tmp_path: Path) -> None:
    with station(tmp_path) as (_, listener, line):
        line.start()
        listener.wait_for(
            "health", lambda messages: len(messages) >= 2 and messages[-1]["models"]["defects"]["done"] > 0
        )
        assert line.terminate() == 0, line.log
        health = listener.of("health")[-1]
        camera, model = health["cameras"]["top"], health["models"]["defects"]
        assert camera["connected"]
        assert camera["framesReceived"] > 50
        assert (model["state"], model["device"], model["breaker"]) == ("running", "CPU", "closed")
        assert model["completionRate"] > 0.5
        assert model["rssBytes"] > 10_000_000
        assert health["mqtt"]["connected"]
        assert health["storage"]["freeBytes"] > 0
        assert health["host"]["memoryBytes"] > 0


def test_commands_over_mqtt_and_on_this_pc_do_the_same_and_leave_their_trace(tmp_path: Path) -> None:
    with station(tmp_path) as (_, listener, line):
        line.start()
        listener.wait_for_more(5)
        result = listener.of("result")[0]
        listener.request("get-result", requestId="1", resultId=result["resultId"])
        listener.request("get-result", requestId="2", jobId=result["jobId"])
        listener.request("get-result", requestId="3", partId="SN-1")
        listener.wait_for("rsp/test", lambda answers: len(answers) >= 3)
        answers = {answer["requestId"]: answer for answer in listener.of("rsp/test")}
        assert answers["1"]["detail"] == answers["2"]["detail"] == {"result": result}
        assert answers["3"]["error"] == 7
        before = listener.of("counters")[-1]
        told = line.inspectd("call", "reset-counters")
        assert (told.returncode, json.loads(told.stdout)["status"]) == (0, "completed"), told.stderr
        listener.wait_for("counters", lambda messages: messages[-1]["since"] > before["since"])
        listener.wait_for("event", lambda _: bool(events(listener, "CommandReceived")))
        trace = events(listener, "CommandReceived")[-1]["detail"]
        assert trace == {"requester": "local", "command": "reset-counters", "result": "completed"}
        assert line.inspectd("call", "reset-counters", '["no object"]').returncode == 2
        assert line.inspectd("call", "open-the-door").returncode == 1
        status = line.inspectd("status", "--json")
        document = json.loads(status.stdout)
        assert (status.returncode, document["state"]["ready"]) == (0, True)
        assert set(document["children"]) == {"camera top", "model defects"}
        assert line.inspectd("status", "--wait", "healthy", "--timeout", "20").returncode == 0
        shown = line.inspectd("results", "--last", "3")
        assert shown.returncode == 0, shown.stderr
        assert "top" in shown.stdout
        counted = line.inspectd("results", "--by", "hour", "--format", "csv")
        assert counted.returncode == 0, counted.stderr
        assert line.terminate() == 0, line.log
        gone = line.inspectd("status")
        assert (gone.returncode, "running" in gone.stderr) == (69, True)
        assert all(is_exact(message) for message in listener.of("counters"))


def test_a_receipt_shows_how_far_a_subscriber_is(tmp_path: Path) -> None:
    with station(tmp_path) as (_, listener, line):
        line.start()
        listener.wait_for_more(5)
        stream_id, seq = (listener.of("result")[-1][key] for key in ("streamId", "seq"))
        listener.publish("ack", {"subscriber": "mes", "streamId": stream_id, "upToSeq": seq})
        listener.publish("ack", {"subscriber": "mes", "streamId": "another", "upToSeq": seq + 1})
        listener.wait_for_more(3)
        document = json.loads(line.inspectd("status", "--json").stdout)
        assert document["subscribers"]["mes"]["upToSeq"] == seq
        assert document["subscribers"]["mes"]["behind"] >= 1
        assert line.terminate() == 0, line.log


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_of_the_wall_clock_neither_stalls_nor_loses_anything(hours: int, tmp_path: Path) -> None:
    """Ages and deadlines are of the monotonic clock: verdicts go on, on time, and the sum stays exact."""
    if not FAKETIME.exists():
        (pytest.fail if CI else pytest.skip)("libfaketime is not installed (apt install faketime)")
    clock = tmp_path / "clock"
    clock.write_text("+0")
    with station(tmp_path, verdict={"enabled": "always"}) as (_, listener, line):
        line.start(
            LD_PRELOAD=str(FAKETIME),
            FAKETIME_TIMESTAMP_FILE=str(clock),
            FAKETIME_CACHE_DURATION="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            PYTHONPATH=os.pathsep.join((str(SITE), *filter(None, [os.environ.get("PYTHONPATH")]))),
        )
        listener.wait_for_more(5)
        clock.write_text(f"{hours * HOUR_S:+d}")
        stepped_s = time.time() + hours * HOUR_S
        listener.wait_for("heartbeat", lambda beats: abs(beats[-1]["ts"] - stepped_s) < 60)
        listener.wait_for_more(30)
        assert line.terminate() == 0, line.log
        audit = Audit.of(line.state)
        audit.check(line.ledger_last())
        codes = {document["resultEvaluationCode"] for document in audit.results.values()}
        assert 300 not in codes
        assert len(listener.of("verdict")) == len(listener.of("result"))
