"""A net whose every answer names the picture that it was asked about, and the pictures to ask about.

So a result proves by itself that the inference of that very frame was made: the number of the picture stands in the
size of a box, and can come from nowhere but the pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from numpy.typing import NDArray
from openvino import opset13 as ops
from tests.faults.inject.op import ROW_VALUES, FaultOp

PICTURES = 250
"""Numbers 0…249; odd ones have a defect."""
SIDE_PX = 128
"""Twice the net's: there is something to scale."""
_INPUT_PX = 64
_WIDTH_PX, _WIDTH_PX_A_NUMBER = 6.0, 0.2
"""Of the box that tells the number, in px of the net's input."""
_ROWS, _DEFECT_ROW, _NUMBER_ROW = 8, 0, 1
MODEL: dict[str, Any] = {
    "task": "detect",
    "layout": "yolo-end2end",
    "classes": ["open", "number"],
    "precision": "f32",
    "confidence": 0.25,
    "input": {"color": "bgr", "scale": 255},
}
"""What the configuration says of it, beside its path."""


def save(path: Path) -> Path:
    """Write the net: a `yolo-end2end` head, with the operation as its last. Blue is the number, red the defect."""
    picture = ops.parameter([1, 3, _INPUT_PX, _INPUT_PX], ov.Type.f32, name="images")
    number, defect = (_middle_pixel(picture, channel) for channel in (0, 2))
    rows = np.zeros((_ROWS, ROW_VALUES), np.float32)
    rows[_DEFECT_ROW] = (10, 10, 20, 20, 0, 0)
    rows[_NUMBER_ROW] = (4, 30, 4 + _WIDTH_PX, 38, 0.4, 1)
    width = ops.multiply(_at(_NUMBER_ROW, 2, 255 * _WIDTH_PX_A_NUMBER), number)
    score = ops.multiply(_at(_DEFECT_ROW, 4, 0.9), defect)
    head = ops.add(ops.add(_constant(rows), width), score)
    model = ov.Model([ops.result(FaultOp([head.output(0)]).output(0))], [picture], "faulty")
    ov.save_model(model, path, compress_to_fp16=False)
    return path


def draw(folder: Path) -> Path:
    """Write every picture, in the order of their numbers."""
    folder.mkdir(parents=True)
    for number in range(PICTURES):
        pixels = np.full((SIDE_PX, SIDE_PX, 3), (number, 128, 255 * is_defective(number)), np.uint8)
        cv2.imwrite(str(folder / f"{number:03d}.png"), pixels)
    return folder


def is_defective(number: int) -> bool:
    """Whether a picture has a defect."""
    return number % 2 == 1


def number_in(result: Mapping[str, Any], model: str) -> int | None:
    """Which picture the model was asked about, by its own answer in a result; None: it gave none."""
    found: list[float] = [
        detection["bbox"]["w"]
        for detection in result["resultContent"]["detections"]
        if (detection["model"], detection["className"]) == (model, "number")
    ]
    if len(found) != 1:
        return None
    return round((found[0] * _INPUT_PX / SIDE_PX - _WIDTH_PX) / _WIDTH_PX_A_NUMBER)


def _middle_pixel(picture: Any, channel: int) -> Any:
    at = _INPUT_PX // 2
    pixel = ops.slice(picture, [channel, at, at], [channel + 1, at + 1, at + 1], [1, 1, 1], [1, 2, 3])
    return ops.reshape(pixel, [1, 1, 1], special_zero=False)


def _at(row: int, value: int, factor: float) -> Any:
    table = np.zeros((_ROWS, ROW_VALUES), np.float32)
    table[row, value] = factor
    return _constant(table)


def _constant(table: NDArray[np.float32]) -> Any:
    return ops.constant(table[None])
