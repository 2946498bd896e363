"""Layouts `yolo-end2end` and `-seg`: [1, M, 6 (+ 32)] x1 y1 x2 y2 px, score, class, zero rows at the end.

Needs no NMS, or has had it. Mask coefficients and prototypes are not looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    best_first,
    ordered,
    require_centres,
    require_finite,
    require_px,
    require_scores,
    require_shape,
    whole_class_ids,
)

_MASK_COEFFICIENTS = 32


def decode(outputs: Outputs, reading: Reading, extra: int = 0) -> Found:
    """Rows at or above the confidence, best first. Zero rows fall below it by their score."""
    rows = _rows(outputs, extra)
    require_finite(rows)
    require_scores(rows[:, 4])
    kept = rows[rows[:, 4] >= reading.confidence]
    return best_first(ordered(kept), kept[:, 4], whole_class_ids(kept[:, 5]))


def check(outputs: Outputs, reading: Reading, extra: int = 0) -> None:
    """Every row's class is one, the boxes are px, and what is found lies in the input."""
    rows = _rows(outputs, extra)
    found = decode(outputs, reading, extra)
    whole_class_ids(rows[:, 5])
    require_px(rows[rows[:, 4] > 0, :4], reading)
    require_centres(found, reading)


def _rows(outputs: Outputs, extra: int) -> NDArray[np.float32]:
    width = 6 + extra
    require_shape(outputs[0], (1, None, width), "4 box values, score and class" + (" and masks" if extra else ""))
    return outputs[0].reshape(-1, width)


DECODER = Decoder(decode, check)
MASKED = Decoder(
    lambda outputs, reading: decode(outputs, reading, _MASK_COEFFICIENTS),
    lambda outputs, reading: check(outputs, reading, _MASK_COEFFICIENTS),
)
