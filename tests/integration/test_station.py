"""Alarms, events, health, commands and the local door of the whole daemon, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.certificates import Authority
from tests.integration.mosquitto import CI, Mosquitto, TlsListener, mosquitto
from tests.plant import BASE, Audit, Listener, Plant, configuration, is_exact, plant

from inspectd.resources import model_path

RULES = {"rules": [{"id": "any", "model": "defects", "max_count": None, "evaluation": "notOk"}]}
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SITE = Path(__file__).with_name("faketime")
CAMERA = {"source": {"kind": "simulator", "seed": 3}, "fps": 10, "deadline_ms": 20000, "models": ["defects"]}
HOUR_S = 3600


@contextmanager
def station(
    folder: Path, mqtt: Callable[[Mosquitto], dict[str, Any]] = lambda _: {}, **broker_options: Any
) -> Iterator[tuple[Mosquitto, Listener, Plant]]:
    """A simulated camera and the demo model; every message is validated. `mqtt` gives that section's other keys."""
    with mosquitto(**broker_options) as broker:
        listener = Listener(broker.port, *(("test", "test") if "users" in broker_options else ()))
        document = configuration(
            folder,
            broker.port,
            cameras={"top": CAMERA},
            models={"defects": {"task": "detect", "path": str(model_path("pcb-demo-int8.xml")), "timeout_ms": 5000}},
            decision=RULES,
            mqtt=mqtt(broker),
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
        assert states[0] == ("Preoperational", "Initialized")
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


def test_a_broker_that_comes_back_with_an_old_alarm_is_told_that_it_is_gone(tmp_path: Path) -> None:
    """It saved the alarm, was killed after the alarm had gone, and showed it for ever."""
    with station(tmp_path) as (broker, listener, line):
        line.start()
        listener.wait_for_more(3)
        os.kill(line.wait_for_child("camera top"), signal.SIGSTOP)
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is not None)
        broker.save()
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is None)
        broker.restart()
        listener.wait_subscribed()
        listener.wait_for_more(3)
        listener.wait_for_alarm("CameraLost/top", lambda alarm: alarm is None)
        assert line.terminate() == 0, line.log


def test_a_journal_that_is_found_damaged_at_the_start_is_an_alarm_until_somebody_confirms_it(tmp_path: Path) -> None:
    """The usual case: a power cut, then a start. Nobody reads an ERROR line of 3 in the morning."""
    with station(tmp_path) as (_, listener, line):
        line.start()
        listener.wait_for_more(3)
        line.kill_group()
        for path in (line.state / "journal").glob("????????.sqlite*"):
            path.write_bytes(b"\x55" * 8192)
        line.start()
        listener.wait_for_alarm("OutboxDamaged/storage", lambda alarm: alarm is not None)
        listener.wait_for_more(3)
        assert line.inspectd("call", "confirm-all").returncode == 0
        listener.wait_for_alarm("OutboxDamaged/storage", lambda alarm: alarm is None)
        assert line.terminate() == 0, line.log


def test_over_tls_a_certificate_that_ends_in_ten_days_is_an_alarm(tmp_path: Path) -> None:
    """The whole daemon with a client certificate; the alarm comes while there is time to have a new one made."""
    plant_ca = Authority()
    files = plant_ca.client(to_days=10.0).in_folder(tmp_path, plant_ca.pem)
    (tmp_path / "client.key").chmod(0o600)

    def mqtt(broker: Mosquitto) -> dict[str, Any]:
        tls = {"ca_file": str(files.ca_file), "cert_file": str(files.cert_file), "key_file": str(files.key_file)}
        return {"port": broker.tls_port, "tls": tls}

    server = plant_ca.server()
    with station(tmp_path, mqtt, tls=TlsListener(server.certificate, server.key, plant_ca.pem)) as (_, listener, line):
        line.start()
        listener.wait_for_alarm("CertificateExpiring/mqtt", lambda alarm: alarm is not None and alarm["active"])
        listener.wait_for_more(3)
        listener.wait_for("health", lambda messages: 9 < messages[-1]["mqtt"].get("certificateDaysLeft", 0) <= 10)
        assert line.terminate() == 0, line.log


def test_a_broker_that_forbids_verdicts_alone_does_not_go_unnoticed(tmp_path: Path) -> None:
    """Results went out, ready was true, and the PLC rejected every part."""
    rights = f"user station\ntopic readwrite {BASE}/#\ntopic deny {BASE}/verdict\nuser test\ntopic readwrite #\n"

    def mqtt(_: Mosquitto) -> dict[str, Any]:
        password = tmp_path / "password"
        password.write_text("station")
        password.chmod(0o600)
        return {"username": "station", "password_file": str(password), "verdict": {"enabled": "always"}}

    users = {"station": "station", "test": "test"}
    with station(tmp_path, mqtt, users=users, acl=rights) as (_, listener, line):
        line.start()
        listener.wait_for_alarm("BrokerRefused/mqtt", lambda alarm: alarm is not None and "verdict" in alarm["text"])
        listener.wait_for("state", lambda states: states[-1]["degraded"] and "verdict" in str(states[-1]["reasons"]))
        assert line.inspectd("status", "--wait", "healthy", "--timeout", "0").returncode == 69
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
        assert camera["framesReceived"] > 0
        assert (model["state"], model["device"], model["breaker"]) == ("running", "CPU", "closed")
        assert model["completionRate"] > 0
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
    with station(tmp_path, lambda _: {"verdict": {"enabled": "always"}}) as (_, listener, line):
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
