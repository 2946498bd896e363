"""Layout `rtdetr`: [1, M, 6] cx cy w h in 0..1, score, class (RT-DETR of Ultralytics, recent). Needs no NMS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    best_first,
    corners,
    in_px,
    require_centres,
    require_finite,
    require_fractions,
    require_scores,
    require_shape,
    whole_class_ids,
)


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Rows at or above the confidence, best first."""
    rows = _rows(outputs)
    require_finite(rows)
    require_scores(rows[:, 4])
    kept = rows[rows[:, 4] >= reading.confidence]
    return best_first(in_px(corners(kept), reading), kept[:, 4], whole_class_ids(kept[:, 5]))


def check(outputs: Outputs, reading: Reading) -> None:
    """Every row's class is one, the boxes are fractions, and what is found lies in the input."""
    found, rows = decode(outputs, reading), _rows(outputs)
    whole_class_ids(rows[:, 5])
    require_fractions(rows[:, :4])
    require_centres(found, reading)


def _rows(outputs: Outputs) -> NDArray[np.float32]:
    require_shape(outputs[0], (1, None, 6), "4 box values, score and class")
    return outputs[0].reshape(-1, 6)


DECODER = Decoder(decode, check)
