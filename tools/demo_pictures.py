"""The simulator's pictures as the demo model gets them: as a line gives them, or a board crowded with defects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from inspectd.camera import Pixels
from inspectd.camera.boards.drawing import draw_scene
from inspectd.camera.boards.scene import BOARD_CLASS, DEFECT_CLASSES, Defect, Placed, Scene, TrueBox, scene
from inspectd.camera.boards.size import unit_px
from inspectd.decode.geometry import place

INPUT_PX, PAD_VALUE = 320, 114
CLASSES = (*DEFECT_CLASSES, BOARD_CLASS)
CROWD = 9
"""So many defects on a crowded board, if that many find room: it teaches as much as six boards of the line."""
_APART_UNITS = 24.0
"""As the simulator keeps them apart."""
_POOL_FRAMES = 400
"""Pictures of a line whose defects are put together for its crowded boards."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One letterboxed BGR picture, and its boxes [k, 5]: class, x0, y0, x1, y1 in px of the input."""

    pixels: Pixels
    boxes: NDArray[np.float32]


def plain(seed: int, frame_id: int, width_px: int, height_px: int) -> Sample:
    """Draw a picture as the line gives it."""
    return _sample(scene(seed, frame_id, width_px, height_px), seed, width_px, height_px)


def crowded(seed: int, frame_id: int, width_px: int, height_px: int) -> Sample:
    """Draw the picture's board with defects of many pictures of the same line; an empty place stays empty."""
    shown = scene(seed, frame_id, width_px, height_px)
    if shown.board is not None:
        pool = _pool(seed, width_px, height_px)[shown.board.look]
        chosen = _choose(Random(f"{seed}/crowd/{frame_id}"), shown.board, pool, unit_px(width_px, height_px))
        shown = replace(shown, board=replace(shown.board, defects=tuple(chosen)))
    return _sample(shown, seed, width_px, height_px)


def letterboxed(pixels: Pixels) -> Pixels:
    """Fit a picture into the input as the daemon does it."""
    boxed = np.full((INPUT_PX, INPUT_PX, 3), PAD_VALUE, np.uint8)
    place("letterbox", pixels.shape[1], pixels.shape[0], INPUT_PX, INPUT_PX).paste(pixels, boxed)
    return boxed


def _sample(shown: Scene, seed: int, width_px: int, height_px: int) -> Sample:
    pixels = draw_scene(shown, seed, width_px, height_px)
    corners = np.array([(b.x, b.y, b.x + b.w, b.y + b.h) for b in shown.truth], np.float64).reshape(-1, 4)
    boxes = place("letterbox", width_px, height_px, INPUT_PX, INPUT_PX).to_input(corners)
    classes = np.array([CLASSES.index(box.class_name) for box in shown.truth]).reshape(-1, 1)
    return Sample(letterboxed(pixels), np.hstack((classes, boxes)).astype(np.float32))


@lru_cache(maxsize=2)
def _pool(seed: int, width_px: int, height_px: int) -> Mapping[int, Sequence[tuple[Placed, Defect]]]:
    """All defects of the line's first pictures, by the board's look."""
    found: dict[int, list[tuple[Placed, Defect]]] = defaultdict(list)
    for frame_id in range(_POOL_FRAMES):
        board = scene(seed, frame_id, width_px, height_px).board
        if board is not None:
            found[board.look] += [(board, defect) for defect in board.defects]
    return found


def _choose(rng: Random, board: Placed, pool: Sequence[tuple[Placed, Defect]], unit: float) -> list[Defect]:
    chosen: list[Defect] = []
    for source, defect in rng.sample(pool, len(pool)):
        moved = _moved(defect, source, board)
        if all(_distance_px(moved.box, other.box) >= _APART_UNITS * unit for other in chosen):
            chosen.append(moved)
        if len(chosen) == CROWD:
            break
    return chosen


def _moved(defect: Defect, source: Placed, target: Placed) -> Defect:
    """Move a defect to where the same board lies in another picture, turned if one of the two is."""
    if source.turned != target.turned:
        dx, dy = target.x_px + source.x_px + target.box.w, target.y_px + source.y_px + target.box.h
        x, y = dx - defect.box.x - defect.box.w, dy - defect.box.y - defect.box.h
        polygon = tuple((dx - px, dy - py) for px, py in defect.polygon)
    else:
        dx, dy = float(target.x_px - source.x_px), float(target.y_px - source.y_px)
        x, y = defect.box.x + dx, defect.box.y + dy
        polygon = tuple((px + dx, py + dy) for px, py in defect.polygon)
    return replace(defect, polygon=polygon, box=replace(defect.box, x=x, y=y))


def _distance_px(a: TrueBox, b: TrueBox) -> float:
    return float(np.hypot(a.x + a.w / 2 - b.x - b.w / 2, a.y + a.h / 2 - b.y - b.h / 2))
