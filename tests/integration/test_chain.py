"""The whole chain on real boards: files → camera child → model child → decision → journal → mosquitto."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.integration.mosquitto import Mosquitto, mosquitto
from tests.plant import (
    Audit,
    Listener,
    configuration,
    files_camera,
    is_exact,
    pcb_decision,
    pcb_model,
    plant,
)
from tests.shared import shared

BOARDS = 300


def boards_document(folder: Path, broker: Mosquitto, pictures: Path, **camera: object) -> dict[str, object]:
    return configuration(
        folder,
        broker.port,
        cameras={"top": files_camera(pictures, **camera)},
        models={"defects": pcb_model()},
        decision=pcb_decision(),
    )


@pytest.mark.timeout(180)
def test_every_board_of_a_folder_ends_in_exactly_one_result(tmp_path: Path) -> None:
    """300 boards, lossless: 300 results, seq without gaps, all valid, all simulated, the sum exact in every message."""
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = boards_document(tmp_path, broker, shared("data/deeppcb/images"))
        with plant(tmp_path, document) as line:
            line.start("--exit-when-done")
            assert line.wait(150) == 0, line.log
            results, counters, statuses = listener.of("result"), listener.of("counters"), listener.of("status")
            audit, last = Audit.of(line.state), line.ledger_last()
            assert line.leftovers() == []
        listener.close()
    assert [result["seq"] for result in results] == list(range(1, BOARDS + 1))
    assert Counter(result["acquisition"]["frameId"] for result in results) == Counter(range(1, BOARDS + 1))
    assert all(result["isSimulated"] and not result["isPartial"] for result in results)
    assert {result["resultState"] for result in results} == {1}
    assert {run["outcome"] for result in results for run in result["models"]} == {"done"}
    assert all(is_exact(message) for message in counters)
    assert (counters[-1]["captured"], counters[-1]["inFlight"]) == (BOARDS, 0)
    assert last == BOARDS
    audit.check(last)
    assert audit.results == {result["seq"]: result for result in results}
    assert audit.acked_seq == BOARDS
    assert [(message["status"], message["reason"]) for message in statuses] == [
        ("online", "start"),
        ("offline", "stop"),
    ]


def small_set(folder: Path, count: int = 12) -> Path:
    """Defective boards and their defect-free twins, in turn."""
    pictures = folder / "pictures"
    pictures.mkdir()
    for number, board in enumerate(sorted(shared("data/deeppcb/images").iterdir())[:count]):
        (pictures / f"{number:03d}-defective.png").symlink_to(board)
        (pictures / f"{number:03d}-good.png").symlink_to(shared("data/deeppcb/templates") / board.name)
    return pictures


def test_an_unreadable_picture_is_a_recorded_frame_and_the_next_one_follows(tmp_path: Path) -> None:
    pictures = small_set(tmp_path, 2)
    (pictures / "000-x.png").write_bytes(b"\x89PNG and then nothing")
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, boards_document(tmp_path, broker, pictures)) as line:
            line.start("--exit-when-done")
            assert line.wait() == 0, line.log
            Audit.of(line.state).check(5)
        results = listener.of("result")
        listener.close()
    codes = [result["resultEvaluationCode"] for result in sorted(results, key=lambda r: r["acquisition"]["frameId"])]
    assert codes.count(405) == 1
    [bad] = [result for result in results if result["resultEvaluationCode"] == 405]
    assert bad["resultState"] == 4
    assert bad["resultEvaluation"] == 0
    assert "000-x.png" in bad["resultEvaluationDetails"]


def test_pictures_of_other_sizes_grow_the_pool_and_lose_nothing(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    sources = [*sorted(shared("data/deeppcb/images").iterdir())[:2], *sorted(shared("data/tall/images").iterdir())[:4]]
    for number, source in enumerate(sources):
        (pictures / f"{number}{source.suffix}").symlink_to(source)
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, boards_document(tmp_path, broker, pictures)) as line:
            line.start("--exit-when-done")
            assert line.wait() == 0, line.log
            Audit.of(line.state).check(len(sources))
        results = listener.of("result")
        listener.close()
    assert {result["resultState"] for result in results} == {1}
    assert len({(r["acquisition"]["widthPx"], r["acquisition"]["heightPx"]) for r in results}) > 1


def test_a_picture_that_memory_cannot_hold_is_recorded_and_the_next_ones_are_inspected(tmp_path: Path) -> None:
    pictures = small_set(tmp_path, 1)
    cv2.imwrite(str(pictures / "000-huge.png"), np.zeros((8000, 8000), np.uint8), [cv2.IMWRITE_PNG_BILEVEL, 1])
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, boards_document(tmp_path, broker, pictures, slots=200)) as line:
            line.start("--exit-when-done")
            assert line.wait() == 0, line.log
            Audit.of(line.state).check(3)
            assert "no memory for the frame pool: 200 slots × 192.0 MB" in line.log
        codes = {result["acquisition"]["frameId"]: result["resultEvaluationCode"] for result in listener.of("result")}
        listener.close()
    assert codes[3] == 404
    assert 404 not in (codes[1], codes[2])


def test_a_second_daemon_on_the_same_storage_ends_with_69_and_names_the_first(tmp_path: Path) -> None:
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, boards_document(tmp_path, broker, small_set(tmp_path), loop=True)) as line:
            first = line.start()
            listener.wait_for_more(1)
            command = [sys.executable, "-m", "inspectd", "run", "-c", str(tmp_path / "inspectd.yaml")]
            second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert second.returncode == 69
            assert f"in use by the inspectd with pid {first.pid}" in second.stderr
            listener.wait_for_more(1)
            assert line.terminate() == 0
        listener.close()


def test_sigterm_drains_says_goodbye_and_leaves_nothing(tmp_path: Path) -> None:
    """Frames in flight get results, status offline/stop is acknowledged, exit 0."""
    with mosquitto() as broker:
        listener = Listener(broker.port)
        with plant(tmp_path, boards_document(tmp_path, broker, small_set(tmp_path), loop=True)) as line:
            line.start()
            listener.wait_for_more(10)
            assert line.terminate() == 0, line.log
            last, audit = line.ledger_last(), Audit.of(line.state)
            assert line.leftovers() == []
        audit.check(last)
        assert audit.acked_seq == len(audit.results)
        assert {code for *_, code, _ in audit.runs} <= {302}
        listener.wait_for("status", lambda messages: messages[-1]["reason"] == "stop")
        final = listener.of("counters")[-1]
        assert (final["captured"], final["inFlight"]) == (last, 0)
        listener.close()


@pytest.mark.parametrize("child", ["camera top", "model defects"])
def test_a_stopped_child_never_blocks_main_and_is_replaced(tmp_path: Path, child: str) -> None:
    """SIGSTOP: the heartbeat goes on, and the child is killed and replaced."""
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": files_camera(small_set(tmp_path), loop=True, deadline_ms=2000)},
            models={"defects": pcb_model(timeout_ms=500, kill_after_ms=500)},
            decision=pcb_decision(),
        )
        with plant(tmp_path, document) as line:
            line.start()
            listener.wait_for_more(5)
            stopped = line.wait_for_child(child)
            beats = len(listener.of("heartbeat"))
            os.kill(stopped, signal.SIGSTOP)
            listener.wait_for("heartbeat", lambda messages: len(messages) >= beats + 3, 10)
            done = sum(result["resultState"] == 1 for result in listener.of("result"))
            listener.wait_for("result", lambda messages: sum(r["resultState"] == 1 for r in messages) >= done + 10)
            assert line.wait_for_child(child) != stopped
            assert line.terminate() == 0, line.log
            Audit.of(line.state).check(line.ledger_last())
            assert line.leftovers() == []
        assert all(is_exact(message) for message in listener.of("counters"))
        listener.close()


def test_a_subscriber_that_missed_results_gets_the_same_bytes_by_replay(tmp_path: Path) -> None:
    with (
        mosquitto() as broker,
        plant(tmp_path, boards_document(tmp_path, broker, small_set(tmp_path), loop=True)) as line,
    ):
        early = Listener(broker.port)
        line.start()
        early.wait_for_more(10)
        early.close()
        late = Listener(broker.port)
        late.wait_for_more(1)
        stream_id = late.of("result")[0]["streamId"]
        late.request("replay", requestId="r1", streamId=stream_id, fromSeq=1, toSeq=5)
        late.wait_for("rsp/test", lambda answers: any(answer["status"] == "completed" for answer in answers))
        late.wait_for("replay/test", lambda documents: len(documents) == 5)
        assert late.of("replay/test") == early.of("result")[:5]
        assert line.terminate() == 0
        late.close()
