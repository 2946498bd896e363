"""Faults of cameras: their process dies or stands still, they give nothing, too much, or pictures of another size."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tests.faults import net
from tests.faults.fault import Fault, Setup
from tests.faults.inject.orders import Orders
from tests.faults.stand import FPS, MODELS, TOP, Stand, net_model

DEFECTS = MODELS[TOP]
PICTURES = 4
SMALL_PX, LARGE_PX = 160, 480
LOST = "CameraLost/top"
STALL_S = 10.0
"""A camera process whose counter stands still is looked at every 5 s: it is killed after 5 to 10."""
START_S = 3.0
TIMES_TOO_FAST = 10
INFERENCE_S = 0.03
"""Three times as long as the fast camera leaves."""
SKIPPED_ENOUGH = 100


# Stands


def pictures(stand: Stand) -> Path:
    """The folder that `top` reads."""
    return stand.folder / "pictures"


def draw(folder: Path, side_px: int) -> None:
    """Write every picture, or write it again in another size; each is whole at any moment."""
    folder.mkdir(exist_ok=True)
    for number in range(PICTURES):
        pixels = np.full((side_px, side_px, 3), 10 * number, np.uint8)
        unfinished = folder / f".{number}.png"
        cv2.imwrite(str(unfinished), pixels)
        unfinished.replace(folder / f"{number}.png")


def _files(document: dict[str, Any], stand: Stand) -> None:
    draw(pictures(stand), SMALL_PX)
    document["cameras"][TOP]["source"] = {"kind": "files", "path": str(pictures(stand)), "loop": True}


def _fast(document: dict[str, Any], stand: Stand) -> None:
    """`top` gives ten times the pictures that were said, and its model takes longer than they are apart."""
    folder = net.draw(pictures(stand))
    source = {"kind": "files", "path": str(folder), "loop": True, "fps": FPS * TIMES_TOO_FAST}
    document["cameras"][TOP] |= {"source": source, "deadline_ms": 500}
    path = net.save(stand.folder / "faulty.xml")
    document["models"][DEFECTS] = net_model(path, **net.MODEL, queue_depth=2)
    Orders(stand.folder / "orders").give(DEFECTS, "slow", seconds=INFERENCE_S)


def _orders(stand: Stand) -> dict[str, str]:
    return Orders(stand.folder / "orders").environment


FILES = Setup("files", _files)
FAST = Setup("fast camera", _fast, environment=_orders)


# Faults


def signalled(number: signal.Signals) -> Callable[[Stand], str]:
    """A signal to the camera's process, from outside."""

    def run(stand: Stand) -> str:
        pid = stand.child("camera top")
        os.kill(pid, number)
        stand.mark()
        stand.alarm(LOST)
        stand.alarm_over(LOST)
        assert stand.child("camera top") != pid
        return "new process; alarm CameraLost, raised and cleared"

    return run


def gives_nothing(stand: Stand) -> str:
    """Whoever reads a pipe that nobody writes to waits for ever: as a network folder whose server is gone."""
    folder = pictures(stand)
    for path in folder.glob("*.png"):
        pipe = path.with_suffix(".pipe")
        os.mkfifo(pipe)
        pipe.replace(path)
    stand.alarm(LOST)
    draw(folder, SMALL_PX)
    stand.mark()
    stand.alarm_over(LOST)
    return "the stuck process is killed; alarm CameraLost, raised and cleared"


def too_fast(stand: Stand) -> str:
    """Most pictures cannot be inspected: each has its row all the same, and the other camera does not notice."""
    before = stand.listener.of("counters")[-1:]
    skipped = before[0]["skipped"] if before else 0
    stand.listener.wait_for("counters", lambda messages: messages[-1]["skipped"] > skipped + SKIPPED_ENOUGH)
    event = stand.event("FramesSkipped", TOP)
    return f"FramesSkipped, at most once a second: {event['detail']['reason']}"


def other_size(stand: Stand) -> str:
    """The camera was set up anew: larger pictures, then smaller ones again. The pool grows, nothing is lost."""
    above = stand.line.ledger_last(TOP)
    for side_px in (LARGE_PX, SMALL_PX):
        changed = stand.line.ledger_last(TOP) + 1  # that one may have been read already
        draw(pictures(stand), side_px)
        stand.mark()
        _wait_for_size(stand, changed, side_px)
    lost = [
        result["resultEvaluationCode"]
        for result in stand.listener.of("result")
        if result["acquisition"]["cameraId"] == TOP
        and result["acquisition"]["frameId"] > above
        and result["resultState"] != 1
    ]
    assert not lost, f"pictures of another size were lost: {lost}"
    return f"inspected in both sizes ({SMALL_PX} and {LARGE_PX} px), none lost"


def _wait_for_size(stand: Stand, above: int, side_px: int) -> None:
    stand.listener.wait_for("result", lambda results: any(_is_in(r, above, side_px) for r in results[-20:]))


def _is_in(result: dict[str, Any], above: int, side_px: int) -> bool:
    taken = result["acquisition"]
    return bool(taken["cameraId"] == TOP and taken["frameId"] > above and taken.get("widthPx") == side_px)


FAULTS = (
    Fault(15, "camera child SIGKILL", "kill -9", signalled(signal.SIGKILL), budget_s=START_S),
    Fault(16, "camera child SIGSTOP", "kill -STOP", signalled(signal.SIGSTOP), budget_s=STALL_S + START_S),
    Fault(
        17,
        "camera gives nothing",
        "its pictures become pipes that nobody writes to, for a while",
        gives_nothing,
        budget_s=STALL_S + START_S,
        setup=FILES,
    ),
    Fault(
        18,
        f"camera at {TIMES_TOO_FAST} × its rate",
        f"{FPS * TIMES_TOO_FAST} pictures a second, {INFERENCE_S * 1000:.0f} ms each in the model",
        too_fast,
        budget_s=START_S,
        setup=FAST,
    ),
    Fault(
        19,
        "frame size changes",
        f"pictures of {SMALL_PX} px become {LARGE_PX} px, and small again",
        other_size,
        budget_s=START_S,
        setup=FILES,
    ),
)
