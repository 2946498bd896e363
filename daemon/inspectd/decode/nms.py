"""Class-wise greedy non-maximum suppression. Pure NumPy, exact, in blocks so that noise cannot make it slow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GROUP = 32
"""Classes are taken together until they have so many boxes: pairs of one class are few, but each group costs a fixed
price of some 20 NumPy calls."""
_BLOCK = 128
"""Boxes of one group taken at once, best first. Most of a later block falls to what is kept already, so that the
comparison of a block with itself is small."""
_NOTHING = np.float32(0)

_Columns = NDArray[np.float32]
"""[6, k] x1 y1 x2 y2, area and class, each class's best box first."""


def suppress(
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    class_ids: NDArray[np.intp],
    iou: float,
    limit: int,
) -> NDArray[np.intp]:
    """Give the indexes of the boxes that stay, best first; equal scores keep their order.

    `boxes` is [k, 4] x1 y1 x2 y2 with x1 ≤ x2 and y1 ≤ y2. A box goes when it overlaps a better one of its own class
    by an IoU *greater* than `iou`. Where more than `limit` stay it gives `limit` + 1 of them, so that the caller can
    tell that there are too many: the work is bounded by `limit` × k.
    """
    if not len(scores):
        return np.empty(0, dtype=np.intp)
    by_score = np.argsort(-scores, kind="stable")
    rank = np.argsort(class_ids[by_score], kind="stable")
    order = by_score[rank]
    columns = np.empty((6, len(order)), np.float32)
    columns[:4] = boxes[order].T
    np.multiply(columns[2] - columns[0], columns[3] - columns[1], out=columns[4])
    columns[5] = class_ids[order]
    kept = [first + _keep(columns[:, first:end], iou, limit) for first, end in _groups(columns[5])]
    best: NDArray[np.intp] = by_score[np.sort(rank[np.concatenate(kept)])[: limit + 1]]
    return best


def _groups(classes: NDArray[np.float32]) -> list[tuple[int, int]]:
    """First and end of each group; a class is never divided."""
    ends = [*(np.flatnonzero(classes[1:] != classes[:-1]) + 1).tolist(), len(classes)]
    groups, first = [], 0
    for end in ends:
        if end - first >= _GROUP or end == len(classes):
            groups.append((first, end))
            first = end
    return groups


def _keep(columns: _Columns, iou: float, limit: int) -> NDArray[np.intp]:
    """Places in the group that stay."""
    places = np.arange(columns.shape[1])
    kept = places[:0]
    for start in range(0, len(places), _BLOCK):
        block = places[start : start + _BLOCK]
        if start:
            block = block[~_overlaps(columns[:, kept], columns[:, block], iou).any(axis=0)]
        of_block = columns[:, block]
        survivors = block[_survivors(_overlaps(of_block, of_block, iou))]
        kept = np.concatenate((kept, survivors)) if start else survivors
        if len(kept) > limit:
            break
    return kept


def _survivors(beats: NDArray[np.bool_]) -> list[int]:
    """Go down the rows, best first: who still stands takes those out that it overlaps.

    A row is one whole number, a bit per box: many times faster than as many NumPy calls.
    """
    packed = np.packbits(beats, axis=1, bitorder="little")
    width, rows = packed.shape[1], packed.tobytes()
    out = 0
    standing = []
    for place in range(len(beats)):
        if not out >> place & 1:
            standing.append(place)
            out |= int.from_bytes(rows[place * width : (place + 1) * width], "little")
    return standing


def _overlaps(rows: _Columns, columns: _Columns, iou: float) -> NDArray[np.bool_]:
    """[rows, columns]: same class and IoU > `iou`. Multiplied out, because two boxes without area have no union."""
    x1, y1, x2, y2, area, class_id = rows[:, :, None]
    both = np.minimum(x2, columns[2])
    spare = np.maximum(x1, columns[0])
    both -= spare
    height = np.minimum(y2, columns[3])
    height -= np.maximum(y1, columns[1], out=spare)
    np.maximum(both, _NOTHING, out=both)
    both *= np.maximum(height, _NOTHING, out=height)
    union = np.add(area, columns[4], out=spare)
    union -= both
    union *= iou
    over: NDArray[np.bool_] = both > union
    over &= class_id == columns[5]
    return over
