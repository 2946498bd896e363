"""A folder that pictures are saved in, under the names of those that they were made from. Never touches an input."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cv2

from inspectd.camera import Pixels
from inspectd.camera.files import ENDINGS
from inspectd.errors import OutsideError, UsageError

_JPEG_QUALITY = 95
_OPTIONS = {ending: [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY] for ending in (".jpg", ".jpeg")}


class PictureFolder:
    """Made when it is not there. Two pictures of one name in one run: the second becomes `name-2`."""

    def __init__(self, folder: Path, inputs: Iterable[Path] = (), *, ending: str | None = None) -> None:
        """`ending`: of every file in it (`.png`: without loss); None: each keeps its own.

        Raises OutsideError, and UsageError if an input lies where its own copy would.
        """
        self._folder, self._ending = folder, ending
        inputs = tuple(inputs)
        self._inputs = {path.resolve() for path in inputs}
        self._same_files = {_identity(path) for path in inputs} - {None}
        self._used: set[str] = set()
        for path in inputs:
            self._refuse_input(folder / "".join(self._parts(path.name)))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutsideError(f"{folder}: cannot be made: {error.strerror}; give another folder") from error

    def save(self, name: str, pixels: Pixels) -> Path:
        """Write a picture. Raises UsageError where an input lies under that name, and OutsideError."""
        path = self._free(name)
        self._refuse_input(path)
        ok, data = cv2.imencode(path.suffix, pixels, _OPTIONS.get(path.suffix.lower(), []))
        if not ok:
            raise OutsideError(f"{path}: OpenCV cannot write {path.suffix} files")
        try:
            path.write_bytes(data.tobytes())
        except OSError as error:
            raise OutsideError(f"{path}: cannot be written: {error.strerror}") from error
        return path

    def _refuse_input(self, path: Path) -> None:
        if path.resolve() in self._inputs or _identity(path) in self._same_files:
            raise UsageError(f"{path} is one of the pictures to read: give another folder than {self._folder}")

    def _free(self, name: str) -> Path:
        stem, ending = self._parts(name)
        number, free = 1, f"{stem}{ending}"
        while free.casefold() in self._used:
            number += 1
            free = f"{stem}-{number}{ending}"
        self._used.add(free.casefold())
        return self._folder / free

    def _parts(self, name: str) -> tuple[str, str]:
        """Stem and ending of the file; a name that says no format gets .png behind it."""
        path = Path(name)
        if path.suffix.lower() not in ENDINGS:
            return name, self._ending or ".png"
        return path.stem, self._ending or path.suffix


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of a file: also a hard link to an input is that input."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
