"""Source `files`: the pictures of a folder or glob, in natural order, at a camera's pace. Simulated by definition.

What counts as a picture: a regular file that ends in one of ENDINGS (any case) and does not begin with a dot. A folder
is not searched deeper; a glob is matched letter by letter as in a shell, and goes deeper only where it says `**`.
Natural order: folder by folder, `board2` before `board10`, letter case only as the last word. The list is taken when
the source is opened; a picture's place in it is `frame_id - first_frame_id`, so a replaced child goes on where it was.

What becomes of the pixels, always BGR8, height × width × 3, and the same for every file: grey → three equal channels;
1-bit and palette → expanded; alpha → dropped, not blended (but an 8-bit TIFF comes darkened by alpha that is not
opaque: its decoder does that); 16-bit → `>> 8`, never stretched; EXIF and TIFF orientation → applied; CMYK → as the
decoder converts it; several pages or frames → the first one.

A file that ends before its pixels do is an error in every format, and PNG finds any damage by its checksums. Damage
*inside* a file of full length (zeros after a power cut) cannot always be told in BMP, TIFF, WebP and JPEG.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from inspectd.camera import Ended, Grab, Nothing, Picture, Pixels, Unreadable
from inspectd.errors import SourceError
from inspectd.records import CameraFacts

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
FILE_BYTES_MAX = 256 * 2**20
"""Larger than any line camera's picture; a file is read as a whole before it is decoded."""

_SIGNATURES = {
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"RIFF": "WebP",
}

# OpenCV and its codecs tell every damaged file on standard error as well; the frame's own reason says it once.
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


class Files:
    """The Source of `kind: files`. `fps` None or `lossless`: each picture as soon as it is asked for."""

    def __init__(
        self,
        camera: str,
        path: Path,
        *,
        fps: float | None,
        loop: bool,
        lossless: bool,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._camera = camera
        self._path = path
        self._period_s = 1 / fps if fps and not lossless else 0.0
        self._loop = loop
        self._clock = clock
        self._wall_clock = wall_clock
        self._wait = wait
        self._pictures: tuple[Path, ...] = ()
        self._first_frame_id = 0
        self._due_s = 0.0

    def open(self, first_frame_id: int, next_frame_id: int) -> CameraFacts:
        """Take the list and measure the first picture that can be read (1 × 1 px if none can). Raises SourceError."""
        del next_frame_id  # each picture's place follows from its own number
        self._pictures = list_pictures(self._path)
        if not self._pictures:
            raise SourceError(
                f"{self._camera}: no picture in {self._path} (looked for {', '.join(ENDINGS)}); "
                f"put pictures there or correct cameras.{self._camera}.source.path"
            )
        self._first_frame_id = first_frame_id
        self._due_s = self._clock()
        height_px, width_px = _first_size(self._pictures)
        return CameraFacts(
            camera=self._camera,
            kind="files",
            simulated=True,
            finite=not self._loop,
            width_px=width_px,
            height_px=height_px,
        )

    def grab(self, frame_id: int, timeout_s: float) -> Grab:
        """Wait until the picture is due, then read it. A file that cannot be read, or is gone, is `Unreadable`."""
        place = frame_id - self._first_frame_id
        if self._loop:
            place %= len(self._pictures)
        elif place >= len(self._pictures):
            return Ended()
        if not self._is_due(timeout_s):
            return Nothing()
        path = self._pictures[place]
        name = _printable(path)
        started_s = self._clock()
        try:
            pixels = read_picture(path)
        except SourceError as error:
            return Unreadable(str(error), self._clock(), self._wall_clock(), name)
        captured_s = self._clock()
        return Picture(pixels, captured_s, self._wall_clock(), captured_s - started_s, name)

    def close(self) -> None:
        """Forget the list."""
        self._pictures = ()

    def _is_due(self, timeout_s: float) -> bool:
        """Wait for the schedule, and move it one picture on. More than a period late: it starts again from now."""
        early_s = self._due_s - self._clock()
        if early_s > 0:
            self._wait(min(early_s, timeout_s))
        now = self._clock()
        if now < self._due_s:
            return False
        is_left_behind = now - self._due_s > self._period_s
        self._due_s = (now if is_left_behind else self._due_s) + self._period_s
        return True


def list_pictures(path: Path) -> tuple[Path, ...]:
    """Every picture of a folder or glob (or the one file), in natural order. Raises SourceError."""
    try:
        if path.is_dir():
            found = list(path.iterdir())
        elif path.exists():
            found = [path]
        else:
            found = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207  Path.glob refuses absolute ones
        return tuple(sorted(filter(_is_picture, found), key=_natural))
    except OSError as error:
        raise SourceError(f"{path}: cannot be listed: {error.strerror}") from error


def read_picture(path: Path) -> Pixels:
    """Read one picture as BGR8, height × width × 3 (the rule stands above). Raises SourceError with a plain reason."""
    name = _printable(Path(path.name))
    try:
        size_bytes = path.stat().st_size
        if size_bytes > FILE_BYTES_MAX:
            raise SourceError(f"{name}: {size_bytes / 2**20:.0f} MB, more than {FILE_BYTES_MAX // 2**20} MB")
        data = np.fromfile(path, np.uint8)
    except FileNotFoundError as error:
        raise SourceError(f"{name}: the file is missing") from error
    except PermissionError as error:
        raise SourceError(f"{name}: no right to read the file") from error
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error.strerror}") from error
    if not data.size:
        raise SourceError(f"{name}: the file is empty")
    return _decode(name, data)


def _decode(name: str, data: NDArray[np.uint8]) -> Pixels:
    try:
        # ANYDEPTH keeps 16 bit, so that the shift is ours; COLOR makes three channels and applies the orientation.
        decoded = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    except cv2.error as error:
        raise SourceError(f"{name}: {_looks_like(data)}: {error.err}") from error
    if decoded is None:
        raise SourceError(f"{name}: {_looks_like(data)}")
    if decoded.dtype == np.uint16:
        return (np.asarray(decoded, np.uint16) >> 8).astype(np.uint8)
    if decoded.dtype != np.uint8:
        raise SourceError(f"{name}: its samples are {decoded.dtype}; uint8 or uint16 is needed")
    return np.ascontiguousarray(decoded, np.uint8)


def _looks_like(data: NDArray[np.uint8]) -> str:
    head = data[:4].tobytes()
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return f"a {kind} file, but truncated, damaged or of a kind that OpenCV cannot read"
    return "not a picture"


def _first_size(pictures: tuple[Path, ...]) -> tuple[int, int]:
    for path in pictures:
        try:
            height_px, width_px = read_picture(path).shape[:2]
        except SourceError:
            continue  # it gets its record when its turn comes
        return height_px, width_px
    return 1, 1


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()


def _natural(path: Path) -> tuple[list[list[str | int]], str]:
    parts = [re.split(r"(\d+)", part.casefold()) for part in path.parts]
    return [[int(word) if place % 2 else word for place, word in enumerate(words)] for words in parts], str(path)


def _printable(path: Path) -> str:
    """Return the path as text that JSON can carry, also where the name is not UTF-8."""
    return os.fsencode(path).decode(errors="replace")
