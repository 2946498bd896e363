"""One video file through OpenCV's FFmpeg: its index, and its pictures in order. Knows no camera, pace or numbering.

The index is made of the file's packets without decoding them (1189 pictures: 17 ms): one time stamp per picture, in the
order of showing. Each decoded picture is placed by its own stamp, so that one which the decoder left out is missed at
its place and moves no other.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from inspectd.camera import Pixels
from inspectd.errors import SourceError

ENDINGS = (".mp4", ".avi", ".mkv")
_HEADER_SLACK_S = {".mkv": 1.0}
"""How much later than its last picture a whole file may end: Matroska's header tells the sound's length as well."""
_FPS_MAX = 1000.0
"""More is a clock rate, not a picture rate."""
_SEEK_BACK = 16
"""OpenCV goes back by so many pictures from where it is sent, and from there to the key picture before."""
_FAILURES_MAX = 64
"""So many packets in a row without a picture: the rest of the file is lost, or it is over."""

# Damaged files are told by the picture's own record; FFmpeg and OpenCV would say it on standard error as well.
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


@dataclass(frozen=True, slots=True)
class Head:
    """What a video says of itself."""

    width_px: int
    """As shown: after rotation."""
    height_px: int
    fps: float | None
    """None: it tells no usable rate."""
    promised: int
    """Pictures; for a Matroska file worked out from its length."""
    first_us: int | None
    """Stamp of the first decoded picture; None: the first packet gave none."""


@dataclass(frozen=True, slots=True)
class Index:
    """Every picture that a file holds."""

    head: Head
    stamps_us: tuple[int, ...]
    """When each is shown, ascending; a picture's place here is its number in the file."""
    keys: tuple[int, ...]
    """Places of pictures that need no other."""
    cut_at: int | None
    """Place of the last picture in a file that is shorter than its header says: half of it may be missing."""
    late_us: int = 0
    """AVI tells when a picture is decoded, not when it is shown: decoded ones are stamped later by so much."""


