"""What `inspectd check`, `show` and `schema` print. Opens no device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspectd.config.load import Loaded, load
from inspectd.config.onsite import first_picture
from inspectd.config.plan import plan
from inspectd.config.schema import Camera, FilesSource, VideoSource
from inspectd.config.show import as_yaml
from inspectd.config.suggest import json_schema
from inspectd.errors import ConfigurationError, SourceError

EXIT_OK = 0
EXIT_CONFIGURATION = 78


def check(path: Path, as_path: Path | None, env: Mapping[str, str]) -> tuple[int, str]:
    """Give the exit code and what to print: every fault, or the warnings and the plan."""
    try:
        loaded = load(path, as_path=as_path, env=env, video_fault=_video_fault)
    except ConfigurationError as error:
        count = len(error.faults)
        return EXIT_CONFIGURATION, "\n".join([*error.faults, f"{count} {'fault' if count == 1 else 'faults'}"])
    measured = {name: _measured(camera) for name, camera in loaded.configuration.cameras.items()}
    worked_out = plan(
        loaded.configuration,
        {name: size_px for name, (size_px, _) in measured.items()},
        cores=len(os.sched_getaffinity(0)),
        own_fps={name: fps for name, (_, fps) in measured.items() if fps is not None},
    )
    warnings = [f"{warning} (warning)" for warning in loaded.warnings]
    return EXIT_OK, "\n".join([*warnings, _summary(loaded), worked_out.text()])


def show(path: Path, env: Mapping[str, str]) -> str:
    """Give the effective configuration as YAML. Raises ConfigurationError."""
    return as_yaml(load(path, env=env).configuration)


def schema() -> dict[str, Any]:
    """Give the JSON Schema (2020-12) of the YAML, for editors and for Ansible."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "inspectd.yaml",
        **{key: value for key, value in json_schema().items() if key != "title"},
    }


def _summary(loaded: Loaded) -> str:
    count = len(loaded.warnings)
    doubts = f", {count} {'warning' if count == 1 else 'warnings'}" if count else ""
    return f"{loaded.path}: no fault{doubts}; state in {loaded.storage_path}; SHA-256 {loaded.sha256[:16]}…"


def _video_fault(path: Path) -> str | None:
    from inspectd.camera.videofile import read_head  # OpenCV: only this command needs it, the daemon's main does not

    try:
        read_head(path)
    except SourceError as error:
        return str(error)
    return None


def _measured(camera: Camera) -> tuple[tuple[int, int] | None, float | None]:
    """Give width and height (None: not known), and the rate of a video that keeps its own."""
    source = camera.source
    if isinstance(source, FilesSource):
        return _first_size_px(source), None
    if not isinstance(source, VideoSource):
        return (source.width, source.height), None
    from inspectd.camera.videofile import read_head

    head = read_head(source.path)
    size_px = head.width_px, head.height_px
    if source.pace != "own" or source.fps is not None or head.fps is None:
        return size_px, None
    return size_px, camera.limited_fps(head.fps)


def _first_size_px(source: FilesSource) -> tuple[int, int] | None:
    from inspectd.camera.files import read_picture

    first = first_picture(source.path)
    try:
        pixels = None if first is None else read_picture(first)
    except SourceError:
        return None  # such a file is a record of its own (405) when its turn comes
    return None if pixels is None else (pixels.shape[1], pixels.shape[0])
