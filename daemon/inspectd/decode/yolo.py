"""Layouts `yolo` and `yolo-seg`: [1, 4 + nc, N] cx cy w h px and a score per class (YOLOv5u, v8, v9, 11, 12, v10/26).

`yolo-seg` has 32 mask coefficients more in each row; they and the prototypes are not looked at.
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
)
from inspectd.decode.candidates import after_nms, strong
from inspectd.errors import OutputError

_MASK_COEFFICIENTS = 32


def decode(outputs: Outputs, reading: Reading, extra: int = 0) -> Found:
    """Each row's best class, at or above the confidence, after class-wise NMS."""
    table = _table(outputs, reading, extra)
    require_finite(table)
    scores = table[4 : 4 + reading.class_count]
    best = scores.max(axis=0)
    rows = strong(best, reading)
    return after_nms(corners(table[:4, rows].T), best[rows], scores[:, rows].argmax(axis=0), reading)


def check(outputs: Outputs, reading: Reading, extra: int = 0) -> None:
    """All scores are probabilities, the boxes are px, and what is found lies in the input."""
    table = _table(outputs, reading, extra)
    require_finite(table)
    require_scores(table[4 : 4 + reading.class_count])
    require_px(table[:4].T, reading)
    require_centres(decode(outputs, reading, extra), reading)


def _table(outputs: Outputs, reading: Reading, extra: int) -> NDArray[np.float32]:
    """[4 + nc (+ 32), N], contiguous. Some exporters write it transposed, which only the known width can tell."""
    width = 4 + reading.class_count + extra
    shape = outputs[0].shape
    if len(shape) == 3 and shape[0] == 1:
        if shape[1] == width:
            return outputs[0].reshape(width, -1)
        if shape[2] == width:
            return np.ascontiguousarray(outputs[0].reshape(-1, width).T)
    masks = f" and {extra} mask coefficients" if extra else ""
    raise OutputError(
        f"output {list(shape)}, expected [1, {width}, N]: 4 box values, {reading.class_count} classes{masks}"
    )


DECODER = Decoder(decode, check)
MASKED = Decoder(
    lambda outputs, reading: decode(outputs, reading, _MASK_COEFFICIENTS),
    lambda outputs, reading: check(outputs, reading, _MASK_COEFFICIENTS),
)
