"""The rungs that articles on asynchronous OpenVINO recommend, written as they write them, errors included.

Each takes frames from the tally until there are none, prepares them with NumPy, infers, decodes, and notes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import cv2
import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from numpy.typing import NDArray
from tests.bench.ladder.boards import Picture
from tests.bench.ladder.tally import Tally

from inspectd.decode import DECODERS, Reading

REQUESTS = 4
POLL_MS = 1
PAD = 114
CONFIDENCE, IOU = 0.25, 0.5


@dataclass(frozen=True, slots=True)
class Net:
    """A compiled model of the layout `yolo` and the pictures for it."""

    compiled: Any
    pictures: list[Picture]

    def blob(self, frame: int) -> NDArray[np.float32]:
        """[1, 3, H, W] RGB 0..1: resized, padded, and made float by NumPy."""
        height_px, width_px = self.compiled.inputs[0].shape[2:]
        picture = self.pictures[frame % len(self.pictures)]
        scale = min(width_px / picture.shape[1], height_px / picture.shape[0])
        fitted = cv2.resize(picture, (round(picture.shape[1] * scale), round(picture.shape[0] * scale)))
        left, top = (width_px - fitted.shape[1]) // 2, (height_px - fitted.shape[0]) // 2
        right, bottom = width_px - fitted.shape[1] - left, height_px - fitted.shape[0] - top
        boxed = cv2.copyMakeBorder(fitted, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(PAD, PAD, PAD))
        return np.ascontiguousarray(boxed[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255))

    def decode(self, raw: NDArray[np.float32]) -> None:
        """As our own pool does it, so that the rungs differ in what they are about."""
        height_px, width_px = self.compiled.inputs[0].shape[2:]
        DECODERS["yolo"].decode([raw], Reading(CONFIDENCE, IOU, raw.shape[1] - 4, width_px, height_px))

    def requests(self) -> list[Any]:
        return [self.compiled.create_infer_request() for _ in range(REQUESTS)]


def synchronous(net: Net, tally: Tally) -> None:
    """One picture after the other."""
    while (frame := tally.take()) is not None:
        try:
            raw = net.compiled([net.blob(frame)])[0]
        except RuntimeError:
            tally.told(frame)
            continue
        net.decode(raw)
        tally.answered(frame)


def one_request(net: Net, tally: Tally) -> None:
    """The next picture is prepared while the request runs."""
    request = net.compiled.create_infer_request()
    running: int | None = None
    while True:
        frame = tally.take()
        blob = None if frame is None else net.blob(frame)
        done, raw = running, None
        if running is not None:
            try:
                request.wait()
                raw = request.get_output_tensor(0).data.copy()
            except RuntimeError:
                tally.told(running)
        if frame is not None:
            request.start_async({0: blob})
        running = frame
        if done is not None and raw is not None:
            net.decode(raw)
            tally.answered(done)
        if frame is None:
            return


def polled_pool(net: Net, tally: Tally) -> None:
    """Four requests, each asked in turn for 1 ms whether it is ready."""
    requests = net.requests()
    running: dict[int, int] = {}
    is_over = False
    while running or not is_over:
        for place, request in enumerate(requests):
            if place in running:
                try:
                    if not request.wait_for(POLL_MS):
                        continue
                    net.decode(request.get_output_tensor(0).data)
                    tally.answered(running.pop(place))
                except RuntimeError:
                    tally.told(running.pop(place))
            frame = None if is_over else tally.take()
            if frame is None:
                is_over = True
                continue
            request.start_async({0: net.blob(frame)})
            running[place] = frame


def callbacks(net: Net, tally: Tally) -> None:
    """Four requests; the callback decodes and makes its request free again."""
    free: SimpleQueue[Any] = SimpleQueue()

    def done(job: tuple[Any, int]) -> None:
        request, frame = job
        net.decode(request.get_output_tensor(0).data)
        tally.answered(frame)
        free.put(request)

    requests = net.requests()
    for request in requests:
        request.set_callback(done, None)
        free.put(request)
    while True:
        request = free.get()
        frame = tally.take()
        if frame is None:
            break
        request.start_async({0: net.blob(frame)}, (request, frame))
    for request in requests:
        _ended(request.wait)


def async_infer_queue(net: Net, tally: Tally) -> None:
    """OpenVINO's own pool of four."""
    queue = ov.AsyncInferQueue(net.compiled, REQUESTS)

    def done(request: Any, frame: int) -> None:
        net.decode(request.get_output_tensor(0).data)
        tally.answered(frame)

    queue.set_callback(done)
    while (frame := tally.take()) is not None:
        _ended(partial(queue.start_async, {0: net.blob(frame)}, frame))
    _ended(queue.wait_all)


def _ended(call: Callable[[], object]) -> None:
    """Call; an error that comes now is that of some frame before, and does not say of which: nobody is told."""
    try:
        call()
    except RuntimeError:
        return


RUNGS: dict[str, tuple[str, Callable[[Net, Tally], None]]] = {
    "synchronous loop": ("LATENCY", synchronous),
    "one asynchronous request": ("LATENCY", one_request),
    "pool of 4, wait_for(1 ms)": ("THROUGHPUT", polled_pool),
    "callbacks, 4": ("THROUGHPUT", callbacks),
    "AsyncInferQueue, 4": ("THROUGHPUT", async_infer_queue),
}
"""Performance hint and code of each."""
