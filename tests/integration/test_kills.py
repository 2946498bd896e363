"""Whatever is killed, at whatever moment: each number of the ledger has exactly one row, and no OK was invented.

`INSPECTD_KILL_ROUNDS` sets how often each part is killed (4 in CI, 20 by `make kills`), `INSPECTD_SEED` the moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.mosquitto import Mosquitto, mosquitto
from tests.plant import Audit, Listener, Plant, configuration, files_camera, is_exact, pcb_decision, pcb_model, plant
from tests.shared import shared

ROUNDS = int(os.environ.get("INSPECTD_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("INSPECTD_SEED", "1"))
BOARDS = 10


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Defective boards and their defect-free twins, in turn."""
    folder = tmp_path_factory.mktemp("boards")
    for number, board in enumerate(sorted(shared("data/deeppcb/images").iterdir())[:BOARDS]):
        (folder / f"{number:03d}-a-defective.png").symlink_to(board)
        (folder / f"{number:03d}-b-good.png").symlink_to(shared("data/deeppcb/templates") / board.name)
    return folder


@pytest.fixture(scope="module")
def truth(pictures: Path) -> list[int]:
    """What the model itself says of each picture, asked without a daemon: 1 OK, 2 NotOK."""
    model = shared("models/tinydet-pcb/tinydet_640x640.xml")
    command = [sys.executable, "-m", "inspectd", "infer", "--model", str(model), "--precision", "f32", "--json"]
    command += ["--confidence", "0.6", *map(str, sorted(pictures.iterdir()))]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    found = [2 if json.loads(line)["detections"] else 1 for line in output.splitlines()]
    assert {1, 2} <= set(found), "the pictures must have both answers"
    return found


def kill_child(name: str) -> Callable[[Plant, Mosquitto], None]:
    def kill(line: Plant, broker: Mosquitto) -> None:
        del broker
        os.kill(line.wait_for_child(name), signal.SIGKILL)

    return kill


def kill_main(line: Plant, broker: Mosquitto) -> None:
    del broker
    assert line.process is not None
    line.process.kill()
    line.process.wait(30)
    line.start()


def kill_group(line: Plant, broker: Mosquitto) -> None:
    del broker
    line.kill_group()
    line.start()


def kill_broker(line: Plant, broker: Mosquitto) -> None:
    del line
    broker.restart()


VICTIMS: dict[str, Callable[[Plant, Mosquitto], None]] = {
    "main": kill_main,
    "camera child": kill_child("camera top"),
    "model child": kill_child("model defects"),
    "whole group": kill_group,
    "broker": kill_broker,
}


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * ROUNDS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_9_at_a_random_moment_loses_and_invents_nothing(
    tmp_path: Path, pictures: Path, truth: list[int], victim: str
) -> None:
    moments = random.Random(f"{SEED}/{victim}")
    with mosquitto() as broker:
        listener = Listener(broker.port)
        document = configuration(
            tmp_path,
            broker.port,
            cameras={"top": files_camera(pictures, loop=True)},
            models={"defects": pcb_model(retry_s=1)},
            decision=pcb_decision(),
        )
        with plant(tmp_path, document) as line:
            line.start()
            for _ in range(ROUNDS):
                listener.wait_for_more(moments.randint(3, 25))
                threading.Event().wait(moments.uniform(0, 0.05))  # not always right after a message
                VICTIMS[victim](line, broker)
                listener.wait_subscribed()
            listener.wait_for_more(5)
            assert line.terminate() == 0, line.log[-3000:]
            assert line.leftovers() == []
            last, audit, firsts = line.ledger_last(), Audit.of(line.state), line.firsts
        audit.check(last)
        _check_against_truth(audit, truth, firsts)
        assert all(is_exact(message) for message in listener.of("counters"))
        assert audit.acked_seq == len(audit.results)
        _check_deliveries(listener, audit, broker_was_killed=victim == "broker")
        listener.close()


def _check_against_truth(audit: Audit, truth: list[int], firsts: list[int]) -> None:
    """Each completed inspection says what the model says of that very picture: no stale slot, no mixed-up frame."""
    for document in audit.results.values():
        frame_id = document["acquisition"]["frameId"]
        first = max(first for first in firsts if first <= frame_id)
        if document["resultState"] == 1:
            assert document["resultEvaluation"] == truth[(frame_id - first) % len(truth)]


def _check_deliveries(listener: Listener, audit: Audit, *, broker_was_killed: bool) -> None:
    """Every result arrived with the committed bytes; what a killed broker lost comes by replay."""
    received = {document["seq"]: document for document in listener.of("result")}
    if not broker_was_killed:
        assert set(received) == set(audit.results)
    assert all(audit.results[seq] == document for seq, document in received.items())
