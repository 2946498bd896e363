"""What every decoder is given and gives back, and the checks that they share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

Outputs = Sequence[NDArray[np.float32]]
"""One array per model output, in the model's order, batch dimension included."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a decoder has to know of the model and of the configuration."""

    confidence: float
    """Lowest score that is kept, 0..1."""
    iou: float
    """Of two boxes of one class that overlap by more than this the weaker goes."""
    class_count: int
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
    """[k] 0..class_count - 1"""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One output layout."""

    decode: Callable[[Outputs, Reading], Found]
    """Raises OutputError on a wrong shape, a value that is not finite, a score outside 0..1, or noise."""
    check: Callable[[Outputs, Reading], None]
    """Looks at *all* rows of a warm-up answer; raises OutputError where the layout cannot be this one."""


def require_finite(values: NDArray[np.float32]) -> None:
    """Refuse NaN and infinity anywhere: NaN compares false with a threshold and would read as "nothing found"."""
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
