"""Layout `yolo-end2end`: [1, M, 6] x1 y1 x2 y2 px, score, class, zero rows at the end. Needs no NMS, or has had it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    require_centres,
    require_count,
    require_finite,
    require_px,
    require_scores,
)
from inspectd.errors import OutputError

_CLASS_SLACK = 0.01
"""A class index is a whole number; half precision still gives it exactly up to 2048."""


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Rows at or above the confidence, best first. Zero rows fall below it by their score."""
    rows = _rows(outputs)
    require_finite(rows)
    require_scores(rows[:, 4])
    kept = rows[rows[:, 4] >= reading.confidence]
    require_count(len(kept))
    kept = kept[np.argsort(-kept[:, 4], kind="stable")]
    corners = np.concatenate((np.minimum(kept[:, :2], kept[:, 2:4]), np.maximum(kept[:, :2], kept[:, 2:4])), axis=1)
    return Found(corners, kept[:, 4].copy(), _class_ids(kept[:, 5], reading.class_count))


def check(outputs: Outputs, reading: Reading) -> None:
    """Every row's class exists, the boxes are px, and what is found lies in the input."""
    rows = _rows(outputs)
    found = decode(outputs, reading)
    _class_ids(rows[:, 5], reading.class_count)
    require_px(rows[rows[:, 4] > 0, :4], reading)
    require_centres(found, reading)


def _rows(outputs: Outputs) -> NDArray[np.float32]:
    shape = outputs[0].shape
    if len(outputs) != 1 or len(shape) != 3 or shape[0] != 1 or shape[2] != 6:
        raise OutputError(
            f"output {[list(output.shape) for output in outputs]}, expected [1, M, 6]: 4 box values, score and class"
        )
    return outputs[0].reshape(-1, 6)


def _class_ids(values: NDArray[np.float32], class_count: int) -> NDArray[np.intp]:
    ids = np.rint(values).astype(np.intp)
    wrong = (np.abs(values - ids) > _CLASS_SLACK) | (ids < 0) | (ids >= class_count)
    if wrong.any():
        raise OutputError(
            f"class index {float(values[wrong][0]):g}, expected a whole number from 0 to {class_count - 1}"
        )
    return ids


DECODER = Decoder(decode, check)
