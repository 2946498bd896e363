"""Layout `yolox`: [1, N, 5 + nc] as YOLOX exports it by default; boxes still in cells. Needs NMS.

x = (x + gx) · stride, w = e^w · stride (YOLOX, `yolox/models/yolo_head.py`, decode_outputs); objectness and class
scores are probabilities already.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inspectd.decode.answer import (
    Decoder,
    Found,
    Outputs,
    Reading,
    require_centres,
    require_finite,
    require_scores,
)
from inspectd.decode.candidates import strong
from inspectd.decode.grid import cells
from inspectd.decode.yolov5 import of_rows, rows_of
from inspectd.errors import OutputError

_EXPONENT_MAX = 20.0
"""A box of e^20 cells is none."""


def decode(outputs: Outputs, reading: Reading) -> Found:
    """Each row's best class, at or above the confidence, after class-wise NMS."""
    rows = rows_of(outputs, reading, 0)
    grid = cells(reading.input_width_px, reading.input_height_px)
    if len(rows) != len(grid):
        raise OutputError(
            f"{len(rows)} rows, expected {len(grid)} for a {reading.input_width_px}x{reading.input_height_px} input"
        )
    require_finite(rows)
    kept = strong(rows[:, 4], reading)
    return of_rows(_boxes(rows[kept], grid[kept]), reading)


def check(outputs: Outputs, reading: Reading) -> None:
    """Scores are probabilities, sizes are sizes, and what is found lies in the input."""
    rows = rows_of(outputs, reading, 0)
    require_finite(rows)
    require_scores(rows[:, 4 : 5 + reading.class_count])
    if float(np.abs(rows[:, 2:4]).max()) > _EXPONENT_MAX:
        raise OutputError(
            f"sizes up to e^{float(np.abs(rows[:, 2:4]).max()):.0f} cells: the rows are decoded already "
            "(`layout: yolox-decoded`), or the net wants its picture in another scale (`input`)"
        )
    require_centres(decode(outputs, reading), reading)


def _boxes(rows: NDArray[np.float32], grid: NDArray[np.float32]) -> NDArray[np.float32]:
    decoded = rows.copy()
    decoded[:, :2] = (rows[:, :2] + grid[:, :2]) * grid[:, 2:]
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        decoded[:, 2:4] = np.exp(rows[:, 2:4]) * grid[:, 2:]
    return decoded


DECODER = Decoder(decode, check)
