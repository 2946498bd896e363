"""What a model must show at its warm-up, and how many requests it gets. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WARMUP_RUNS = 8
WARMUP_LIMIT_S = 3.0
"""A slow model is not made slower to start: no further run after this."""
_REQUESTS_MIN = 2
"""So that letterbox, inference and decoding of neighbours overlap."""
_TILE_PX = 32
_ANSWER_SLACK = 1e-3
_ANSWER_ODD_ONE_IN = 1000


def warmup_picture(width_px: int, height_px: int) -> NDArray[np.uint8]:
    """Draw flat tiles with noise, always the same: edges at every scale, so that no part of the net stays idle."""
    rng = np.random.default_rng(1)
    tiles = rng.integers(0, 256, (-(-height_px // _TILE_PX), -(-width_px // _TILE_PX), 3))
    picture = tiles.repeat(_TILE_PX, axis=0).repeat(_TILE_PX, axis=1)[:height_px, :width_px]
    return np.clip(picture + rng.normal(0, 12, picture.shape), 0, 255).astype(np.uint8)


def p95(durations_s: Sequence[float]) -> float:
    """Of few runs this is the slowest."""
    ordered = sorted(durations_s)
    return ordered[max(0, math.ceil(0.95 * len(ordered)) - 1)]


def requests_for(fps_total: float, p95_s: float, optimal: int) -> int:
    """What the load needs and one in reserve, at least 2, at most twice the device's own optimum."""
    needed = math.ceil(fps_total * p95_s) + 1
    return max(_REQUESTS_MIN, min(needed, 2 * optimal))


def is_same_answer(found: Sequence[NDArray[np.generic]], expected: Sequence[NDArray[np.generic]]) -> bool:
    """Whether two raw answers to the warm-up picture are of the same compiled model on the same device.

    The same instructions on the same numbers: what differs is the order of sums. One value in a thousand may differ
    by more, since rows of equal score can change places.
    """
    if [output.shape for output in found] != [output.shape for output in expected]:
        return False
    for got, want in zip(found, expected, strict=True):
        one, other = got.astype(np.float64), want.astype(np.float64)
        scale = float(np.abs(other).max(initial=0.0))
        off = ~(np.abs(one - other) <= _ANSWER_SLACK * (scale + np.abs(other)))
        if np.count_nonzero(off) * _ANSWER_ODD_ONE_IN > off.size:
            return False
    return True
