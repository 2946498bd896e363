"""Draws what was found into a copy of a picture: boxes, classes, scores. Pixels and detections in, pixels out.

Readable on any background: each coloured line lies on a black one, each text on a filled tag. All sizes follow the
picture's, a box's line lies outside of what it marks, and tags keep clear of small boxes and of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from inspectd.camera import Pixels
from inspectd.records import Box, Detection

Colour = tuple[int, int, int]
"""Blue, green, red."""

PALETTE: tuple[Colour, ...] = (
    (77, 77, 255),  # red
    (0, 200, 255),  # amber
    (255, 170, 60),  # blue
    (90, 220, 110),  # green
    (255, 110, 230),  # magenta
    (235, 235, 60),  # cyan
    (60, 140, 255),  # orange
    (240, 150, 175),  # violet
    (60, 240, 215),  # lime
    (200, 165, 255),  # pink
    (160, 200, 130),  # sea
    (150, 190, 220),  # sand
)
"""By class number, so that a class has one colour in every picture of a model."""
BLACK: Colour = (0, 0, 0)
WHITE: Colour = (255, 255, 255)

_TEXT_SHARE = 1 / 42
"""Height of text, of the side of a square as large as the picture."""
_TEXT_PX_MIN = 10
_LINE_SHARE = 1 / 400
_FONT_WEIGHT = 600
_SMALL_SHARE = 0.1
"""A box of less of the picture is one that no tag may cover; larger ones have room for tags inside."""


@dataclass(frozen=True, slots=True)
class Caption:
    """One line in the picture's corner: what it is, or its verdict."""

    text: str
    colour: Colour


@dataclass(frozen=True, slots=True)
class _Area:
    """Whole px; the far edge is not part of it."""

    left: int
    top: int
    right: int
    bottom: int

    def overlap(self, other: _Area) -> int:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0, width) * max(0, height)

    def moved_into(self, width_px: int, height_px: int) -> _Area:
        """Move it so that it lies in the picture, as far as it fits."""
        x = max(-self.left, min(0, width_px - self.right))
        y = max(-self.top, min(0, height_px - self.bottom))
        return _Area(self.left + x, self.top + y, self.right + x, self.bottom + y)


def annotated(
    pixels: Pixels, detections: Sequence[Detection], *, truth: Sequence[Box] = (), caption: Caption | None = None
) -> Pixels:
    """Give a copy of H × W × 3 `pixels` with everything drawn; `truth` as thin dashed boxes under the rest."""
    sheet = _Sheet(pixels.copy())
    for box in truth:
        sheet.dashed(box)
    for detection in reversed(detections):  # the best ones last, on top
        sheet.box(detection.box, colour_of(detection.class_id))
    if caption is not None:
        sheet.caption(caption)
    for detection in detections:
        text = f"{detection.class_name} {detection.confidence:.2f}"
        sheet.tag(text, detection.box, [other.box for other in detections], colour_of(detection.class_id))
    return sheet.pixels


def colour_of(class_id: int) -> Colour:
    """Give a class its colour."""
    return PALETTE[class_id % len(PALETTE)]


