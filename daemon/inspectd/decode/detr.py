"""Layouts `detr` ([1, M, nc] logits, [1, M, 4]) and `detr-probs` ([1, M, 4 + nc]): cx cy w h in 0..1, no NMS.

Logits of nc columns are independent (sigmoid: Deformable DETR, RT-DETR, D-FINE); with one column more, the last is
"no object" and they share a softmax (the original DETR).
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
    corners,
    in_px,
    require_centres,
    require_finite,
    require_fractions,
    require_scores,
    require_shape,
)
from inspectd.errors import OutputError


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Each query's best class, at or above the confidence, best first; outputs are logits and boxes."""
    return _found(*_tables(outputs, reading), reading)


def check(outputs: Outputs, reading: Reading) -> None:
    """The boxes are fractions, and what is found lies in the input."""
    scores, boxes = _tables(outputs, reading)
    require_fractions(boxes)
    require_centres(_found(scores, boxes, reading), reading)


def decode_probabilities(outputs: Outputs, reading: Reading) -> Found:
    """Each row's best class, at or above the confidence, best first."""
    return _found(*_halves(outputs, reading), reading)


def check_probabilities(outputs: Outputs, reading: Reading) -> None:
    """All scores are probabilities, the boxes are fractions, and what is found lies in the input."""
    scores, boxes = _halves(outputs, reading)
    require_scores(scores)
    require_fractions(boxes)
    require_centres(_found(scores, boxes, reading), reading)


def _tables(outputs: Outputs, reading: Reading) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    logits, boxes = outputs
    require_shape(boxes, (1, None, 4), "4 box values")
    require_shape(logits, (1, boxes.shape[1], None), "a logit per class")
    require_finite(boxes)
    require_finite(logits)
    width = logits.shape[2]
    if width not in (reading.class_count, reading.class_count + 1):
        raise OutputError(
            f"{width} logits, expected {reading.class_count} classes, or one more where the last is no object"
        )
    table = logits[0]
    scores = _sigmoid(table) if width == reading.class_count else _softmax(table)[:, :-1]
    return scores, boxes[0]


def _halves(outputs: Outputs, reading: Reading) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    require_shape(outputs[0], (1, None, 4 + reading.class_count), f"4 box values, {reading.class_count} classes")
    require_finite(outputs[0])
    rows = outputs[0][0]
    return rows[:, 4:], rows[:, :4]


def _found(scores: NDArray[np.float32], boxes: NDArray[np.float32], reading: Reading) -> Found:
    best = scores.max(axis=1)
    require_scores(best)
    kept = np.flatnonzero(best >= reading.confidence)
    return best_first(in_px(corners(boxes[kept]), reading), best[kept], scores[kept].argmax(axis=1))


def _sigmoid(values: NDArray[np.float32]) -> NDArray[np.float32]:
    shares: NDArray[np.float32] = 0.5 * (1.0 + np.tanh(0.5 * values))  # 1 / (1 + e^-x), without its overflow
    return shares


def _softmax(values: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    shares: NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
    return shares


DECODER = Decoder(decode, check)
PROBABILITIES = Decoder(decode_probabilities, check_probabilities)
