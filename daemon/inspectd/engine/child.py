"""The model child's loop: a thread per infer request, so that letterbox, inference and decoding overlap.

The main thread only reads messages. An answer carries the stamp under which the pixels were read; what could not be
read under that stamp is an error, never an answer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

from inspectd.engine import Engine, ModelSpec
from inspectd.errors import DeviceError, EngineError, OutOfMemory, OutputError, StaleSlot
from inspectd.health.progress import ProgressPage, Word
from inspectd.records import Detection, Frame
from inspectd.worker.channel import Channel, ChannelClosed
from inspectd.worker.frames import PoolSpec
from inspectd.worker.pool import Pool

TURN_S = 1.0
NICE = 5
"""Main and the cameras go first on a busy host."""
EXIT_INTERNAL = 70
_WORD_OF = ((DeviceError, "device"), (OutputError, "output"), (StaleSlot, "stale"))
"""Error class to the word that main reads; any other EngineError is `failed`."""

log = logging.getLogger(__name__)


def run_model(name: str, channel: Channel, progress: ProgressPage) -> None:
    """Serve one model until told to stop. Raises ModelRefused and DeviceError from loading, and ChannelClosed."""
    channel.send({"t": "hello"})
    message, _ = channel.expect("load", TURN_S)
    spec = ModelSpec.from_json(message["spec"])
    if spec.cpus:
        os.sched_setaffinity(0, spec.cpus)  # before OpenVINO counts the cores
    if spec.device == "CPU":
        os.nice(NICE)
    from inspectd.engine.openvino import OpenVinoEngine

    engine: Engine = OpenVinoEngine(spec)
    engine.on_step = lambda step: channel.send_patiently({"t": "step", "step": step}, TURN_S)
    try:
        facts = engine.open()
    except OutOfMemory as error:
        error.requests = engine.requests
        raise
    channel.send({"t": "admitted", "facts": asdict(facts)})
    try:
        _Loop(name, channel, progress, engine, facts.requests).run()
    finally:
        engine.close()


class _Loop:
    def __init__(self, name: str, channel: Channel, progress: ProgressPage, engine: Engine, requests: int) -> None:
        self._name, self._channel, self._progress, self._engine = name, channel, progress, engine
        self._jobs: SimpleQueue[tuple[int, Frame] | None] = SimpleQueue()
        self._pools: dict[tuple[str, int], Pool] = {}
        self._lock = threading.Lock()
        self._running: dict[int, int] = {}
        self._begun = 0
        """Highest attempt that was begun; they come in order."""
        self._cancelled: set[int] = set()
        """Attempts that are cancelled before they have begun."""
        self._threads = [
            threading.Thread(target=self._serve, args=(request,), name=f"request {request}", daemon=True)
            for request in range(requests)
        ]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        while True:
            received = self._channel.receive()
            if received is None:
                self._channel.wait(TURN_S)
                continue
            message, descriptors = received
            if message["t"] == "infer":
                self._jobs.put((message["a"], Frame(**message["f"])))
            elif message["t"] == "cancel":
                self._cancel(message["a"])
            elif message["t"] == "pool":
                spec = PoolSpec(**message["spec"])
                self._pools[spec.camera, spec.pool] = Pool(spec, descriptors[0])
            elif message["t"] == "forget":
                self._pools.pop((message["camera"], message["pool"]), None)
            elif message["t"] == "stop":
                break
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(TURN_S)

    def _cancel(self, attempt: int) -> None:
        """Under the lock: a moment later the request may have another picture, and the cancel would meet that."""
        with self._lock:
            request = self._running.get(attempt)
            if request is not None:
                self._engine.cancel(request)
            elif attempt > self._begun:
                self._cancelled.add(attempt)

    def _serve(self, request: int) -> None:
        """One request's thread. Anything unforeseen ends the process: a thread that died in silence would hang jobs."""
        try:
            while (job := self._jobs.get()) is not None:
                self._channel.send_patiently(self._answer(request, *job), TURN_S)
                self._progress.count(Word.TURNS)
        except ChannelClosed:
            os._exit(0)
        except Exception:
            log.exception("model %s: request %d ended by an error of its own", self._name, request)
            os._exit(EXIT_INTERNAL)

    def _answer(self, request: int, attempt: int, frame: Frame) -> dict[str, Any]:
        begun_s = time.monotonic()
        answer: dict[str, Any] = {"t": "answer", "a": attempt, "n": frame.frame_id, "g": frame.generation}
        try:
            detections = self._infer(request, attempt, frame)
        except EngineError as error:
            word = next((word for kind, word in _WORD_OF if isinstance(error, kind)), "failed")
            answer |= {"k": word, "why": str(error)}
        else:
            answer |= {"k": "done", "d": [_row(detection) for detection in detections]}
        answer["s"] = time.monotonic() - begun_s
        return answer

    def _infer(self, request: int, attempt: int, frame: Frame) -> tuple[Detection, ...]:
        pool = self._pools.get((frame.camera, frame.pool))
        if pool is None:
            raise StaleSlot(f"{frame.camera}/{self._name}: pool {frame.pool} is not known here")
        with self._lock:
            self._begun = max(self._begun, attempt)
            was_cancelled = attempt in self._cancelled
            self._cancelled = {later for later in self._cancelled if later > self._begun}
            if was_cancelled:
                raise EngineError(f"{frame.camera}/{self._name}: frame {frame.frame_id} was cancelled before it began")
            self._running[attempt] = request
        try:
            return self._engine.infer(request, pool.view(frame), lambda: pool.check(frame))
        finally:
            with self._lock:
                del self._running[attempt]


def _row(detection: Detection) -> list[float]:
    box = detection.box
    return [detection.class_id, detection.confidence, box.x, box.y, box.w, box.h]
