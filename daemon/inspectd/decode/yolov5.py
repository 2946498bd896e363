"""Layouts `yolov5`, `yolov5-seg` and `yolox-decoded`: [1, N, 5 + nc (+ 32)] cx cy w h px, objectness, scores.

The score is objectness × class. Both need NMS; they differ in their rows: three anchors a cell or one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    corners,
    require_centres,
    require_finite,
    require_px,
    require_scores,
    require_shape,
)
from inspectd.decode.candidates import after_nms, strong
from inspectd.decode.grid import cells
from inspectd.errors import OutputError

_MASK_COEFFICIENTS = 32
_FAR_CELLS = 32.0
"""A decoded centre lies a few cells from its own; raw numbers lie near the corner of the input, so that half of the
rows would be further off than this."""


def decode(outputs: Outputs, reading: Reading, extra: int = 0) -> Found:
    """Each row's best class, at or above the confidence, after class-wise NMS."""
    return of_rows(rows_of(outputs, reading, extra), reading)


def check(outputs: Outputs, reading: Reading, extra: int = 0) -> None:
    """Objectness and scores are probabilities, the boxes are px, and what is found lies in the input."""
    rows = rows_of(outputs, reading, extra)
    require_finite(rows)
    require_scores(rows[:, 4 : 5 + reading.class_count])
    require_px(rows[:, :4], reading)
    require_centres(of_rows(rows, reading), reading)


def check_decoded_yolox(outputs: Outputs, reading: Reading) -> None:
    """As `check`, and each row's centre lies near the cell that the row belongs to."""
    rows = rows_of(outputs, reading, 0)
    grid = cells(reading.input_width_px, reading.input_height_px)
    if len(grid) == len(rows):
        off = np.abs(rows[:, :2] - grid[:, :2] * grid[:, 2:]).max(axis=1) / grid[:, 2]
        if float(np.median(off)) > _FAR_CELLS:
            raise OutputError(
                f"half of the boxes lie more than {float(np.median(off)):.0f} cells from their own, expected a few: "
                "the rows are not decoded (`layout: yolox`), or the net wants its picture in another scale (`input`)"
            )
    check(outputs, reading)


def rows_of(outputs: Outputs, reading: Reading, extra: int) -> NDArray[np.float32]:
    """[N, 5 + nc (+ 32)]. Raises OutputError."""
    width = 5 + reading.class_count + extra
    require_shape(
        outputs[0], (1, None, width), f"4 box values, objectness, {reading.class_count} classes, {extra} more"
    )
    return outputs[0].reshape(-1, width)


def of_rows(rows: NDArray[np.float32], reading: Reading) -> Found:
    """Boxes of decoded rows. No class score is above 1, so that the objectness alone sorts most rows out."""
    require_finite(rows)
    require_scores(rows[:, 4])
    rows = rows[strong(rows[:, 4], reading)]
    classes = rows[:, 5 : 5 + reading.class_count]
    require_scores(classes)
    scores = classes * rows[:, 4:5]
    best = scores.max(axis=1)
    kept = strong(best, reading)
    return after_nms(corners(rows[kept, :4]), best[kept], scores[kept].argmax(axis=1), reading)


DECODER = Decoder(decode, check)
MASKED = Decoder(
    lambda outputs, reading: decode(outputs, reading, _MASK_COEFFICIENTS),
    lambda outputs, reading: check(outputs, reading, _MASK_COEFFICIENTS),
)
YOLOX_DECODED = Decoder(decode, check_decoded_yolox)