class Decoder:
    """Decodes a file forwards. Used by one thread."""

    def __init__(self, path: Path, index: Index) -> None:
        self._path, self._index = path, index
        self._capture: cv2.VideoCapture | None = None
        self._failures = 0
        self.place = -1
        """Of the picture that was decoded last; -1: none yet."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._failures >= _FAILURES_MAX

    def advance(self) -> None:
        """Decode one picture further; a damaged one leaves `place` as it is."""
        capture = self._opened()
        if not capture.grab():
            self._failures += 1
            return
        self._failures = 0
        stamps_us = self._index.stamps_us
        stamp_us = _stamp_us(capture) - self._index.late_us
        if self.place >= 0 and stamp_us <= stamps_us[self.place]:
            self.place += 1  # the same stamp again, or (the last ones of an AVI) none: it follows all the same
        else:
            self.place = bisect_left(stamps_us, stamp_us, max(self.place, 0))
        self.place = min(self.place, len(stamps_us) - 1)

    def pixels(self) -> Pixels | None:
        """Give the picture at `place`, BGR8, rotated as the file says; None: it cannot be converted."""
        ok, pixels = self._opened().retrieve()
        return np.ascontiguousarray(pixels, np.uint8) if ok else None

    def go_towards(self, place: int) -> None:
        """Come as near before `place` as one cheap step does, or to the beginning; `advance` does the rest."""
        self.close()
        index, fps = self._index, self._index.head.fps
        if fps is None or len(set(index.stamps_us)) < len(index.stamps_us):
            return
        latest_us = index.stamps_us[place] - _SEEK_BACK * 1e6 / fps
        key = max((key for key in index.keys if index.stamps_us[key] <= latest_us), default=0)
        if key == 0:
            return
        # a key picture + 16: OpenCV then decodes 16 pictures, and not a group of hundreds, within this one call
        frame = round((index.stamps_us[key] - index.stamps_us[0]) * fps / 1e6) + _SEEK_BACK
        self._opened().set(cv2.CAP_PROP_POS_FRAMES, frame)
        self.advance()
        if self.place > place or self._failures:
            self.close()  # it went too far; from the beginning it takes longer and is right

    def close(self) -> None:
        """Close the file; `advance` begins with its first picture then."""
        if self._capture is not None:
            self._capture.release()
        self._capture = None
        self._failures, self.place = 0, -1

    def _opened(self) -> cv2.VideoCapture:
        if self._capture is None:
            # one thread: the models need the others, and with several a damaged picture is told one too late
            self._capture = _opened(self._path, [cv2.CAP_PROP_N_THREADS, 1])
        return self._capture


def read_head(path: Path) -> Head:
    """Open a video and decode its first picture. Raises SourceError."""
    capture = _opened(path, [cv2.CAP_PROP_N_THREADS, 1])
    try:
        first_us = _stamp_us(capture) if capture.grab() else None
        if first_us is None and not any(capture.grab() for _ in range(_FAILURES_MAX)):
            raise SourceError(f"{path.name}: not one picture of it can be decoded; export it again, as H.264 or MJPEG")
        return _head(capture, first_us)
    finally:
        capture.release()


def read_index(path: Path) -> Index:
    """Read a whole file's packets. Raises SourceError."""
    head = read_head(path)
    capture = _opened(path, [cv2.CAP_PROP_FORMAT, -1])  # packets as they are: nothing is decoded
    try:
        packets: list[tuple[int, bool]] = []
        while capture.grab():
            packets.append((_stamp_us(capture), bool(capture.get(cv2.CAP_PROP_LRF_HAS_KEY_FRAME))))
    finally:
        capture.release()
    in_order = sorted(range(len(packets)), key=lambda number: packets[number][0])
    stamps_us = tuple(packets[number][0] for number in in_order)
    keys = tuple(place for place, number in enumerate(in_order) if packets[number][1])
    ending = path.suffix.lower()
    is_cut = _is_cut(head, stamps_us, _HEADER_SLACK_S.get(ending, 0.0))
    late_us = head.first_us - stamps_us[0] if ending == ".avi" and head.first_us is not None else 0
    return Index(head, stamps_us, keys, in_order.index(len(packets) - 1) if is_cut else None, max(0, late_us))


def _is_cut(head: Head, stamps_us: tuple[int, ...], slack_s: float) -> bool:
    """Whether pictures are missing, by their number and by the time that they cover (rates may vary)."""
    if head.fps is None or len(stamps_us) >= head.promised:
        return False
    covered = (stamps_us[-1] - stamps_us[0]) * head.fps / 1e6 + 1
    return head.promised - covered > max(0.5, slack_s * head.fps)


def _opened(path: Path, options: list[int]) -> cv2.VideoCapture:
    try:
        with path.open("rb") as stream:
            is_empty = not stream.read(1)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    if is_empty:
        raise SourceError(f"{path}: the file is empty; copy it again")
    # FFmpeg by name: another backend has other properties, and takes `%` in a name for a series of pictures
    capture = cv2.VideoCapture(str(path.absolute()), cv2.CAP_FFMPEG, options)
    if not capture.isOpened():
        raise SourceError(
            f"{path.name}: not a video that OpenCV can open: damaged, cut (an .mp4 has its index at its end) or of an "
            "unknown kind; copy it again, or export it as .mp4, .avi or .mkv"
        )
    return capture


def _head(capture: cv2.VideoCapture, first_us: int | None) -> Head:
    fps = float(capture.get(cv2.CAP_PROP_FPS))
    return Head(
        width_px=max(1, int(capture.get(cv2.CAP_PROP_FRAME_WIDTH))),
        height_px=max(1, int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))),
        fps=fps if 0 < fps <= _FPS_MAX else None,
        promised=max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT))),
        first_us=first_us,
    )


def _stamp_us(capture: cv2.VideoCapture) -> int:
    """Whole µs, since the same stamp comes as slightly different floats; CAP_PROP_PTS is rounded to the mean rate."""
    return round(capture.get(cv2.CAP_PROP_POS_MSEC) * 1000)
