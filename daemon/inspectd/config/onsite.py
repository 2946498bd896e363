"""Checks against this PC: models, pictures, videos, secrets, certificates, time zones. Opens no device."""

from __future__ import annotations

import glob
import os
import stat
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path

from inspectd.config.checks_rules import canonical
from inspectd.config.faults import Fault, KeyPath, listed, shown
from inspectd.config.modelfile import SUFFIXES, hashes_of, parts_of
from inspectd.config.schema import Configuration, FilesSource, Model, Tls, VideoSource
from inspectd.config.suggest import did_you_mean

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
"""As `camera.files.ENDINGS`; not imported from there, since main loads no OpenCV. A test compares the two."""
VIDEO_ENDINGS = (".mp4", ".avi", ".mkv")
"""As `camera.videofile.ENDINGS`, for the same reason."""
_OPEN_TO_OTHERS = stat.S_IRWXO | stat.S_IWGRP

ClassesOf = Callable[[Path], tuple[str, ...] | None]
VideoFault = Callable[[Path], str | None]
"""Opens a video and says what is wrong with it; only `check` does, since main loads no OpenCV."""


def known_classes(configuration: Configuration, classes_of: ClassesOf) -> dict[str, tuple[str, ...]]:
    """Give the class names of every model of which file or configuration tells them. The file's spelling wins."""
    classes = {name: classes_of(model.path) or model.classes for name, model in configuration.models.items()}
    return {name: found for name, found in classes.items() if found}


def onsite_checks(
    configuration: Configuration, classes_of: ClassesOf, video_fault: VideoFault | None = None
) -> Iterator[Fault]:
    """Give every fault of this kind. Paths in `configuration` are absolute."""
    yield from _time_zone(configuration.station.time_zone)
    if configuration.mqtt.password_file is not None:
        yield from _secret_file(("mqtt", "password_file"), configuration.mqtt.password_file, "password")
    if configuration.mqtt.tls is not None:
        yield from _tls_files(configuration.mqtt.tls)
    for name, model in configuration.models.items():
        yield from _model_file(("models", name), model, classes_of)
    places: dict[str, str] = {}
    for name, camera in configuration.cameras.items():
        if isinstance(camera.source, FilesSource | VideoSource):
            key = ("cameras", name, "source", "path")
            if isinstance(camera.source, FilesSource):
                yield from _pictures(key, camera.source.path)
            else:
                yield from _video(key, camera.source.path, video_fault)
            place = os.path.realpath(camera.source.path)
            if place in places:
                yield Fault(
                    key,
                    f"camera {places[place]} has the same path ({place}); a device serves one camera: give this one "
                    "another, or list both models under one camera",
                    depends=(("cameras", places[place], "source"),),
                )
            places.setdefault(place, name)


def first_picture(path: Path) -> Path | None:
    """Give some picture of a folder or glob (or the file itself), or None. Raises OSError."""
    if path.is_dir():
        with os.scandir(path) as entries:
            names: list[str] = sorted(entry.path for entry in entries)
    else:
        names = [str(path)] if path.exists() else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  Path.glob refuses absolute ones
    for name in names:
        candidate = Path(name)
        if candidate.suffix.lower() in PICTURE_ENDINGS and not candidate.name.startswith(".") and candidate.is_file():
            return candidate
    return None


def _time_zone(name: str) -> Iterator[Fault]:
    if name == "UTC":
        return
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        names = zoneinfo.available_timezones()
        cure = did_you_mean(name, names) or "; give one such as Asia/Shanghai or UTC"
        if not names:
            cure = "; this PC has no time zones at all: install the package tzdata"
        yield Fault(("station", "time_zone"), f"there is no time zone {shown(name)}{cure}")


def _secret_file(key: KeyPath, path: Path, secret: str) -> Iterator[Fault]:
    """Look at existence and mode only: the content is neither read nor told."""
    try:
        status = path.stat()
    except OSError as error:
        yield Fault(key, f"{path} cannot be found ({error.strerror}); put the {secret} there, mode 0600")
        return
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        yield Fault(key, f"{path} is not a regular file; give a file that holds the {secret}")
    elif mode & _OPEN_TO_OTHERS:
        yield Fault(key, f"{path} has mode {mode:04o}, so that others get at the {secret}; `chmod 600` it (or 640)")


