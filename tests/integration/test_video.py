"""The whole chain on a video: file → camera child → the shipped model → decision → journal → mosquitto."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
from tests.integration.mosquitto import Mosquitto, mosquitto
from tests.plant import Audit, Listener, configuration, plant

from inspectd.camera.boards.drawing import draw

COUNT = 40
MODEL = Path(__file__).parents[2] / "config" / "models" / "pcb-demo.xml"


def boards_video(folder: Path) -> Path:
    """So many boards of the simulated line."""
    path = folder / "line.avi"
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (320, 320))
    for number in range(COUNT):
        writer.write(draw(7, number, 320, 320)[0])
    writer.release()
    return path


def document(folder: Path, broker: Mosquitto, **source: Any) -> dict[str, Any]:
    camera = {"source": {"kind": "video", "path": str(boards_video(folder)), **source}, "models": ["defects"]}
    rule = {"id": "defect", "model": "defects", "min_confidence": 0.4, "evaluation": "notOk", "code": 110}
    return configuration(
        folder,
        broker.port,
        cameras={"top": {**camera, "deadline_ms": 20000}},
        models={"defects": {"task": "detect", "path": str(MODEL), "timeout_ms": 5000}},
        decision={"rules": [rule]},
    )


def test_every_picture_of_a_video_ends_in_exactly_one_result(tmp_path: Path) -> None:
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, document(tmp_path, broker, pace="lossless")) as line:
            line.start("--exit-when-done")
            assert line.wait() == 0, line.log
            audit, last = Audit.of(line.state), line.ledger_last()
        results = listener.of("result")
        listener.close()
    assert last == COUNT
    audit.check(last)
    assert Counter(result["acquisition"]["frameId"] for result in results) == Counter(range(1, COUNT + 1))
    assert all(result["isSimulated"] for result in results)
    assert {result["resultState"] for result in results} == {1}
    assert {result["resultEvaluation"] for result in results} == {1, 2}


def test_a_killed_camera_child_loses_no_number_and_repeats_no_picture(tmp_path: Path) -> None:
    """The new child goes on after the last number; at most what was in flight is recorded as interrupted."""
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, document(tmp_path, broker)) as line:
            line.start("--exit-when-done")
            listener.wait_for_more(5)
            os.kill(line.wait_for_child("camera top"), signal.SIGKILL)
            assert line.wait() == 0, line.log
            audit, last = Audit.of(line.state), line.ledger_last()
        listener.close()
    assert last == COUNT
    audit.check(last)
