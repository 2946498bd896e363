"""Class-wise greedy non-maximum suppression. Pure NumPy, exact, in blocks so that noise cannot make it slow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 256
"""Candidates compared with each other at once: a 256 × 256 matrix stays in the CPU's cache."""


def suppress(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    class_ids: NDArray[np.intp],
    iou: float,
    limit: int,
) -> NDArray[np.intp]:
    """Give the indexes of the boxes that stay, best first; equal scores keep their order.

    `boxes` is [k, 4] x1 y1 x2 y2 with x1 ≤ x2 and y1 ≤ y2. A box goes when it overlaps a better one of its own class
    by an IoU *greater* than `iou`. Stops at `limit` + 1, so that the caller can tell that there are too many: the work
    is bounded by `limit` × k.
    """
    order = np.argsort(-scores, kind="stable")
    kept = np.empty(0, dtype=np.intp)
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        alive = np.logical_not(_overlaps(boxes, class_ids, kept, block, iou).any(axis=0))
        beats = np.triu(_overlaps(boxes, class_ids, block, block, iou), 1)
        for place in np.flatnonzero(beats.any(axis=1)):
            if alive[place]:
                alive &= ~beats[place]
        kept = np.concatenate((kept, block[alive]))
        if len(kept) > limit:
            return kept[: limit + 1]
    return kept


def _overlaps(
    boxes: NDArray[np.float32],
    class_ids: NDArray[np.intp],
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    iou: float,
) -> NDArray[np.bool_]:
    """[rows, columns]: same class and IoU > `iou`. Multiplied out, because two boxes without area have no union."""
    a, b = boxes[rows], boxes[columns]
    x1, y1, x2, y2 = (a[:, None, side] for side in range(4))
    width = np.minimum(x2, b[:, 2]) - np.maximum(x1, b[:, 0])
    height = np.minimum(y2, b[:, 3]) - np.maximum(y1, b[:, 1])
    both = np.maximum(width, 0) * np.maximum(height, 0)
    union = _areas(a)[:, None] + _areas(b) - both
    over: NDArray[np.bool_] = (both > iou * union) & (class_ids[rows][:, None] == class_ids[columns])
    return over


def _areas(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    areas: NDArray[np.float32] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
