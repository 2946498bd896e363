"""Source `video`: the pictures of one video file, at its own pace or another. Simulated by definition.

A picture's place in the file is `frame_id - first_frame_id` (with `loop`, modulo the number of pictures), so a replaced
child goes on where it was. What the decoder gives no picture for has its number all the same, and is `Unreadable`. In a
file that is shorter than its header says, the last picture is as well: half of it may be missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from inspectd.camera import Ended, Grab, Nothing, Picture, Unreadable
from inspectd.camera.videofile import Decoder, Index, read_index
from inspectd.errors import SourceError
from inspectd.records import CameraFacts


class Video:
    """The Source of `kind: video`. `fps` None: the file's own rate, at most `max_fps`; `lossless`: as it is taken."""

    def __init__(
        self,
        camera: str,
        path: Path,
        *,
        fps: float | None,
        max_fps: float | None = None,
        loop: bool,
        lossless: bool,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._camera = camera
        self._path = path
        self._name = os.fsencode(path).decode(errors="replace")  # text that JSON can carry
        self._fps, self._max_fps, self._lossless = fps, max_fps, lossless
        self._loop = loop
        self._clock = clock
        self._wall_clock = wall_clock
        self._wait = wait
        self._index: Index | None = None
        self._decoder: Decoder | None = None
        self._first_frame_id = 0
        self._asked = 0
        self._period_s = self._due_s = 0.0

    def open(self, first_frame_id: int, next_frame_id: int) -> CameraFacts:
        """Read the file's index and go to the picture that is next. Raises SourceError."""
        self._index = index = read_index(self._path)
        self._period_s = 0.0 if self._lossless else 1 / self._rate_fps(index)
        self._first_frame_id = first_frame_id
        self._decoder = Decoder(self._path, index)
        place = self._place(next_frame_id, index)
        if place is not None:
            self._decoder.go_towards(place)
            self._asked = place
        self._due_s = self._clock()
        return CameraFacts(
            camera=self._camera,
            kind="video",
            simulated=True,
            finite=not self._loop,
            width_px=index.head.width_px,
            height_px=index.head.height_px,
        )

    def grab(self, frame_id: int, timeout_s: float) -> Grab:
        """Wait until the picture is due, then decode it. A way there that takes longer is gone in steps (`Nothing`)."""
        index, decoder = self._index, self._decoder
        if index is None or decoder is None:
            raise SourceError(f"{self._camera}: the video is not open")
        place = self._place(frame_id, index)
        if place is None:
            return Ended()
        until_s = self._clock() + timeout_s
        if not self._is_due(timeout_s):
            return Nothing()
        started_s = self._clock()
        if place < self._asked:
            decoder.close()  # a loop begins again
        self._asked = place
        while decoder.place < place and not decoder.is_over:
            decoder.advance()
            if decoder.place < place and self._clock() >= until_s:
                return Nothing()
        self._move_schedule(started_s)
        return self._picture(place, started_s, index, decoder)

    def close(self) -> None:
        """Close the file."""
        if self._decoder is not None:
            self._decoder.close()
        self._index = self._decoder = None

    def _picture(self, place: int, started_s: float, index: Index, decoder: Decoder) -> Picture | Unreadable:
        total, name = len(index.stamps_us), f"{self._name}#{place + 1}"
        what = f"picture {place + 1} of {total} in {self._path.name}"
        pixels = None
        if place == index.cut_at:
            reason = f"{what}: the file is cut or damaged, its header promises {index.head.promised} pictures"
        elif decoder.place != place or (pixels := decoder.pixels()) is None:
            reason = f"{what}: damaged, it cannot be decoded"
        if pixels is None:
            return Unreadable(reason, self._clock(), self._wall_clock(), name)
        captured_s = self._clock()
        return Picture(pixels, captured_s, self._wall_clock(), captured_s - started_s, name)

    def _place(self, frame_id: int, index: Index) -> int | None:
        """Place in the file of a number; None: after its end."""
        place, total = frame_id - self._first_frame_id, len(index.stamps_us)
        if self._loop:
            return place % total
        return place if place < total else None

    def _rate_fps(self, index: Index) -> float:
        fps = self._fps or index.head.fps
        if fps is None:
            raise SourceError(
                f"{self._camera}: {self._path.name} tells no frame rate; give cameras.{self._camera}.source.fps"
            )
        return fps if self._max_fps is None else min(fps, self._max_fps)

    def _is_due(self, timeout_s: float) -> bool:
        early_s = self._due_s - self._clock()
        if early_s > 0:
            self._wait(min(early_s, timeout_s))
        return self._clock() >= self._due_s

    def _move_schedule(self, now_s: float) -> None:
        """Move it one picture on. More than a period late: it starts again from now, without a burst."""
        is_left_behind = now_s - self._due_s > self._period_s
        self._due_s = (now_s if is_left_behind else self._due_s) + self._period_s
