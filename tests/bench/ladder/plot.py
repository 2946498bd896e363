"""The ladder as a picture: frames/s and CPU per frame of each rung, a panel for each figure and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from tests.bench.ladder.rows import Row

WIDTH_PX, LINE_PX, MARGIN_PX = 1100, 30, 20
NAME_PX, VALUE_PX = 290, 90
INK, BAR, OURS_BAR, LOSING_BAR = (40, 40, 40), (200, 170, 120), (90, 150, 60), (120, 120, 220)
"""BGR. A rung that lost results has a bar of its own colour."""
OURS = ("our pool", "whole daemon")


def plot(ladders: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write the PNG."""
    panels = []
    for model, rows in ladders.items():
        panels.append(panel(f"{model}: frames/s (red: lost results)", rows, [row.plain.frames_per_s for row in rows]))
        panels.append(panel(f"{model}: CPU ms per frame", rows, [row.plain.cpu_ms for row in rows]))
    cv2.imwrite(str(path), np.concatenate(panels))


def panel(title: str, rows: Sequence[Row], values: Sequence[float]) -> NDArray[np.uint8]:
    """Draw one figure's bars."""
    picture = np.full((LINE_PX * (len(rows) + 1) + 2 * MARGIN_PX, WIDTH_PX, 3), 255, np.uint8)
    _write(picture, title, MARGIN_PX, MARGIN_PX + LINE_PX // 2, 0.65)
    longest_px = WIDTH_PX - NAME_PX - VALUE_PX - MARGIN_PX
    for place, (row, value) in enumerate(zip(rows, values, strict=True), 1):
        top = MARGIN_PX + place * LINE_PX
        right = NAME_PX + round(longest_px * value / max(values))
        color = OURS_BAR if row.name.startswith(OURS) else LOSING_BAR if row.lost else BAR
        cv2.rectangle(picture, (NAME_PX, top + 4), (right, top + LINE_PX - 4), color, cv2.FILLED)
        _write(picture, row.name, MARGIN_PX, top + LINE_PX // 2 + 5, 0.5)
        _write(picture, f"{value:.1f}", right + 8, top + LINE_PX // 2 + 5, 0.5)
    return picture


def _write(picture: NDArray[np.uint8], text: str, left: int, bottom: int, size: float) -> None:
    cv2.putText(picture, text, (left, bottom), cv2.FONT_HERSHEY_SIMPLEX, size, INK, 1, cv2.LINE_AA)
