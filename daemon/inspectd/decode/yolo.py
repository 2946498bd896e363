"""Layout `yolo`: [1, 4 + nc, N] cx cy w h px and a score per class (YOLOv5u, v8, v9, 11, 12, and v10/26 by default)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    KEPT_MAX,
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
from inspectd.decode.nms import suppress
from inspectd.errors import OutputError

_CANDIDATES_MAX = 10_000
"""Rows at or above the confidence, before NMS. Real pictures give tens to hundreds. Beyond this the frame is given up
rather than the weakest rows dropped: one of them may be the only one of its class."""


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Each row's best class, at or above the confidence, after class-wise NMS."""
    table = _table(outputs, reading)
    require_finite(table)
    scores = table[4:]
    best = scores.max(axis=0)
    rows = np.flatnonzero(best >= reading.confidence)
    if len(rows) > _CANDIDATES_MAX:
        raise OutputError(
            f"{len(rows)} of {table.shape[1]} rows reach confidence {reading.confidence:g} (limit {_CANDIDATES_MAX}): "
            "noise, or the confidence is too low"
        )
    best = best[rows]
    require_scores(best)
    class_ids = scores[:, rows].argmax(axis=0)
    boxes = _corners(table[:4, rows])
    keep = suppress(boxes, best, class_ids, reading.iou, KEPT_MAX)
    require_count(len(keep))
    return Found(boxes[keep], best[keep], class_ids[keep])


def check(outputs: Outputs, reading: Reading) -> None:
    """All scores are probabilities, the boxes are px, and what is found lies in the input."""
    table = _table(outputs, reading)
    require_finite(table)
    require_scores(table[4:])
    require_px(table[:4].T, reading)
    require_centres(decode(outputs, reading), reading)


def _table(outputs: Outputs, reading: Reading) -> NDArray[np.float32]:
    """[4 + nc, N], contiguous. Some exporters write it transposed, which only the known width can tell."""
    width = 4 + reading.class_count
    shape = outputs[0].shape
    if len(outputs) == 1 and len(shape) == 3 and shape[0] == 1:
        if shape[1] == width:
            return outputs[0].reshape(width, -1)
        if shape[2] == width:
            return np.ascontiguousarray(outputs[0].reshape(-1, width).T)
    raise OutputError(
        f"output {[list(output.shape) for output in outputs]}, expected [1, {width}, N]: 4 box values and "
        f"{reading.class_count} classes"
    )


def _corners(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """[4, k] cx cy w h → [k, 4] x1 y1 x2 y2. Heads without a distribution can give a weak row a negative size."""
    centre, half = boxes[:2], np.abs(boxes[2:]) * np.float32(0.5)
    corners: NDArray[np.float32] = np.concatenate((centre - half, centre + half)).T
    return corners


DECODER = Decoder(decode, check)
