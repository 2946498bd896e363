"""Faults of main's own process: killed, its event loop blocked, asked to end at bad moments."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from openvino import opset13 as ops
from tests.faults.camera import FAST, SKIPPED_ENOUGH
from tests.faults.fault import Fault, Setup
from tests.faults.stand import FPS, MODELS, TOP, Stand
from tests.plant import Audit

BLOCK_SITE = Path(__file__).with_name("block")
BLOCK_SIGNAL = signal.SIGUSR2
BLOCK_VARIABLE = "FAULT_BLOCK_S"
SHORT_S, LONG_S = 5, 30
START_S = 4.0
"""DESIGN, Budgets: start → READY in 3 s; and one more until a frame is inspected."""
COMPILE_LAYERS, COMPILE_CHANNELS = 300, 32
STOP_LIMIT_S = 15.0


def _blocking(seconds: int) -> Callable[[Stand], dict[str, str]]:
    """Python imports a handler that holds up the main thread, and nothing else, when a signal comes."""

    def environment(stand: Stand) -> dict[str, str]:
        del stand
        folders = (str(BLOCK_SITE), os.environ.get("PYTHONPATH", ""))
        return {"PYTHONPATH": os.pathsep.join(filter(None, folders)), BLOCK_VARIABLE: str(seconds)}

    return environment


BLOCKED = Setup("blocked", environment=_blocking(SHORT_S))
BLOCKED_LONG = Setup("blocked long", environment=_blocking(LONG_S))


def deep_net(path: Path) -> Path:
    """The tiny head behind hundreds of layers that change nothing that matters."""
    picture = ops.parameter([1, 3, 64, 64], ov.Type.f32, name="images")
    chance = np.random.default_rng(1)
    x = ops.convolution(picture, ops.constant(_kernel(chance, COMPILE_CHANNELS, 3)), [8, 8], [0, 0], [0, 0], [1, 1])
    for _ in range(COMPILE_LAYERS):
        kernel = ops.constant(_kernel(chance, COMPILE_CHANNELS, COMPILE_CHANNELS))
        x = ops.sigmoid(ops.convolution(x, kernel, [1, 1], [0, 0], [0, 0], [1, 1]))
    scores = ops.reshape(ops.multiply(ops.slice(x, [0], [2], [1], [1]), np.float32(0.5)), [0, 2, -1], special_zero=True)
    boxes = np.full((1, 4, 64), 32, np.float32)
    head = ops.concat([ops.constant(boxes), scores], 1)
    ov.save_model(ov.Model([ops.result(head)], [picture], "deep"), path, compress_to_fp16=False)
    return path


def _kernel(chance: np.random.Generator, outputs: int, inputs: int) -> Any:
    return chance.normal(0, 0.01, (outputs, inputs, 1, 1)).astype(np.float32)


# Faults


def kill_main(stand: Stand) -> str:
    """SIGKILL; whoever supervises it starts it again at once."""
    assert stand.line.process is not None
    stand.line.process.kill()
    stand.line.process.wait(STOP_LIMIT_S)
    stand.start()
    stand.mark()
    return "its children died with it; what was open is 302, numbering goes on"


def blocked_loop(seconds: int) -> Callable[[Stand], str]:
    """Nothing is supervised, routed or decided; the children go on, and the ledger tells what main did not hear of."""

    def run(stand: Stand) -> str:
        first = stand.line.ledger_last(TOP)
        beats = len(stand.listener.of("heartbeat"))
        os.kill(stand.pid, BLOCK_SIGNAL)
        until_s = time.monotonic() + seconds
        stand.until(lambda: time.monotonic() >= until_s, "the block is over", seconds + 1)
        assert stand.line.ledger_last(TOP) >= first + seconds * FPS // 2, "the camera stood still as well"
        stand.mark()
        stand.listener.wait_for("heartbeat", lambda found: len(found) > beats)
        return f"no heartbeat for {seconds} s; cameras go on numbering, each of these frames has its row"

    return run


def stop_while_compiling(stand: Stand) -> str:
    """Ends at once and in order: nobody waits for a compile whose result nobody wants."""
    assert stand.line.terminate() == 0, stand.log_end()
    begin, usual = len(stand.line.log), stand.line.document["models"][MODELS[TOP]]
    deep = {"path": str(deep_net(stand.folder / "deep.xml")), "layout": "yolo"}
    stand.line.document["models"][MODELS[TOP]] = usual | deep
    try:
        stand.start()
        stand.child(f"model {MODELS[TOP]}")
        stand.saw("camera top: opened", begin)
        code = stand.line.terminate()
    finally:
        stand.line.document["models"][MODELS[TOP]] = usual
    said = stand.line.log[begin:]
    assert code == 0, f"ended with {code}: {said[-1000:]}"
    assert f"model {MODELS[TOP]}: admitted" not in said, "it had been compiled already"
    assert stand.line.leftovers() == []
    stand.start()
    stand.mark()
    return "exit 0 before the model was compiled, no child left; started again"


def stop_in_overload(stand: Stand) -> str:
    """Every frame that is open has its row when it ends; the next start finds nothing to make good."""
    begun = stand.line.ledger_last(TOP)
    stand.until(lambda: stand.line.ledger_last(TOP) > begun + SKIPPED_ENOUGH, "overload")
    assert stand.line.terminate() == 0, stand.log_end()
    assert stand.line.leftovers() == []
    for name in MODELS:
        missing = set(range(1, stand.line.ledger_last(name) + 1)) - set(Audit.of(stand.state).numbers(name))
        assert not missing, f"{name}: {len(missing)} frames without a row after the stop"
    stand.start()
    stand.mark()
    return "exit 0; each open frame had its row before the end"


FAULTS = (
    Fault(23, "main SIGKILL", "kill -9, started again at once", kill_main, START_S, of_host=True),
    Fault(
        25,
        f"event loop blocked {SHORT_S} s",
        "a signal handler sleeps in main's thread",
        blocked_loop(SHORT_S),
        3,
        BLOCKED,
        "-short",
        of_host=True,
    ),
    Fault(
        25,
        f"event loop blocked {LONG_S} s",
        "a signal handler sleeps in main's thread",
        blocked_loop(LONG_S),
        3,
        BLOCKED_LONG,
        "-long",
        is_slow=True,
        of_host=True,
    ),
    Fault(
        38,
        "SIGTERM during compile",
        f"net of {COMPILE_LAYERS} layers, no cache; kill -TERM before it is admitted",
        stop_while_compiling,
        START_S,
        of_host=True,
    ),
    Fault(39, "SIGTERM during overload", "kill -TERM at 10 × the rate", stop_in_overload, START_S, FAST, of_host=True),
)
