"""Class-wise greedy NMS."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from inspectd.decode.nms import suppress

Boxes = NDArray[np.float32]


def slow(boxes: Boxes, scores: Boxes, class_ids: NDArray[np.intp], iou: float) -> list[int]:
    """Do it the textbook's way, one pair at a time."""
    kept: list[int] = []
    for place in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        box = boxes[place]
        for better in kept:
            other = boxes[better]
            width = max(min(box[2], other[2]) - max(box[0], other[0]), 0)
            height = max(min(box[3], other[3]) - max(box[1], other[1]), 0)
            union = (box[2] - box[0]) * (box[3] - box[1]) + (other[2] - other[0]) * (other[3] - other[1])
            union -= width * height
            if class_ids[better] == class_ids[place] and union > 0 and width * height > iou * union:
                break
        else:
            kept.append(place)
    return kept


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 400), st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.integers(0, 2**32 - 1))
def test_it_gives_what_the_textbook_gives(count: int, iou: float, seed: int) -> None:
    """Over several blocks, with equal scores and boxes without area. Whole numbers make every product exact."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 40, (count, 2))
    boxes = np.concatenate((corners, corners + rng.integers(0, 20, (count, 2))), axis=1).astype(np.float32)
    scores = (rng.integers(0, 50, count) / 50).astype(np.float32)
    class_ids = rng.integers(0, 3, count).astype(np.intp)
    assert suppress(boxes, scores, class_ids, iou, limit=1000).tolist() == slow(boxes, scores, class_ids, iou)


@pytest.mark.parametrize(("iou", "left"), [(0.49, 1), (0.5, 2), (0.51, 2)])
def test_a_box_at_the_limit_stays(iou: float, left: int) -> None:
    """Suppressed where the IoU is greater, not where it is equal."""
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 5]], dtype=np.float32)
    kept = suppress(boxes, np.array([0.9, 0.8], np.float32), np.zeros(2, np.intp), iou, limit=10)
    assert len(kept) == left


def test_boxes_of_different_classes_do_not_suppress_each_other() -> None:
    """A short inside a spur is two defects."""
    boxes = np.array([[0, 0, 10, 10]] * 2, dtype=np.float32)
    assert len(suppress(boxes, np.array([0.9, 0.8], np.float32), np.array([0, 1]), 0.5, limit=10)) == 2


def test_it_stops_one_beyond_the_limit() -> None:
    """Noise on a large input costs limit × rows, and the caller sees that there are too many."""
    starts = np.arange(5000, dtype=np.float32)[:, None] * 3
    boxes = np.concatenate((starts, starts, starts + 2, starts + 2), axis=1)
    kept = suppress(boxes, np.ones(5000, np.float32), np.zeros(5000, np.intp), 0.5, limit=1000)
    assert kept.tolist() == list(range(1001))
