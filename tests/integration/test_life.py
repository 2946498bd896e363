"""Start, trouble and end of the daemon, as systemd, the MES and the night shift see them."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.mosquitto import mosquitto
from tests.plant import Audit, Listener, configuration, files_camera, is_exact, pcb_decision, pcb_model, plant
from tests.shared import shared

from inspectd.resources import model_path

DEMO_RULES = {"rules": [{"id": "any", "model": "defects", "max_count": None, "evaluation": "notOk"}]}


def simulator(**changes: object) -> dict[str, object]:
    source = {"kind": "simulator", "seed": 3, **dict(changes.pop("source", {}))}  # type: ignore[call-overload]
    return {"source": source, "fps": 10, "models": ["defects"], **changes}


def demo_model(**changes: object) -> dict[str, object]:
    return {"task": "detect", "path": str(model_path("pcb-demo.xml")), "timeout_ms": 800, **changes}


class NotifySocket:
    """systemd's end of sd_notify."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._sock.settimeout(30)
        self.heard: list[str] = []

    def until(self, prefix: str) -> str:
        """Read on until a line begins like this."""
        while True:
            for line in self._sock.recv(4096).decode().splitlines():
                self.heard.append(line)
                if line.startswith(prefix):
                    return line

    def limit(self, limit_s: float) -> None:
        """Wait so long for the next word."""
        self._sock.settimeout(limit_s)

    def close(self) -> None:
        self._sock.close()


