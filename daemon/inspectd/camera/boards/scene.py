"""Decides what the simulated line shows in picture n: which board, where, in what light, with which defects. No pixels.

A board is good, bad or missing by seed and picture number alone, so that the truth can be asked for without drawing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from inspectd.camera.boards.artwork import Anchor, Layout, Point
from inspectd.camera.boards.defects import Fill, shape_of
from inspectd.camera.boards.layout import lay_out
from inspectd.camera.boards.size import board_size_px, margin_px, size_fault, unit_px

DEFECT_CLASSES = ("open", "short", "mousebite", "spur", "copper", "pinhole")
BOARD_CLASS = "board"
LOOKS = 6
"""Different boards on one line."""
EMPTY_SHARE = 0.05
GOOD_SHARE = 0.5
"""Of the boards, not of the pictures."""

_LEAST_BOX = 11.0
"""Units; 10 px at the model's input are promised, the rest is for rounding."""
_BOX_MARGIN = 2.0
"""Units around what was changed."""
_APART = 24.0
"""Units between two defects of a board."""
_DEFECT_COUNTS = (1, 1, 1, 2, 2, 3)


@dataclass(frozen=True, slots=True)
class TrueBox:
    """What really is in the picture: px from the top left, like records.Box."""

    class_name: str
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, slots=True)
class Defect:
    """One change of the artwork: a polygon in px of the picture and what fills it."""

    polygon: tuple[Point, ...]
    fill: Fill
    box: TrueBox


@dataclass(frozen=True, slots=True)
class Light:
    """How bright it is, and which parts of the belt's and the exposure's texture are used (0..1)."""

    gain: float
    belt: Point
    exposure: Point


@dataclass(frozen=True, slots=True)
class Placed:
    """One board on the belt."""

    look: int
    x_px: int
    y_px: int
    turned: bool
    """It lies rotated by 180°."""
    box: TrueBox
    defects: tuple[Defect, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that picture n shows; an empty place has no board."""

    light: Light
    board: Placed | None

    @property
    def truth(self) -> tuple[TrueBox, ...]:
        """The board first, then its defects."""
        return () if self.board is None else (self.board.box, *(defect.box for defect in self.board.defects))


def truth(seed: int, frame_id: int, width_px: int, height_px: int) -> tuple[TrueBox, ...]:
    """List the board (first) and its defects in this picture; empty for an empty place. Costs no drawing."""
    return scene(seed, frame_id, width_px, height_px).truth


def scene(seed: int, frame_id: int, width_px: int, height_px: int) -> Scene:
    """Decide what this picture shows. Raises ValueError for a size that has no room for a board."""
    rng = Random(f"{seed}/picture/{frame_id}")
    slow = math.sin(frame_id / 53 + seed)  # clouds over the hall, within some hundred pictures
    gain = (0.92 + 0.14 * slow) * (0.94 + 0.12 * rng.random())
    light = Light(gain, (rng.random(), rng.random()), (rng.random(), rng.random()))
    if rng.random() < EMPTY_SHARE:
        return Scene(light, None)
    return Scene(light, _place(rng, layouts(seed, width_px, height_px), width_px, height_px))


@lru_cache(maxsize=64)
def layouts(seed: int, width_px: int, height_px: int) -> tuple[Layout, ...]:
    """All boards of this line. Raises ValueError for a size that has no room for one."""
    fault = size_fault(width_px, height_px)
    if fault is not None:
        raise ValueError(fault)
    unit = unit_px(width_px, height_px)
    w_px, h_px = board_size_px(width_px, height_px)
    return tuple(lay_out(Random(f"{seed}/board/{look}"), w_px / unit, h_px / unit) for look in range(LOOKS))


def _place(rng: Random, boards: tuple[Layout, ...], width_px: int, height_px: int) -> Placed:
    look = int(rng.random() * len(boards))
    unit, belt_px = unit_px(width_px, height_px), margin_px(width_px, height_px)
    w_px, h_px = board_size_px(width_px, height_px)
    x_px, y_px = (int(belt_px * (0.3 + 1.4 * rng.random())) for _ in range(2))
    turned = rng.random() < 0.5
    good = rng.random() < GOOD_SHARE
    defects = []
    for class_name, anchor in () if good else _choose(rng, boards[look]):
        points, fill = shape_of(class_name, rng, anchor)
        on_board = [(x * unit, y * unit) for x, y in points]
        polygon = tuple((x_px + (w_px - x if turned else x), y_px + (h_px - y if turned else y)) for x, y in on_board)
        defects.append(Defect(polygon, fill, _box(class_name, polygon, unit)))
    box = TrueBox(BOARD_CLASS, float(x_px), float(y_px), float(w_px), float(h_px))
    return Placed(look, x_px, y_px, turned, box, tuple(defects))


def _choose(rng: Random, layout: Layout) -> list[tuple[str, Anchor]]:
    """Choose classes evenly, each with a place apart from the others'."""
    chosen: list[tuple[str, Anchor]] = []
    wanted = _DEFECT_COUNTS[int(rng.random() * len(_DEFECT_COUNTS))]
    possible = [class_name for class_name in DEFECT_CLASSES if layout.anchors[class_name]]
    for _ in range(8 * wanted if possible else 0):
        class_name = possible[int(rng.random() * len(possible))]
        places = layout.anchors[class_name]
        anchor = places[int(rng.random() * len(places))]
        if all(math.hypot(anchor.x - other.x, anchor.y - other.y) >= _APART for _, other in chosen):
            chosen.append((class_name, anchor))
        if len(chosen) == wanted:
            break
    return chosen


def _box(class_name: str, polygon: tuple[Point, ...], unit: float) -> TrueBox:
    xs, ys = [x for x, _ in polygon], [y for _, y in polygon]
    w = max(max(xs) - min(xs) + 2 * _BOX_MARGIN * unit, _LEAST_BOX * unit)
    h = max(max(ys) - min(ys) + 2 * _BOX_MARGIN * unit, _LEAST_BOX * unit)
    return TrueBox(class_name, (max(xs) + min(xs) - w) / 2, (max(ys) + min(ys) - h) / 2, w, h)
