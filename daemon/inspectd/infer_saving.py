"""What `inspectd infer` keeps of its pictures: annotated ones, and those that a net really gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from inspectd.annotate import annotated
from inspectd.camera import Pixels
from inspectd.engine.slot import Canvas
from inspectd.infer import Save, SaveInput
from inspectd.picturefolder import PictureFolder
from inspectd.records import Detection


def annotated_into(folder: Path, images: Sequence[Path]) -> Save:
    """Each picture in its own size and format, with what was found drawn in.

    Raises OutsideError if there can be no such folder, and UsageError if an input lies in it.
    """
    pictures = PictureFolder(folder, images)

    def save(path: Path, pixels: Pixels, found: Sequence[Detection]) -> None:
        pictures.save(path.name, annotated(pixels, found))

    return save


def net_inputs_into(folder: Path, images: Sequence[Path], canvases: Mapping[str, Canvas]) -> SaveInput:
    """Each picture scaled and padded, as PNG, which keeps every px; of several models each in a folder of its own.

    Raises as `annotated_into` does. A net that wants RGB gets these px with red and blue exchanged.
    """
    folders = {
        model: PictureFolder(folder / model if len(canvases) > 1 else folder, images, ending=".png")
        for model in canvases
    }

    def save(path: Path, pixels: Pixels, model: str) -> None:
        canvas = canvases[model]
        canvas.fill(pixels)
        folders[model].save(path.name, canvas.pixels[0])

    return save
