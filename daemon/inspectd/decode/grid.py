"""The cells of an anchor-free head: how many rows it has, and where each row's cell lies. Pure."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

STRIDES = (8, 16, 32)
"""Px of the input per cell, finest first, as the rows are ordered."""
_ALL_STRIDES = (4, 8, 16, 32, 64)


def cell_count(width_px: int, height_px: int, strides: tuple[int, ...] = STRIDES) -> int:
    """Number of cells of all levels; 8400 at 640 × 640."""
    return sum(-(-width_px // stride) * -(-height_px // stride) for stride in strides)


@lru_cache(maxsize=16)
def known_counts(width_px: int, height_px: int) -> frozenset[int]:
    """Row counts of heads with neighbouring levels: the usual three, with P2 or P6, and tiny ones with two."""
    places = range(len(_ALL_STRIDES) + 1)
    return frozenset(
        cell_count(width_px, height_px, _ALL_STRIDES[first:end])
        for first, end in combinations(places, 2)
        if end - first >= 2
    )


@lru_cache(maxsize=16)
def cells(width_px: int, height_px: int) -> NDArray[np.float32]:
    """[N, 3] x and y of each cell, counted in cells, and its stride; row by row, level by level."""
    levels = []
    for stride in STRIDES:
        columns, rows = -(-width_px // stride), -(-height_px // stride)
        y, x = np.mgrid[:rows, :columns]
        levels.append(np.stack((x.ravel(), y.ravel(), np.full(rows * columns, stride)), axis=1))
    grid = np.concatenate(levels).astype(np.float32)
    grid.flags.writeable = False
    return grid