class _Sheet:
    def __init__(self, pixels: Pixels) -> None:
        self.pixels = pixels
        self._height_px, self._width_px = pixels.shape[:2]
        side_px = math.sqrt(self._width_px * self._height_px)
        self._text_px = max(_TEXT_PX_MIN, round(side_px * _TEXT_SHARE))
        self._line_px = max(1, round(side_px * _LINE_SHARE))
        self._taken: list[_Area] = []

    def box(self, box: Box, colour: Colour) -> None:
        """Line by line outwards: what is inside the box is left alone."""
        area, black = self._area(box), max(1, self._line_px // 2)
        self._frame(area, 2 * black + self._line_px, BLACK)
        inner = _Area(area.left - black, area.top - black, area.right + black, area.bottom + black)
        self._frame(inner, self._line_px, colour)

    def dashed(self, box: Box) -> None:
        area, dash_px = self._area(box), max(3, self._text_px // 3)
        thin_px = max(1, self._line_px // 2)
        mask = np.zeros((self._height_px, self._width_px), np.uint8)
        _frame(mask, area, thin_px, (255,))
        rows, columns = np.nonzero(mask)
        is_white = (rows + columns) // dash_px % 2 == 0
        self.pixels[rows, columns] = np.where(is_white[:, None], np.uint8(255), np.uint8(0))

    def caption(self, caption: Caption) -> None:
        width_px, height_px = self._tag_size(caption.text)
        self._write(_Area(0, 0, width_px, height_px), caption.text, caption.colour)

    def tag(self, text: str, box: Box, others: Sequence[Box], colour: Colour) -> None:
        """Write at the place around the box where it covers least; the first of several."""
        width_px, height_px = self._tag_size(text)
        area, gap = self._area(box), 2 * max(1, self._line_px // 2) + self._line_px
        lefts = (area.left - gap, area.right + gap - width_px)
        sides = (area.right + gap, area.left - gap - width_px)
        above, below = area.top - gap - height_px, area.bottom + gap
        corners = [
            *((left, top) for top in (above, below) for left in lefts),
            *((left, top) for top in (area.top - gap, below - height_px) for left in sides),
            *((left, top) for top in (above, below) for left in sides),
            *((left, top) for top in (above - height_px, below + height_px) for left in lefts),
        ]
        places = [
            _Area(left, top, left + width_px, top + height_px).moved_into(self._width_px, self._height_px)
            for left, top in corners
        ]
        small = [other for other in map(self._area, others) if self._is_small(other)]
        costs = [
            sum(4 * place.overlap(taken) for taken in self._taken) + sum(map(place.overlap, small)) for place in places
        ]
        self._write(places[costs.index(min(costs))], text, colour)

    def _write(self, area: _Area, text: str, colour: Colour) -> None:
        self._taken.append(area)
        cv2.rectangle(self.pixels, (area.left, area.top), (area.right - 1, area.bottom - 1), colour, cv2.FILLED)
        self._frame(area, 1, BLACK)
        baseline = (area.left + self._text_px // 3, area.bottom - 1 - self._text_px // 3)
        cv2.putText(self.pixels, text, baseline, _ink_on(colour), _font(), self._text_px, _FONT_WEIGHT)

    def _tag_size(self, text: str) -> tuple[int, int]:
        size = (self._width_px, self._height_px)
        _, _, width_px, _ = cv2.getTextSize(size, text, (0, 0), _font(), self._text_px, _FONT_WEIGHT)
        return width_px + 2 * (self._text_px // 3), self._text_px + self._text_px // 3 + 2

    def _area(self, box: Box) -> _Area:
        """Px that the box touches, cut to the picture."""
        left, right = (int(min(max(x, 0), self._width_px)) for x in (math.floor(box.x), math.ceil(box.x + box.w)))
        top, bottom = (int(min(max(y, 0), self._height_px)) for y in (math.floor(box.y), math.ceil(box.y + box.h)))
        return _Area(left, top, right, bottom)

    def _is_small(self, area: _Area) -> bool:
        size_px = (area.right - area.left) * (area.bottom - area.top)
        return size_px < int(_SMALL_SHARE * self._width_px * self._height_px)

    def _frame(self, area: _Area, width_px: int, colour: Colour) -> None:
        _frame(self.pixels, area, width_px, colour)


def _frame(pixels: Pixels, area: _Area, width_px: int, colour: Sequence[int]) -> None:
    """Fill the ring of this width around an area; at the picture's edge it lies on the edge, inside."""
    height, width = pixels.shape[:2]
    left, top = max(0, area.left - width_px), max(0, area.top - width_px)
    right, bottom = min(width, area.right + width_px), min(height, area.bottom + width_px)
    pixels[top : top + width_px, left:right] = colour
    pixels[max(top, bottom - width_px) : bottom, left:right] = colour
    pixels[top:bottom, left : left + width_px] = colour
    pixels[top:bottom, max(left, right - width_px) : right] = colour


def _ink_on(colour: Colour) -> Colour:
    blue, green, red = colour
    return BLACK if 0.114 * blue + 0.587 * green + 0.299 * red > 110 else WHITE


@lru_cache(maxsize=1)
def _font() -> cv2.FontFace:
    """OpenCV's own, with Chinese, Japanese and Korean in it: class names are the customer's."""
    return cv2.FontFace("sans")