def _tls_files(tls: Tls) -> Iterator[Fault]:
    if tls.key_file is not None:
        yield from _secret_file(("mqtt", "tls", "key_file"), tls.key_file, "key")
    for name, path in (("ca_file", tls.ca_file), ("cert_file", tls.cert_file)):
        if path is None:
            continue
        key = ("mqtt", "tls", name)
        try:
            content = path.read_bytes()
        except OSError as error:
            what = f"{path} cannot be read by user id {os.geteuid()} ({error.strerror}); put the certificate there"
            yield Fault(key, what)
            continue
        if b"-----BEGIN CERTIFICATE-----" not in content:
            yield Fault(
                key,
                f"{path} holds no certificate in PEM form; convert it: `openssl x509 -inform der -in FILE -out PEM`",
            )


def _model_file(key: KeyPath, model: Model, classes_of: ClassesOf) -> Iterator[Fault]:
    path = model.path
    if path.suffix.lower() not in SUFFIXES:
        yield Fault(
            (*key, "path"), f"{path} is no model that inspectd reads; export it to OpenVINO .xml with .bin, or to .onnx"
        )
        return
    faults = [fault for part in parts_of(path) for fault in _readable((*key, "path"), part, path)]
    yield from faults
    if faults:
        return
    if model.sha256 is not None and model.sha256 not in (hashes := hashes_of(path)):
        yield Fault(
            (*key, "sha256"),
            f"{path} has {hashes[-1]}; put the right file there, or correct this if the new one is meant",
            depends=((*key, "path"),),
        )
    said = classes_of(path)
    if said and model.classes and list(map(canonical, said)) != list(map(canonical, model.classes)):
        yield Fault(
            (*key, "classes"),
            f"this says {listed(model.classes)}, the file {path} says {listed(said)}; correct or remove this",
            depends=((*key, "path"),),
        )


def _readable(key: KeyPath, part: Path, path: Path) -> Iterator[Fault]:
    try:
        with part.open("rb") as stream:
            is_empty = not stream.read(1)
    except FileNotFoundError:
        if part != path and path.exists():
            yield Fault(key, f"{part} is missing; an OpenVINO model is two files, copy the .bin beside {path.name}")
        elif part == path:
            others = _neighbours(path)
            near = did_you_mean(path.name, others) or (f"; there is {listed(others[:8])}" if others else "")
            yield Fault(key, f"{path} does not exist{near}")
    except OSError as error:
        yield Fault(key, f"{part} cannot be read by user id {os.geteuid()} ({error.strerror}); give a file that can")
    else:
        if is_empty and part == path:
            yield Fault(key, f"{path} is empty; copy the model again")


def _neighbours(path: Path) -> list[str]:
    try:
        return sorted(other.name for other in path.parent.iterdir() if other.suffix.lower() in SUFFIXES)
    except OSError:
        return []


def _pictures(key: KeyPath, path: Path) -> Iterator[Fault]:
    try:
        found = first_picture(path)
    except OSError as error:
        yield Fault(key, f"{path} cannot be listed by user id {os.geteuid()} ({error.strerror})")
        return
    if found is not None:
        return
    if path.exists():
        what = "holds no picture (folders in it are not searched)"
    else:
        what = "matches nothing" if glob.has_magic(str(path)) else "does not exist"
    yield Fault(key, f"{path} {what}; give a folder or glob with pictures ({' '.join(PICTURE_ENDINGS)})")


def _video(key: KeyPath, path: Path, video_fault: VideoFault | None) -> Iterator[Fault]:
    try:
        is_file = path.is_file()
        with path.open("rb") as stream:
            is_empty = not stream.read(1)
    except OSError as error:
        yield Fault(key, f"{path} cannot be read by user id {os.geteuid()} ({error.strerror}); give a video file")
        return
    if not is_file or path.suffix.lower() not in VIDEO_ENDINGS:
        yield Fault(key, f"{path} is no video; give a file that ends in {' '.join(VIDEO_ENDINGS)}")
    elif is_empty:
        yield Fault(key, f"{path} is empty; copy the video again")
    elif video_fault is not None and (what := video_fault(path)) is not None:
        yield Fault(key, what)
