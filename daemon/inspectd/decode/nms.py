"""Class-wise greedy non-maximum suppression. Pure NumPy, exact, in blocks so that noise cannot make it slow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK = 128
"""Candidates taken at once, best first. Most of a later block falls to what is kept already, so that the comparison of
a block with itself is small."""


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
    x1, y1, x2, y2 = np.ascontiguousarray(boxes[order].T)
    ranked = _Boxes(x1, y1, x2, y2, (x2 - x1) * (y2 - y1), class_ids[order])
    kept = np.empty(0, dtype=np.intp)
    for start in range(0, len(order), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(order)))
        block = block[~_overlaps(ranked, kept, block, iou).any(axis=0)]
        beats = np.triu(_overlaps(ranked, block, block, iou), 1)
        alive = np.ones(len(block), dtype=np.bool_)
        for place in np.flatnonzero(beats.any(axis=1)):
            if alive[place]:
                alive &= ~beats[place]
        kept = np.concatenate((kept, block[alive]))
        if len(kept) > limit:
            kept = kept[: limit + 1]
            break
    best: NDArray[np.intp] = order[kept]
    return best


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Columns, best box first."""

    x1: NDArray[np.float32]
    y1: NDArray[np.float32]
    x2: NDArray[np.float32]
    y2: NDArray[np.float32]
    area: NDArray[np.float32]
    class_id: NDArray[np.intp]


def _overlaps(boxes: _Boxes, rows: NDArray[np.intp], columns: NDArray[np.intp], iou: float) -> NDArray[np.bool_]:
    """[rows, columns]: same class and IoU > `iou`. Multiplied out, because two boxes without area have no union."""
    a = rows[:, None]
    both = np.minimum(boxes.x2[a], boxes.x2[columns])
    both -= np.maximum(boxes.x1[a], boxes.x1[columns])
    height = np.minimum(boxes.y2[a], boxes.y2[columns])
    height -= np.maximum(boxes.y1[a], boxes.y1[columns])
    np.maximum(both, 0, out=both)
    both *= np.maximum(height, 0, out=height)
    union = boxes.area[a] + boxes.area[columns]
    union -= both
    union *= iou
    over: NDArray[np.bool_] = both > union
    over &= boxes.class_id[a] == boxes.class_id[columns]
    return over
