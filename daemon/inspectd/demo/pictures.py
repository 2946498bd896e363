"""The demo's annotated pictures: drawn once more from seed and number, with what was found and what is really there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspectd.annotate import PALETTE, Caption, annotated
from inspectd.camera.boards.drawing import draw
from inspectd.config.schema import Configuration
from inspectd.demo.configuration import simulators
from inspectd.errors import UsageError
from inspectd.picturefolder import PictureFolder
from inspectd.records import Box, Detection, Evaluation, ResultState

COUNT = 50

_RED, _AMBER, _, _GREEN, _MAGENTA = PALETTE[:5]
_VERDICTS = {
    Evaluation.OK: ("OK", _GREEN),
    Evaluation.NOT_OK: ("NotOK", _RED),
    Evaluation.NOT_DECIDABLE: ("NotDecidable", _AMBER),
    Evaluation.UNDEFINED: ("Undefined", _MAGENTA),
}
"""The words and colours of the demo's table."""


class SavedPictures:
    """Notes the first 50 judged pictures; they are drawn at the end, when the daemon needs the processor no more."""

    def __init__(self, folder: Path, configuration: Configuration) -> None:
        """Raises UsageError if a camera is not simulated, and OutsideError if there can be no such folder."""
        self._sources = simulators(configuration)
        others = [name for name in configuration.cameras if name not in self._sources]
        if others:
            raise UsageError(
                f"demo --save: camera {others[0]} is not simulated, so that its pictures cannot be drawn once more; "
                "leave out --save, or annotate its files with `inspectd infer --save`"
            )
        # below every rule's threshold a detection decides nothing, and would hide what does
        self._least = min((rule.min_confidence or 0.0 for rule in configuration.decision.rules), default=0.0)
        self._folder = PictureFolder(folder)
        self._noted: list[Mapping[str, Any]] = []

    def add(self, result: Mapping[str, Any]) -> None:
        """Note one result message; one that is not completed has judged nothing."""
        if len(self._noted) < COUNT and result["resultState"] == ResultState.COMPLETED:
            self._noted.append(result)

    def write(self) -> int:
        """Draw and save what was noted; returns how many."""
        for result in self._noted:
            acquisition = result["acquisition"]
            camera, frame_id = str(acquisition["cameraId"]), int(acquisition["frameId"])
            source = self._sources[camera]
            pixels, truth = draw(source.seed, frame_id, source.width, source.height)
            word, colour = _VERDICTS[Evaluation(result["resultEvaluation"])]
            drawn = annotated(
                pixels,
                [
                    _detection(found)
                    for found in result["resultContent"]["detections"]
                    if found["confidence"] >= self._least
                ],
                truth=[Box(box.x, box.y, box.w, box.h) for box in truth],
                caption=Caption(f"{word}  {camera} {frame_id}", colour),
            )
            self._folder.save(f"{camera}-{frame_id:06d}.png", drawn)
        return len(self._noted)


def _detection(found: Mapping[str, Any]) -> Detection:
    return Detection(
        int(found["classId"]),
        str(found["className"]),
        float(found["confidence"]),
        Box(**found["bbox"]),
        str(found["model"]),
    )
