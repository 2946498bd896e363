"""What every decoder is given and gives back, and the checks that they share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspectd.errors import OutputError

KEPT_MAX = 1000
"""More boxes than this on one picture are noise. A list cut short could lose the one defect that matters, so the
frame is given up instead."""
_SCORE_SLACK = 1e-3
"""Rounding of half-precision outputs around 0 and 1."""
_SMALLEST_INPUT_PX = 2.0
"""Boxes that all lie below this are fractions of the input, not px."""
_ENOUGH = 8
"""Fewer boxes than this prove nothing about the layout: one wild row at warm-up must not refuse a good model."""

_FRACTION_MAX = 2.0
"""Boxes in fractions of the input may reach over its edge, but not by more than its size."""
CLASSES_MAX = 2048
"""Whole numbers up to here are exact in half precision; the largest public label sets have 1203 names."""
_CLASS_SLACK = 0.01

Outputs = Sequence[NDArray[Any]]
"""The outputs that the layout reads, in the order that its module names, batch dimension included; real ones are
float32."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a decoder has to know of the model and of the configuration."""

    confidence: float
    """Lowest score that is kept, 0..1."""
    iou: float
    """Of two boxes of one class that overlap by more than this the weaker goes."""
    class_count: int
    """How many scores a row has; without meaning in layouts that answer a class index."""
    input_width_px: int
    input_height_px: int


@dataclass(frozen=True, slots=True)
class Found:
    """Boxes at or above the confidence, best first."""

    boxes: NDArray[np.float32]
    """[k, 4] x1 y1 x2 y2 in px of the model's input; x1 ≤ x2, y1 ≤ y2; not clipped."""
    scores: NDArray[np.float32]
    """[k] 0..1"""
    class_ids: NDArray[np.intp]
    """[k] from 0; in layouts that answer a class index it may be one that nobody named"""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One output layout."""

    decode: Callable[[Outputs, Reading], Found]
    """Raises OutputError on a wrong shape, a value that is not finite, a score outside 0..1, or noise."""
    check: Callable[[Outputs, Reading], None]
    """Looks at *all* rows of a warm-up answer; raises OutputError where the layout cannot be this one."""


def require_finite(values: NDArray[np.float32]) -> None:
    """Refuse NaN and infinity anywhere: NaN compares false with a threshold and would read as "nothing found"."""
    with np.errstate(all="ignore"):
        if np.isfinite(values.sum()):  # a sum with one of them in it is not finite; three times faster than to look
            return
    if not np.isfinite(values).all():
        bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        raise OutputError(f"{bad} of {values.size} output values are not finite")


def require_scores(scores: NDArray[np.float32]) -> None:
    """Refuse scores that are not probabilities."""
    if scores.size == 0:
        return
    least, most = float(scores.min()), float(scores.max())
    if least < -_SCORE_SLACK or most > 1 + _SCORE_SLACK:
        raise OutputError(f"scores from {least:.4g} to {most:.4g}, expected 0..1")


def require_count(count: int) -> None:
    """Refuse more boxes than a picture can hold."""
    if count > KEPT_MAX:
        raise OutputError(f"more than {KEPT_MAX} boxes in one picture: noise, or the confidence is too low")


def require_px(boxes: NDArray[np.float32], reading: Reading) -> None:
    """Refuse boxes (any [k, 4] form) that are all so small that they must be fractions of the input."""
    if len(boxes) >= _ENOUGH and float(np.abs(boxes).max()) <= _SMALLEST_INPUT_PX:
        raise OutputError(
            f"all {len(boxes)} boxes lie in 0..{_SMALLEST_INPUT_PX:g}, expected px of the "
            f"{reading.input_width_px}x{reading.input_height_px} input"
        )


def require_fractions(boxes: NDArray[np.float32]) -> None:
    """Refuse boxes (any [k, 4] form) that cannot be fractions of the input."""
    if boxes.size and float(np.abs(boxes).max()) > _FRACTION_MAX:
        raise OutputError(f"box values up to {float(np.abs(boxes).max()):.4g}, expected fractions of the input, 0..1")


def require_centres(found: Found, reading: Reading) -> None:
    """Refuse when most of what was found has its centre outside the input.

    Only rows above the confidence are asked: healthy heads have 40 % of their raw rows outside.
    """
    if len(found.boxes) < _ENOUGH:
        return
    centres = (found.boxes[:, :2] + found.boxes[:, 2:]) / 2
    size = (reading.input_width_px, reading.input_height_px)
    outside = int(((centres < 0) | (centres > size)).any(axis=1).sum())
    if 2 * outside > len(centres):
        raise OutputError(
            f"{outside} of {len(centres)} boxes have their centre outside the "
            f"{reading.input_width_px}x{reading.input_height_px} input"
        )


def require_shape(values: NDArray[Any], expected: Sequence[int | None], meaning: str) -> None:
    """Refuse another shape; None fits any size."""
    fits = len(values.shape) == len(expected) and all(
        want in (None, got) for want, got in zip(expected, values.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("M" if side is None else str(side) for side in expected)
        raise OutputError(f"output {list(values.shape)}, expected [{wanted}]: {meaning}")


def whole_class_ids(values: NDArray[Any]) -> NDArray[np.intp]:
    """Class indexes as whole numbers; refuse what is none."""
    ids: NDArray[np.intp] = np.rint(values).astype(np.intp)
    wrong = (np.abs(values - ids) > _CLASS_SLACK) | (ids < 0) | (ids >= CLASSES_MAX)
    if wrong.any():
        raise OutputError(f"class index {float(values[wrong][0]):g}, expected a whole number from 0")
    return ids


def corners(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """[k, 4] cx cy w h → x1 y1 x2 y2. Heads without a distribution can give a weak row a negative size."""
    centre, half = boxes[:, :2], np.abs(boxes[:, 2:4]) * np.float32(0.5)
    return np.concatenate((centre - half, centre + half), axis=1)


def ordered(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """[k, 4] two opposite corners → x1 ≤ x2, y1 ≤ y2."""
    return np.concatenate((np.minimum(boxes[:, :2], boxes[:, 2:4]), np.maximum(boxes[:, :2], boxes[:, 2:4])), axis=1)


def in_px(fractions: NDArray[np.float32], reading: Reading) -> NDArray[np.float32]:
    """[k, 4] from fractions of the input to its px."""
    return fractions * np.array((reading.input_width_px, reading.input_height_px) * 2, np.float32)


def best_first(boxes: NDArray[np.float32], scores: NDArray[np.float32], class_ids: NDArray[np.intp]) -> Found:
    """What a net without need of NMS has chosen, in order."""
    require_count(len(scores))
    order = np.argsort(-scores, kind="stable")
    return Found(boxes[order], scores[order], class_ids[order])