@contextmanager
def notify_socket(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    heard = NotifySocket(path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    try:
        yield heard
    finally:
        heard.close()


def test_systemd_hears_status_ready_watchdog_and_stopping_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READY means that every camera has given a frame; STATUS is in words an operator understands."""
    with mosquitto() as broker, notify_socket(tmp_path / "notify", monkeypatch) as systemd:
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": simulator(), "side": simulator()},
            models={"defects": demo_model()},
            decision=DEMO_RULES,
        )
        with plant(tmp_path, document) as line:
            line.start()
            systemd.until("READY=1")
            assert systemd.heard[0].startswith("STATUS=starting")
            assert line.ledger_last("top") > 0
            assert line.ledger_last("side") > 0
            systemd.until("WATCHDOG=1")
            status = systemd.until("STATUS=side ")
            assert ", top " in status
            assert "notDecidable 0, undefined" in status
            assert "defects CPU" in status
            assert " | unsent " in status
            assert {f"inspectd: {name}" for name in line.children()} == {
                "inspectd: camera top",
                "inspectd: camera side",
                "inspectd: model defects",
            }
            line.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
            systemd.until("STOPPING=1")
            assert line.wait() == 0, line.log


def test_a_model_that_does_not_fit_is_a_reported_repair_and_comes_back(tmp_path: Path) -> None:
    """READY comes, `ready` is false, frames end as 502, and the reason says what is wrong and how to mend it."""
    model = tmp_path / "model.xml"
    good = model_path("pcb-demo.xml")
    model.write_text(good.read_text("utf-8"), "utf-8")
    model.with_suffix(".bin").write_bytes(good.with_suffix(".bin").read_bytes()[:1000])
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": simulator()},
            models={"defects": demo_model(path=str(model), retry_s=1)},
            decision=DEMO_RULES,
        )
        with plant(tmp_path, document) as line:
            line.start()
            listener.wait_for("state", lambda states: states[-1]["vision"] == "Error")
            listener.wait_for("result", lambda results: len(results) >= 3)
            state = listener.of("state")[-1]
            assert state["ready"] is False
            assert any(reason.startswith("model defects: ") and str(model) in reason for reason in state["reasons"])
            refused = listener.of("result")
            assert {result["resultEvaluationCode"] for result in refused} == {502}
            assert {result["resultEvaluation"] for result in refused} == {0}
            model.with_suffix(".bin").write_bytes(good.with_suffix(".bin").read_bytes())
            listener.wait_for("state", lambda states: states[-1]["vision"] == "Operational")
            listener.wait_for("result", lambda results: results[-1]["models"][0]["outcome"] == "done")
            assert line.terminate() == 0, line.log
            Audit.of(line.state).check(line.ledger_last())
        listener.close()


def test_another_model_under_the_same_name_is_not_used_after_a_childs_death(tmp_path: Path) -> None:
    """Somebody copied another net over the file; at night the child died, and the next one said OK by it."""
    model = tmp_path / "model.xml"
    good = model_path("pcb-demo.xml")
    model.write_bytes(good.read_bytes())
    model.with_suffix(".bin").write_bytes(good.with_suffix(".bin").read_bytes())
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": simulator()},
            models={"defects": demo_model(path=str(model))},
            decision=DEMO_RULES,
        )
        with plant(tmp_path, document) as line:
            line.start()
            listener.wait_for("result", lambda results: results[-1]["models"][0]["outcome"] == "done")
            model.write_text(good.read_text("utf-8") + "<!-- another -->", "utf-8")
            os.kill(line.wait_for_child("model defects"), signal.SIGKILL)
            listener.wait_for("state", lambda states: "SHA-256" in str(states[-1]["reasons"]))
            listener.wait_for("result", lambda results: results[-1]["resultEvaluationCode"] == 502)
            assert line.terminate() == 0, line.log
        hashes = {run.get("hash") for result in listener.of("result") for run in result["models"]}
        assert len(hashes - {None}) == 1
        listener.close()


def test_a_camera_that_cannot_be_opened_is_a_reported_retry_and_comes_back(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "a.png").symlink_to(next(iter(sorted(shared("data/deeppcb/images").iterdir()))))
    away = tmp_path / "away"
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": files_camera(pictures, loop=True)},
            models={"defects": pcb_model()},
            decision=pcb_decision(),
        )
        with plant(tmp_path, document) as line:
            line.start()
            listener.wait_for_more(3)
            pictures.rename(away)
            os.kill(line.wait_for_child("camera top"), signal.SIGKILL)
            listener.wait_for("state", lambda states: not states[-1]["cameras"]["top"]["connected"])
            listener.wait_for("state", lambda states: str(pictures) in str(states[-1]["reasons"]))
            away.rename(pictures)
            listener.wait_for("state", lambda states: states[-1]["vision"] == "Operational")
            listener.wait_for_more(3)
            assert line.terminate() == 0, line.log
            Audit.of(line.state).check(line.ledger_last())
        listener.close()


def test_a_camera_far_faster_than_the_model_has_every_skipped_frame_recorded(tmp_path: Path) -> None:
    """Overload: most frames are skipped; each is in a run with its reason, and the sum is exact all the while."""
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": simulator(fps=200, deadline_ms=400)},
            models={"defects": pcb_model(queue_depth=2, timeout_ms=300)},
            decision=pcb_decision(),
        )
        with plant(tmp_path, document) as line:
            line.start()
            listener.wait_for("counters", lambda messages: messages[-1]["skipped"] > 100)
            assert line.terminate() == 0, line.log
            audit = Audit.of(line.state)
            audit.check(line.ledger_last())
        assert {code for *_, code, _ in audit.runs} <= {301, 302, 303, 304}
        assert len(audit.runs) < audit.counters["skipped"], "skipped frames in a row share one row"
        assert all(is_exact(message) for message in listener.of("counters"))
        listener.close()


def test_verdicts_follow_their_result_and_last_results_come_once_a_second(tmp_path: Path) -> None:
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": simulator()},
            models={"defects": demo_model()},
            decision=DEMO_RULES,
            mqtt={"verdict": {"enabled": "always"}},
        )
        with plant(tmp_path, document) as line:
            line.start()
            listener.wait_for("verdict", lambda verdicts: len(verdicts) >= 25)
            assert line.terminate() == 0, line.log
        results = {result["resultId"]: result for result in listener.of("result")}
        for verdict in listener.of("verdict"):
            result = results[verdict["id"]]
            assert verdict["eval"] == result["resultEvaluation"]
            assert verdict["seq"] == result["seq"]
            assert (verdict["sim"], verdict["cam"]) == (1, "top")
        times_ms = [last["uptimeMs"] for last in listener.of("lastresult")]
        assert len(times_ms) >= 2
        assert len(times_ms) < len(results) / 3
        listener.close()
