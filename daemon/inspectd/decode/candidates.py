"""What the layouts share that need NMS: the rows that reach the confidence, and what is left of them. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import KEPT_MAX, Found, Reading, require_count, require_scores
from inspectd.decode.nms import suppress
from inspectd.errors import OutputError

_CANDIDATES_MAX = 10_000
"""Rows at or above the confidence, before NMS. Real pictures give tens to hundreds. Beyond this the frame is given up
rather than the weakest rows dropped: one of them may be the only one of its class."""


def strong(scores: NDArray[np.float32], reading: Reading) -> NDArray[np.intp]:
    """Places of the scores at or above the confidence. Raises OutputError where they are too many."""
    rows = np.flatnonzero(scores >= reading.confidence)
    if len(rows) > _CANDIDATES_MAX:
        raise OutputError(
            f"{len(rows)} of {len(scores)} rows reach confidence {reading.confidence:g} (limit {_CANDIDATES_MAX}): "
            "noise, or the confidence is too low"
        )
    return rows


def after_nms(
    boxes: NDArray[np.float32], scores: NDArray[np.float32], class_ids: NDArray[np.intp], reading: Reading
) -> Found:
    """Class-wise NMS on candidates, [k, 4] x1 y1 x2 y2 px."""
    require_scores(scores)
    keep = suppress(boxes, scores, class_ids, reading.iou, KEPT_MAX)
    require_count(len(keep))
    return Found(boxes[keep], scores[keep], class_ids[keep])
