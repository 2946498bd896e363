"""One rung in a process of its own: reads an order a line, runs a round, answers with a line.

`python -m tests.bench.ladder.worker RUNG MODEL THREADS REQUESTS BOARDS`. A round that is stuck ends the process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
from tests.bench.ladder.articles import CONFIDENCE, RUNGS, Net
from tests.bench.ladder.boards import Picture, read_boards
from tests.bench.ladder.disturbance import Disturbance, Disturbed, core, disturbed_copy
from tests.bench.ladder.tally import Round, Tally
from tests.bench.ladder.workers import OURS
from tests.bench.measure import memory

from inspectd.engine import ModelSpec
from inspectd.engine.openvino import OpenVinoEngine
from inspectd.errors import EngineError

STUCK_AFTER_S = 4.0
"""Beyond the round's own time."""
RUN_IN_S = 0.3
MB = 1e6
Rung = Callable[[Tally], None]


def article(name: str, model: Path, threads: int, boards: list[Picture]) -> Rung:
    """Compile for a rung of the articles."""
    hint, code = RUNGS[name]
    settings = {
        "PERFORMANCE_HINT": hint,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    net = Net(core().compile_model(str(model), "CPU", settings), boards)
    return lambda tally: code(net, tally)


def ours(model: Path, threads: int, requests: int, boards: list[Picture]) -> Rung:
    """Our engine, a thread for each request as in the model child."""
    spec = ModelSpec("defects", model, threads=threads, requests=requests, confidence=CONFIDENCE, precision="f32")
    engine = OpenVinoEngine(spec, core())
    engine.open()

    def run(tally: Tally) -> None:
        def serve(request: int) -> None:
            while (frame := tally.take()) is not None:
                try:
                    engine.infer(request, boards[frame % len(boards)], _nothing)
                except EngineError:
                    tally.told(frame)
                else:
                    tally.answered(frame)

        threads = [threading.Thread(target=serve, args=(request,)) for request in range(requests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


class Stage:
    """The rung with the model as it is, and later with the operation that disturbs it; one of them at a time."""

    def __init__(
        self, name: str, model: Path, threads: int, requests: int, boards: list[Picture], folder: Path
    ) -> None:
        self._name, self._model, self._threads, self._requests = name, model, threads, requests
        self._folder, self._boards = folder, boards
        self._is_disturbed: bool | None = None
        self._rung: Rung = _idle

    def round(self, order: dict[str, Any]) -> Round:
        """Run one round as ordered."""
        plan = None if order["plan"] is None else Disturbance(**order["plan"])
        self._open(is_disturbed=plan is not None)
        Disturbed.begin(plan)
        return self._timed(order["seconds"], order["frames_min"], order["seconds_max"])

    def _open(self, *, is_disturbed: bool) -> None:
        if is_disturbed == self._is_disturbed:
            return
        Disturbed.begin(None)
        self._rung = _idle
        model = disturbed_copy(self._model, self._folder) if is_disturbed else self._model
        if self._name == OURS:
            self._rung = ours(model, self._threads, self._requests, self._boards)
        else:
            self._rung = article(self._name, model, self._threads, self._boards)
        self._is_disturbed = is_disturbed
        self._timed(RUN_IN_S, 0, 0.0)

    def _timed(self, seconds: float, frames_min: int, seconds_max: float) -> Round:
        tally = Tally(time.monotonic, seconds, frames_min, seconds_max)
        cpu_s = time.process_time()
        executor = ThreadPoolExecutor(1)
        ending = executor.submit(self._rung, tally)
        executor.shutdown(wait=False)
        is_stuck = False
        try:
            ending.result(max(seconds, seconds_max) + STUCK_AFTER_S)
        except TimeoutError:
            is_stuck = True
        return tally.round(time.process_time() - cpu_s, memory(os.getpid()).anonymous / MB, is_stuck=is_stuck)


def _idle(_tally: Tally) -> None:
    """No model is loaded."""


def _nothing() -> None:
    """The picture is our own: there is no slot to check."""


def main() -> None:
    """Serve orders until there are no more."""
    name, model, threads, requests, boards = sys.argv[1:]
    cv2.setNumThreads(1)
    logging.getLogger("inspectd").setLevel(logging.ERROR)  # what it says of the model has been read
    # beside the boards: the bench removes it all, also after a process that had to be killed
    folder = Path(tempfile.mkdtemp(prefix="rung-", dir=Path(boards).parent))
    stage = Stage(name, Path(model), int(threads), int(requests), read_boards(Path(boards)), folder)
    for line in sys.stdin:
        done = stage.round(json.loads(line))
        print(json.dumps(asdict(done)), flush=True)
        if done.is_stuck:
            break
    os._exit(0)  # a thread that is stuck in the runtime would keep the process


if __name__ == "__main__":
    main()
