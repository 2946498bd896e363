"""A camera process that was killed and does not end, over the death of the daemon that had started it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests import frozen
from tests.integration.mosquitto import mosquitto
from tests.plant import Audit, Listener, Plant, configuration, is_exact, plant

from inspectd.resources import model_path

ALARM = "WorkerUnkillable/top"


def camera() -> dict[str, Any]:
    return {"source": {"kind": "simulator", "seed": 3}, "fps": 5, "models": ["defects"], "deadline_ms": 3000}


def station(folder: Path, port: int) -> dict[str, Any]:
    model = {"task": "detect", "path": str(model_path("pcb-demo.xml")), "timeout_ms": 3000}
    rules = {"rules": [{"id": "any", "model": "defects", "max_count": None, "evaluation": "notOk"}]}
    cameras = {"top": camera(), "side": camera()}
    return configuration(folder, port, cameras=cameras, models={"defects": model}, decision=rules)


def wait_for_verdicts(listener: Listener, line: Plant, camera: str) -> None:
    """A frame of this run of the daemon was inspected."""
    first = line.ledger_last(camera)

    def is_there(documents: list[dict[str, Any]]) -> bool:
        return any(
            document["acquisition"]["cameraId"] == camera
            and document["acquisition"]["frameId"] > first
            and document["resultState"] == 1
            for document in documents
        )

    listener.wait_for("result", is_there)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may freeze a process")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("given_up", [False, True], ids=["frozen as main dies", "given up and replaced before"])
def test_the_next_daemon_inspects_with_every_camera_and_names_the_process(tmp_path: Path, *, given_up: bool) -> None:
    """It ended with 69, for ever: the camera process held the ledger that the dead daemon had shared with it."""
    with mosquitto() as broker, plant(tmp_path, station(tmp_path, broker.port)) as line:
        listener = Listener(broker.port)
        line.start()
        for name in ("top", "side"):
            wait_for_verdicts(listener, line, name)
        stuck = line.wait_for_child("camera top")
        with frozen.frozen(stuck) as group:
            if given_up:
                listener.wait_for_alarm(ALARM, lambda alarm: alarm is not None and str(stuck) in alarm["text"])
                wait_for_verdicts(listener, line, "top")
            assert line.process is not None
            line.process.kill()
            line.process.wait(10)
            line.start()
            for name in ("side", "top"):
                wait_for_verdicts(listener, line, name)
            assert frozen.is_condemned(stuck)
            listener.wait_for_alarm(ALARM, lambda alarm: alarm is not None and str(stuck) in alarm["text"])
            frozen.thaw(group)
            listener.wait_for_alarm(ALARM, lambda alarm: alarm is None)
        assert line.terminate() == 0, line.log[-3000:]
        assert line.leftovers() == []
        audit = Audit.of(line.state)
        for name in ("top", "side"):
            assert audit.numbers(name) == dict.fromkeys(range(1, line.ledger_last(name) + 1), 1)
        assert all(is_exact(message) for message in listener.of("counters"))
        listener.close()
