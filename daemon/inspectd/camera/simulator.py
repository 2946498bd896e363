"""A camera over a simulated line of circuit boards, at its own pace. Picture n depends on seed and n alone."""

from __future__ import annotations

import time
from collections.abc import Callable

from inspectd.camera import Ended, Grab, Nothing, Picture
from inspectd.camera.boards.drawing import draw, prepare
from inspectd.camera.boards.size import size_fault
from inspectd.errors import SourceError
from inspectd.records import CameraFacts


class Simulator:
    """Source of drawn boards: `fps` pictures a second, or, `lossless`, one as soon as it is asked for.

    `count` ends it after so many numbers from `first_frame_id` on, those of an earlier child included.
    """

    def __init__(
        self,
        camera: str,
        *,
        seed: int,
        width_px: int = 640,
        height_px: int = 640,
        fps: float,
        lossless: bool = False,
        count: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._camera = camera
        self._seed = seed
        self._width_px = width_px
        self._height_px = height_px
        self._period_s = 0.0 if lossless else 1.0 / fps
        self._count = count
        self._clock = clock
        self._wall_clock = wall_clock
        self._wait = wait
        self._first_frame_id = 0
        self._due_s = 0.0

    def open(self, first_frame_id: int, next_frame_id: int) -> CameraFacts:  # noqa: ARG002  a picture needs its own number only
        """Draw the line's boards, so that no picture waits for them. Raises SourceError for a size without room."""
        fault = size_fault(self._width_px, self._height_px)
        if fault is not None:
            raise SourceError(f"{self._camera}: simulator cannot draw boards in {fault}; change width or height")
        prepare(self._seed, self._width_px, self._height_px)
        self._first_frame_id = first_frame_id
        self._due_s = self._clock()
        return CameraFacts(
            camera=self._camera,
            kind="simulator",
            simulated=True,
            finite=self._count is not None,
            width_px=self._width_px,
            height_px=self._height_px,
            vendor="inspectd",
            model="board simulator",
            serial=str(self._seed),
        )

    def grab(self, frame_id: int, timeout_s: float) -> Grab:
        """Draw picture `frame_id` when it is due; Nothing if that is more than `timeout_s` away."""
        if self._count is not None and frame_id >= self._first_frame_id + self._count:
            return Ended()
        early_s = self._due_s - self._clock()
        if early_s > timeout_s:
            self._wait(timeout_s)
            return Nothing()
        if early_s > 0:
            self._wait(early_s)
        captured_s, captured_wall_s = self._clock(), self._wall_clock()
        # a camera does not catch up either: after a pause its pace begins anew, without a burst
        paused = captured_s - self._due_s > self._period_s
        self._due_s = (captured_s if paused else self._due_s) + self._period_s
        pixels, _ = draw(self._seed, frame_id, self._width_px, self._height_px)
        return Picture(pixels, captured_s, captured_wall_s, acquisition_s=self._clock() - captured_s)

    def close(self) -> None:
        """Keep nothing: the prepared boards stay cached for the next open."""
