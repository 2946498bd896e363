"""The table of sources: kind → how to make one from its slice of the configuration. Imports only what is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspectd.camera import Source
from inspectd.errors import SourceError


def _files(camera: str, options: dict[str, Any]) -> Source:
    from inspectd.camera.files import Files

    return Files(
        camera, Path(options["path"]), fps=options["fps"], loop=options["loop"], lossless=options["pace"] == "lossless"
    )


def _simulator(camera: str, options: dict[str, Any]) -> Source:
    from inspectd.camera.simulator import Simulator

    return Simulator(
        camera,
        seed=options["seed"],
        width_px=options["width"],
        height_px=options["height"],
        fps=options["fps"],
        lossless=options["pace"] == "lossless",
        count=options["count"],
    )


def _video(camera: str, options: dict[str, Any]) -> Source:
    from inspectd.camera.video import Video

    return Video(
        camera,
        Path(options["path"]),
        fps=options["fps"],
        max_fps=options["max_fps"],
        loop=options["loop"],
        lossless=options["pace"] == "lossless",
    )


SIMULATED_KINDS = frozenset({"files", "simulator", "video"})
"""Pictures of these are not of a part that passes now: they never count as production."""
_SOURCES: dict[str, Callable[[str, dict[str, Any]], Source]] = {
    "files": _files,
    "simulator": _simulator,
    "video": _video,
}


def create_source(camera: str, options: dict[str, Any]) -> Source:
    """Make the source of `options["kind"]`; it is not open yet. Raises SourceError for an unknown kind."""
    try:
        make = _SOURCES[options["kind"]]
    except KeyError:
        raise SourceError(f"{camera}: there is no source of kind {options['kind']!r}") from None
    return make(camera, options)
